//! What `superpage top` shows, and what keys change in it. Pure: no terminal, no clock, no `/proc`.

use monitor::{Group, Mapped, Row, Sample, Unread};
use services::AddressSpace;
use units::{ByteSize, Pid};

/// What the rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum View {
    /// Processes
    Processes,
    /// systemd units
    Units,
    /// Cgroups
    Cgroups,
}

/// The views, as Tab goes through them.
const VIEWS: [View; 3] = [View::Processes, View::Units, View::Cgroups];

/// By what the rows are sorted: names upwards, figures downwards, unknown last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// Resident memory
    Resident,
    /// Share of the resident memory on superpages
    Coverage,
    /// Memory on superpages
    Superpages,
    /// Memory that could be on superpages
    Possible,
    /// Memory in swap
    Swap,
    /// Page faults per second
    Faults,
    /// Age of the figures
    Age,
    /// Name of the process, unit or cgroup
    Name,
}

/// The orders, as `<` and `>` go through them: that of the columns.
const SORTS: [Sort; 8] = [
    Sort::Resident,
    Sort::Coverage,
    Sort::Superpages,
    Sort::Possible,
    Sort::Swap,
    Sort::Faults,
    Sort::Age,
    Sort::Name,
];

/// Identity of a row, which stays the same from sample to sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowKey {
    /// A process, with its start time.
    Process(Pid, u64),
    /// A group, by its name.
    Group(Option<String>),
}

/// The name of the row of processes outside every unit.
pub const NO_UNIT: &str = "(no unit)";

/// A row of any view.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Its identity.
    pub key: RowKey,
    /// Name of the process, unit or cgroup; `None`: outside every unit.
    pub name: Option<String>,
    /// Name of the user, or its id.
    pub user: Option<String>,
    /// Unit and cgroup of a process.
    pub place: Option<(Option<String>, Option<String>)>,
    /// Resident bytes.
    pub resident: Option<ByteSize>,
    /// Whether memory that processes share counts in `resident` for each of them.
    pub is_sum: bool,
    /// Memory by page tables.
    pub memory: Option<Mapped>,
    /// Bytes in swap.
    pub swap: Option<ByteSize>,
    /// Minor and major faults per second.
    pub faults: (Option<f64>, Option<f64>),
    /// Age of `memory` in seconds.
    pub age: Option<f64>,
    /// Number of processes, and how many of them were read; of a group.
    pub processes: Option<(u64, u64)>,
    /// Why a process was not read.
    pub unread: Option<Unread>,
}

impl Line {
    fn from_process(row: &Row) -> Self {
        let id = row.user_id.map(|id| id.to_string());
        Self {
            key: RowKey::Process(row.pid, row.start_ticks),
            name: Some(row.name.clone()),
            user: row.user.clone().or(id),
            place: Some((row.unit.clone(), row.cgroup.clone())),
            resident: row.resident,
            is_sum: false,
            memory: row.memory,
            swap: row.swap,
            faults: (row.minor_faults, row.major_faults),
            age: row.age,
            processes: None,
            unread: row.unread,
        }
    }

    fn from_group(group: &Group) -> Self {
        let name = group.unit.clone().or(group.cgroup.clone());
        Self {
            key: RowKey::Group(name.clone()),
            name,
            user: group.user.clone(),
            place: None,
            resident: group.resident_once.or(group.resident),
            is_sum: group.resident_once.is_none()
                && group.resident.is_some()
                && group.processes > 1,
            memory: group.memory,
            swap: group.swap,
            faults: (group.minor_faults, group.major_faults),
            age: group.age,
            processes: Some((group.processes, group.read)),
            unread: None,
        }
    }

    /// Faults per second of both kinds, if one is known.
    pub fn all_faults(&self) -> Option<f64> {
        match self.faults {
            (None, None) => None,
            (minor, major) => Some(minor.unwrap_or(0.0) + major.unwrap_or(0.0)),
        }
    }

