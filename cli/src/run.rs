//! `superpage run`: any unmodified program, on the pages asked for.

use std::time::Instant;

use launch::{LaunchError, Pages, Plan, Promise, Recipe, Start, Streams};
use machine::Root;
use measure::analysis::took_effect;
use measure::family::Family;
use measure::verdict::Effect;
use measure::watch::{Depth, Observed, Watch};
use measure::words;
use std::os::unix::process::ExitStatusExt;
use units::ByteSize;

use crate::exit::{self, Done, Failure};
use crate::loan::{self, PoolPolicy};
use crate::{facts, signals};

/// Run a program on the pages asked for.
///
/// The program is not modified; its exit code and signals are passed through. What it got is read
/// back and reported in one line on standard error.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which pages: base, thp, hugetlb, hugetlb:SIZE, or system (change nothing).
    #[arg(long, default_value = "thp", value_name = "KIND")]
    pages: Pages,

    /// Whether a hugetlb pool that is short may be lent pages for the run.
    #[arg(long, value_enum, default_value = "keep")]
    pool: PoolPolicy,

    /// Print what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,

    /// With --dry-run: print JSON.
    #[arg(long, requires = "dry_run")]
    json: bool,

    /// No report at the end.
    #[arg(long, short)]
    quiet: bool,

    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    command: Vec<String>,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    // Before anything is lent, so that no signal finds it lent and nobody to give it back.
    let relay = signals::Relay::new().map_err(Failure::in_launcher)?;
    let recipe = Recipe::of(args.pages);
    let mut facts = facts::read();
    let mut loan = None;
    let mut would_lend = Vec::new();
    if args.pool == PoolPolicy::Lend && args.dry_run {
        would_lend = loan::pretend(&[&recipe], &mut facts);
    } else if args.pool == PoolPolicy::Lend {
        let mut lent = loan::lend(&[&recipe], &facts).map_err(Failure::in_launcher)?;
        lent.complain();
        loan = Some(lent);
        facts = facts::read();
    }
    let plan = launch::resolve(&recipe, &args.command, &facts::search_path(), &facts)
        .map_err(|error| Failure::of_launcher(&error))?;
    if args.dry_run {
        return print_plan(&plan, &would_lend, args.json);
    }
    let ended = supervise(&plan, relay);
    for line in loan.map(loan::Loan::give_back).unwrap_or_default() {
        exit::say(&line);
    }
    let (status, seen, seconds) = ended?;
    if !args.quiet {
        exit::say(&report(&plan, &seen, seconds));
        if status.signal() == Some(libc::SIGBUS) && matches!(plan.pages, Pages::Hugetlb(_)) {
            exit::say(
                "the program was killed by SIGBUS: did the hugetlb pool run out after a fork? \
                 Enlarge the pool, or use --pages thp",
            );
        }
    }
    Ok(match (status.code(), status.signal()) {
        (Some(code), _) => Done::Code(code as u8),
        (None, signal) => Done::Signal(signal.unwrap_or(libc::SIGKILL)),
    })
}

/// Starts the program and stays with it: to pass signals on, to see what it got, to give back
/// what it was lent.
fn supervise(
    plan: &Plan,
    relay: signals::Relay,
) -> Result<(std::process::ExitStatus, Observed, f64), Failure> {
    let began = Instant::now();
    let start = Start {
        streams: Streams::Inherit,
        die_with_parent: false,
        environment: Vec::new(),
        directory: None,
    };
    let pid =
        launch::start(plan, start).map_err(|error: LaunchError| Failure::of_launcher(&error))?;
    let relaying = relay.to(pid);
    let family = Family::of_child(Root::real(), pid);
    let watch = Watch::start(Root::real(), family, began, Depth::WithinBudget, 0);
    let ours = |error: sys::SysError| Failure::cannot(error).in_launcher();
    let ended = sys::wait::until_exit(pid);
    let seconds = began.elapsed().as_secs_f64();
    let seen = watch.stop();
    relaying.stop();
    ended.map_err(ours)?;
    let (status, _) = sys::wait::reap(pid).map_err(ours)?;
    Ok((status, seen, seconds))
}

/// What it got, in one line.
fn report(plan: &Plan, seen: &Observed, seconds: f64) -> String {
    let peak = seen.peak_resident_bytes.map_or("unknown".to_string(), |b| ByteSize(b).to_string());
    let Some(coverage) = &seen.coverage else {
        return format!(
            "{}: coverage unknown, the program ended or grew before its memory could be read \
             cheaply; {seconds:.2} s, peak {peak}",
            plan.name
        );
    };
    let share = words::known(coverage.ratio(), words::percent);
    let on = format!("{} of {}", coverage.superpage_bytes(), coverage.resident());
    let verdict = match took_effect(plan.promise, &[coverage], DEFAULT_LEAST_COVERAGE) {
        Effect::AsPromised if plan.promise == Promise::Nothing => String::new(),
        Effect::AsPromised => ", as asked".to_string(),
        Effect::Missing { why } => format!("; {} did not take effect: {why}", plan.name),
    };
    format!(
        "{}: {share} of its memory on superpages ({on}){verdict}; {seconds:.2} s, peak {peak}",
        plan.name
    )
}

/// The share of the memory that can be on superpages that must be for `thp` and `hugetlb`.
pub const DEFAULT_LEAST_COVERAGE: f64 = 0.8;

fn print_plan(plan: &Plan, would_lend: &[String], json: bool) -> Result<Done, Failure> {
    if json {
        let document = serde_json::json!({
            "schema": "superpage.plan/1", "plan": plan, "would_lend": would_lend,
        });
        exit::print(&format!("{document:#}\n"))?;
    } else {
        exit::print(&plan_in_words(plan))?;
        for line in would_lend {
            exit::print(&format!("  lend         {line}\n"))?;
        }
    }
    Ok(Done::Fine)
}

/// A plan for people; also what `compare --dry-run` prints for each arm.
pub fn plan_in_words(plan: &Plan) -> String {
    use std::fmt::Write;
    let mut text = format!("{}\n", plan.name);
    let mut line = |key: &str, value: &str| {
        let _ = writeln!(text, "  {key:<12} {value}");
    };
    line("start", &plan.program.path.display().to_string());
    if !plan.arguments.is_empty() {
        line("arguments", &words::command(plan.arguments.iter().map(String::as_str)));
    }
    let thp = match plan.thp {
        launch::ThpRequest::Inherit => "",
        launch::ThpRequest::System => "as the system's settings say (prctl PR_SET_THP_DISABLE 0)",
        launch::ThpRequest::Disabled => "none for it and its children (prctl PR_SET_THP_DISABLE 1)",
    };
    if !thp.is_empty() {
        line("THP", thp);
    }
    for change in &plan.environment {
        line("set", &format!("{}={}", change.variable, change.value));
        line("", &format!("({})", change.why));
    }
    let promise = match plan.promise {
        Promise::Nothing => "nothing is promised; coverage is reported",
        Promise::BasePages => "no superpage at all, or it did not take effect",
        Promise::Superpages => {
            "the memory that can be on superpages is (--min-coverage), or it did not take effect"
        }
    };
    line("promise", promise);
    for note in &plan.notes {
        line("note", note);
    }
    text
}
