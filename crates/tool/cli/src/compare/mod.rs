//! `superpage compare`: parses the flags and translates them to an experiment.

pub mod help;
mod open;
mod outputs;
pub mod plans;
mod running;
mod series;
mod table;

use std::path::PathBuf;
use std::sync::Arc;

use experiment::analysis::Analysis;
use experiment::document::Document;
use launch::{Recipe, Word};
use operations::compare::{Request, RuleArgs, ServiceArgs, Vary, vary};
use operations::jobs::{WarmMemory, arms};
use operations::pool_guard::PoolPolicy;
use operations::signals;
use operations::workloads::WorkloadArgs;
use workload::Workload;

use crate::exit::{self, Done, Failure};

/// Compare a program's speed on base pages, THP and hugetlb pages.
///
/// The program is a built-in workload (`superpage compare gups --size 4G`), any command (`superpage compare -- ./app
/// args`), a server under load (--service, --load) or a running process (--pid). The arms run interleaved, after warm-ups, at least 5 times each,
/// until every ratio to the first arm is known within 2 % at 99 % confidence; after a minute of runs, until every
/// verdict is decided. After ^C the completed runs are judged.
#[derive(Debug, clap::Args)]
#[command(
    after_help = help::ARMS,
    group = clap::ArgGroup::new("figures")
        .multiple(true)
        .args(["metric", "metric_command", "metric_counter", "metric_url"]),
    group = clap::ArgGroup::new("launched")
        .multiple(true)
        .args(LAUNCHED)
        .args(["service", "suite"])
        .conflicts_with("TargetArgs"),
)]
pub struct Args {
    /// Built-in workload: gups, chase, stream, touch, pagerank, btree, hashmap, requests.
    #[arg(conflicts_with = "command")]
    workload: Option<Workload>,

    /// Program and arguments.
    #[arg(last = true, value_name = "PROGRAM")]
    command: Vec<Word>,

    /// Arm to run; repeatable. The first is the reference [default: base, thp, hugetlb].
    #[arg(long = "arm", value_name = "RECIPE", value_parser = arms::parse)]
    arms: Vec<Recipe>,

    /// Run the reference twice, as two arms; their difference is the noise floor of every verdict.
    #[arg(long)]
    aa: bool,

    /// What to do about a hugetlb pool with too few free pages.
    #[arg(long, value_enum, default_value = "lend")]
    pool: PoolPolicy,

    /// Compare a number that the program prints: the first group of the last match of REGEX; repeatable, each number
    /// gets its own verdicts. For a service's load, NAME=REGEX gives the number a name: 'p99=99% ([0-9.]+)'.
    #[arg(long, value_name = "REGEX")]
    metric: Vec<String>,

    /// Name of that number, which may not be `wall`; repeatable, in the order of --metric [default: metric, metric
    /// 2, ...].
    #[arg(long, value_name = "NAME", requires = "figures")]
    metric_name: Vec<String>,

    /// Whether a higher or a lower number is better; once for all, or once per --metric [default: higher].
    #[arg(long, value_enum, value_name = "BETTER", requires = "figures")]
    metric_better: Vec<arms::BetterArg>,

    /// Before each run, touch and free as much memory as any arm used: in a virtual machine, memory that was not used
    /// recently is slow to touch, and results would depend on the order of runs.
    #[arg(long, value_enum, default_value = "auto", value_name = "WHEN")]
    warm_memory: WarmMemory,

    /// Also count runs that exit with a non-zero code.
    #[arg(long)]
    ignore_failure: bool,

    /// Predict the effect of superpages from the program's accesses and this machine's costs, and show it next to the
    /// measured effect. The program is recorded once under QEMU, which takes 20 to 130 times its CPU time; the accesses
    /// of built-in workloads are known.
    #[arg(long)]
    predict: bool,

    /// Compare at each value of a workload's option, or of {NAME} in the program's arguments: from..to doubles the
    /// value at each step, commas separate a list, 4x is four times the number of CPUs: size=128K..3G, clients=1..4x.
    /// --max-time is shared by all values.
    #[arg(long, value_name = "NAME=VALUES", value_parser = vary::parse, conflicts_with_all = ["predict", "dry_run"])]
    vary: Option<Vary>,

    /// Exit with 1 if an arm gets this verdict; repeatable.
    #[arg(long, value_enum, value_name = "VERDICT")]
    fail_if: Vec<outputs::FailIf>,

    /// Print a saved comparison (--json) again; run nothing.
    #[arg(long, value_name = "FILE", conflicts_with_all = LAUNCHED, conflicts_with_all = RUN_FLAGS)]
    from: Option<PathBuf>,

    /// Print what each arm would do; do nothing.
    #[arg(long, conflicts_with_all = ["json", "format"])]
    dry_run: bool,

    /// Print help with every option; --help leaves out rare options of workloads, services and
    /// judging.
    #[arg(long)]
    help_advanced: bool,

    // These flags come last: the help headings of flattened flags hold for all flags after them.
    #[command(flatten)]
    workload_args: WorkloadArgs,

    #[command(flatten)]
    service: ServiceArgs,

    #[command(flatten)]
    running: running::RunningArgs,

    #[command(flatten)]
    rule: RuleArgs,

