//! `superpage tlb`: measures the costs of address translation on this machine. Flags and printing over `tlb-probe`.

mod accesses;
mod allow;
mod table;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use host::{Hypervisor, Root, Snapshot};
use tlb_probe::{
    Calibration, Effort, Live, LiveCode, NotOffered, Options, Probe, ProbeError, Processor,
    calibrate,
};
use units::{ByteSize, PageSize};

use crate::exit::{self, Done, Failure};
use crate::progress::Progress;
use operations::pool_guard::OvercommitGuard;
use operations::{signals, this_machine};

use crate::files;
use allow::Change;

/// Measure this machine's TLB: levels, entries, and cycles of hits and walks.
///
/// Measured by the latency of loads, and of jumps for instructions; values from CPUID are printed next to it. Also says
/// whether a superpage takes one TLB entry. Settings are changed only with --allow. Takes about 7 seconds of CPU time;
/// more if readings vary, and with --allow.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Measure fewer footprints, with fewer readings of each.
    #[arg(long)]
    quick: bool,

    /// Page size to measure, such as 2M; repeatable. Base pages are always measured [default: all available].
    #[arg(long, value_name = "SIZE", value_parser = page_size)]
    page_size: Vec<PageSize>,

    /// Change settings for the run so that more sizes can be measured, and restore them (root): adds a page to the
    /// 1 GiB pool if none is free, and enables 64 KiB mTHP; with --page-size, makes the changes that those sizes
    /// need.
    #[arg(long)]
    allow: bool,

    /// Output format.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "human")]
    format: Format,

    /// Same as --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,

    /// Write the result to FILE; - is standard output. A FILE named *.json gets JSON.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Also write a chart of latency over footprint.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Save the result as the machine `this`, for `superpage lab --machine this` and other commands.
    #[arg(long)]
    save: bool,

    /// Print what would be measured and written; do nothing.
    #[arg(long, conflicts_with_all = ["json", "format"])]
    dry_run: bool,

    /// Overwrite existing files.
    #[arg(long)]
    force: bool,

    /// Seed of the random orders in which pages are accessed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Do not print progress.
    #[arg(long, short)]
    quiet: bool,
}

/// Output formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A table and its interpretation.
    Human,
    /// JSON (superpage.tlb/1).
    Json,
    /// NAME=value lines for scripts.
    Env,
}

const HELP: &str = "\
--format env prints, as far as measured (cycles are those of the core):
  TLB_MISS_COST      cycles beyond a first-level hit when no level has a base page's translation
  TLB_L2_HIT_COST    the same when the second level has it
  TLB_MISS_COST_nK   as TLB_MISS_COST, for pages of n KiB
  TLB_MISS_COST_NS, TLB_L2_HIT_COST_NS   the first two in nanoseconds
  MISSES_COST_ONE_SECOND   TLB misses that cost a second together: clock / TLB_MISS_COST
  TLB_L1_ENTRIES, TLB_L2_ENTRIES   neighbouring base pages that each level keeps
  TLB_L1I_ENTRIES    the same of the first level for instructions
  each of these with _LOW and _HIGH: the 95 % interval of a cost, the range of entries
  TLB_WARNINGS       how many findings are in doubt (--format human and json say which)
  TLB_CORE_MHZ, TLB_COUNTER_MHZ    the core's clock and the time-stamp counter's, measured
  TLB_SUPERPAGES     reaches, fractured, mixed or cannot-tell: whether a superpage takes one entry

Examples:
  superpage tlb
  superpage tlb --allow --page-size 64K --page-size 1G
  superpage tlb --save && superpage lab run -d linux-6 -w gups:size=4G --machine this
  eval \"$(superpage tlb --quick --format env)\"; echo $TLB_MISS_COST";

fn page_size(text: &str) -> Result<PageSize, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    PageSize::new(size.bytes()).map_err(|error| error.to_string())
}

/// Number of progress steps per page size that `calibrate` reports.
const STEPS: u64 = 4;

