//! Comparisons: a request, its experiment, and the outcome.

mod predicted;
mod service;
mod shift;
pub mod suite;
mod suite_keys;
pub mod vary;

use experiment::document::{Document, Judging};
use experiment::metric::MetricSpec;
use experiment::procedure::Settings;
use experiment::stats::stopping::Rule;
use experiment::stats::{Better, Confidence};
use launch::{Recipe, Word};
use workload::Workload;

pub use service::ServiceArgs;
pub use vary::{Varied, Vary};

use crate::Failure;
use crate::jobs::arms::{self, BetterArg, MOST_RUNS};
use crate::jobs::{Job, JobOutcome, WarmMemory};
use crate::pool_guard::PoolPolicy;
use crate::workloads::WorkloadArgs;
use predicted::Predicting;

/// A request to compare a workload, a command or a service.
#[derive(Clone, Debug)]
pub struct Request {
    /// A built-in workload.
    pub workload: Option<Workload>,
    /// Options of the workload.
    pub workload_args: WorkloadArgs,
    /// Program and arguments.
    pub command: Vec<Word>,
    /// A server under load.
    pub service: ServiceArgs,
    /// The arms, the reference first; empty: base, thp and hugetlb.
    pub arms: Vec<Recipe>,
    /// Whether to run the reference a second time, as an A/A arm.
    pub aa: bool,
    /// What to do about a hugetlb pool with too few free pages.
    pub pool: PoolPolicy,
    /// Regular expressions of numbers that the program prints.
    pub metric: Vec<String>,
    /// Names of those numbers.
    pub metric_name: Vec<String>,
    /// Directions in which the numbers are better: one for all, or one per number.
    pub metric_better: Vec<BetterArg>,
    /// When to warm memory before a run.
    pub warm_memory: WarmMemory,
    /// Whether runs with a non-zero exit code count.
    pub ignore_failure: bool,
    /// Whether to also predict the effect.
    pub predict: bool,
    /// The option to vary, and its values.
    pub vary: Option<Vary>,
    /// Stopping rule and judging.
    pub rule: RuleArgs,
    /// Whether to hide progress.
    pub quiet: bool,
}

impl Default for Request {
    /// Returns an empty request with the default options.
    fn default() -> Self {
        #[derive(clap::Parser)]
        #[command(no_binary_name = true)]
        struct Defaults {
            #[command(flatten)]
            workload: WorkloadArgs,
            #[command(flatten)]
            rule: RuleArgs,
        }
        let options = <Defaults as clap::Parser>::parse_from([""; 0]);
        Self {
            workload: None,
            workload_args: options.workload,
            command: Vec::new(),
            service: ServiceArgs::default(),
            arms: Vec::new(),
            aa: false,
            pool: PoolPolicy::Lend,
            metric: Vec::new(),
            metric_name: Vec::new(),
            metric_better: Vec::new(),
            warm_memory: WarmMemory::Auto,
            ignore_failure: false,
            predict: false,
            vary: None,
            rule: options.rule,
            quiet: false,
        }
    }
}

/// Outcome of a comparison.
#[derive(Debug, Default)]
pub struct Compared {
    /// The comparison; `None` if a signal interrupted it before every arm had two runs.
    pub document: Option<Box<Document>>,
    /// The signal that interrupted the comparison.
    pub signal: Option<i32>,
    /// Why the requested prediction is missing.
    pub unpredicted: Option<Failure>,
}

/// Default time limit in seconds.
pub const MAX_SECONDS: f64 = 300.0;
/// Extended time limit in seconds, for programs whose minimum runs take longer than the default.
const PATIENCE_SECONDS: f64 = 1800.0;

/// Stopping rule and judging.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Stopping and judging")]
pub struct RuleArgs {
    /// Minimum runs per arm, made in pairs [default: 5].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=i64::from(MOST_RUNS)))]
    pub min_runs: Option<u32>,

