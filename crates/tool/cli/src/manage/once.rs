//! `superpage manage --once` and `--undo`: superpages for running processes now, and base pages again.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::manage::once::{self, Outcome, Plan, Request, Undone};
use ::manage::{Coverage, Forbidden, Memory, Skip, record};
use advise::Heat;
use experiment::execute::Interrupt;
use host::Root;
use operations::jobs::arms::{seconds, share};
use operations::signals::interrupt_experiment;
use report::format::{bytes, counted, name, percent};
use serde::Serialize;
use services::Process;
use units::ByteSize;

use super::words;
use crate::exit::{self, Done, Failure};
use crate::progress::Progress;
use crate::targets::{self, TargetArgs};

/// Modes in which the flags of `--once` mean nothing.
const NOT_ONCE: [&str; 3] = ["undo", "check_config", "status"];
/// Modes in which nothing is made or split.
pub const NOT_ACTS: [&str; 2] = ["check_config", "status"];

/// Flags of `--once` and `--undo`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Once")]
pub struct OnceArgs {
    /// Exit with 1 if less of the eligible memory is on superpages afterwards.
    #[arg(long, value_name = "SHARE", requires = "once", conflicts_with_all = NOT_ONCE, value_parser = share)]
    require_coverage: Option<f64>,

    /// Time for making or splitting superpages, of all processes together.
    #[arg(long, value_name = "TIME", default_value = "30s", requires = "act", conflicts_with_all = NOT_ACTS, value_parser = seconds)]
    within: f64,

    /// Time for sampling which memory is accessed, which is put on superpages first; `none`: no sampling.
    #[arg(long, value_name = "TIME", default_value = "3s", requires = "once", conflicts_with_all = NOT_ONCE, value_parser = sampling)]
    sample: Sampling,

    /// Zeroed memory that may be added to fill superpages, as a share of a process's resident memory.
    #[arg(long, value_name = "SHARE", default_value = "3%", requires = "once", conflicts_with_all = NOT_ONCE, value_parser = share)]
    fill: f64,

    /// Memory that stays available on the machine.
    #[arg(long, value_name = "SIZE", default_value = "256M", requires = "once", conflicts_with_all = NOT_ONCE, value_parser = size)]
    headroom: ByteSize,

    /// Largest share of the time spent in calls that hold up a process.
    #[arg(long, value_name = "SHARE", default_value = "25%", requires = "act", conflicts_with_all = NOT_ACTS, value_parser = share)]
    duty: f64,

    /// Go on although superpages are forbidden: `thp-never` (transparent_hugepage/enabled), `userfaultfd`; repeatable.
    #[arg(long = "override", value_name = "WHAT", requires = "once", conflicts_with_all = NOT_ONCE, value_parser = overridden)]
    overrides: Vec<Forbidden>,
}

/// How long accesses are sampled.
#[derive(Debug, Clone, Copy)]
enum Sampling {
    None,
    For(f64),
}

fn sampling(text: &str) -> Result<Sampling, String> {
    match text {
        "none" => Ok(Sampling::None),
        text => seconds(text)
            .ok()
            .filter(|seconds| (0.1..=60.0).contains(seconds))
            .map(Sampling::For)
            .ok_or_else(|| {
                "expected a time from 0.1 to 60 seconds, such as 3s, or none".to_string()
            }),
    }
}

fn size(text: &str) -> Result<ByteSize, String> {
    text.parse().map_err(|_| "expected a size such as 256M or 1G".to_string())
}

fn overridden(text: &str) -> Result<Forbidden, String> {
    match text {
        "thp-never" => Ok(Forbidden::OffForMachine),
        "userfaultfd" => Ok(Forbidden::Userfaultfd),
        "prctl" | "nohugepage" => {
            Err(format!("the kernel refuses a collapse then, so {text} cannot be overridden"))
        }
        _ => Err("expected thp-never or userfaultfd".to_string()),
    }
}

