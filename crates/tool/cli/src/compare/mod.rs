//! `superpage compare`: the main job. Flags, and from flags to an experiment.

pub mod entry;
pub mod help;
mod outputs;
mod predicted;
mod service;
mod shift;
mod table;
mod vary;

use std::path::PathBuf;
use std::sync::Arc;

use experiment::analysis::Analysis;
use experiment::document::{Document, Judging};
use experiment::metric::MetricSpec;
use experiment::procedure::Settings;
use experiment::stats::stopping::Rule;
use experiment::stats::{Better, Confidence};
use launch::{Recipe, Word};
use workload::Workload;

use predicted::Predicting;

use crate::exit::{self, Done, Failure};
use crate::pool_guard::PoolPolicy;
use crate::runs::{Job, JobOutcome, arms};
use crate::signals;
use crate::workload::WorkloadArgs;

/// Compare a program's speed on base pages, THP and hugetlb pages.
///
/// The program is a built-in workload (`superpage compare gups --size 4G`), any command
/// (`superpage compare -- ./app args`) or a server under load (--service, --load). The arms run interleaved, after warm-ups, at least 5 times
/// each, until every ratio to the first arm is known within 2 % at 99 % confidence; after a minute of
/// runs, until every verdict is decided. After ^C the runs so far are judged.
#[derive(Debug, clap::Args)]
#[command(after_help = arms::HELP)]
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

    /// Compare a number that the program prints: the first group of the last match; repeatable, each
    /// number gets verdicts of its own. Of a service's load, NAME=REGEX names it: 'p99=99% ([0-9.]+)'.
    #[arg(long, value_name = "REGEX")]
    metric: Vec<String>,

    /// Name of that number, but not `wall`; repeatable, the first is of the first --metric [default: metric, metric 2, ...].
    #[arg(long, value_name = "NAME", requires = "metric")]
    metric_name: Vec<String>,

    /// Whether a higher or a lower number is better; once for all, or once per --metric [default: higher].
    #[arg(long, value_enum, value_name = "BETTER", requires = "metric")]
    metric_better: Vec<arms::BetterArg>,

    /// Before each run, touch and free as much memory as any arm used: in a virtual machine, memory
    /// that was not used recently is slow to touch, so results would depend on the order of runs.
    #[arg(long, value_enum, default_value = "auto", value_name = "WHEN")]
    warm_memory: arms::WarmMemory,

    /// Also count runs that exit with a non-zero code.
    #[arg(long)]
    ignore_failure: bool,

    /// Predict the effect of superpages from the program's accesses and this machine's costs, and show
    /// it beside the measured effect. A program is recorded once for that, under QEMU, which takes 20 to 130
    /// times its CPU time; the accesses of built-in workloads are known.
    #[arg(long)]
    predict: bool,

    /// Compare at each value of a workload's option, or of {NAME} in the program's arguments: from..to doubles,
    /// a list has commas, 4x is four times the CPUs: size=128K..3G, clients=1..4x. --max-time is shared.
    #[arg(long, value_name = "NAME=VALUES", value_parser = vary::parse, conflicts_with_all = ["predict", "dry_run"])]
    vary: Option<vary::Vary>,

    /// Exit with 1 if an arm gets this verdict; repeatable.
    #[arg(long, value_enum, value_name = "VERDICT")]
    fail_if: Vec<outputs::FailIf>,

    /// Print a saved comparison (--json) again; run nothing.
    #[arg(long, value_name = "FILE", conflicts_with_all = RUN_FLAGS)]
    from: Option<PathBuf>,

    /// Print what each arm would do; do nothing.
    #[arg(long, conflicts_with_all = ["json", "format"])]
    dry_run: bool,

    /// Print help with every option; --help leaves out rare ones of workloads, services and judging.
    #[arg(long)]
    help_advanced: bool,

    // Last: their headings hold for all flags after them.
    #[command(flatten)]
    workload_args: WorkloadArgs,

    #[command(flatten)]
    service: service::ServiceArgs,

    #[command(flatten)]
    rule: RuleArgs,

    #[command(flatten)]
    outputs: outputs::Outputs,
}