    fn figure(&self, sort: Sort) -> Option<f64> {
        let bytes = |bytes: ByteSize| bytes.bytes() as f64;
        match sort {
            Sort::Resident => self.resident.map(bytes),
            Sort::Coverage => self.memory?.coverage(),
            Sort::Superpages => self.memory.map(|memory| bytes(memory.superpages)),
            Sort::Possible => self.memory?.possible.map(bytes),
            Sort::Swap => self.swap.map(bytes),
            Sort::Faults => self.all_faults(),
            Sort::Age => self.age,
            Sort::Name => None,
        }
    }

    /// Whether a word of the row contains `filter`, which is in lower case.
    fn has(&self, filter: &str) -> bool {
        let pid = match &self.key {
            RowKey::Process(pid, _) => Some(pid.to_string()),
            RowKey::Group(_) => None,
        };
        let place = self.place.iter().flat_map(|(unit, cgroup)| [unit, cgroup]);
        let words = [&self.name, &self.user, &pid].into_iter().chain(place).flatten();
        filter.is_empty() || words.into_iter().any(|word| word.to_lowercase().contains(filter))
    }

    fn is_in(&self, within: &Within) -> bool {
        self.place.as_ref().is_none_or(|(unit, cgroup)| match within {
            Within::Unit(name) => unit == name,
            Within::Cgroup(name) => cgroup == name,
        })
    }
}

/// The group whose processes are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Within {
    /// A unit; `None`: processes outside every unit.
    Unit(Option<String>),
    /// A cgroup.
    Cgroup(Option<String>),
}

/// Which rows are shown, in which order.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// What the rows are.
    pub view: View,
    /// Their order.
    pub sort: Sort,
    /// Whether the order is turned round.
    pub is_reversed: bool,
    /// What a row contains.
    pub filter: String,
    /// The group that was opened.
    pub within: Option<Within>,
}

impl Query {
    /// The rows of a sample.
    pub fn lines(&self, sample: &Sample) -> Vec<Line> {
        let lines: Vec<Line> = match self.view {
            View::Processes => sample.processes.iter().map(Line::from_process).collect(),
            View::Units => sample.units.iter().map(Line::from_group).collect(),
            View::Cgroups => sample.cgroups.iter().map(Line::from_group).collect(),
        };
        let filter = self.filter.to_lowercase();
        let is_shown = |line: &Line| {
            line.has(&filter) && self.within.as_ref().is_none_or(|within| line.is_in(within))
        };
        let mut lines: Vec<Line> = lines.into_iter().filter(is_shown).collect();
        // The sort is stable: equal rows stay in the order of pids or names.
        match self.sort {
            Sort::Name => lines.sort_by(|a, b| {
                let known = a.name.is_none().cmp(&b.name.is_none());
                known.then(self.turned(a.name.cmp(&b.name)))
            }),
            sort => lines.sort_by(|a, b| match (a.figure(sort), b.figure(sort)) {
                (Some(a), Some(b)) => self.turned(b.total_cmp(&a)),
                (a, b) => a.is_none().cmp(&b.is_none()),
            }),
        }
        lines
    }

    fn turned(&self, order: std::cmp::Ordering) -> std::cmp::Ordering {
        if self.is_reversed { order.reverse() } else { order }
    }
}

/// What is on the screen.
#[derive(Debug, Clone, PartialEq)]
pub enum Screen {
    /// The table.
    Table,
    /// The table, while the filter is typed.
    Filter {
        /// The filter before.
        before: String,
    },
    /// The keys, explained.
    Help,
    /// The memory of one process.
    Memory(Memory),
}

/// The memory of one process.
#[derive(Debug, Clone, PartialEq)]
pub struct Memory {
    /// The process, with its start time.
    pub process: (Pid, u64),
    /// Its name.
    pub name: String,
    /// What was read; `None`: not yet.
    pub space: Option<Result<AddressSpace, String>>,
    /// Number of rows above the first one shown.
    pub top: usize,
}

impl Memory {
    fn scroll(&mut self, key: Key, page: usize) {
        let rows = match &self.space {
            Some(Ok(space)) => space.extents.len(),
            _ => 0,
        };
        let last = rows.saturating_sub(page.max(1));
        let key = if key == Key::Char(' ') { Key::PageDown } else { key };
        self.top = moved(key, self.top, last, page).unwrap_or(self.top.min(last));
    }
}