/// What the flags ask for.
#[derive(Debug, Clone, Copy)]
pub struct Mode {
    /// Split what was made.
    pub undo: bool,
    /// Change nothing.
    pub dry_run: bool,
    /// Print JSON.
    pub json: bool,
}

const SCHEMA: &str = "superpage.manage-once/1";
/// Most kinds of memory in a line.
const MOST_LINES: usize = 6;

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
enum Work {
    Planned { processes: Vec<Plan> },
    Collapsed { processes: Vec<Outcome> },
    UndoPlanned { processes: Vec<Undone> },
    Undone { processes: Vec<Undone> },
}

#[derive(Debug, Serialize)]
struct Document {
    #[serde(flatten)]
    work: Work,
    /// Required coverage, 0 to 1.
    required: Option<f64>,
    /// Coverage of all processes afterwards, or now if nothing is changed.
    coverage: Coverage,
    /// Processes that were not looked at or not sampled, with reasons.
    failed: Vec<Failed>,
    /// Signal that ended the work.
    interrupted: Option<i32>,
}

#[derive(Debug, Serialize)]
struct Failed {
    pid: units::Pid,
    name: String,
    why: String,
}

impl Failed {
    fn new(process: &Process, why: impl std::fmt::Display) -> Self {
        Self { pid: process.pid, name: process.name.clone(), why: why.to_string() }
    }
}

/// Runs `--once` or `--undo`.
pub fn run(targets: &TargetArgs, args: &OnceArgs, mode: Mode) -> Result<Done, Failure> {
    let root = Root::real();
    let dir = Path::new(record::DIR);
    let targets = targets.targets();
    let processes = match (targets.is_empty(), mode.undo) {
        (true, true) => record::recorded(&root, dir).map_err(Failure::cannot)?,
        (true, false) => {
            return Err(Failure::usage(
                "no process named: give --pid, --cgroup, --unit or --match",
            ));
        }
        (false, _) => targets::select(&root, &targets)?.processes,
    };
    let may = match mode.undo {
        true => live::check_machine(&root).map_err(Failure::cannot),
        false => may_collapse(&root),
    };
    match may {
        Err(why) if mode.dry_run => exit::say(&format!("--dry-run: without it, {why}")),
        may => may?,
    }
    if !mode.dry_run {
        record::forget_ended(&root, dir);
    }
    let interrupt = Arc::new(Interrupt::default());
    let interrupting = interrupt_experiment(Arc::clone(&interrupt))?;
    let (work, failed) = match mode.undo {
        true => undo(&root, dir, &processes, args, mode.dry_run),
        false => collapse(&root, dir, &processes, args, mode.dry_run, &interrupt),
    };
    let coverage = work.coverage();
    if work.is_empty()
        && let Some(failed) = failed.first()
    {
        return Err(Failure::cannot(format!("pid {}: {}", failed.pid, failed.why)));
    }
    let interrupted = interrupting.received();
    let document =
        Document { work, required: args.require_coverage, coverage, failed, interrupted };
    if mode.json {
        let body = serde_json::to_value(&document);
        exit::print_json(SCHEMA, body.map_err(|error| Failure::usage(format!("JSON: {error}")))?)?;
    } else {
        exit::print(&text(&document))?;
        for failed in &document.failed {
            exit::say(&format!("pid {} {}: {}", failed.pid, name(&failed.name, 15), failed.why));
        }
    }
    if let Some(signal) = interrupted {
        return Err(Failure::interrupted(signal, "manage"));
    }
    if let Work::Collapsed { processes } = &document.work
        && processes.iter().all(|one| one.collapsed.made == 0)
        && processes.iter().any(|one| one.collapsed.skipped.contains_key(&Skip::Unrecorded))
    {
        return Err(Failure::cannot(words::skip(Skip::Unrecorded)));
    }
    if let Work::Undone { processes } = &document.work
        && processes.iter().any(|one| !one.split.kept.is_empty())
    {
        return Ok(Done::Negative);
    }
    let is_below = |required: f64| coverage.share().is_none_or(|share| share < required);
    match args.require_coverage.filter(|_| !mode.undo).is_some_and(is_below) {
        true => Ok(Done::Negative),
        false => Ok(Done::Fine),
    }
}

