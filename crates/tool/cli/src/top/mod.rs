//! `superpage top`: processes, units and cgroups by their superpages, live.

mod draw;
mod state;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use host::Root;
use monitor::{Budget, Row, Sample, Sampler, Unread};
use operations::signals::{self, Interrupting};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use report::format;
use services::{AddressSpace, Process};
use sys::input::{Waited, wait};
use units::{ByteSize, Pid};

use crate::exit::{self, Done, Failure};
use crate::exporter::{interval, percent, whole_sample};
use crate::pool::show;
use crate::targets::{self, TargetArgs};
use draw::Colours;
use state::{Effect, Key, Line, Query, RowKey, Sort, State, View};

/// Show processes, units and cgroups by their superpages, live.
///
/// Reads the page tables of one process after the other, within a budget of CPU time; AGE is the age of a figure. Prints
/// one sample with --once or --json, or without a terminal. An ordinary user can read only their own processes. The key
/// h shows the keys.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    targets: TargetArgs,

    /// Rows of the table
    #[arg(long, value_enum, default_value_t = View::Processes, help_heading = "Options")]
    view: View,

    /// Order of the rows
    #[arg(long, value_enum, default_value_t = Sort::Resident, help_heading = "Options")]
    sort: Sort,

    /// Time between samples
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval, help_heading = "Options")]
    interval: Duration,

    /// CPU time for reading page tables, in percent of one CPU
    #[arg(long, value_name = "PERCENT", default_value = "5", value_parser = percent, help_heading = "Options")]
    budget: f64,

    /// Read every process, print one sample as a table, and end
    #[arg(long, help_heading = "Options")]
    once: bool,

    /// Read every process, print one sample as JSON, and end
    #[arg(long, help_heading = "Options")]
    json: bool,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let root = Root::real();
    let targets = args.targets.targets();
    targets::check(&root, &targets)?;
    let sampler = Sampler::new(&root, targets);
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    let are_terminals = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let is_terminal = are_terminals && !is_dumb;
    match args.once || args.json || !is_terminal {
        true => once(&args, sampler),
        false => live(&args, sampler),
    }
}

/// Prints one sample, an interval after a first one: rates need two.
fn once(args: &Args, mut sampler: Sampler) -> Result<Done, Failure> {
    let asked = signals::interrupt_experiment(Arc::default())?;
    let began = Instant::now();
    let nothing = Budget::Cpu(Duration::ZERO);
    sampler.sample(nothing, &mut |_| true).map_err(Failure::cannot)?;
    asked.sleep_until(began + args.interval);
    let sample = whole_sample(&mut sampler, &asked)?;
    if args.json {
        let document = serde_json::to_value(&sample).map_err(Failure::usage)?;
        exit::print_json("superpage.top/1", document)?;
    } else {
        exit::print(&table(&sample, args.view, args.sort))?;
    }
    Ok(Done::Fine)
}

/// A sample as a plain table.
fn table(sample: &Sample, view: View, sort: Sort) -> String {
    let query = Query { view, sort, is_reversed: false, filter: String::new(), within: None };
    let name = match view {
        View::Processes => "name",
        View::Units => "unit",
        View::Cgroups => "cgroup",
    };
    let first = if view == View::Processes { "pid" } else { "read" };
    let header = [
        first,
        "user",
        "resident",
        "coverage",
        "superpages",
        "could be",
        "swap",
        "faults/s",
        "major/s",
        "age",
        name,
    ];
    let rows = query.lines(sample).iter().map(cells).collect();
    let mut text = show::table(&header, rows, &[1, 10]);
    if view != View::Processes {
        text += "\n+, and superpages: sums in which memory that processes share counts for each of them\n";
    }
    text += match sample.machine.thp_mode.as_deref() {
        Some("madvise") => {
            "could be: only if advised (THP madvise), which page tables do not tell\n"
        }
        Some("never") => "could be: only if THP are turned on (THP never)\n",
        _ => "",
    };
    let unread = draw::unread_words(sample);
    if !unread.is_empty() {
        text += &format!("\n{}\n{}", unread.trim_start_matches(", "), denied(sample));
    }
    if view == View::Units && sample.units.iter().all(|group| group.unit.is_none()) {
        text += "no process is of a systemd unit here; --view processes or --view cgroups has the rows\n";
    }
    for unknown in sample.machine.unknown.iter().chain(&sample.unknown) {
        text += &format!("unknown: {unknown}\n");
    }
    text
}

