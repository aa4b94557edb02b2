//! `superpage advise`: the gain of superpages for running processes, estimated without changing them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ::advise::{Advice, AdviceError, Costs, Damon, Remedy, Verdict, Why};
use experiment::prices::{PricesError, Samples, one_stream};
use host::{Root, Snapshot};
use prediction::{Near, Prices, Sequential};
use report::format::counted;
use serde::{Deserialize, Serialize};
use services::Process;
use units::ByteSize;

use crate::exit::{self, Done, Failure};
use crate::files;
use crate::pool::show;
use crate::progress::Progress;
use crate::targets::{self, ProcessArgs};
use operations::facts;

/// Estimate the gain of superpages for running processes, where it is, and how to get it.
///
/// Samples the accesses of each process for a while (--for), and computes from them and from this machine's prices of
/// accesses how much faster the process would be. Nothing is written to the process or to the machine. Sample the
/// processes under their usual load.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub struct Args {
    #[command(flatten)]
    processes: ProcessArgs,

    /// Seconds of sampling, 1 to 40.
    #[arg(long = "for", value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=40))]
    seconds: u64,

    /// This machine's prices of accesses: read from FILE, or, if it does not exist, measured (5 to 20 s) and written there.
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,

    /// Rows of each table of regions.
    #[arg(long, default_value_t = 8, value_name = "N", help_heading = "Output")]
    top: usize,

    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

const AFTER: &str = "\
Samples need perf events: for your own processes kernel.perf_event_paranoid of 2 or less, otherwise CAP_PERFMON and \
CAP_SYS_PTRACE. No performance counters are needed.

Exit codes: 0 advice, also without a gain; 1 unknown, with the reason; 2 wrong usage; 3 not \
possible on this machine.";

const SCHEMA: &str = "superpage.advise/1";
const PRICES: &str = "superpage.prices/1";
/// Largest footprint whose prices are measured.
const MOST: ByteSize = ByteSize::mib(512);
/// Smallest footprint whose prices are useful.
const LEAST: ByteSize = ByteSize::mib(256);
/// Most processes sampled together.
const MAX_PROCESSES: usize = 16;
/// Largest file of prices.
const LARGEST: u64 = 1 << 20;

/// Prices of accesses on a machine, as a file.
#[derive(Debug, Serialize, Deserialize)]
struct PriceFile {
    schema: String,
    /// The processor's name; prices of another are refused.
    processor: Option<String>,
    prices: Prices,
    /// Nanoseconds of a base page read in one stream.
    one_stream: Sequential,
    /// Prices on base pages with neighbouring frames; null: not known apart.
    near: Option<Near>,
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    processes: &'a [Advice],
    failed: Vec<Failed>,
    /// Processes that were not sampled, because others have more memory.
    left_out: usize,
}

#[derive(Debug, Serialize)]
struct Failed {
    pid: units::Pid,
    name: String,
    why: String,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let targets = args.processes.targets();
    if targets.is_empty() {
        return Err(Failure::usage("no process named: give a PID, --cgroup, --unit or --match"));
    }
    if cfg!(not(target_arch = "x86_64")) {
        return Err(Failure::cannot(
            "samples are decoded on x86-64 only; not on this architecture yet",
        ));
    }
    let root = Root::real();
    let selected = targets::select(&root, &targets)?;
    let (processes, left_out) = ::advise::largest(&root, selected.processes, MAX_PROCESSES);
    let prices = prices(args.prices.as_deref())?;
    let looks = look(&root, &processes, Duration::from_secs(args.seconds), &prices);
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    for (process, look) in processes.iter().zip(looks) {
        match look {
            Ok(advice) => found.push(advice),
            Err(error) => failed.push((process, error)),
        }
    }
    if found.is_empty()
        && let Some((process, error)) = failed.first()
    {
        return Err(Failure::cannot(format!("pid {}: {error}", process.pid)));
    }
    let unknown = found.iter().all(|one| matches!(one.verdict, Verdict::Unknown(_)));
    if args.json {
        let failed = failed.iter().map(|(process, error)| Failed {
            pid: process.pid,
            name: process.name.clone(),
            why: error.to_string(),
        });
        let document = Document { processes: &found, failed: failed.collect(), left_out };
        let body = serde_json::to_value(&document);
        let body = body.map_err(|error| Failure::usage(format!("JSON: {error}")))?;
        exit::print_json(SCHEMA, body)?;
    } else {
        for advice in &found {
            exit::print(&text(advice, args.top))?;
        }
        for (process, error) in &failed {
            exit::say(&format!("pid {}: {error}", process.pid));
        }
        if left_out > 0 {
            exit::say(&format!("{left_out} more processes, with less memory, were not sampled"));
        }
    }
    Ok(if unknown { Done::Negative } else { Done::Fine })
}