/// Flags that mean a run to be made, and nothing to a comparison that was made.
const RUN_FLAGS: [&str; 38] = [
    "vary",
    "workload",
    "command",
    "arms",
    "aa",
    "pool",
    "metric",
    "metric_name",
    "metric_better",
    "warm_memory",
    "ignore_failure",
    "predict",
    "dry_run",
    "size",
    "seed",
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
];

/// Where nobody says how long.
const MAX_SECONDS: f64 = 300.0;
/// And up to how long, for programs of which a few runs take longer than that.
const PATIENCE_SECONDS: f64 = 1800.0;

/// When to stop, and how to judge.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Stopping and judging")]
struct RuleArgs {
    /// Minimum runs per arm, made in pairs [default: 5].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=10_000))]
    min_runs: Option<u32>,

    /// Maximum runs per arm [default: 100].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=10_000))]
    max_runs: Option<u32>,

    /// Maximum time for all measured runs: 90s, 5m, 1h [default: 5m; for slow programs until every arm
    /// has 50 runs, at most 30m].
    #[arg(long, value_name = "TIME", value_parser = arms::seconds)]
    max_time: Option<f64>,

    /// Warm-up runs per arm, not counted.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100))]
    warmup: u32,

    /// Confidence level of intervals and of the stopping rule.
    #[arg(long, default_value = "99%", value_name = "SHARE", value_parser = arms::confidence)]
    confidence: Confidence,

    /// Stop when every ratio to the first arm is known within this.
    #[arg(long, default_value = "2%", value_name = "SHARE", value_parser = arms::share)]
    within: f64,

    /// Judge smaller differences "the same", even if they are significant.
    #[arg(long, default_value = "2%", value_name = "SHARE", value_parser = arms::share)]
    same_within: f64,

    /// Judge arms that may be equal "the same" if they differ by at most this.
    #[arg(long, default_value = "5%", value_name = "SHARE", value_parser = arms::share)]
    same_at_most: f64,

    /// Minimum share of eligible memory on superpages, for arms that asked for them.
    #[arg(long, default_value = "80%", value_name = "SHARE", value_parser = arms::share)]
    min_coverage: f64,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let (args, _around) = {
        // While the entry of a suite is set up; what was made for it is taken away.
        let interrupting = signals::interrupt_experiment(Arc::default())?;
        let with_suite = args.with_suite();
        if let Some(signal) = interrupting.received() {
            return Ok(Done::Signal(signal));
        }
        with_suite?
    };
    if let Some(file) = &args.from {
        args.outputs.check()?;
        return match outputs::read(file)? {
            outputs::Saved::Comparison(document) => finish(&args, &document),
            outputs::Saved::Series(series) => {
                vary::finish(&args, &series)?;
                args.judged(series.points.iter().map(|one| &one.comparison))
            }
        };
    }
    if let Some(vary) = &args.vary {
        return vary::run(&args, vary);
    }
    args.outputs.refuse_svg()?;
    let command = args.command_to_compare()?;
    let metrics = args.metric_specs()?;
    args.outputs.check()?;
    let job = args.job(command, metrics)?;
    if args.dry_run {
        job.print_plans()?;
        return Ok(Done::Fine);
    }
    // First, so that what cannot be predicted is said before minutes of runs.
    let mut asked = args.predict.then(|| Predicting::new(&args)).transpose()?;
    let between = &mut || asked.iter_mut().for_each(Predicting::between);
    let mut document = match shift::run(job, args.workload, between)? {
        JobOutcome::Document(document) => document,
        JobOutcome::Signal(signal, made) => {
            if let Some(document) = made {
                finish(&args, &document)?;
            } else {
                exit::say("interrupted before every arm had two runs: no verdict");
            }
            return Ok(Done::Signal(signal));
        }
    };
    let predicted = asked.map(|asked| asked.predict(&document)).transpose();
    // Minutes of runs are not thrown away for a prediction.
    let failed = match predicted {
        Ok(predicted) => {
            document.predicted = predicted;
            None
        }
        Err(failure) => Some(failure),
    };
    let done = finish(&args, &document)?;
    failed.map_or(Ok(done), Err)
}

