//! `compare --pid`: flags, and the table of a comparison on a running service.

use std::fmt::Write;
use std::time::Duration;

use experiment::running::analysis::{Analysis, Summary, analyse};
use experiment::running::document::Document;
use experiment::running::html::{bias, disturbed, obstacle, service};
use experiment::running::procedure::{Left, LeftAs, Stopped};
use experiment::verdict::{Terms, Verdict, floor_text};
use host::Root;
use operations::jobs::arms::time;
use operations::running::{self, KeepIf, PerArg, Request};
use report::format as words;

use super::open::{self, Ended, Made, Open};
use super::{Args, table};
use crate::exit::{self, Done, Failure};
use crate::manage::words::may_have_waited;
use crate::pool::show;
use crate::targets::{self, TargetArgs};

/// Flags of a comparison on a running service.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Running services")]
pub struct RunningArgs {
    /// Compare a running service (--pid, --unit, --cgroup, --match) by a number that COMMAND prints at the end of each
    /// block. COMMAND is run by `sh -c`, with the length of a block in SUPERPAGE_BLOCK_SECONDS. --metric REGEX finds the
    /// number in more text.
    #[arg(long, value_name = "COMMAND", requires = "TargetArgs", group = "figure")]
    metric_command: Option<String>,

    /// Compare by the rate of a counter that COMMAND prints; it is read at both ends of a block.
    #[arg(long, value_name = "COMMAND", requires = "TargetArgs", group = "figure")]
    metric_counter: Option<String>,

    /// Compare by a Prometheus metric of a server on this machine: the rate of a counter, the value of another type.
    #[arg(long, value_name = "URL", requires_all = ["TargetArgs", "metric_series"], group = "figure", conflicts_with = "metric")]
    metric_url: Option<String>,

    /// Name and labels of that metric: 'requests_total{code="200"}'. Several series with these labels add up.
    #[arg(long, value_name = "SERIES", requires = "metric_url")]
    metric_series: Option<String>,

    /// What a counter is divided by: seconds, or seconds of the processes' CPU time (user and system) [default: second].
    #[arg(long, value_enum, value_name = "UNIT", requires = "TargetArgs")]
    metric_per: Option<PerArg>,

    /// Length of a block, in which all memory is on base pages or on superpages; from 0.5 to 1.5 times this, drawn for each
    /// round.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = block, requires = "TargetArgs")]
    block: Duration,

    /// Time between a switch and its block.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = time, requires = "TargetArgs")]
    settle: Duration,

    /// Keep the superpages afterwards if they get this verdict; else the memory is left as it was found.
    #[arg(long, value_enum, value_name = "VERDICT", requires = "TargetArgs")]
    keep_if: Option<KeepIf>,

    // Last: its help heading holds for all flags after it.
    #[command(flatten)]
    targets: TargetArgs,
}

fn block(text: &str) -> Result<Duration, String> {
    time(text)
        .ok()
        .filter(|time| (0.05..=3600.0).contains(&time.as_secs_f64()))
        .ok_or_else(|| format!("invalid time `{text}`: expected 50ms to 60m, e.g. 2s"))
}

impl RunningArgs {
    /// Whether processes are named.
    pub fn is_given(&self) -> bool {
        !self.targets.targets().is_empty()
    }
}

/// Compares, or says what would be done.
pub fn run(args: &Args) -> Result<Done, Failure> {
    let mut request = request(args)?;
    request.check()?;
    args.outputs.refuse_svg()?;
    args.outputs.check()?;
    let selected = targets::select(&Root::real(), &args.running.targets.targets())?;
    request.processes = selected.processes;
    for unknown in &selected.unknown {
        exit::say(&format!("not compared: {unknown}"));
    }
    if args.dry_run {
        exit::print(&running::in_words(&request.plans()?))?;
        return Ok(Done::Fine);
    }
    let compared = request.run()?;
    let done = finish(args, &compared.document);
    match compared.signal {
        Some(signal) => {
            if let Err(failure) = done {
                failure.lines().for_each(exit::say);
            }
            Ok(Done::Signal(signal))
        }
        None => done,
    }
}

