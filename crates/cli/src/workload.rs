//! `superpage workload`: one benchmark kernel, alone.

use std::io::IsTerminal;
use std::num::NonZeroUsize;
use std::ops::Range;

use host::{MemInfo, Root, coverage};
use sys::pagemap::Pagemap;
use units::ByteSize;
use workload::{Details, Graph, Options, Outcome, Settings, Workload};

use crate::exit::{self, Done, Failure};

/// Run one benchmark kernel and verify its result.
///
/// Prints one line of JSON (and, on a terminal, a summary before it). Without a name, lists the
/// kernels.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which kernel.
    name: Option<Workload>,

    /// Print only the line of JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    what: What,
}

/// What a kernel works on; `compare` takes the same flags.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Workload options")]
pub struct What {
    /// Memory to work on [default: 1G].
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true)]
    size: Option<ByteSize>,

    /// Seed of every random choice.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// Threads in the timed region.
    #[arg(long, default_value = "1", value_name = "T", value_parser = threads)]
    threads: NonZeroUsize,

    /// gups, chase, btree, hashmap, requests: updates, loads, lookups or requests.
    #[arg(long, value_name = "N")]
    operations: Option<u64>,

    /// stream: passes; pagerank: the most iterations.
    #[arg(long, value_name = "N")]
    iterations: Option<u32>,

    /// touch: how often fresh memory is touched.
    #[arg(long, value_name = "N")]
    repeat: Option<u32>,

    /// touch: cache lines touched in each page.
    #[arg(long, value_name = "K")]
    lines: Option<u32>,

    /// touch: allocate, touch and free it in pieces of this size.
    #[arg(long, value_name = "SIZE")]
    burst: Option<ByteSize>,

    /// touch: milliseconds of rest before each piece.
    #[arg(long, value_name = "MS")]
    gap: Option<u32>,

    /// touch: have the kernel fault the pages in ahead (MADV_POPULATE_WRITE).
    #[arg(long)]
    populate: bool,

    /// touch: time each page's first touch by itself.
    #[arg(long)]
    latency: bool,

    /// requests: the smallest block.
    #[arg(long, value_name = "SIZE")]
    smallest: Option<ByteSize>,

    /// requests: the largest block.
    #[arg(long, value_name = "SIZE")]
    largest: Option<ByteSize>,

    /// pagerank: which graph, kronecker or uniform.
    #[arg(long, value_name = "KIND")]
    graph: Option<Graph>,

    /// stream: bytes by which each array starts later than the one before.
    #[arg(long, value_name = "SIZE")]
    offset: Option<ByteSize>,
}

/// Reads a number of threads.
pub fn threads(text: &str) -> Result<NonZeroUsize, String> {
    text.trim().parse().map_err(|_| "write a number of threads, at least 1".to_string())
}

impl What {
    /// The flags that mean these settings.
    pub fn of(settings: &Settings) -> Self {
        let options = settings.options.clone();
        Self {
            size: Some(settings.size),
            seed: settings.seed,
            threads: settings.threads,
            operations: options.operations,
            iterations: options.iterations,
            repeat: options.repeat,
            lines: options.lines,
            burst: options.burst,
            gap: options.gap,
            populate: options.populate,
            latency: options.latency,
            smallest: options.smallest,
            largest: options.largest,
            graph: options.graph,
            offset: options.offset,
        }
    }

    /// The settings of `workload`, checked against this machine's free memory.
    pub fn settings(&self, workload: Workload) -> Result<Settings, Failure> {
        let settings = Settings {
            size: self.size.unwrap_or(workload.default_size()),
            seed: self.seed,
            threads: self.threads,
            options: Options {
                operations: self.operations,
                iterations: self.iterations,
                repeat: self.repeat,
                lines: self.lines,
                burst: self.burst,
                gap: self.gap,
                populate: self.populate,
                latency: self.latency,
                smallest: self.smallest,
                largest: self.largest,
                graph: self.graph,
                offset: self.offset,
            },
        };
        let available = MemInfo::read(&Root::real()).ok().and_then(|memory| memory.available);
        workload.check(&settings, available).map_err(Failure::usage)?;
        Ok(settings)
    }

    /// The flags that give the same settings again, for a child process.
    pub fn to_arguments(&self, workload: Workload) -> Vec<String> {
        let size = self.size.unwrap_or(workload.default_size());
        let mut words = vec![
            "--size".to_string(),
            exactly(size),
            "--seed".to_string(),
            self.seed.to_string(),
            "--threads".to_string(),
            self.threads.to_string(),
        ];
        let given = [
            ("--operations", self.operations.map(|n| n.to_string())),
            ("--iterations", self.iterations.map(|n| n.to_string())),
            ("--repeat", self.repeat.map(|n| n.to_string())),
            ("--lines", self.lines.map(|n| n.to_string())),
            ("--burst", self.burst.map(exactly)),
            ("--gap", self.gap.map(|n| n.to_string())),
            ("--smallest", self.smallest.map(exactly)),
            ("--largest", self.largest.map(exactly)),
            ("--graph", self.graph.map(|graph| graph.to_string())),
            ("--offset", self.offset.map(exactly)),
        ];
        for (flag, value) in given {
            words.extend(value.into_iter().flat_map(|value| [flag.to_string(), value]));
        }
        let switches = [("--populate", self.populate), ("--latency", self.latency)];
        words.extend(switches.iter().filter(|(_, on)| *on).map(|(flag, _)| flag.to_string()));
        words
    }