/// Names the first processes without permission, and what reading them takes; empty if there are none.
fn denied(sample: &Sample) -> String {
    let is_denied = |row: &&Row| row.memory.is_none() && row.unread == Some(Unread::Denied);
    let name = |row: &Row| format!("{} {}", row.pid, format::name(&row.name, 15));
    let all: Vec<String> = sample.processes.iter().filter(is_denied).map(name).collect();
    let more = if all.len() > MOST_DENIED { ", ..." } else { "" };
    match all.is_empty() {
        true => String::new(),
        false => format!(
            "no permission for {}{more}: it takes CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, which root may lack in a container\n",
            all[..all.len().min(MOST_DENIED)].join(", ")
        ),
    }
}

fn cells(line: &Line) -> Vec<String> {
    let known = |value: Option<ByteSize>| format::known(value, |value| value.to_string());
    let rate = |value: Option<f64>| format::known(value, |value| format!("{value:.1}"));
    let memory = line.memory.as_ref();
    let first = match (&line.key, line.processes) {
        (RowKey::Process(pid, _), _) => pid.to_string(),
        (_, processes) => format::known(processes, |(all, read)| format!("{read} of {all}")),
    };
    let coverage = match memory {
        // Nothing resident has no share.
        Some(memory) => memory.coverage().map_or("-".to_string(), format::percent),
        None => format::UNKNOWN.to_string(),
    };
    vec![
        first,
        format::escaped(line.user.as_deref().unwrap_or("-")),
        known(line.resident) + if line.is_sum { "+" } else { "" },
        coverage,
        known(memory.map(|memory| memory.superpages)),
        known(memory.and_then(|memory| memory.possible)),
        known(line.swap),
        rate(line.all_faults()),
        rate(line.faults.1),
        format::known(line.age, |age| format!("{age:.1} s")),
        format::name(line.name.as_deref().unwrap_or(state::NO_UNIT), 80),
    ]
}

/// Most processes without permission that are named.
const MOST_DENIED: usize = 3;

/// What threads send to the screen.
enum News {
    Sample(Box<Result<Sample, String>>),
    Memory((Pid, u64), Result<AddressSpace, String>),
}

/// The screen, until `q` or a signal.
fn live(args: &Args, sampler: Sampler) -> Result<Done, Failure> {
    let asked = signals::interrupt_experiment(Arc::default())?;
    let (send, news) = channel();
    let wake = sample_in_a_thread(args, sampler, send.clone())?;
    // Restores the terminal when a thread panics, too.
    let mut terminal = ratatui::try_init().map_err(|error| {
        Failure::cannot(format!("the terminal cannot be used: {error}; try --once"))
    })?;
    let result = watch(args, &mut terminal, &asked, &news, &send, &wake);
    ratatui::restore();
    result?;
    Ok(asked.received().map_or(Done::Fine, Done::Signal))
}