    #[command(flatten)]
    outputs: outputs::Outputs,
}

/// Flags of programs that are launched, which conflict with processes that run, as `--service` and `--suite` do.
const LAUNCHED: [&str; 21] = [
    "workload",
    "command",
    "pool",
    "warm_memory",
    "ignore_failure",
    "predict",
    "vary",
    "size",
    "threads",
    "operations",
    "iterations",
    "repeat",
    "lines",
    "burst",
    "gap",
    "populate",
    "latency",
    "smallest",
    "largest",
    "graph",
    "offset",
];

/// Other flags of a new run, which conflict with `--from` as [`LAUNCHED`] do.
const RUN_FLAGS: [&str; 27] = [
    "arms",
    "aa",
    "metric",
    "metric_name",
    "metric_better",
    "dry_run",
    "seed",
    "min_runs",
    "max_runs",
    "max_time",
    "warmup",
    "confidence",
    "within",
    "same_within",
    "same_at_most",
    "min_coverage",
    "ServiceArgs",
    "TargetArgs",
    "metric_command",
    "metric_counter",
    "metric_url",
    "metric_series",
    "metric_per",
    "block",
    "settle",
    "keep_if",
    "figures",
];

pub fn run(args: Args) -> Result<Done, Failure> {
    if let Some(file) = &args.from {
        args.outputs.check()?;
        return match outputs::read(file)? {
            outputs::Saved::Comparison(document) => finish(&args, &document),
            outputs::Saved::Series(saved) => series::finish(&args, &saved),
            outputs::Saved::Running(document) => running::finish(&args, &document),
        };
    }
    if args.running.is_given() {
        return running::run(&args);
    }
    let (request, _around) = {
        // Catch signals while a suite entry is set up, so that its setup is undone.
        let interrupting = signals::interrupt_experiment(Arc::default())?;
        let with_suite = args.request().with_suite(args.dry_run);
        if let Some(signal) = interrupting.received() {
            return Ok(Done::Signal(signal));
        }
        with_suite?
    };
    if request.vary.is_some() {
        return series::run(&args, &request);
    }
    args.outputs.refuse_svg()?;
    let job = request.to_job()?;
    args.outputs.check()?;
    if args.dry_run {
        exit::print(&plans::in_words(&job.plans()?))?;
        return Ok(Done::Fine);
    }
    let compared = request.run(job)?;
    let done = match &compared.document {
        Some(document) => finish(&args, document)?,
        None => {
            exit::say("interrupted before every arm had two runs: no verdict");
            Done::Fine
        }
    };
    match (compared.signal, compared.unpredicted) {
        (Some(signal), _) => Ok(Done::Signal(signal)),
        (None, Some(failure)) => Err(failure),
        (None, None) => Ok(done),
    }
}

/// Formats a comparison as plain text, without colours.
pub fn text(document: &Document, analysis: &Analysis) -> String {
    anstream::adapter::strip_str(&table::text(document, analysis)).to_string()
}

fn finish(args: &Args, document: &Document) -> Result<Done, Failure> {
    let analysis = experiment::analysis::analyse(document);
    args.outputs.write(document, &analysis)?;
    args.judged([document])
}

/// Why `--fail-if` gives no answer.
const NO_VERDICT: &str = "--fail-if has no verdict to look at: no arm was compared with the first (the lines above say why)";

impl Args {
    fn request(&self) -> Request {
        Request {
            workload: self.workload,
            workload_args: self.workload_args.clone(),
            command: self.command.clone(),
            service: self.service.clone(),
            arms: self.arms.clone(),
            aa: self.aa,
            pool: self.pool,
            metric: self.metric.clone(),
            metric_name: self.metric_name.clone(),
            metric_better: self.metric_better.clone(),
            warm_memory: self.warm_memory,
            ignore_failure: self.ignore_failure,
            predict: self.predict,
            vary: self.vary.clone(),
            rule: self.rule.clone(),
            quiet: self.outputs.quiet,
        }
    }

    /// Returns `Negative` if an arm got a verdict of `--fail-if`.
    fn judged<'a>(
        &self,
        documents: impl IntoIterator<Item = &'a Document>,
    ) -> Result<Done, Failure> {
        if self.fail_if.is_empty() {
            return Ok(Done::Fine);
        }
        let (mut has_failed, mut lacks_arms) = (false, false);
        for document in documents {
            let analysis = experiment::analysis::analyse(document);
            let judgements = &analysis.judgements;
            let primary = || judgements.iter().filter(|one| one.is_primary);
            if self.fail_if.contains(&outputs::FailIf::NoEffect) {
                for arm in experiment::analysis::designs_without_effect(document, &analysis) {
                    exit::say(&format!("--fail-if no-effect: {arm}: its design made no superpage"));
                    has_failed = true;
                }
            }
            // True also if no arm was compared with the first.
            lacks_arms |= primary().all(|one| one.verdict.ratio().is_none());
            has_failed |=
                primary().any(|one| self.fail_if.iter().any(|asked| asked.matches(&one.verdict)));
        }
        match (has_failed, lacks_arms) {
            (true, _) => Ok(Done::Negative),
            (false, true) => Err(Failure::cannot(NO_VERDICT)),
            (false, false) => Ok(Done::Fine),
        }
    }
}