/// The row that a key moves to, at most `last`; `None`: the key does not move.
fn moved(key: Key, row: usize, last: usize, page: usize) -> Option<usize> {
    let row = match key {
        Key::Up | Key::Char('k') => row.saturating_sub(1),
        Key::Down | Key::Char('j') => row + 1,
        Key::PageUp => row.saturating_sub(page),
        Key::PageDown => row + page,
        Key::Home => 0,
        Key::End => last,
        _ => return None,
    };
    Some(row.min(last))
}

/// The value `by` places after `value`; the first follows the last.
fn after<T: Copy + PartialEq>(all: &[T], value: T, by: usize) -> T {
    let at = all.iter().position(|one| *one == value).unwrap_or(0);
    all[(at + by) % all.len()]
}

/// A key that means something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Key {
    Char(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    Tab,
    BackTab,
    Interrupt,
}

/// What the caller does after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing but drawing.
    Draw,
    /// End.
    Quit,
    /// Read the memory of this process.
    Read(Pid, u64),
    /// Take a sample now.
    Sample,
}

/// All that is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// The last sample.
    pub sample: Option<Sample>,
    /// Which rows are shown.
    pub query: Query,
    /// What is on the screen.
    pub screen: Screen,
    /// The selected row.
    pub selected: Option<RowKey>,
    /// Number of rows above the first one shown.
    pub top: usize,
}

impl State {
    /// Creates a state without a sample.
    pub fn new(view: View, sort: Sort) -> Self {
        let query = Query { view, sort, is_reversed: false, filter: String::new(), within: None };
        Self { sample: None, query, screen: Screen::Table, selected: None, top: 0 }
    }

    /// The rows now.
    pub fn lines(&self) -> Vec<Line> {
        self.sample.as_ref().map(|sample| self.query.lines(sample)).unwrap_or_default()
    }

    /// Place of the selected row among `lines`; the first one if it is gone.
    pub fn place(&self, lines: &[Line]) -> usize {
        let place = lines.iter().position(|line| Some(&line.key) == self.selected.as_ref());
        place.unwrap_or(0)
    }

    /// Takes over what was read of a process, if that is still wanted.
    pub fn show(&mut self, process: (Pid, u64), space: Result<AddressSpace, String>) {
        if let Screen::Memory(memory) = &mut self.screen
            && memory.process == process
        {
            memory.space = Some(space);
        }
    }

    /// Handles a key. `page`: number of rows that are visible.
    pub fn key(&mut self, key: Key, page: usize) -> Effect {
        if key == Key::Interrupt {
            return Effect::Quit;
        }
        match &mut self.screen {
            Screen::Table => self.table_key(key, page),
            Screen::Filter { before } => {
                match key {
                    Key::Char(typed) if !typed.is_control() => self.query.filter.push(typed),
                    Key::Backspace => {
                        self.query.filter.pop();
                    }
                    Key::Escape => {
                        self.query.filter = std::mem::take(before);
                        self.screen = Screen::Table;
                    }
                    Key::Enter => self.screen = Screen::Table,
                    _ => {}
                }
                self.top = 0;
                Effect::Draw
            }
            Screen::Help => {
                self.screen = Screen::Table;
                if key == Key::Char('q') { Effect::Quit } else { Effect::Draw }
            }
            Screen::Memory(memory) => match key {
                Key::Char('q') => Effect::Quit,
                Key::Char('r') => {
                    memory.space = None;
                    Effect::Read(memory.process.0, memory.process.1)
                }
                Key::Escape | Key::Backspace | Key::Enter => {
                    self.screen = Screen::Table;
                    Effect::Draw
                }
                key => {
                    memory.scroll(key, page);
                    Effect::Draw
                }
            },
        }
    }