/// Fails if this user or kernel cannot make superpages in other processes.
pub fn may_collapse(root: &Root) -> Result<(), Failure> {
    live::check_machine(root).map_err(|why| {
        Failure::cannot(format!(
            "{why}. Without it a program gets superpages when it starts (superpage run), or collapses its own memory"
        ))
    })
}

impl Work {
    fn is_empty(&self) -> bool {
        match self {
            Self::Planned { processes } => processes.is_empty(),
            Self::Collapsed { processes } => processes.is_empty(),
            Self::UndoPlanned { processes } | Self::Undone { processes } => processes.is_empty(),
        }
    }

    fn coverage(&self) -> Coverage {
        let mut sum = Coverage::default();
        match self {
            Self::Planned { processes } => processes.iter().for_each(|one| sum += one.coverage),
            Self::Collapsed { processes } => {
                processes.iter().filter_map(|one| one.after).for_each(|one| sum += one);
            }
            Self::UndoPlanned { processes } | Self::Undone { processes } => {
                processes.iter().filter_map(|one| one.after).for_each(|one| sum += one);
            }
        }
        sum
    }
}

fn collapse(
    root: &Root,
    dir: &Path,
    processes: &[Process],
    args: &OnceArgs,
    dry_run: bool,
    interrupt: &Interrupt,
) -> (Work, Vec<Failed>) {
    let mut failed = Vec::new();
    let heat = sample(root, processes, args.sample, interrupt, &mut failed);
    let end = Instant::now() + Duration::from_secs_f64(args.within);
    let (mut plans, mut outcomes) = (Vec::new(), Vec::new());
    let mut progress = Progress::new(false, "making superpages");
    for process in processes {
        let request = Request {
            duty: args.duty,
            within: end.saturating_duration_since(Instant::now()),
            fill: args.fill,
            headroom: args.headroom,
            overrides: args.overrides.clone(),
        };
        let none = BTreeMap::new();
        let heat = heat.get(&process.pid).map_or(&none, |heat| &heat.blocks);
        let done = Memory::open(root, process).and_then(|memory| {
            let plan = Plan::read(&memory, &request, heat)?;
            if dry_run {
                return Ok((Some(plan), None));
            }
            let all = plan.blocks.len() as u64;
            let outcome = once::collapse(&memory, plan, &request, dir, |done| {
                progress.tell(done as u64, Some(all), || format!("pid {}", process.pid));
                !interrupt.is_asked()
            })?;
            Ok((None, Some(outcome)))
        });
        match done {
            Ok((plan, outcome)) => {
                plans.extend(plan);
                outcomes.extend(outcome);
            }
            Err(error) => failed.push(Failed::new(process, error)),
        }
    }
    progress.clear();
    match dry_run {
        true => (Work::Planned { processes: plans }, failed),
        false => (Work::Collapsed { processes: outcomes }, failed),
    }
}

/// Samples all processes at the same time. What cannot be sampled is put on superpages in the order of its fullness.
fn sample(
    root: &Root,
    processes: &[Process],
    time: Sampling,
    interrupt: &Interrupt,
    failed: &mut Vec<Failed>,
) -> BTreeMap<units::Pid, Heat> {
    let Sampling::For(seconds) = time else { return BTreeMap::new() };
    let time = Duration::from_secs_f64(seconds);
    let mut progress = Progress::new(false, "sampling");
    progress.tell(0, None, || "sampling accesses".to_string());
    let looks = std::thread::scope(|scope| {
        let look = |process| move || Heat::sample(root, process, time, |_| !interrupt.is_asked());
        let looks: Vec<_> = processes.iter().map(|process| scope.spawn(look(process))).collect();
        let join = |look: std::thread::ScopedJoinHandle<'_, _>| {
            look.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        looks.into_iter().map(join).collect::<Vec<_>>()
    });
    progress.clear();
    let mut heat = BTreeMap::new();
    for (process, look) in processes.iter().zip(looks) {
        match look {
            Ok(found) => drop(heat.insert(process.pid, found)),
            Err(error) => failed.push(Failed::new(
                process,
                format!("accesses cannot be sampled, so the fullest memory comes first: {error}"),
            )),
        }
    }
    heat
}