/// Looks at all processes at the same time.
fn look(
    root: &Root,
    processes: &[Process],
    time: Duration,
    prices: &Costs,
) -> Vec<Result<Advice, AdviceError>> {
    let mut progress = Progress::new(false, "sampling");
    std::thread::scope(|scope| {
        let looks: Vec<_> = processes
            .iter()
            .map(|process| {
                scope.spawn(move || ::advise::advise(root, process, time, prices, |_| true))
            })
            .collect();
        let total = time.as_millis() as u64;
        let mut passed = 0;
        while passed < total && !looks.iter().all(|look| look.is_finished()) {
            let step = 200.min(total - passed);
            std::thread::sleep(Duration::from_millis(step));
            passed += step;
            progress.tell(passed, Some(total), || "sampling".to_string());
        }
        progress.clear();
        let join = |look: std::thread::ScopedJoinHandle<'_, _>| {
            look.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        looks.into_iter().map(join).collect()
    })
}

/// Reads or measures this machine's prices.
fn prices(path: Option<&Path>) -> Result<Costs, Failure> {
    let machine = Snapshot::read(&Root::real());
    let processor = machine.cpu.as_ref().and_then(|cpu| cpu.model.clone());
    if let Some(path) = path.filter(|path| path.exists()) {
        return read(path, processor.as_deref());
    }
    if let Some(path) = path {
        files::check_new(path, false)?;
    }
    let mut most = facts::measurement_memory(MOST);
    let prices = loop {
        match measure(most, &machine) {
            // Without contiguous memory, prices of smaller footprints: those of larger ones are taken to be equal.
            Err(PricesError::NotGot { .. }) if most > LEAST => {
                most = ByteSize(most.bytes() / 2);
                exit::say(&format!(
                    "prices are measured up to {most} only: too little free memory is contiguous"
                ));
            }
            measured => break measured.map_err(unpriced)?,
        }
    };
    if let Some(path) = path {
        let file = PriceFile {
            schema: PRICES.to_string(),
            processor,
            prices: prices.accesses.clone(),
            one_stream: prices.one_stream,
            near: prices.near.clone(),
        };
        files::write(path, false, exit::to_json(&file)?)?;
    }
    Ok(prices)
}

fn measure(most: ByteSize, machine: &Snapshot) -> Result<Costs, PricesError> {
    let what = "measuring what accesses cost on this machine";
    let mut samples = Samples::new(most, facts::superpage(machine))?.with_near_frames();
    let mut progress = Progress::new(false, what);
    let measured = samples.visit(|done, of| {
        progress.tell(done as u64, Some(of as u64), || what.to_string());
        true
    });
    progress.clear();
    measured?;
    let one_stream = one_stream(LEAST, facts::superpage(machine))?;
    Ok(Costs { accesses: samples.prices(), one_stream, near: samples.near() })
}

fn read(path: &Path, processor: Option<&str>) -> Result<Costs, Failure> {
    let bad = |why: String| Failure::usage(format!("{}: {why}", path.display()));
    let text = files::text(path, LARGEST, "a file of prices")?;
    let file: PriceFile = serde_json::from_str(&text)
        .map_err(|error| bad(format!("not a file of prices: {error}")))?;
    if file.schema != PRICES {
        return Err(bad(format!("its schema is {:?}, not {PRICES}", file.schema)));
    }
    if let (Some(of), Some(here)) = (&file.processor, processor)
        && of != here
    {
        return Err(bad(format!("measured on {of}, and this is {here}; give another file")));
    }
    file.prices.check().map_err(|error| bad(error.to_string()))?;
    if let Some(near) = &file.near {
        near.check(&file.prices).map_err(|error| bad(error.to_string()))?;
    }
    Ok(Costs { accesses: file.prices, one_stream: file.one_stream, near: file.near })
}

fn unpriced(error: PricesError) -> Failure {
    match error {
        PricesError::NoSuperpages | PricesError::NotGot { .. } => Failure::cannot(error),
        PricesError::Sys(_) | PricesError::Interrupted => Failure::usage(error),
    }
}

/// Advice as text.
fn text(advice: &Advice, top: usize) -> String {
    let process = &advice.process;
    let name = report::format::name(&process.name, 40);
    let mut text = format!("{name} {}: {}\n", process.pid, verdict(advice));
    let look = &advice.look;
    let rows: Vec<Vec<String>> = advice
        .regions
        .iter()
        .take(top)
        .map(|region| {
            vec![
                format!("{:x}", region.start),
                ByteSize(region.end - region.start).to_string(),
                region.on_base_pages.to_string(),
                format!("+{}", region.extra_bytes),
                report::format::percent(region.accesses),
                report::format::percent(region.saved),
                report::format::name(&region.name, 40),
            ]
        })
        .collect();
    if !rows.is_empty() && matches!(advice.verdict, Verdict::Gain(_)) {
        let header =
            ["address", "size", "on base pages", "more memory", "samples", "time saved", "name"];
        text += "\n";
        text += &show::table(&header, rows, &[6]);
        if advice.regions.len() > top {
            text += &format!("({} more regions; --top)\n", advice.regions.len() - top);
        }
    }
    let share = |count: usize| report::format::percent(count as f64 / look.samples.max(1) as f64);
    text += &format!(
        "\n{} samples in {:.0} s of {}: {} at accesses with known addresses, {} lost, {} without access",
        look.samples,
        look.seconds,
        counted(look.threads, "thread", "threads"),
        share(look.attributed),
        share(look.lost + look.unreadable),
        share(look.without),
    );
    if look.dropped > 0 {
        text += &format!(", {} dropped", look.dropped);
    }
    if look.unsampled_threads > 0 {
        text += &format!("; {} not sampled", counted(look.unsampled_threads, "thread", "threads"));
    }
    text += &format!("; {:.2} s of CPU time for sampling\n", look.own_seconds);
    if look.ended {
        text += "the process ended during sampling\n";
    }
    text += &format!("hotness: CPU clock samples; {}\n", not_used(look));
    let mut or = "";
    for remedy in &advice.remedies {
        text += &format!("  {or}{}\n", in_words(remedy));
        or = if *remedy == Remedy::Redis { "" } else { "or " };
    }
    text
}