    fn table_key(&mut self, key: Key, page: usize) -> Effect {
        let lines = self.lines();
        let place = self.place(&lines);
        let last = lines.len().saturating_sub(1);
        let Some(next) = moved(key, place, last, page) else {
            return self.command(key, lines.get(place));
        };
        self.selected = lines.get(next).map(|line| line.key.clone());
        self.scroll(next, page);
        Effect::Draw
    }

    /// Moves the visible rows so that row `place` is among them.
    pub fn scroll(&mut self, place: usize, page: usize) {
        let lowest = (place + 1).saturating_sub(page.max(1));
        self.top = self.top.clamp(lowest, place.max(lowest));
    }

    fn command(&mut self, key: Key, selected: Option<&Line>) -> Effect {
        match key {
            Key::Char('q') => return Effect::Quit,
            Key::Char('h' | '?') => self.screen = Screen::Help,
            Key::Char('/') => {
                self.screen = Screen::Filter { before: self.query.filter.clone() };
            }
            Key::Char(' ') => return Effect::Sample,
            Key::Tab => self.turn_to(after(&VIEWS, self.query.view, 1)),
            Key::BackTab => self.turn_to(after(&VIEWS, self.query.view, VIEWS.len() - 1)),
            Key::Char('p') => self.turn_to(View::Processes),
            Key::Char('u') => self.turn_to(View::Units),
            Key::Char('c') => self.turn_to(View::Cgroups),
            Key::Char('<') => self.sort_by(SORTS.len() - 1),
            Key::Char('>') => self.sort_by(1),
            Key::Char('r') => self.query.is_reversed = !self.query.is_reversed,
            Key::Escape if !self.query.filter.is_empty() => self.query.filter.clear(),
            Key::Escape => match self.query.within.take() {
                Some(Within::Unit(_)) => self.turn_to(View::Units),
                Some(Within::Cgroup(_)) => self.turn_to(View::Cgroups),
                None => {}
            },
            Key::Enter => {
                if let Some(line) = selected {
                    return self.open(line);
                }
            }
            _ => {}
        }
        Effect::Draw
    }

    /// Sorts by the column `by` places to the right.
    fn sort_by(&mut self, by: usize) {
        self.query.sort = after(&SORTS, self.query.sort, by);
        self.query.is_reversed = false;
    }

    fn turn_to(&mut self, view: View) {
        self.query.view = view;
        self.query.within = None;
        (self.selected, self.top) = (None, 0);
    }

    /// Opens a group's processes, or a process's memory.
    fn open(&mut self, line: &Line) -> Effect {
        match (&line.key, self.query.view) {
            (RowKey::Process(pid, ticks), _) => {
                let name = line.name.clone().unwrap_or_default();
                let process = (*pid, *ticks);
                self.screen = Screen::Memory(Memory { process, name, space: None, top: 0 });
                Effect::Read(*pid, *ticks)
            }
            (RowKey::Group(name), view) => {
                let within = match view {
                    View::Cgroups => Within::Cgroup(name.clone()),
                    _ => Within::Unit(name.clone()),
                };
                self.turn_to(View::Processes);
                self.query.filter.clear();
                self.query.within = Some(within);
                Effect::Draw
            }
        }
    }
}

#[cfg(test)]
pub mod tests {
    use monitor::{Cost, Grouping, Machine, MachineMemory, Rates, groups};
    use units::PageSize;

    use super::*;