fn undo(
    root: &Root,
    dir: &Path,
    processes: &[Process],
    args: &OnceArgs,
    dry_run: bool,
) -> (Work, Vec<Failed>) {
    let end = Instant::now() + Duration::from_secs_f64(args.within);
    let (mut undone, mut failed) = (Vec::new(), Vec::new());
    for process in processes {
        let within = end.saturating_duration_since(Instant::now());
        let done = Memory::open(root, process).and_then(|memory| match dry_run {
            true => once::planned_undo(&memory, dir),
            false => once::undo(&memory, dir, args.duty, within),
        });
        match done {
            Ok(done) => undone.push(done),
            Err(error) => failed.push(Failed::new(process, error)),
        }
    }
    match dry_run {
        true => (Work::UndoPlanned { processes: undone }, failed),
        false => (Work::Undone { processes: undone }, failed),
    }
}

fn text(document: &Document) -> String {
    let mut lines = Vec::new();
    match &document.work {
        Work::Planned { processes } => {
            processes.iter().for_each(|one| planned(one, &mut lines));
            let made = processes.iter().filter(|one| one.forbidden.is_empty());
            let superpages = made.map(|one| one.superpages).sum();
            lines.extend(words::may_wait(superpages).map(str::to_string));
        }
        Work::Collapsed { processes } => {
            processes.iter().for_each(|one| collapsed(one, &mut lines));
        }
        Work::UndoPlanned { processes } | Work::Undone { processes } if processes.is_empty() => {
            lines.push("no running process has superpages made by `superpage manage`".to_string());
        }
        Work::UndoPlanned { processes } => {
            for one in processes {
                lines.push(format!(
                    "{}: {} on superpages",
                    title(&one.process),
                    covers(one.before)
                ));
                lines.push(format!(
                    "  would split {}",
                    counted(one.recorded, "superpage", "superpages")
                ));
            }
        }
        Work::Undone { processes } => processes.iter().for_each(|one| undone(one, &mut lines)),
    }
    if let Some(required) = document.required {
        let got = document.coverage.share();
        let is_met = got.is_some_and(|share| share >= required);
        let verdict = if is_met { "met" } else { "not met" };
        let got = got.map_or("no eligible memory".to_string(), percent);
        lines.push(format!("required coverage {}: {got}: {verdict}", percent(required)));
    }
    lines.join("\n") + "\n"
}

fn title(process: &Process) -> String {
    format!("{} (pid {})", name(process.program_name(), 30), process.pid)
}

fn covers(coverage: Coverage) -> String {
    let share = coverage.share().map_or("nothing".to_string(), percent);
    format!("{share} of {} eligible", bytes(coverage.eligible.bytes() as f64))
}

fn planned(plan: &Plan, lines: &mut Vec<String>) {
    lines.push(format!("{}: {} on superpages", title(&plan.process), covers(plan.coverage)));
    forbidden(&plan.forbidden, lines);
    if plan.forbidden.is_empty() {
        lines.push(format!(
            "  would make at most {}, and add at most {} of zeros",
            counted(plan.superpages, "superpage", "superpages"),
            bytes(plan.fill.bytes() as f64)
        ));
    }
    ineligible(&plan.ineligible, lines);
}

fn forbidden(found: &[Forbidden], lines: &mut Vec<String>) {
    for one in found {
        lines.push(format!("  left alone: {}", words::forbidden(*one)));
    }
}

fn ineligible(found: &BTreeMap<::manage::Ineligible, ByteSize>, lines: &mut Vec<String>) {
    let mut parts: Vec<_> = found.iter().collect();
    parts.sort_by_key(|(_, size)| std::cmp::Reverse(**size));
    let part = |(why, size): &(&::manage::Ineligible, &ByteSize)| {
        format!("{} {}", bytes(size.bytes() as f64), words::ineligible(**why))
    };
    let parts: Vec<String> = parts.iter().take(MOST_LINES).map(part).collect();
    if !parts.is_empty() {
        lines.push(format!("  not eligible: {}", parts.join(", ")));
    }
}