    /// Maximum runs per arm [default: 100].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=i64::from(MOST_RUNS)))]
    pub max_runs: Option<u32>,

    /// Time until the answer, with warm-ups: 90s, 5m, 1h. The warm-ups and one block of two runs per arm are always made,
    /// also if they take longer; then this is said after the warm-ups, with the time that a verdict takes [default: 5m
    /// without warm-ups; for slow programs until every arm has 50 runs, at most 30m; of a running process 3m].
    #[arg(long, value_name = "TIME", value_parser = arms::seconds)]
    pub max_time: Option<f64>,

    /// Warm-up runs per arm, not counted.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub warmup: u32,

    /// Confidence level of intervals and of the stopping rule.
    #[arg(long, default_value = "99%", value_name = "SHARE", value_parser = arms::confidence)]
    pub confidence: Confidence,

    /// Stop when every ratio to the first arm is known within this share.
    #[arg(long, default_value = "2%", value_name = "SHARE", value_parser = arms::share)]
    pub within: f64,

    /// Judge differences smaller than this "the same", even if they are significant.
    #[arg(long, default_value = "2%", value_name = "SHARE", value_parser = arms::share)]
    pub same_within: f64,

    /// Judge arms that may be equal "the same" if they differ by at most this.
    #[arg(long, default_value = "5%", value_name = "SHARE", value_parser = arms::share)]
    pub same_at_most: f64,

    /// Minimum share of eligible memory on superpages, for arms that asked for them [default: 80%; of a running process
    /// 90%].
    #[arg(long, value_name = "SHARE", value_parser = arms::share)]
    pub min_coverage: Option<f64>,
}

impl Request {
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
            quiet: self.quiet,
        })
    }

    /// Returns the command to start: the given one, or this program with a workload.
    pub(crate) fn command_to_compare(&self) -> Result<Vec<Word>, Failure> {
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
        crate::workloads::command(workload, &self.workload_args.settings(workload)?)
    }

    /// Returns the command to display: for a workload, without the path of this program.
    fn shown_command(&self, command: &[Word]) -> Vec<Word> {
        let mut shown = command.to_vec();
        if self.workload.is_some() {
            shown[0] = "superpage".into();
            shown.pop();
        }
        shown
    }

    pub(crate) fn metric_specs(&self) -> Result<Vec<MetricSpec>, Failure> {
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
        // Reserved names: tables call a run's time `wall`, and a service's load time `load`.
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
            least_coverage: self.rule.min_coverage.unwrap_or(Judging::default().least_coverage),
        }
    }

    /// Builds the experiment.
    ///
    /// # Errors
    /// The request contradicts itself.
    pub fn to_job(&self) -> Result<Job, Failure> {
        self.job(self.command_to_compare()?, self.metric_specs()?)
    }

    /// Runs the comparison: `job` is the one that [`Request::to_job`] made.
    ///
    /// # Errors
    /// The runs fail, or the prediction cannot be prepared.
    pub fn run(&self, job: Job) -> Result<Compared, Failure> {
        // Prepare the prediction first, so that an impossible prediction fails before minutes of runs.
        let mut predicting = self.predict.then(|| Predicting::new(self)).transpose()?;
        let between = &mut || predicting.iter_mut().for_each(Predicting::between);
        let mut document = match shift::run(job, self.workload, between)? {
            JobOutcome::Document(document) => document,
            JobOutcome::Signal(signal, document) => {
                return Ok(Compared { document, signal: Some(signal), unpredicted: None });
            }
        };
        // If the prediction fails, keep the result of minutes of runs.
        let predicted = predicting.map(|predicting| predicting.predict(&document)).transpose();
        let unpredicted = match predicted {
            Ok(predicted) => {
                document.predicted = predicted;
                None
            }
            Err(failure) => Some(failure),
        };
        Ok(Compared { document: Some(document), signal: None, unpredicted })
    }
}