    /// A sample with `count` processes of three units, one of which may not be read, and one with a hostile name.
    pub fn sample(count: i32) -> Sample {
        let processes: Vec<Row> = (1..=count)
            .map(|pid| {
                let mib = 10 * pid as u64;
                let memory = (pid != 2).then_some(Mapped {
                    resident: ByteSize(mib << 20),
                    superpages: ByteSize((mib << 20) / 4 * (pid as u64 % 5)),
                    possible: Some(ByteSize(mib << 19)),
                    swapped: ByteSize(0),
                });
                let unit = ["db.service", "web.service"].get(pid as usize % 3);
                Row {
                    pid: Pid(pid),
                    start_ticks: 9,
                    name: if pid == 3 { "e\u{1b}[31mvil".into() } else { format!("prog{pid}") },
                    user_id: Some(pid as u32 % 2),
                    user: (pid % 2 == 0).then(|| "root".to_string()),
                    unit: unit.map(ToString::to_string),
                    cgroup: Some(format!("/system.slice/{}", unit.unwrap_or(&"other"))),
                    resident: Some(ByteSize(mib << 20)),
                    swap: Some(ByteSize(0)),
                    memory,
                    age: memory.map(|_| f64::from(pid)),
                    unread: memory.is_none().then_some(Unread::Denied),
                    minor_faults: (pid > 1).then(|| f64::from(pid) * 10.0),
                    major_faults: (pid > 1).then_some(0.5),
                }
            })
            .collect();
        Sample {
            interval: Some(2.0),
            machine: Machine {
                base: PageSize::new(4096).unwrap(),
                superpage: PageSize::new(2 << 20).ok(),
                thp_mode: Some("madvise".into()),
                memory: Some(MachineMemory {
                    total: Some(ByteSize(24 << 30)),
                    available: Some(ByteSize(12 << 30)),
                    anonymous: Some(ByteSize(3 << 30)),
                    anonymous_superpages: Some(ByteSize(1 << 30)),
                    ..MachineMemory::default()
                }),
                free_superpages: Some(3456),
                free_blocks: None,
                pools: vec![monitor::Pool {
                    page: PageSize::new(2 << 20).unwrap(),
                    total: Some(ByteSize(1 << 30)),
                    free: Some(ByteSize(512 << 20)),
                    reserved: None,
                    surplus: None,
                }],
                pressure: None,
                rates: Some(Rates {
                    collapses: Some(1.5),
                    fallbacks: Some(0.0),
                    ..Rates::default()
                }),
                unknown: Vec::new(),
                counters: None,
                thp: None,
            },
            units: groups(&processes, Grouping::Unit),
            cgroups: groups(&processes, Grouping::Cgroup),
            processes,
            unnamed: 0,
            hides_processes: false,
            cost: Cost { cpu: 1.0, slice: 0.000_21, longest_slice: 0.000_4, ..Cost::default() },
            unknown: Vec::new(),
        }
    }

    pub fn state(count: i32) -> State {
        let state = State::new(View::Processes, Sort::Resident);
        State { sample: Some(sample(count)), ..state }
    }

    fn names(state: &State) -> Vec<String> {
        state.lines().iter().map(|line| line.name.clone().unwrap_or("-".into())).collect()
    }

    fn press(state: &mut State, keys: &str) -> Effect {
        keys.chars().map(|key| state.key(Key::Char(key), 5)).last().unwrap()
    }

    #[test]
    fn keys_sort_and_turn_the_order_and_unknown_is_last() {
        let mut state = state(4);
        assert_eq!(names(&state), ["prog4", "e\u{1b}[31mvil", "prog2", "prog1"]);
        press(&mut state, "r");
        assert_eq!(names(&state)[0], "prog1");
        press(&mut state, ">");
        assert_eq!((state.query.sort, state.query.is_reversed), (Sort::Coverage, false));
        // Process 2 could not be read.
        assert_eq!(names(&state), ["prog4", "e\u{1b}[31mvil", "prog1", "prog2"]);
        press(&mut state, "r");
        assert_eq!(names(&state), ["prog1", "e\u{1b}[31mvil", "prog4", "prog2"]);
        press(&mut state, "<<");
        assert_eq!(state.query.sort, Sort::Name);
        assert_eq!(names(&state), ["e\u{1b}[31mvil", "prog1", "prog2", "prog4"]);
        press(&mut state, ">");
        assert_eq!(state.query.sort, Sort::Resident);
        // Faults: process 1 is new, so its rate is unknown.
        press(&mut state, ">>>>>");
        assert_eq!((state.query.sort, names(&state)[3].as_str()), (Sort::Faults, "prog1"));
    }