fn collapsed(outcome: &Outcome, lines: &mut Vec<String>) {
    let after = outcome.after.map_or("the process ended".to_string(), covers);
    let before = outcome.before.share().map_or("nothing".to_string(), percent);
    lines.push(format!("{}: {before} → {after} on superpages", title(&outcome.process)));
    forbidden(&outcome.forbidden, lines);
    let done = &outcome.collapsed;
    if let (Some(longest), Some(p99)) = (done.longest_seconds, done.p99_seconds) {
        lines.push(format!(
            "  made {}; {} in calls, the longest {}, p99 {}",
            counted(done.made, "superpage", "superpages"),
            report::format::seconds(done.seconds),
            report::format::seconds(longest),
            report::format::seconds(p99)
        ));
        lines.extend(words::may_have_waited(longest).map(|text| format!("  {text}")));
    }
    memory(outcome.resident_before, outcome.resident_after, Some(done.filled), lines);
    for (why, size) in &done.skipped {
        lines.push(format!("  {} skipped: {}", bytes(size.bytes() as f64), words::skip(*why)));
    }
    ineligible(&outcome.ineligible, lines);
    if done.made > 0 && !done.skipped.contains_key(&Skip::Gone) {
        lines.push(format!("  undo: superpage manage --undo --pid {}", outcome.process.pid));
    }
}

fn memory(
    before: Option<ByteSize>,
    after: Option<ByteSize>,
    filled: Option<ByteSize>,
    lines: &mut Vec<String>,
) {
    let (Some(before), Some(after)) = (before, after) else { return };
    let filled = filled.map_or(String::new(), |filled| {
        format!(", {} of it zeros that fill superpages", bytes(filled.bytes() as f64))
    });
    let (before, after) = (before.bytes() as f64, after.bytes() as f64);
    lines.push(format!("  resident memory {} → {}{filled}", bytes(before), bytes(after)));
}

fn undone(undone: &Undone, lines: &mut Vec<String>) {
    let after = undone.after.map_or("the process ended".to_string(), covers);
    let before = undone.before.share().map_or("nothing".to_string(), percent);
    lines.push(format!("{}: {before} → {after} on superpages", title(&undone.process)));
    lines.push(format!(
        "  split {} of {} made",
        undone.split.split,
        counted(undone.recorded, "superpage", "superpages")
    ));
    if undone.split.gone > 0 {
        lines.push(format!(
            "  {} gone before: split or freed by the program or the kernel",
            counted(undone.split.gone, "superpage", "superpages")
        ));
    }
    memory(undone.resident_before, undone.resident_after, None, lines);
    for (why, count) in &undone.split.kept {
        let count = counted(*count, "superpage", "superpages");
        lines.push(format!("  {count} kept: {}", words::kept(*why)));
    }
}

#[cfg(test)]
mod tests {
    use ::manage::{Kept, Split};

    use super::*;

    #[test]
    fn every_recorded_superpage_is_split_gone_or_kept_with_a_reason() {
        let process = Process {
            pid: units::Pid(7),
            start_ticks: 1,
            parent: units::Pid(1),
            name: "app".to_string(),
            command: Vec::new(),
            user: None,
            cgroup: None,
            unit: None,
        };
        let kept = BTreeMap::from([(Kept::Shared, 1)]);
        let one = Undone {
            process,
            recorded: 188,
            before: Coverage::default(),
            after: None,
            split: Split { split: 185, gone: 2, kept, ..Split::default() },
            resident_before: None,
            resident_after: None,
        };
        let mut lines = Vec::new();
        undone(&one, &mut lines);
        let text = lines.join("\n");
        for part in ["split 185 of 188 superpages", "2 superpages gone before", "1 superpage kept"]
        {
            assert!(text.contains(part), "{text}");
        }
    }
}