fn verdict(advice: &Advice) -> String {
    let signed = |share: f64| format!("{:+.0}", 100.0 * share + 0.0);
    match advice.verdict {
        Verdict::Gain(range) => format!(
            "{}{} % ({} to {} %), {} more memory, {}",
            if range.low > 0.0 { "" } else { "undecided: " },
            signed(range.mid),
            signed(range.low),
            signed(range.high),
            advice.extra_bytes,
            contiguity(advice),
        ),
        Verdict::None(range) => {
            format!(
                "none: {} % ({} to {} %)",
                signed(range.mid),
                signed(range.low),
                signed(range.high)
            )
        }
        Verdict::Unknown(Why::FewSamples) => format!(
            "unknown: it used too little CPU time in user mode ({} samples); sample longer (--for), or under \
             load",
            advice.look.samples
        ),
        Verdict::Unknown(Why::Lost) => format!(
            "unknown: {} of its samples are at accesses whose addresses cannot be computed",
            report::format::percent(
                (advice.look.lost + advice.look.unreadable) as f64 / advice.look.samples as f64
            )
        ),
    }
}

fn contiguity(advice: &Advice) -> String {
    match advice.contiguity {
        None => "contiguity unknown".to_string(),
        Some(found) if found.free >= found.needed => "contiguity enough".to_string(),
        Some(found) => format!(
            "contiguity for {} of {} superpages (`superpage pool` compacts)",
            found.free, found.needed
        ),
    }
}

/// Why better sources were not used.
fn not_used(look: &::advise::Look) -> String {
    let damon = match &look.damon {
        Damon::Absent => "this kernel has no DAMON".to_string(),
        Damon::InUse { .. } if look.damon.lacks_processes() => {
            "DAMON of this kernel has no vaddr operations, and is in use".to_string()
        }
        Damon::InUse { kdamonds, .. } => {
            format!("DAMON is in use ({})", counted(*kdamonds, "kdamond", "kdamonds"))
        }
        Damon::Free => "DAMON is not used: using it would change its settings".to_string(),
        Damon::Unknown { why } => format!("DAMON cannot be read ({why})"),
    };
    let pmu = if look.has_pmu { "the PMU is not used yet" } else { "no PMU" };
    format!("{damon}; {pmu}")
}

/// Formats a remedy. `superpage` is named by its full path: systemd does not search PATH.
fn in_words(remedy: &Remedy) -> String {
    let started = |command: &[String]| match command.is_empty() {
        true => {
            "COMMAND (the one that starts it: the process overwrote its command line)".to_string()
        }
        false => report::format::command(command),
    };
    match remedy {
        Remedy::Run { command } => {
            format!("start it by: superpage run --heap --mmap -- {}", started(command))
        }
        Remedy::DropIn { unit, command } => {
            let own = std::env::current_exe().unwrap_or_else(|_| "/usr/bin/superpage".into());
            format!(
                "systemctl edit {unit}: [Service], ExecStart=, ExecStart={} run --heap --mmap -- {}",
                report::format::command(&[own.to_string_lossy()]),
                started(command)
            )
        }
        Remedy::Java { is_refused: false } => "java -XX:+UseTransparentHugePages".to_string(),
        Remedy::Java { is_refused: true } => {
            "java -XX:+UseTransparentHugePages in place of its -XX:-UseTransparentHugePages".to_string()
        }
        Remedy::Postgres { pid, is_on_command_line } => format!(
            "postgresql.conf: huge_pages = on{}; the pool: superpage pool plan --pid {pid}",
            if *is_on_command_line { ", and no huge_pages on its command line, which wins" } else { "" }
        ),
        Remedy::Glibc => {
            "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 in its environment, from glibc 2.35 on (which leaves some starts \
             without: README)"
                .to_string()
        }
        Remedy::Jemalloc => "MALLOC_CONF=thp:always in its environment (jemalloc)".to_string(),
        Remedy::Container => {
            "in its container: docker run -e GLIBC_TUNABLES=glibc.malloc.hugetlb=1, or that under env: of the pod".to_string()
        }
        Remedy::Always => {
            "echo always > /sys/kernel/mm/transparent_hugepage/enabled (all programs), then restart it".to_string()
        }
        Remedy::Redis => "redis.conf: disable-thp no (it turned THP off for itself), and:".to_string(),
    }
}