/// Takes samples until the receiver is gone; a message takes one at once.
fn sample_in_a_thread(
    args: &Args,
    mut sampler: Sampler,
    send: Sender<News>,
) -> Result<Sender<()>, Failure> {
    let (interval, budget) = (args.interval, args.interval.mul_f64(args.budget / 100.0));
    let (wake, woken) = channel();
    let work = move || {
        // The first sample has a budget of half an interval, so that few figures are missing on the first screen.
        let mut next = interval / 2;
        loop {
            let began = Instant::now();
            let sample = sampler.sample(Budget::Cpu(next), &mut |_| true);
            let sample = sample.map_err(|error| error.to_string());
            if send.send(News::Sample(Box::new(sample))).is_err() {
                return;
            }
            next = budget;
            let left = interval.saturating_sub(began.elapsed());
            if woken.recv_timeout(left) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    };
    std::thread::Builder::new().spawn(work).map_err(signals::no_thread)?;
    Ok(wake)
}

fn watch(
    args: &Args,
    terminal: &mut ratatui::DefaultTerminal,
    asked: &Interrupting,
    news: &Receiver<News>,
    send: &Sender<News>,
    wake: &Sender<()>,
) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::cannot(format!("terminal: {error}"));
    let colours = match std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        true => Colours::No,
        false => Colours::Yes,
    };
    let mut state = State::new(args.view, args.sort);
    let mut is_changed = true;
    let mut size = terminal.size().map_err(failed)?;
    while asked.received().is_none() {
        if is_changed {
            terminal.draw(|frame| draw::draw(frame, &state, colours)).map_err(failed)?;
        }
        // crossterm 0.29 reads a closed terminal for ever, so it is asked only when there is something to read.
        let waited = wait(std::io::stdin(), Duration::from_millis(100));
        if waited == Waited::Ended {
            return Ok(());
        }
        let now = terminal.size().map_err(failed)?;
        is_changed = now != size;
        size = now;
        while waited == Waited::Data && event::poll(Duration::ZERO).map_err(failed)? {
            is_changed = true;
            let key = match event::read().map_err(failed)? {
                Event::Key(event) => key(event),
                _ => None,
            };
            match key.map(|key| state.key(key, draw::page(size.height))) {
                Some(Effect::Quit) => return Ok(()),
                Some(Effect::Read(pid, ticks)) => read_in_a_thread(pid, ticks, send.clone())?,
                Some(Effect::Sample) => drop(wake.send(())),
                Some(Effect::Draw) | None => {}
            }
        }
        while let Ok(one) = news.try_recv() {
            is_changed = true;
            match one {
                News::Sample(sample) => state.sample = Some(sample.map_err(Failure::cannot)?),
                News::Memory(process, space) => state.show(process, space),
            }
        }
    }
    Ok(())
}

/// Reads the memory of one process, which the user asked for: outside the budget.
fn read_in_a_thread(pid: Pid, ticks: u64, send: Sender<News>) -> Result<(), Failure> {
    let work = move || {
        let root = Root::real();
        let space = match Process::read(&root, pid) {
            Ok(Some(process)) if process.start_ticks == ticks => {
                AddressSpace::read(&root, &process).map_err(|error| error.to_string())
            }
            Ok(_) => Err("the process has ended".to_string()),
            Err(error) if error.is_gone() => Err("the process has ended".to_string()),
            Err(error) => Err(error.to_string()),
        };
        let _ = send.send(News::Memory((pid, ticks), space));
    };
    std::thread::Builder::new().spawn(work).map(drop).map_err(signals::no_thread)
}

/// The key of an event of the terminal.
fn key(event: KeyEvent) -> Option<Key> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    let is_control = event.modifiers.contains(KeyModifiers::CONTROL);
    Some(match event.code {
        KeyCode::Char('c') if is_control => Key::Interrupt,
        KeyCode::Char(_) if is_control => return None,
        KeyCode::Char(char) => Key::Char(char),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Tab => Key::Tab,
        KeyCode::BackTab => Key::BackTab,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_table_says_unknown_and_obeys_no_name() {
        let sample = state::tests::sample(3);
        let text = table(&sample, View::Processes, Sort::Resident);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].ends_with(r"e\u{1b}[31mvil"), "{text}");
        assert!(lines[1].contains("75 %") && lines[1].contains("30 MiB"), "{text}");
        assert!(lines[2].contains("unknown") && lines[2].ends_with("prog2"), "{text}");
        let said = "\n1 no permission\nno permission for 2 prog2: it takes CAP_SYS_PTRACE";
        assert!(text.contains(said), "{text}");
        let text = table(&sample, View::Units, Sort::Name);
        assert!(!text.contains("--view cgroups"), "{text}");
        assert!(text.lines().nth(1).unwrap().ends_with(" db.service"), "{text}");
        assert!(text.contains("0 of 1"), "{text}");
    }

    #[test]
    fn a_machine_without_units_is_told_so() {
        let mut sample = state::tests::sample(3);
        sample.processes.iter_mut().for_each(|row| row.unit = None);
        sample.units = monitor::groups(&sample.processes, monitor::Grouping::Unit);
        let text = table(&sample, View::Units, Sort::Possible);
        assert!(text.lines().nth(1).unwrap().ends_with(" (no unit)"), "{text}");
        assert!(text.lines().last().unwrap().contains("--view cgroups"), "{text}");
    }

    #[test]
    fn control_c_is_no_letter() {
        let press = |code, modifiers| key(KeyEvent::new(code, modifiers));
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Interrupt));
        assert_eq!(press(KeyCode::Char('q'), KeyModifiers::CONTROL), None);
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::NONE), Some(Key::Char('c')));
    }
}
