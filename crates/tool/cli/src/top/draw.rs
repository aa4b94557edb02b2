//! Draws the state of `superpage top` into a terminal of any size. No information is in colour alone.

use std::borrow::Cow;

use monitor::{Machine, Mapped, Sample, Unread};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::Paragraph;
use report::format::{clipped, escaped, known, name};
use services::AddressSpace;
use units::ByteSize;

use super::state::{Line, Memory, NO_UNIT, Query, RowKey, Screen, Sort, State, View, Within};

/// Lines above the rows: three of the machine, one of the view, one with the names of the columns.
const HEAD: u16 = 5;

/// Whether colours may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colours {
    /// Bold and reversed text alone.
    No,
    /// Colours too.
    Yes,
}

/// Number of rows of a table that fit in a terminal of this height.
pub fn page(height: u16) -> usize {
    usize::from(height.saturating_sub(HEAD + 1))
}

/// Draws everything.
pub fn draw(frame: &mut Frame, state: &State, colours: Colours) {
    let rows =
        Layout::vertical([Constraint::Length(HEAD - 1), Constraint::Min(0), Constraint::Length(1)]);
    let [head, body, keys] = rows.areas(frame.area());
    match &state.screen {
        Screen::Help => {
            let lines: Vec<Text> = HELP.lines().map(Text::raw).collect();
            frame.render_widget(Paragraph::new(lines), frame.area());
        }
        Screen::Memory(memory) => {
            let [title, below] = Layout::vertical([Constraint::Length(3), Constraint::Min(0)])
                .areas(Rect { height: head.height + body.height, ..head });
            draw_memory(frame, memory, title, below);
        }
        Screen::Table | Screen::Filter { .. } => {
            let head_lines = match &state.sample {
                Some(sample) => machine_lines(sample, usize::from(head.width)),
                None => vec!["superpage top: taking the first sample".to_string()],
            };
            let mut head_lines: Vec<Text> = head_lines.into_iter().map(Text::raw).collect();
            if let Some(first) = head_lines.first_mut() {
                *first = std::mem::take(first).style(Modifier::BOLD);
            }
            head_lines.resize(usize::from(HEAD) - 2, Text::default());
            let lines = state.lines();
            head_lines.push(Text::raw(view_line(state, lines.len())));
            frame.render_widget(Paragraph::new(head_lines), head);
            draw_rows(frame, state, &lines, body, colours);
        }
    }
    let text = match &state.screen {
        Screen::Filter { .. } => format!("filter: {}_   Enter keep  Esc undo", state.query.filter),
        Screen::Table => {
            "q quit  h help  Tab view  <> sort  r reverse  / filter  Enter open  Esc back".into()
        }
        Screen::Memory(_) => "Esc back  q quit  r read again  Up Down PgUp PgDn scroll".into(),
        Screen::Help => "any key: back".into(),
    };
    let text = escaped(&text);
    frame.render_widget(Paragraph::new(text).style(Modifier::REVERSED), keys);
}