/// After this time, no reading is repeated just to be more precise.
const LIMIT: Duration = Duration::from_secs(6);

pub fn run(args: Args) -> Result<Done, Failure> {
    files::check_outputs(args.output.as_deref(), "--svg", args.svg.as_deref(), args.force)?;
    let root = Root::real();
    let snapshot = Snapshot::read(&root);
    // Catch signals before any setting is changed, so that every changed setting is restored.
    let interrupting = match args.allow && !args.dry_run {
        true => Some(signals::interrupt_experiment(Arc::default())?),
        false => None,
    };
    // Create the progress bar before the probe chooses a CPU, so that the redrawing thread can run on another CPU.
    let progress = Progress::new(args.quiet || args.dry_run, "getting memory");
    let changes = if args.allow { allow::needed(&root, &args.page_size) } else { Vec::new() };
    let mut guard = OvercommitGuard::default();
    if args.save && !args.dry_run {
        this_machine::check_writable()?;
    }
    let refused = if args.dry_run { Vec::new() } else { allow::make(&changes, &mut guard) };
    let mut probe = Live::new(&root).map_err(cannot)?;
    if let Some(interrupting) = &interrupting {
        probe.stop_when(interrupting.asked());
    }
    let without = without(&probe, refused);
    for page in &args.page_size {
        if !(args.dry_run && changes.iter().any(|change| change.size() == *page)) {
            offered(&probe, &without, *page)?;
        }
    }
    if args.dry_run {
        exit::print(&plan(&args, &probe, &changes)?)?;
        return Ok(Done::Fine);
    }
    // Create the code probe after the load probe, which chooses the CPU.
    let mut code = LiveCode::new(&root, &args.page_size);
    if let (Ok(code), Some(interrupting)) = (&mut code, &interrupting) {
        code.stop_when(interrupting.asked());
    }
    let found = measure(&args, &snapshot, &mut probe, code.as_mut().ok(), progress);
    // Free the pool's pages before the pool shrinks.
    drop(probe);
    for line in guard.restore() {
        exit::say(&line);
    }
    let mut found = match (found, interrupting) {
        (Err(ProbeError::Interrupted), Some(interrupting)) => {
            return Ok(Done::Signal(interrupting.signal()));
        }
        (found, _) => found.map_err(cannot)?,
    };
    if args.page_size.is_empty() {
        found.notes.extend(without.iter().map(NotOffered::to_string));
    }
    match code {
        Ok(code) => found.notes.extend(code.notes().iter().cloned()),
        Err(why) => found.notes.push(format!("code: {why}")),
    }
    if args.save {
        let (mut all, failed) = accesses::measure(&snapshot, args.quiet);
        if all.last().is_some_and(|far| far.bytes >= accesses::LEAST.bytes()) {
            found.accesses = all.pop();
        }
        found.nearer_accesses = all;
        found.notes.extend(failed.map(|why| format!("accesses far beyond the caches: {why}")));
    }
    print(&args, &found)?;
    if args.save {
        let path = this_machine::write_calibration(&found)?;
        exit::say(&format!("saved as the machine `this` in {}", path.display()));
    }
    Ok(Done::Fine)
}

fn measure(
    args: &Args,
    snapshot: &Snapshot,
    probe: &mut Live,
    code: Option<&mut LiveCode>,
    mut progress: Progress,
) -> Result<Calibration, ProbeError> {
    let options = Options {
        effort: if args.quick { Effort::QUICK } else { Effort::FULL },
        pages: args.page_size.clone(),
        seed: args.seed,
        limit: Some(LIMIT),
        processor: processor(snapshot),
    };
    let sizes = probe
        .offers()
        .into_iter()
        .filter(|offer| args.page_size.is_empty() || args.page_size.contains(&offer.page));
    let of_code = code.as_ref().map_or(0, |code| code.offers().len()) as u64;
    let steps = STEPS * sizes.count().max(1) as u64 + of_code;
    let mut done = 0;
    let found = calibrate(probe, code.map(|code| code as _), &options, &mut |what| {
        progress.tell(done, Some(steps), || what.to_string());
        done += 1;
    });
    progress.clear();
    found
}

