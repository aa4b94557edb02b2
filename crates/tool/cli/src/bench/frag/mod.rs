//! `superpage bench frag`: runs a program while free memory is fragmented. Parses the flags and supervises the run.

mod report;

use std::sync::Arc;
use std::time::{Duration, Instant};

use experiment::execute::Interrupt;
use experiment::fragment::{Extent, FragmentError, Goal, Held, Kind};
use host::{FreeContiguity, Root};
use launch::{Pages, Plan, Recipe, Start, Word};
use sys::guard::Guarded;
use units::{ByteSize, PageSize};

use self::report::{Ended, Report};
use crate::delivery::ReportFlags;
use crate::exit::{self, Done, Failure};
use crate::progress::Progress;
use operations::fragmentation::{free, gather, goal_of, superpage};
use operations::{facts, signals};

/// Run a program while free memory is fragmented.
///
/// PERCENT of the free superpages are fragmented: a few of their pages stay in use until the program ends. Only
/// memory is taken, and all of it is freed at the end, even if superpage is killed; the program and its child
/// processes are then killed too. As root, memory is compacted before and afterwards (by growing the hugetlb pool for
/// a moment). A report on standard error says how much memory is free, and how much of it lies in superpages.
/// Allocations of other processes may keep memory fragmented.
///
/// The program may use the superpages that are left. With --leave SIZE only SIZE is left for it, PERCENT of it
/// fragmented; the rest of free memory is occupied. Compaction rebuilds superpages from movable pages when a program
/// asks for them. With pinned, memory that compaction could turn into superpages, page cache included, is taken
/// before the program starts, which takes longer.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Superpages to fragment, as a percentage of the free ones.
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u8).range(0..=100))]
    level: u8,

    /// What stays in use of each fragmented superpage: movable (its last 16 pages; compaction can make the superpage
    /// whole again) or pinned (one page that cannot be moved).
    #[arg(
        long,
        value_name = "KIND",
        default_value = "movable",
        value_enum,
        hide_possible_values = true
    )]
    kind: KindArg,

    /// Leave SIZE for the program, PERCENT of it fragmented, and occupy all other free superpages.
    #[arg(long, value_name = "SIZE", conflicts_with = "memory")]
    leave: Option<ByteSize>,

    /// Fragment PERCENT of SIZE only; the rest of free memory is left alone.
    #[arg(long, value_name = "SIZE")]
    memory: Option<ByteSize>,

    #[command(flatten)]
    report: ReportFlags,

    /// Do not print progress or a report.
    #[arg(long, short)]
    quiet: bool,

    /// Program and arguments: everything from the first word that is not an option, or after `--`.
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    command: Vec<Word>,
}

const HELP: &str = "\
Examples:
  superpage bench frag --kind pinned -- ./app            # no superpage is free
  superpage bench frag --level 50 --leave 4G -- ./app    # 4 GiB are left, half fragmented
  superpage bench frag --leave 6G -- superpage compare gups --size 4G

Exit codes: the program's own; 2 wrong usage; 3 not possible on this machine; 126 and 127 if the program \
cannot be executed or found.";

/// [`Kind`] as a flag's value.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum KindArg {
    Movable,
    Pinned,
}

impl From<KindArg> for Kind {
    fn from(kind: KindArg) -> Self {
        match kind {
            KindArg::Movable => Self::Movable,
            KindArg::Pinned => Self::Pinned,
        }
    }
}

impl Args {
    fn extent(&self) -> Extent {
        match (self.leave, self.memory) {
            (Some(size), _) => Extent::Leave(size),
            (None, Some(size)) => Extent::Part(size),
            (None, None) => Extent::All,
        }
    }

    fn goal(&self, free: &FreeContiguity) -> Result<Goal, Failure> {
        goal_of(self.kind.into(), self.level, self.extent(), free)
    }
}