/// Three lines about the machine, of which the most important words come first.
fn machine_lines(sample: &Sample, width: usize) -> Vec<String> {
    let machine = &sample.machine;
    let memory = machine.memory.as_ref();
    let size =
        machine.superpage.map_or("superpage".to_string(), |size| short(ByteSize(size.bytes())));
    let mut first = vec![
        format!("THP {}", thp(machine)),
        format!("free {size} blocks {}", known(machine.free_superpages, |count| count.to_string())),
        format!(
            "{} of {} available",
            known(memory.and_then(|memory| memory.available), short),
            known(memory.and_then(|memory| memory.total), short)
        ),
    ];
    let anonymous = memory.and_then(|memory| memory.anonymous.zip(memory.anonymous_superpages));
    first.push(format!(
        "anonymous {}",
        known(anonymous, |(all, huge)| format!("{}, {} on THP", short(all), short(huge)))
    ));
    let rates = machine.rates.as_ref();
    let rate = |value: Option<f64>| known(value, |value| format!("{}/s", per_second(value)));
    let second = vec![
        format!("khugepaged collapses {}", rate(rates.and_then(|rates| rates.collapses))),
        format!("fallbacks {}", rate(rates.and_then(|rates| rates.fallbacks))),
        format!("compaction stalls {}", rate(rates.and_then(|rates| rates.compaction_stalls))),
        format!("superpage faults {}", rate(rates.and_then(|rates| rates.superpage_faults))),
        format!("splits {}", rate(rates.and_then(|rates| rates.splits))),
    ];
    let pressure = machine.pressure.map(|pressure| {
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        format!("{}, all {}", percent(pressure.some.recent), percent(pressure.full.recent))
    });
    let third = vec![
        pools(machine),
        format!("waits for memory (10 s): some {}", pressure.unwrap_or("unknown".into())),
        format!("longest slice {}", report::format::seconds(sample.cost.longest_slice)),
    ];
    [first, second, third].map(|words| fitting(words, width)).to_vec()
}

/// The mode of THP, and on what memory that could be on superpages depends.
pub fn thp(machine: &Machine) -> String {
    match machine.thp_mode.as_deref() {
        Some("madvise") => "madvise (COULD if advised)".to_string(),
        Some("never") => "never (COULD if on)".to_string(),
        Some(mode) => mode.to_string(),
        None => "unknown".to_string(),
    }
}

fn pools(machine: &Machine) -> String {
    let used = machine.pools.iter().filter(|pool| pool.total.is_none_or(|total| total.bytes() > 0));
    let words: Vec<String> = used
        .map(|pool| {
            let page = short(ByteSize(pool.page.bytes()));
            format!("{page} pool {}, {} free", known(pool.total, short), known(pool.free, short))
        })
        .collect();
    match words.is_empty() {
        true => "hugetlb pools empty".to_string(),
        false => words.join("; "),
    }
}

/// As many words as fit into the width, separated; the first one always.
fn fitting(words: Vec<String>, width: usize) -> String {
    let mut line = String::new();
    for word in words {
        let is_first = line.is_empty();
        if !is_first && line.chars().count() + 3 + word.chars().count() > width {
            break;
        }
        line += if is_first { "" } else { " | " };
        line += &word;
    }
    line
}

fn view_line(state: &State, shown: usize) -> String {
    let query = &state.query;
    let view = |view: View, name: &str| match view == query.view {
        true => format!("[{name}]"),
        false => format!(" {name} "),
    };
    let mut text = [
        view(View::Processes, "processes"),
        view(View::Units, "units"),
        view(View::Cgroups, "cgroups"),
    ]
    .concat();
    text += &format!("  {shown}, by {}", sort_name(query.sort));
    if query.is_reversed {
        text += " reversed";
    }
    if let Some(within) = &query.within {
        let (Within::Unit(group) | Within::Cgroup(group)) = within;
        text += &format!(", of {}", name(group.as_deref().unwrap_or("no unit"), 40));
    }
    if !query.filter.is_empty() {
        text += &format!(", with \"{}\"", escaped(&query.filter));
    }
    if let Some(sample) = &state.sample {
        text += &unread_words(sample);
    }
    text
}

/// What of the sample is missing.
pub fn unread_words(sample: &Sample) -> String {
    let count = |what| {
        let is_it = |unread: &Option<Unread>| *unread == Some(what);
        sample.processes.iter().filter(|row| row.memory.is_none() && is_it(&row.unread)).count()
    };
    let mut text = String::new();
    for (what, words) in [
        (Unread::Denied, "no permission"),
        (Unread::Waiting, "not read yet"),
        (Unread::NoScan, "kernel without PAGEMAP_SCAN"),
        (Unread::Failed, "unreadable"),
    ] {
        match count(what) {
            0 => {}
            some => text += &format!(", {some} {words}"),
        }
    }
    if sample.unnamed > 0 {
        text += &format!(", {} without a name", sample.unnamed);
    }
    if sample.hides_processes {
        text += ", others hidden (hidepid)";
    }
    text
}