/// A comparison as people read it, without colours.
pub fn text(document: &Document, analysis: &Analysis) -> String {
    anstream::adapter::strip_str(&table::text(document, analysis)).to_string()
}

fn finish(args: &Args, document: &Document) -> Result<Done, Failure> {
    let analysis = experiment::analysis::analyse(document);
    args.outputs.write(document, &analysis)?;
    args.judged([document])
}

impl Args {
    /// The experiment with one command.
    fn job(&self, command: Vec<Word>, metrics: Vec<MetricSpec>) -> Result<Job, Failure> {
        Ok(Job {
            shown: self.shown_command(&command),
            command,
            service: self.service.around()?,
            recipes: self.arms.clone(),
            is_choice: false,
            aa: self.aa,
            pool: self.pool,
            metrics,
            metric_is_primary: !self.metric.is_empty(),
            settings: self.settings()?,
            judging: self.judging(),
            warm_memory: self.warm_memory,
            ignore_failure: self.ignore_failure,
            quiet: self.outputs.quiet,
        })
    }

    /// The words to start: the command given, or ourselves with a workload.
    fn command_to_compare(&self) -> Result<Vec<Word>, Failure> {
        let Some(workload) = self.workload else {
            let service = self.service.words()?;
            if self.command.is_empty() && service.is_none() {
                return Err(Failure::usage(
                    "nothing to compare; name a workload (superpage compare gups), a command \
                     (superpage compare -- ./app) or a server (--service COMMAND --load COMMAND)",
                ));
            }
            if self.workload_args.is_given() {
                return Err(Failure::usage(
                    "--size and the other workload options need a workload, not a command",
                ));
            }
            return Ok(service.unwrap_or_else(|| self.command.clone()));
        };
        crate::workload::command(workload, &self.workload_args.settings(workload)?)
    }

    /// The command as people know it: not by the path of our own program.
    fn shown_command(&self, command: &[Word]) -> Vec<Word> {
        let mut shown = command.to_vec();
        if self.workload.is_some() {
            shown[0] = "superpage".into();
            shown.pop();
        }
        shown
    }