pub fn run(args: Args) -> Result<Done, Failure> {
    args.report.check()?;
    let recipe = Recipe::new(Pages::System);
    let plan = launch::resolve(&recipe, &args.command, &facts::search_path(), &facts::read())
        .map_err(|error| Failure::of_launcher(&error))?;
    let superpage = superpage()?;
    let before = free(superpage)?;
    if args.report.dry_run {
        return report::plan(&args, &args.goal(&before)?, &before);
    }
    let interrupting = signals::interrupt_experiment(Arc::new(Interrupt::default()))?;
    // Compact movable pages first, so that no further superpages can appear later. Root only.
    let compacted = gather(superpage);
    let goal = args.goal(&free(superpage)?)?;
    let mut progress = Progress::new(args.quiet, "fragmenting memory");
    let taken = Held::take(&Root::real(), goal, |done, of| {
        // Compaction may free more superpages than expected: then show no total.
        let of = Some(of).filter(|of| done <= *of);
        progress.tell(done, of, || match of {
            Some(_) => "superpages taken".to_string(),
            None => format!("{done} superpages taken"),
        });
        interrupting.signal() == 0
    });
    progress.clear();
    // Create the relay before `interrupting` is dropped, so that no signal is lost.
    let relay = signals::Relay::new()?;
    let _signal_guard = relay.signal_guard(); // termination signals must not kill this process while a pool is raised
    let held = match taken {
        Err(FragmentError::Interrupted) => return Ok(Done::Signal(interrupting.signal())),
        taken => taken.map_err(Failure::cannot)?,
    };
    if interrupting.signal() != 0 {
        drop(held);
        return Ok(Done::Signal(interrupting.signal()));
    }
    drop(interrupting);
    let mut report = Report::new(&held, args.extent(), compacted, before, free(superpage)?);
    if !args.quiet && !args.report.json {
        exit::say(&report.holding());
    }
    let ended = supervise(&plan, relay);
    report.ended = free(superpage).ok();
    let interrupting = signals::interrupt_experiment(Arc::new(Interrupt::default()))?;
    let goes_on = || interrupting.received().is_none();
    let taken = held.fragmented + held.occupied;
    drop(held);
    // With --memory, the rest of free memory stayed whole: there is nothing to wait for.
    if args.memory.is_none() {
        settle(superpage, &report, taken, args.quiet, goes_on);
    }
    if compacted && goes_on() {
        gather(superpage);
    }
    report.after = free(superpage).ok();
    let ended = ended?;
    let document = || report.document(&args, &ended);
    args.report.deliver(args.quiet, document, || exit::print_aside(&report.table()));
    Ok(ended.status.into())
}

/// Maximum wait for the kernel to merge freed pages; some stay in per-CPU lists for seconds.
const MAX_SETTLING: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Waits, up to `MAX_SETTLING`, until nine tenths of the taken superpages are free again.
fn settle(
    superpage: PageSize,
    report: &Report,
    taken: u64,
    quiet: bool,
    goes_on: impl Fn() -> bool,
) {
    let superpages = |free: &FreeContiguity| free.superpages.unwrap_or(0);
    let wanted = report.ended.as_ref().map_or(0, superpages) + taken / 10 * 9;
    let mut progress = Progress::of_pass(quiet, "waiting for free memory to be merged");
    let began = Instant::now();
    while began.elapsed() < MAX_SETTLING
        && goes_on()
        && free(superpage).is_ok_and(|now| superpages(&now) < wanted)
    {
        std::thread::sleep(POLL_INTERVAL);
    }
    progress.clear();
}

/// Starts the program and waits for it. The program dies with this thread (parent-death signal).
fn supervise(plan: &Plan, relay: signals::Relay) -> Result<Ended, Failure> {
    let began = Instant::now();
    let Guarded { guard, program } = launch::start_guarded(plan, Start::default())
        .map_err(|error| Failure::of_launcher(&error))?;
    let relaying = relay.to(program);
    let ended = sys::wait::until_exit(guard);
    let seconds = began.elapsed().as_secs_f64();
    relaying.stop();
    ended.map_err(Failure::cannot)?;
    let (status, _) = sys::wait::reap(guard).map_err(Failure::cannot)?;
    Ok(Ended { status, seconds })
}