fn sort_name(sort: Sort) -> &'static str {
    match sort {
        Sort::Resident => "resident",
        Sort::Coverage => "coverage",
        Sort::Superpages => "superpages",
        Sort::Possible => "could be",
        Sort::Swap => "swap",
        Sort::Faults => "faults",
        Sort::Age => "age",
        Sort::Name => "name",
    }
}

/// Columns of figures, each with its width; all are aligned right.
const FIGURES: [(&str, usize, Option<Sort>); 7] = [
    ("RES", 5, Some(Sort::Resident)),
    ("COV", 4, Some(Sort::Coverage)),
    ("SUPER", 5, Some(Sort::Superpages)),
    ("COULD", 5, Some(Sort::Possible)),
    ("SWAP", 5, Some(Sort::Swap)),
    ("FLT/S", 5, Some(Sort::Faults)),
    ("AGE", 4, Some(Sort::Age)),
];

/// Width of the first column and of the user's. A narrow terminal has no column of users of groups: it has space for the name only.
const FIRST: usize = 7;
const USER: usize = 8;

/// The column of the user, or nothing.
fn user_column(user: &str, is_process: bool, is_wide: bool) -> String {
    match is_process || is_wide {
        true => format!(" {:<USER$}", clipped(&escaped(user), USER)),
        false => String::new(),
    }
}

/// The terminal width from which the table shows major faults, and the unit and cgroup of a process.
const WIDE: usize = 120;

fn draw_rows(frame: &mut Frame, state: &State, lines: &[Line], area: Rect, colours: Colours) {
    let width = usize::from(area.width);
    let selected = state.place(lines);
    let mut rows = vec![Text::styled(heading(&state.query, width), Modifier::UNDERLINED)];
    let visible_rows = usize::from(area.height).saturating_sub(1);
    let most = lines.len().saturating_sub(visible_rows);
    // The terminal may have become smaller than it was when the row was selected.
    let lowest = (selected + 1).saturating_sub(visible_rows.max(1));
    let top = state.top.min(most).max(lowest);
    for (index, line) in lines.iter().enumerate().skip(top).take(visible_rows) {
        let mark = if index == selected { ">" } else { " " };
        let text = format!("{mark}{}", row(line, width.saturating_sub(1)));
        let style = match (index == selected, colours) {
            (true, _) => Style::from(Modifier::REVERSED),
            (false, Colours::Yes) => Style::default().fg(colour(line)),
            (false, Colours::No) => Style::default(),
        };
        rows.push(Text::styled(text, style));
    }
    if lines.is_empty() && state.sample.is_some() {
        rows.push(Text::raw(" nothing to show"));
    }
    frame.render_widget(Paragraph::new(rows), area);
}

/// Colour of a row: most of it on superpages, much that could be, or neither.
fn colour(line: &Line) -> Color {
    let Some(memory) = &line.memory else { return Color::DarkGray };
    let could = memory.possible.map_or(0, ByteSize::bytes);
    match memory.coverage() {
        Some(coverage) if coverage >= 0.8 => Color::Green,
        _ if could > 64 << 20 && could > memory.resident.bytes() / 2 => Color::Yellow,
        _ => Color::Reset,
    }
}

fn heading(query: &Query, width: usize) -> String {
    let first = match query.view {
        View::Processes => "PID",
        View::Units | View::Cgroups => "READ",
    };
    let user = user_column("USER", query.view == View::Processes, width >= WIDE);
    let mut text = format!(" {first:>FIRST$}{user}");
    for (name, wide, sort) in FIGURES {
        // The column that sorts is marked.
        let mark = if sort == Some(query.sort) { "*" } else { "" };
        text +=
            &format!(" {:>wide$}", format!("{mark}{name}").chars().take(wide).collect::<String>());
    }
    if width >= WIDE {
        text += &format!(" {:>5}", "MAJ/S");
    }
    let name = match query.view {
        View::Processes => "NAME",
        View::Units => "UNIT",
        View::Cgroups => "CGROUP",
    };
    let mark = if query.sort == Sort::Name { "*" } else { "" };
    text += &format!(" {mark}{name}");
    if width >= WIDE && query.view == View::Processes {
        text = format!("{text:<0$}", name_start(true) + PROCESS_NAME + 2);
        text += "UNIT, CGROUP";
    }
    padded(&text, width)
}