    /// The same without the options that `workload` does not have: for flags that are given to several.
    pub fn for_workload(&self, workload: Workload) -> Self {
        let has = |option: &str| workload.options().contains(&option);
        let mut own = self.clone();
        own.operations = own.operations.filter(|_| has("operations"));
        own.iterations = own.iterations.filter(|_| has("iterations"));
        own.repeat = own.repeat.filter(|_| has("repeat"));
        own.lines = own.lines.filter(|_| has("lines"));
        own.burst = own.burst.filter(|_| has("burst"));
        own.gap = own.gap.filter(|_| has("gap"));
        own.populate &= has("populate");
        own.latency &= has("latency");
        own.smallest = own.smallest.filter(|_| has("smallest"));
        own.largest = own.largest.filter(|_| has("largest"));
        own.graph = own.graph.filter(|_| has("graph"));
        own.offset = own.offset.filter(|_| has("offset"));
        own
    }

    /// Whether any flag was given that only a workload has.
    pub fn is_given(&self) -> bool {
        self.size.is_some()
            || self.threads.get() > 1
            || self.operations.is_some()
            || self.iterations.is_some()
            || self.repeat.is_some()
            || self.lines.is_some()
            || self.burst.is_some()
            || self.gap.is_some()
            || self.populate
            || self.latency
            || self.smallest.is_some()
            || self.largest.is_some()
            || self.graph.is_some()
            || self.offset.is_some()
    }
}

/// The words that run `workload` in a process of its own: ourselves, with its settings.
pub fn command(workload: Workload, what: &What) -> Result<Vec<String>, Failure> {
    what.settings(workload)?;
    let own = std::env::current_exe()
        .map_err(|error| Failure::usage(format!("our own program file: {error}")))?;
    let mut words = vec![own.display().to_string(), "workload".into(), workload.to_string()];
    words.extend(what.to_arguments(workload));
    words.push("--json".to_string());
    Ok(words)
}

/// The size as a flag's value: `4GiB` where that is exact, else the bytes.
pub fn exactly(size: ByteSize) -> String {
    let short = size.to_string().replace(' ', "");
    if short.parse() == Ok(size) { short } else { size.bytes().to_string() }
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let Some(workload) = args.name else { return list(args.json) };
    let settings = args.what.settings(workload)?;
    let outcome = workload.run_seen(&settings, &on_superpages).map_err(Failure::usage)?;
    if !args.json && std::io::stdout().is_terminal() {
        exit::print(&summary(&outcome))?;
    }
    exit::print(&format!("{}\n", outcome.to_line()))?;
    Ok(Done::Fine)
}

/// Bytes of a range of our own memory that are on superpages.
fn on_superpages(range: Range<u64>) -> Option<u64> {
    let page = sys::param::page_size();
    let pagemap = Pagemap::open(sys::param::own_pid()).ok()?;
    let found = coverage::scan(&pagemap, page.floor(range.start), page.ceil(range.end)).ok()?;
    Some(found.huge.bytes().min(range.end - range.start))
}

fn list(json: bool) -> Result<Done, Failure> {
    if json {
        let all: Vec<_> = Workload::ALL
            .iter()
            .map(|one| {
                serde_json::json!({
                    "name": one.name(),
                    "summary": one.summary(),
                    "default_size_bytes": one.default_size().bytes(),
                    "options": one.options(),
                })
            })
            .collect();
        let document = serde_json::json!({ "schema": "superpage.workloads/1", "workloads": all });
        exit::print(&format!("{document:#}\n"))?;
    } else {
        for one in Workload::ALL {
            exit::print(&format!("{:<10} {}\n", one.name(), one.summary()))?;
        }
    }
    Ok(Done::Fine)
}

fn summary(outcome: &Outcome) -> String {
    let figure = &outcome.figure;
    let mut text = format!(
        "{}: {} {} {} ({}, {} thread(s), seed {}; setup {:.2} s, timed {:.3} s, verified in {:.2} s)\n",
        outcome.workload,
        figure.name,
        report::format::figure(figure.value),
        figure.unit,
        ByteSize(outcome.size_bytes),
        outcome.threads,
        outcome.seed,
        outcome.setup_seconds,
        outcome.seconds,
        outcome.verify_seconds
    );
    if let Details::Touch {
        gib,
        repeat,
        lines,
        user_seconds,
        system_seconds,
        wall_seconds,
        faults_per_cpu_second,
        faults_per_wall_second,
        ..
    } = &outcome.details
    {
        let known = |value: &Option<f64>, digits| match value {
            Some(value) => format!("{value:.digits$}"),
            None => "?".to_string(),
        };
        text += " Gb Rep Threads CLine     User   System     Wall  flt/cpu/s fault/wsec\n";
        text += &format!(
            "{gib:>3} {repeat:>3} {:>7} {lines:>5} {:>8} {:>8} {wall_seconds:>8.3} {:>10} {:>10}\n",
            outcome.threads,
            known(user_seconds, 3),
            known(system_seconds, 3),
            known(faults_per_cpu_second, 0),
            known(faults_per_wall_second, 0)
        );
    }
    text
}