    fn metric_specs(&self) -> Result<Vec<MetricSpec>, Failure> {
        let Some(workload) = self.workload.filter(|_| self.metric.is_empty()) else {
            return self.given_metrics();
        };
        let of_figure = |name: &str, unit: &str, regex: String, better| MetricSpec {
            name: name.to_string(),
            unit: Some(unit.to_string()),
            regex,
            better: match better {
                workload::Better::Higher => Better::Higher,
                workload::Better::Lower => Better::Lower,
            },
        };
        let (name, unit, better) = workload.figure();
        let figure = r#""figure":\{[^}]*"value":([-+0-9.eE]+)"#.to_string();
        let mut metrics = vec![of_figure(name, unit, figure, better)];
        if workload == Workload::Stream {
            metrics.extend(["copy", "scale", "add"].map(|kernel| {
                let regex = format!(r#""{kernel}":\{{"best_bytes_per_second":([-+0-9.eE]+)"#);
                of_figure(&format!("{kernel}, best"), unit, regex, better)
            }));
        }
        Ok(metrics)
    }

    /// Those of `--metric`, with their names and directions.
    fn given_metrics(&self) -> Result<Vec<MetricSpec>, Failure> {
        let count = self.metric.len();
        let (names, better) = (&self.metric_name, &self.metric_better);
        if names.len() > count || better.len() > count {
            return Err(Failure::usage(format!(
                "{} --metric-name and {} --metric-better for {count} --metric; give each at most once \
                 per --metric",
                names.len(),
                better.len()
            )));
        }
        if better.len() > 1 && better.len() < count {
            return Err(Failure::usage(format!(
                "{} --metric-better for {count} --metric; give it once, or once per --metric",
                better.len()
            )));
        }
        let is_service = self.service.service.is_some();
        let named = |metric| service::named(metric).filter(|_| is_service);
        let name = |index: usize| match (names.get(index), named(&self.metric[index])) {
            (Some(name), _) => name.clone(),
            (None, Some((name, _))) => name.to_string(),
            (None, None) if index == 0 => "metric".to_string(),
            (None, None) => format!("metric {}", index + 1),
        };
        let specs: Vec<MetricSpec> = self
            .metric
            .iter()
            .enumerate()
            .map(|(index, regex)| MetricSpec {
                name: name(index),
                unit: None,
                regex: named(regex).map_or(regex.as_str(), |(_, regex)| regex).to_string(),
                better: better
                    .get(index)
                    .or(better.first())
                    .map_or(Better::Higher, |better| (*better).into()),
            })
            .collect();
        // The time of a run, and what tables call it where that is a service's load.
        let own: &[&str] = if is_service { &["wall", "load"] } else { &["wall"] };
        if let Some(spec) = specs.iter().find(|spec| own.contains(&spec.name.as_str())) {
            return Err(Failure::usage(format!(
                "a metric cannot be named `{}`: that is the time of a run; give it another name",
                spec.name
            )));
        }
        let mut taken = std::collections::BTreeSet::new();
        match specs.iter().find(|spec| !taken.insert(spec.name.as_str())) {
            Some(spec) => Err(Failure::usage(format!(
                "two metrics are named `{}`; give each its own --metric-name",
                spec.name
            ))),
            None => Ok(specs),
        }
    }

    /// Whether an arm got a verdict of `--fail-if`.
    fn judged<'a>(
        &self,
        documents: impl IntoIterator<Item = &'a Document>,
    ) -> Result<Done, Failure> {
        if self.fail_if.is_empty() {
            return Ok(Done::Fine);
        }
        let (mut has_failed, mut lacks_arms) = (false, false);
        for document in documents {
            let judgements = experiment::analysis::analyse(document).judgements;
            let primary = || judgements.iter().filter(|one| one.is_primary);
            // No arm, or none that has a ratio.
            lacks_arms |= primary().all(|one| one.verdict.ratio().is_none());
            has_failed |=
                primary().any(|one| self.fail_if.iter().any(|asked| asked.matches(&one.verdict)));
        }
        match (has_failed, lacks_arms) {
            (true, _) => Ok(Done::Negative),
            (false, true) => Err(Failure::cannot(
                "--fail-if has no verdict to look at: no arm was compared with the first",
            )),
            (false, false) => Ok(Done::Fine),
        }
    }

    fn settings(&self) -> Result<Settings, Failure> {
        let rule = &self.rule;
        let (min_runs, max_runs) = arms::runs(rule.min_runs, rule.max_runs)?;
        let (confidence, within) = (rule.confidence, rule.within);
        Ok(Settings {
            seed: self.workload_args.seed,
            warm_ups: rule.warmup,
            rule: Rule { min_runs, max_runs, confidence, within, ..Rule::default() },
            max_seconds: Some(rule.max_time.unwrap_or(MAX_SECONDS)),
            patience_seconds: rule.max_time.is_none().then_some(PATIENCE_SECONDS),
        })
    }

    fn judging(&self) -> Judging {
        Judging {
            same_within: self.rule.same_within,
            same_at_most: self.rule.same_at_most,
            confidence: self.rule.confidence,
            least_coverage: self.rule.min_coverage,
        }
    }
}