/// Width of a process's name in a wide terminal.
const PROCESS_NAME: usize = 16;

/// Number of characters before the name.
fn name_start(is_wide: bool) -> usize {
    let figures: usize = FIGURES.iter().map(|(_, width, _)| width + 1).sum();
    1 + FIRST + 1 + USER + figures + if is_wide { 6 } else { 0 } + 1
}

fn row(line: &Line, width: usize) -> String {
    let first = match (&line.key, line.processes) {
        (RowKey::Process(pid, _), _) => pid.to_string(),
        (_, Some((all, read))) => format!("{read}/{all}"),
        (_, None) => String::new(),
    };
    let is_wide = width + 1 >= WIDE;
    let is_process = matches!(line.key, RowKey::Process(..));
    let user = user_column(line.user.as_deref().unwrap_or("-"), is_process, is_wide);
    let mut text = format!("{first:>FIRST$}{user}");
    let mut mark = " ";
    for ((name, wide, _), cell) in FIGURES.iter().zip(figures(line, is_wide)) {
        text += &format!("{mark}{cell:>wide$}");
        mark = if *name == "RES" && line.is_sum { "+" } else { " " };
    }
    if is_wide {
        text += &format!(" {:>5}", known_short(line.faults.1, per_second));
    }
    let words = line.name.as_deref().unwrap_or(NO_UNIT);
    let left = width.saturating_sub(text.chars().count() + 1);
    match &line.place {
        Some((unit, cgroup)) if is_wide => {
            let process = clipped(&escaped(words), PROCESS_NAME);
            let place = [unit, cgroup].map(|word| word.as_deref().unwrap_or("-")).join(", ");
            let place = name(&place, left.saturating_sub(PROCESS_NAME + 1));
            text += &format!(" {process:<PROCESS_NAME$} {place}");
        }
        _ => text += &format!(" {}", name(words, left)),
    }
    padded(&text, width)
}

/// The figures of a row in the order of [`FIGURES`]. Faults: of both kinds, or without I/O alone if `is_wide`.
fn figures(line: &Line, is_wide: bool) -> [String; 7] {
    let memory = line.memory.as_ref();
    // Without permission no figure will ever come; else one may.
    let missing = match line.unread {
        Some(Unread::Waiting) => "...",
        Some(Unread::Denied) => "-",
        _ => "?",
    };
    let of_memory = |words: &dyn Fn(&Mapped) -> Option<String>| match memory {
        None if line.processes.is_some() => "?".to_string(),
        None => missing.to_string(),
        Some(memory) => words(memory).unwrap_or("?".to_string()),
    };
    let faults = if is_wide { line.faults.0 } else { line.all_faults() };
    [
        known_short(line.resident, short),
        // Nothing resident has no share.
        of_memory(&|memory| Some(memory.coverage().map_or("-".to_string(), percent))),
        of_memory(&|memory| Some(short(memory.superpages))),
        of_memory(&|memory| memory.possible.map(short)),
        known_short(line.swap, short),
        known_short(faults, per_second),
        known_short(line.age, age),
    ]
}