/// Writes a comparison to its outputs and judges `--fail-if`.
pub fn finish(args: &Args, document: &Document) -> Result<Done, Failure> {
    let analysis = analyse(document);
    args.outputs.write_running(document, &analysis, &text(document, &analysis))?;
    if let Some(why) = running::without_verdict(document) {
        return Err(Failure::cannot(why));
    }
    let left = document.left.as_ref();
    if let Some(reason) = left.and_then(|left| left.reason.as_ref()) {
        return Err(Failure::cannot(format!("the memory could not be left as asked: {reason}")));
    }
    let judged = || {
        analysis.judgements.iter().filter(|one| {
            let arm = document.arms.iter().find(|arm| arm.name == one.arm);
            arm.is_some_and(|arm| !arm.is_noise_floor)
        })
    };
    let is_negative =
        judged().any(|one| args.fail_if.iter().any(|asked| asked.matches(&one.verdict)));
    let has_verdict = judged().any(|one| one.verdict.ratio().is_some());
    match (is_negative, has_verdict || args.fail_if.is_empty()) {
        (true, _) => Ok(Done::Negative),
        (false, true) => Ok(Done::Fine),
        (false, false) => Err(Failure::cannot(super::NO_VERDICT)),
    }
}

fn request(args: &Args) -> Result<Request, Failure> {
    let own = &args.running;
    let once = |what: &str, count: usize| match count {
        0 | 1 => Ok(()),
        _ => Err(Failure::usage(format!(
            "a running service is compared by one metric; give {what} once"
        ))),
    };
    once("--metric", args.metric.len())?;
    once("--metric-name", args.metric_name.len())?;
    once("--metric-better", args.metric_better.len())?;
    Ok(Request {
        processes: Vec::new(),
        command: own.metric_command.clone(),
        counter: own.metric_counter.clone(),
        url: own.metric_url.clone().zip(own.metric_series.clone()),
        per: own.metric_per,
        regex: args.metric.first().cloned(),
        name: args.metric_name.first().cloned(),
        better: args.metric_better.first().map(|better| (*better).into()),
        arms: args.arms.clone(),
        aa: args.aa,
        block: own.block,
        settle: own.settle,
        keep_if: own.keep_if,
        rule: args.rule.clone(),
        seed: args.workload_args.seed,
        quiet: args.outputs.quiet,
    })
}