    #[test]
    fn the_filter_is_typed_kept_and_given_up() {
        let mut state = state(12);
        press(&mut state, "/PROG1");
        assert_eq!(names(&state), ["prog12", "prog11", "prog10", "prog1"]);
        // Letters are text while the filter is typed.
        assert_eq!(press(&mut state, "q"), Effect::Draw);
        assert!(names(&state).is_empty());
        state.key(Key::Backspace, 5);
        state.key(Key::Enter, 5);
        assert_eq!((names(&state).len(), &state.screen), (4, &Screen::Table));
        press(&mut state, "/x");
        state.key(Key::Escape, 5);
        assert_eq!(state.query.filter, "PROG1");
        state.key(Key::Escape, 5);
        assert_eq!(names(&state).len(), 12);
        press(&mut state, "/web.serv");
        assert_eq!(names(&state).len(), 4);
    }

    #[test]
    fn the_selection_stays_on_its_process_and_is_visible() {
        let mut state = state(20);
        for _ in 0..7 {
            state.key(Key::Down, 5);
        }
        assert_eq!((state.selected.clone(), state.top), (Some(RowKey::Process(Pid(13), 9)), 3));
        press(&mut state, "r");
        let lines = state.lines();
        assert_eq!(lines[state.place(&lines)].key, RowKey::Process(Pid(13), 9));
        state.key(Key::End, 5);
        assert_eq!((state.selected.clone(), state.top), (Some(RowKey::Process(Pid(20), 9)), 15));
        state.key(Key::Down, 5);
        assert_eq!(state.top, 15);
        state.key(Key::PageUp, 5);
        assert_eq!(state.selected, Some(RowKey::Process(Pid(15), 9)));
        state.key(Key::Home, 5);
        assert_eq!(state.top, 0);
        // The process has ended: the first row is selected.
        state.sample = Some(sample(0));
        assert_eq!(state.place(&state.lines()), 0);
        for key in [Key::Down, Key::Up, Key::PageDown, Key::End, Key::Enter] {
            assert_eq!(state.key(key, 0), Effect::Draw);
        }
    }

    #[test]
    fn enter_goes_from_a_unit_to_its_processes_to_memory_and_escape_back() {
        let mut state = state(9);
        state.key(Key::Tab, 5);
        assert_eq!(names(&state), ["db.service", "-", "web.service"]);
        state.key(Key::End, 5);
        assert_eq!(state.key(Key::Enter, 5), Effect::Draw);
        assert_eq!(names(&state), ["prog7", "prog4", "prog1"]);
        state.key(Key::Down, 5);
        assert_eq!(state.key(Key::Enter, 5), Effect::Read(Pid(4), 9));
        // An answer about another process comes too late.
        state.show((Pid(5), 9), Err("x".into()));
        assert!(matches!(&state.screen, Screen::Memory(memory) if memory.space.is_none()));
        state.show((Pid(4), 9), Err("ended".into()));
        assert!(matches!(&state.screen, Screen::Memory(memory) if memory.space.is_some()));
        assert_eq!(press(&mut state, "r"), Effect::Read(Pid(4), 9));
        state.key(Key::Escape, 5);
        assert_eq!((&state.screen, names(&state).len()), (&Screen::Table, 3));
        state.key(Key::Escape, 5);
        assert_eq!((state.query.view, state.query.within.clone()), (View::Units, None));
        // Processes outside every unit.
        state.key(Key::Down, 5);
        state.key(Key::Enter, 5);
        assert_eq!(names(&state), ["prog8", "prog5", "prog2"]);
    }

    #[test]
    fn help_and_quitting() {
        let mut state = state(1);
        press(&mut state, "h");
        assert_eq!(state.screen, Screen::Help);
        assert_eq!(press(&mut state, "x"), Effect::Draw);
        assert_eq!(state.screen, Screen::Table);
        assert_eq!(press(&mut state, " "), Effect::Sample);
        assert_eq!(press(&mut state, "q"), Effect::Quit);
        press(&mut state, "/");
        assert_eq!(state.key(Key::Interrupt, 5), Effect::Quit);
        assert_eq!(press(&mut State::new(View::Units, Sort::Age), "hq"), Effect::Quit);
    }
}