fn draw_memory(frame: &mut Frame, memory: &Memory, title: Rect, below: Rect) {
    let pid = memory.process.0;
    let process = escaped(&memory.name);
    let head = format!("memory of {pid} {process}   (why not: superpage map --pid {pid})");
    let width = usize::from(below.width);
    let (lines, rows) = match &memory.space {
        None => (vec![format!("{head}: reading page tables")], Vec::new()),
        Some(Err(why)) => (vec![head, escaped(why)], Vec::new()),
        Some(Ok(space)) => {
            let all: Vec<Mapped> =
                space.extents.iter().map(|extent| Mapped::from_extent(space, extent)).collect();
            let zero = Mapped { possible: Some(ByteSize(0)), ..Mapped::default() };
            let sum = all.iter().copied().fold(zero, Mapped::plus);
            let about = format!(
                "{} resident, {} on superpages ({}), {} could be, {} in swap; {} mappings",
                short(sum.resident),
                short(sum.superpages),
                sum.coverage().map_or("-".to_string(), percent),
                known(sum.possible, short),
                short(sum.swapped),
                space.extents.len()
            );
            (vec![head, about], extents(space, &all, width))
        }
    };
    let mut lines: Vec<Text> =
        lines.into_iter().map(|line| Text::raw(padded(&line, width))).collect();
    lines[0] = std::mem::take(&mut lines[0]).style(Modifier::BOLD);
    frame.render_widget(Paragraph::new(lines), title);
    if rows.is_empty() {
        return;
    }
    let header = format!(
        " {:>5} {:>4} {:>5} {:>5} {:>5} {:>5} {:<9} {:>12} NAME",
        "RES", "COV", "SUPER", "COULD", "SWAP", "SIZE", "KIND", "ADDRESS"
    );
    let mut shown = vec![Text::from(Span::styled(padded(&header, width), Modifier::UNDERLINED))];
    shown.extend(rows.into_iter().skip(memory.top).map(Text::raw));
    frame.render_widget(Paragraph::new(shown), below);
}

/// The rows of mappings, most resident bytes first.
fn extents(space: &AddressSpace, all: &[Mapped], width: usize) -> Vec<String> {
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(all[*index].resident));
    let row = |index: usize| {
        let (extent, mapped) = (&space.extents[index], &all[index]);
        let kind = format!("{:?}", extent.kind).to_lowercase();
        let start = format!(
            " {:>5} {:>4} {:>5} {:>5} {:>5} {:>5} {kind:<9} {:>12x} ",
            short(mapped.resident),
            mapped.coverage().map_or("-".to_string(), percent),
            short(mapped.superpages),
            known_short(mapped.possible, short),
            short(mapped.swapped),
            short(ByteSize(extent.mapping.len())),
            extent.mapping.start,
        );
        let left = width.saturating_sub(start.chars().count());
        padded(&format!("{start}{}", name(&extent.mapping.name, left)), width)
    };
    order.into_iter().map(row).collect()
}

/// The line, cut or filled with spaces to a width, so that a style covers all of it.
fn padded(text: &str, width: usize) -> String {
    let cut: Cow<'_, str> = match text.chars().count() > width {
        true => text.chars().take(width).collect::<String>().into(),
        false => text.into(),
    };
    format!("{cut:<width$}")
}

fn known_short<T>(value: Option<T>, words: impl Fn(T) -> String) -> String {
    value.map_or("?".to_string(), words)
}