/// Formats the head line, the table of arms, the verdicts and the notes.
pub fn text(document: &Document, analysis: &Analysis) -> String {
    let mut text = format!(
        "{}\n{}; {:.0} s, {}\n\n",
        service(document),
        experiment::document::machine_line(&document.machine),
        document.elapsed_seconds,
        stopped(document)
    );
    text += &arms(document, analysis);
    text.push('\n');
    let reference = document.arms.first().map_or("", |arm| arm.name.as_str());
    let heading = words::name(&document.metric.heading(), 60);
    for one in &analysis.judgements {
        let (style, line) = (table::style(&one.verdict), one.verdict.line(Terms::Speed));
        let _ = writeln!(text, "{} vs {reference}  {heading}: {style}{line}{style:#}", one.arm);
    }
    for note in notes(document, analysis) {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn stopped(document: &Document) -> String {
    match &document.stopped {
        Stopped::RuleMet => format!(
            "every ratio known within {} at {}",
            words::percent(document.settings.rule.within),
            words::percent(document.judging.confidence.level())
        ),
        Stopped::Decided => "until every verdict was decided".to_string(),
        Stopped::MaxBlocks => "stopped by --max-runs".to_string(),
        Stopped::MaxTime => "stopped by --max-time".to_string(),
        Stopped::Interrupted => {
            "interrupted; the verdicts are of the rounds made so far".to_string()
        }
        Stopped::Ended { process } => {
            format!("until {} ended", words::name(process, 60))
        }
        Stopped::Executed { process } => {
            format!("stopped: {} executed another program", words::name(process, 60))
        }
        Stopped::Dropped => "stopped: most rounds are no evidence".to_string(),
    }
}

fn arms(document: &Document, analysis: &Analysis) -> String {
    let heading = words::name(&document.metric.heading(), 40);
    let header = [
        "memory",
        "blocks",
        "discarded",
        "on superpages",
        "eligible",
        "longest switch",
        "longest call",
        &heading,
    ];
    let row = |one: &Summary| {
        vec![
            one.name.clone(),
            one.blocks.to_string(),
            one.discarded.len().to_string(),
            words::known(one.coverage, words::percent),
            words::known(one.eligible_bytes, words::bytes),
            one.longest_switch_seconds.map_or(String::new(), words::seconds),
            one.longest_call_seconds.map_or(String::new(), words::seconds),
            words::known(one.value, words::figure),
        ]
    };
    let rows = analysis.as_found.iter().chain(&analysis.arms).map(row).collect();
    show::table(&header, rows, &[0])
}

fn notes(document: &Document, analysis: &Analysis) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(floor) = analysis.noise_floor {
        notes.push(floor_text(floor));
    }
    notes.extend(to_decide(document, analysis));
    notes.extend(disturbed(document, analysis));
    let mut discarded: Vec<(u32, String)> = Vec::new();
    for arm in &analysis.arms {
        let told =
            arm.discarded.iter().map(|one| (one.round, format!("{}: {}", arm.name, one.why)));
        discarded.extend(told);
    }
    discarded.sort();
    if let Some((_, last)) = discarded.last() {
        notes.push(format!(
            "{} of {} rounds dropped; the last one: {last}",
            analysis.dropped_rounds,
            analysis.rounds + analysis.dropped_rounds
        ));
    }
    if analysis.dropped_rounds > 0 {
        notes.push(analysis.counts.words());
    }
    notes.push(bias(analysis));
    let longest = analysis.arms.iter().filter_map(|arm| arm.longest_call_seconds);
    notes.extend(longest.max_by(f64::total_cmp).and_then(may_have_waited));
    notes.extend(document.left.as_ref().map(|one| left(one, document)));
    notes
}

fn left(left: &Left, document: &Document) -> String {
    let switched = left.switched.clone().unwrap_or_default();
    let undo = || {
        let pids = document.processes.iter().map(|one| format!(" --pid {}", one.pid));
        format!("superpage manage --undo{}", pids.collect::<String>())
    };
    match left.state {
        LeftAs::Found => {
            let kept = switched.largest_obstacle();
            let rest =
                kept.map_or(String::new(), |kept| format!("; not restored: {}", obstacle(kept)));
            let later = match switched.kept {
                0 => String::new(),
                kept => {
                    let kept = words::counted(kept, "superpage", "superpages");
                    format!("; {kept} could not be split now, later: {}", undo())
                }
            };
            format!(
                "left as found: {} superpages split, {} made again{rest}{later}",
                switched.split, switched.made
            )
        }
        LeftAs::Superpages => {
            format!("left on superpages; those made are split by: {}", undo())
        }
        LeftAs::LastBlock => {
            let reason = left.reason.as_deref().unwrap_or_default();
            format!("the memory is left as the last block had it: {}", words::name(reason, 160))
        }
    }
}

/// What would decide the open verdicts.
fn to_decide(document: &Document, analysis: &Analysis) -> Vec<String> {
    let begun = analysis.rounds + analysis.dropped_rounds;
    let open = analysis.judgements.iter().filter_map(|one| match one.verdict {
        Verdict::Undecided { more_runs, .. } => {
            let rounds = f64::from(more_runs) / 2.0;
            let seconds = rounds * analysis.round_seconds / f64::from(begun.max(1));
            Some(Open { of: one.arm.clone(), more_runs, seconds })
        }
        _ => None,
    });
    let made = Made {
        runs: 2 * begun,
        seconds: document.elapsed_seconds,
        rule: document.settings.rule,
        max_seconds: Some(document.settings.max_seconds),
        ended: match document.stopped {
            Stopped::RuleMet | Stopped::Decided => Ended::ByValues,
            _ => Ended::ByLimit,
        },
    };
    open::notes(open.collect(), &made)
}