/// Returns the sizes that are not measured: those whose change was refused, and others that the probe names.
fn without(probe: &Live, refused: Vec<NotOffered>) -> Vec<NotOffered> {
    let told = probe.without().iter();
    let told = told.filter(|one| !refused.iter().any(|other| other.sizes == one.sizes));
    let told: Vec<NotOffered> = told.cloned().collect();
    refused.into_iter().chain(told).collect()
}

fn print(args: &Args, found: &Calibration) -> Result<(), Failure> {
    let is_json = files::is_json(args.json, args.output.as_deref());
    let format = if is_json && args.format == Format::Human { Format::Json } else { args.format };
    let text = match format {
        Format::Human => table::text(found),
        Format::Json => exit::to_json(found)?,
        Format::Env => found.to_variables(),
    };
    if let Some(path) = &args.svg {
        files::write(path, args.force, found.to_svg())?;
    }
    files::deliver(args.output.as_deref(), args.force, &text)
}

fn processor(snapshot: &Snapshot) -> Processor {
    let cpu = snapshot.cpu.as_ref();
    let guest = cpu.and_then(|cpu| match cpu.hypervisor {
        Hypervisor::Absent => Some(false),
        Hypervisor::Present(_) => Some(true),
        Hypervisor::Unknown => None,
    });
    Processor {
        model: cpu.and_then(|cpu| cpu.model.clone()),
        vendor: cpu.and_then(|cpu| cpu.vendor.clone()),
        family: cpu.and_then(|cpu| cpu.family),
        number: cpu.and_then(|cpu| cpu.number),
        guest,
        arrays: snapshot.tlb.clone(),
    }
}

/// Fails with the reason if pages of this size are not available.
fn offered(probe: &Live, without: &[NotOffered], page: PageSize) -> Result<(), Failure> {
    let offers = probe.offers();
    if offers.iter().any(|offer| offer.page == page) {
        return Ok(());
    }
    let sizes: Vec<String> = offers.iter().map(|offer| offer.page.to_string()).collect();
    let why = match without.iter().find(|one| one.sizes.contains(&page)) {
        Some(one) => one.to_string(),
        None => format!("pages of {page} are not available"),
    };
    Err(Failure::cannot(format!("{why}; there are: {}", sizes.join(", "))))
}

/// Returns `one` without the sizes that `changes` will make available; `None` if no size is left.
fn without_changed(one: &NotOffered, changes: &[Change]) -> Option<NotOffered> {
    let is_changed = |size: &PageSize| changes.iter().any(|change| change.size() == *size);
    let sizes: Vec<PageSize> = one.sizes.iter().copied().filter(|size| !is_changed(size)).collect();
    let is_left = one.sizes.is_empty() || !sizes.is_empty();
    is_left.then(|| NotOffered { sizes, why: one.why.clone() })
}

fn plan(args: &Args, probe: &Live, changes: &[Change]) -> Result<String, Failure> {
    let mut out = format!("on CPU {}, would measure:\n", probe.cpu);
    for (index, offer) in probe.offers().iter().enumerate() {
        let wanted = args.page_size.is_empty() || args.page_size.contains(&offer.page);
        if wanted || index == 0 {
            out += &format!("  pages of {}: {}\n", offer.page, offer.means);
        }
    }
    for one in probe.without().iter().filter_map(|one| without_changed(one, changes)) {
        out += &format!("  not {one}\n");
    }
    for change in changes {
        out += &format!("{}, to measure pages of {}\n", change.preview(), change.size());
    }
    for path in [&args.output, &args.svg].into_iter().flatten() {
        out += &format!("would write {}\n", path.display());
    }
    if args.save {
        out += &format!("would write {}\n", this_machine::path()?.display());
    }
    Ok(out)
}

fn cannot(error: ProbeError) -> Failure {
    Failure::cannot(error)
}