/// A number of bytes in at most five characters: `0`, `812K`, `1.2G`, rounded to the nearest.
pub fn short(bytes: ByteSize) -> String {
    let mut value = bytes.bytes() as f64;
    for unit in ["", "K", "M", "G", "T", "P"] {
        if value < 9.95 && !unit.is_empty() {
            return format!("{value:.1}{unit}").replace(".0", "");
        }
        if value < 1023.5 {
            return format!("{value:.0}{unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.0}E")
}

/// A share in at most four characters. Only all is 100 %, only nothing 0 %.
fn percent(share: f64) -> String {
    match share * 100.0 {
        all if all >= 100.0 => "100%".to_string(),
        most if most > 99.0 => "99%".to_string(),
        0.0 => "0%".to_string(),
        few if few < 1.0 => "<1%".to_string(),
        some => format!("{some:.0}%"),
    }
}

/// A rate in at most five characters.
fn per_second(value: f64) -> String {
    match value {
        0.0 => "0".to_string(),
        few if few < 0.05 => "<0.1".to_string(),
        few if few < 9.95 => format!("{few:.1}"),
        some if some < 99_999.5 => format!("{some:.0}"),
        many if many < 9_999_500.0 => format!("{:.0}k", many / 1e3),
        most => format!("{:.0}M", most / 1e6),
    }
}

/// An age in at most four characters.
fn age(seconds: f64) -> String {
    match seconds {
        young if young < 99.5 => format!("{young:.0}s"),
        older if older < 99.5 * 60.0 => format!("{:.0}m", older / 60.0),
        oldest => format!("{:.0}h", oldest / 3600.0),
    }
}

/// The text of the help screen; fits in 80 columns and 23 lines.
const HELP: &str = "\
superpage top: where memory is on superpages

RES    resident memory; + where memory that processes share counts for each of
       them, as it does in SUPER (no cgroup has these processes alone)
COV    share of the resident memory on superpages, by page tables
SUPER  memory on superpages: THP mapped as a whole, and hugetlb pages (not mTHP)
COULD  base pages in aligned private anonymous blocks at least half resident;
       under THP madvise only if advised, which page tables do not tell
SWAP   memory in swap
FLT/S  page faults per second (MAJ/S in a wide terminal: those that needed I/O)
AGE    since the page tables were read; they are read in turn, within --budget
READ   processes whose page tables were read, of all; COV, SUPER, COULD of those
?      unknown     ...  not read yet     -  no permission, or nothing resident

p u c, Tab    processes, units, cgroups
< >           sort by the column to the left or right (marked *)
r             reverse the order
/             filter by name, user, pid, unit or cgroup
Up Down k j   select; PgUp, PgDn, Home, End
Enter         open a unit or cgroup, or the memory of a process
Esc           back
Space         sample now
q, ^C         quit";

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::state::Key;
    use super::super::state::tests::state;
    use super::*;

    /// The text of the screen at a size.
    fn screen(state: &State, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state, Colours::No)).unwrap();
        let buffer = terminal.backend().buffer();
        // No colour is used.
        for cell in buffer.content() {
            assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset));
        }
        let rows = buffer.content().chunks(usize::from(width));
        let text = rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>());
        text.map(|line| line.trim_end().to_string() + "\n").collect()
    }

    #[test]
    fn the_table_at_80_by_24() {
        let expected = "\
THP madvise (COULD if advised) | free 2M blocks 3456 | 12G of 24G available
khugepaged collapses 1.5/s | fallbacks 0/s | compaction stalls unknown
2M pool 1G, 512M free | waits for memory (10 s): some unknown
[processes] units  cgroups   4, by resident, 1 no permission
     PID USER      *RES  COV SUPER COULD  SWAP FLT/S  AGE NAME
>      4 root       40M 100%   40M   20M     0    40   4s prog4
       3 1          30M  75%   22M   15M     0    30   3s e\\u{1b}[31mvil
       2 root       20M    -     -     -     0    20    ? prog2
       1 1          10M  25%  2.5M    5M     0     ?   1s prog1
";
        let text = screen(&state(4), 80, 24);
        let shown: String = text.lines().take(9).map(|line| format!("{line}\n")).collect();
        assert_eq!(shown, expected, "{text}");
        let keys = "q quit  h help  Tab view  <> sort  r reverse  / filter  Enter open  Esc back";
        assert_eq!(text.lines().last(), Some(keys));
        assert_eq!(text.lines().count(), 24);
    }

    #[test]
    fn units_at_200_by_60_and_their_processes() {
        let mut state = state(9);
        state.key(Key::Tab, 50);
        let text = screen(&state, 200, 60);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[4..8],
            [
                "    READ USER      *RES  COV SUPER COULD  SWAP FLT/S  AGE MAJ/S UNIT",
                ">    3/3 -         180M+ 71%  128M   90M     0   180   9s   1.5 db.service",
                "     2/3 -         150M+ 46%   60M   65M     0   150   8s   1.5 (no unit)",
                "     3/3 -         120M+ 65%   78M   60M     0   110   7s   1.0 web.service",
            ]
        );
    }

    #[test]
    fn memory_is_drawn_when_it_is_read_and_says_why_it_is_not() {
        let mut state = state(9);
        state.key(Key::Enter, 18);
        let head = "memory of 9 prog9   (why not: superpage map --pid 9)";
        let text = screen(&state, 80, 24);
        assert!(text.starts_with(&format!("{head}: reading page tables\n")), "{text}");
        let process = (units::Pid(9), 9);
        state.show(process, Err("the process has ended".into()));
        let text = screen(&state, 80, 24);
        assert!(text.starts_with(&format!("{head}\nthe process has ended\n")), "{text}");
        // This process's own memory: the largest mapping first, as many as fit.
        let root = host::Root::real();
        let own = services::Process::read(&root, sys::param::own_pid()).unwrap().unwrap();
        let space = match AddressSpace::read(&root, &own) {
            Ok(space) => space,
            Err(error) => {
                testkit::skipped!("own memory cannot be read: {error}");
                return;
            }
        };
        let count = space.extents.len();
        state.show(process, Ok(space));
        let text = screen(&state, 100, 24);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[1].contains(" resident, ") && lines[1].ends_with(&format!("{count} mappings"))
        );
        assert!(lines[3].trim_start().starts_with("RES  COV SUPER COULD"), "{text}");
        state.key(Key::End, page(24));
        let end = screen(&state, 100, 24);
        assert_ne!(end.lines().nth(4), Some(lines[4]));
    }

    #[test]
    fn every_size_and_screen_is_drawn() {
        let mut state = state(40);
        state.key(Key::End, 18);
        for keys in ["", "/evil", "\n", "h", "x\r"] {
            for key in keys.chars() {
                state.key(if key.is_control() { Key::Enter } else { Key::Char(key) }, 18);
            }
            let sizes = [(1, 1), (10, 3), (40, 6), (80, 24), (119, 30), (120, 30), (200, 60)];
            // A narrow terminal has no space for names, or not for all figures.
            let narrow = (1..80).map(|width| (width, 24));
            for (width, height) in sizes.into_iter().chain(narrow) {
                let text = screen(&state, width, height);
                assert!(!text.contains('\u{1b}'), "{text}");
            }
        }
        let mut fresh = State::new(View::Processes, Sort::Age);
        assert!(screen(&fresh, 80, 24).starts_with("superpage top: taking the first sample\n"));
        fresh.key(Key::Char('h'), 5);
        let help = screen(&fresh, 80, 24);
        assert!(help.contains("q, ^C         quit\n"), "{help}");
        assert!(HELP.lines().all(|line| line.chars().count() <= 80) && HELP.lines().count() <= 23);
    }

    #[test]
    fn figures_are_short_and_rounded_but_never_to_all_or_nothing() {
        let bytes = [0, 1, 1023, 1024, 1536, 10 << 20, (1 << 30) - 1, 24 << 30, 5 << 40, u64::MAX];
        let expected = ["0", "1", "1023", "1K", "1.5K", "10M", "1G", "24G", "5T", "16E"];
        assert_eq!(bytes.map(|bytes| short(ByteSize(bytes))), expected);
        let shares = [0.0, 0.001, 0.25, 0.994, 0.9999, 1.0].map(percent);
        assert_eq!(shares, ["0%", "<1%", "25%", "99%", "99%", "100%"]);
        let rates = [0.0, 0.01, 1.5, 12.3, 99_999.0, 123_456.0, 2e7].map(per_second);
        assert_eq!(rates, ["0", "<0.1", "1.5", "12", "99999", "123k", "20M"]);
        assert_eq!([0.2, 99.0, 120.0, 7200.0].map(age), ["0s", "99s", "2m", "2h"]);
        for exponent in 0..64 {
            assert!(short(ByteSize(u64::MAX >> exponent)).len() <= 5);
        }
    }
}
