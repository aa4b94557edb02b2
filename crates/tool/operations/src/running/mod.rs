//! `compare --pid`: base pages and superpages of a service that already runs.

mod meter;
mod switch;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use experiment::document::Judging;
use experiment::running::analysis::analyse;
use experiment::running::document::{self, Document, Subject};
use experiment::running::metric::{Metric, Per, Source, check_regex};
use experiment::running::procedure::{Arm, Bounds, Event, Purpose, Session, Settings, Stopped};
use experiment::running::{Clock, Pages, SwitchError};
use experiment::stats::Better;
use experiment::stats::stopping::Rule;
use experiment::verdict::Verdict;
use host::{Root, Snapshot};
use launch::Recipe;
use manage::operation::{LOCK, LockError, NoManager};
use manage::record::Claim;
use report::format;
use services::Process;

pub use switch::{Memories, Plan, Price};

use crate::Failure;
use crate::compare::RuleArgs;
use crate::jobs::arms;
use crate::jobs::progress::one_is_made;
use crate::reporter::{Progress, say};
use crate::signals::{self, Interrupting};
use meter::Reader;

/// Default time limit in seconds.
const MAX_SECONDS: f64 = 180.0;
/// Default minimum share of eligible memory on superpages.
const LEAST_COVERAGE: f64 = 0.9;
/// Number of processes above which a service is refused: each switch reads all their memory.
const MAX_PROCESSES: usize = 64;

/// A verdict for which superpages are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum KeepIf {
    /// Superpages are faster.
    Faster,
}

/// What a counter's increase is divided by, as a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PerArg {
    /// Seconds.
    Second,
    /// Seconds of the processes' CPU time.
    CpuSecond,
}

/// A request to compare the memory of a running service.
#[derive(Clone, Debug)]
pub struct Request {
    /// The service's processes.
    pub processes: Vec<Process>,
    /// A command that prints the figure of a block.
    pub command: Option<String>,
    /// A command that prints a counter.
    pub counter: Option<String>,
    /// A page of Prometheus metrics, and the series on it.
    pub url: Option<(String, String)>,
    /// What a counter is divided by; `None`: seconds.
    pub per: Option<PerArg>,
    /// A regular expression that finds the number in a command's output.
    pub regex: Option<String>,
    /// Name of the metric.
    pub name: Option<String>,
    /// The better direction; `None`: higher.
    pub better: Option<Better>,
    /// The arms, the reference first; empty: base and thp.
    pub arms: Vec<Recipe>,
    /// Whether to run the reference a second time, as an A/A arm.
    pub aa: bool,
    /// Length of a block.
    pub block: Duration,
    /// Time between a switch and its block.
    pub settle: Duration,
    /// The verdict for which superpages are kept.
    pub keep_if: Option<KeepIf>,
    /// Stopping rule and judging.
    pub rule: RuleArgs,
    /// Seed of the order of blocks.
    pub seed: u64,
    /// Whether to hide progress.
    pub quiet: bool,
}

/// Outcome of a comparison.
#[derive(Debug)]
pub struct Compared {
    /// The comparison.
    pub document: Box<Document>,
    /// The signal that interrupted the comparison.
    pub signal: Option<i32>,
}

/// What a comparison would do.
#[derive(Debug)]
pub struct Plans {
    /// By process.
    pub processes: Vec<Plan>,
    /// What a switch costs now; `None`: it could not be tried.
    pub price: Option<Price>,
    /// The arms.
    pub arms: Vec<Arm>,
    /// The metric.
    pub metric: Metric,
    /// Order, warm-ups, limits.
    pub settings: Settings,
    /// The verdict for which superpages are kept.
    pub keep_if: Option<KeepIf>,
}

impl Request {
    /// Checks what can be checked without the service.
    ///
    /// # Errors
    /// The request contradicts itself, or has no metric.
    pub fn check(&self) -> Result<(), Failure> {
        self.metric()?;
        self.arms()?;
        self.settings().map(drop)
    }

    fn metric(&self) -> Result<Metric, Failure> {
        let command = |command: &String| Source::Command {
            command: command.clone(),
            regex: self.regex.clone(),
        };
        if let Some(regex) = &self.regex {
            check_regex(regex).map_err(Failure::usage)?;
        }
        let per = match self.per {
            Some(PerArg::CpuSecond) => Per::CpuSecond,
            Some(PerArg::Second) | None => Per::Second,
        };
        let (source, per) = match (&self.command, &self.counter, &self.url) {
            (Some(text), None, None) => (command(text), None),
            (None, Some(text), None) => (command(text), Some(per)),
            (None, None, Some((url, series))) => {
                let (url, series) = (url.clone(), series.clone());
                (Source::Url { url, series }, self.per.map(|_| per))
            }
            (None, None, None) => {
                return Err(Failure::usage(
                    "a running process has no run time to compare; give a metric: --metric-command, \
                     --metric-counter, or --metric-url with --metric-series",
                ));
            }
            _ => {
                return Err(Failure::usage(
                    "give one of --metric-command, --metric-counter, --metric-url",
                ));
            }
        };
        if self.per.is_some() && self.command.is_some() {
            return Err(Failure::usage(
                "--metric-per divides a counter; give --metric-counter or --metric-url",
            ));
        }
        let of_series = self.url.as_ref().map(|(_, series)| series.clone());
        let name = self.name.clone().or(of_series).unwrap_or("metric".to_string());
        Ok(Metric { name, better: self.better.unwrap_or(Better::Higher), per, source })
    }

    fn arms(&self) -> Result<Vec<Arm>, Failure> {
        let default = || ["base", "thp"].map(|name| arms::parse(name).map_err(Failure::usage));
        let recipes = match self.arms.is_empty() {
            true => default().into_iter().collect::<Result<Vec<_>, _>>()?,
            false => self.arms.clone(),
        };
        let mut found: Vec<Arm> = Vec::new();
        for recipe in recipes {
            let is_plain = |name: &str| arms::parse(name).is_ok_and(|plain| plain == recipe);
            let pages = match () {
                () if is_plain("base") => Pages::Base,
                () if is_plain("thp") => Pages::Superpages,
                () => {
                    return Err(Failure::usage(format!(
                        "arm {}: a running process has the arms base and thp only",
                        recipe.name
                    )));
                }
            };
            if found.iter().any(|arm| arm.pages == pages) {
                return Err(Failure::usage(format!(
                    "arm {} is named twice; --aa runs the first arm twice",
                    recipe.name
                )));
            }
            found.push(Arm { name: recipe.name.clone(), pages, is_noise_floor: false });
        }
        if self.aa {
            let name = format!("{} again", found[0].name);
            found.insert(1, Arm { name, pages: found[0].pages, is_noise_floor: true });
        }
        match found.len() {
            1 => Err(Failure::usage(
                "one arm has nothing to be compared with; name another, or give --aa",
            )),
            _ => Ok(found),
        }
    }

    fn settings(&self) -> Result<Settings, Failure> {
        let rule = &self.rule;
        let (min_runs, max_runs) = arms::runs(rule.min_runs, rule.max_runs)?;
        let (confidence, within) = (rule.confidence, rule.within);
        let least = rule.min_coverage.unwrap_or(LEAST_COVERAGE);
        Ok(Settings {
            seed: self.seed,
            warm_ups: rule.warmup,
            rule: Rule { min_runs, max_runs, confidence, within, ..Rule::default() },
            max_seconds: rule.max_time.unwrap_or(MAX_SECONDS),
            block_seconds: self.block.as_secs_f64(),
            settle_seconds: self.settle.as_secs_f64(),
            bounds: Bounds { superpages_at_least: least, ..Bounds::default() },
        })
    }

    fn judging(&self) -> Judging {
        Judging {
            same_within: self.rule.same_within,
            same_at_most: self.rule.same_at_most,
            confidence: self.rule.confidence,
            least_coverage: self.rule.min_coverage.unwrap_or(LEAST_COVERAGE),
        }
    }

    /// Reads the processes. Changes nothing.
    ///
    /// # Errors
    /// A process ended, may not be read, or superpages are forbidden in it.
    pub fn plans(&self) -> Result<Plans, Failure> {
        let memories = self.open(Arc::default())?;
        Ok(Plans {
            processes: memories.plans().map_err(failure)?,
            price: Price::measure(&Root::real()),
            arms: self.arms()?,
            metric: self.metric()?,
            settings: self.settings()?,
            keep_if: self.keep_if,
        })
    }

    fn open(&self, interruption: signals::Interruption) -> Result<Memories, Failure> {
        if self.processes.len() > MAX_PROCESSES {
            return Err(Failure::usage(format!(
                "{} processes are selected, more than {MAX_PROCESSES}; select fewer",
                self.processes.len()
            )));
        }
        Memories::open(&Root::real(), &self.processes, interruption).map_err(failure)
    }

    /// Claims the processes, each of which one comparison switches at a time.
    fn claim(&self) -> Result<Vec<Claim>, Failure> {
        let (root, dir) = (Root::real(), Path::new(manage::record::DIR));
        let claim = |process: &Process| {
            let claimed = Claim::new(&root, dir, process);
            let name = format::name(&process.name, 20);
            claimed
                .map_err(|error| Failure::cannot(format!("pid {} ({name}): {error}", process.pid)))
        };
        self.processes.iter().map(claim).collect()
    }

    /// Compares, and leaves the memory as it was found, or as the verdict says.
    ///
    /// # Errors
    /// The processes cannot be switched, or the metric cannot be read.
    pub fn run(&self) -> Result<Compared, Failure> {
        let (mut metric, arms, settings) = (self.metric()?, self.arms()?, self.settings()?);
        live::check_machine(&Root::real()).map_err(Failure::cannot)?;
        let _only = without_manager()?;
        let interrupting = signals::interrupt_experiment(Arc::default())?;
        let mut memories = self.open(interrupting.asked())?;
        let _claims = self.claim()?;
        let pids: Vec<_> = self.processes.iter().map(|process| process.pid).collect();
        let mut reader = Reader::new(&metric, &pids, settings.block_seconds, interrupting.asked())
            .map_err(Failure::usage)?;
        let is_counter = reader.try_out().map_err(|why| match interrupting.received() {
            Some(signal) => Failure::interrupted(signal, "the comparison"),
            None => Failure::usage(why),
        })?;
        if self.url.is_some() {
            metric.per = match (is_counter, metric.per) {
                (Some(true), per) => Some(per.unwrap_or(Per::Second)),
                (_, None) => None,
                (_, Some(_)) => {
                    let why =
                        format!("--metric-per divides a counter, and {} is a gauge", metric.name);
                    return Err(Failure::usage(why));
                }
            };
            reader.set_per(metric.per);
        }
        let judging = self.judging();
        let began = SystemTime::now().duration_since(UNIX_EPOCH);
        let subject = Subject {
            processes: self.processes.iter().map(subject).collect(),
            metric: metric.clone(),
            settings,
            judging,
            arms: arms.clone(),
            machine: Snapshot::read(&Root::real()),
            began_unix_seconds: began.map_or(0, |time| time.as_secs()),
        };
        let mut session = Session::new(&mut memories);
        let mut clock = Wall { began: Instant::now(), interrupting: &interrupting };
        let (question, mut progress) =
            ((metric.better, &judging.margin(None)), Progress::new(self.quiet, "comparing"));
        let mut rounds = 0;
        let observe = &mut |event: Event| match event {
            Event::Begins(purpose, arm, seconds) => {
                let arm = arm.map_or("as found", |arm| arm.name.as_str());
                let what = match purpose {
                    Purpose::Measured => format!("{arm}, round {}", rounds + 1),
                    Purpose::AsFound | Purpose::WarmUp => format!("{arm}, warm-up"),
                };
                let most = settings.max_seconds.max(seconds);
                progress.tell(seconds as u64, Some(most as u64), || what);
            }
            Event::Short { one_round, two_rounds } if !self.quiet => {
                let said = one_is_made("round", settings.max_seconds, one_round, two_rounds);
                progress.aside(|| say(&said));
            }
            Event::Short { .. } | Event::Ended(_) => {}
            Event::Round(_) => rounds += 1,
        };
        let load = host::Before::read_for(&Root::real(), &pids);
        let ran = session.run(&mut reader, &mut clock, &arms, &settings, question, observe);
        progress.clear();
        let mut document = Box::new(Document::new(subject, ran.map_err(failure)?));
        document.neighbours = Some(load.until_now(&Root::real()));
        // A service that was interrupted in this, or lost a process, is left as it was found.
        let is_whole = !matches!(
            document.stopped,
            Stopped::Interrupted | Stopped::Ended { .. } | Stopped::Executed { .. }
        );
        let is_kept = is_whole && self.keep_if == Some(KeepIf::Faster) && is_faster(&document);
        document.left = Some(session.leave(is_kept));
        Ok(Compared { document, signal: interrupting.received() })
    }
}

/// Keeps managers from running, which would bring back the superpages that blocks on base pages must not have.
fn without_manager() -> Result<NoManager, Failure> {
    NoManager::new(Path::new(LOCK)).map_err(|error| match error {
        LockError::Held { holder } => {
            let who = holder.map_or("another process".to_string(), |pid| format!("process {pid}"));
            Failure::cannot(format!(
                "{who} manages this machine's processes (superpage manage); stop it for the comparison"
            ))
        }
        error => Failure::cannot(error),
    })
}

/// Returns whether superpages are faster.
fn is_faster(document: &Document) -> bool {
    let analysis = analyse(document);
    let pages = |name: &str| document.arms.iter().find(|arm| arm.name == name).map(|arm| arm.pages);
    document.arms[0].pages == Pages::Base
        && analysis.judgements.iter().any(|one| {
            pages(&one.arm) == Some(Pages::Superpages) && matches!(one.verdict, Verdict::Faster(_))
        })
}

/// Returns why a comparison has no verdict; `None` if it has one.
pub fn without_verdict(document: &Document) -> Option<String> {
    let analysis = analyse(document);
    match &document.stopped {
        Stopped::Executed { process } => {
            return Some(format!("no verdict: {process} executed another program"));
        }
        stopped if *stopped != Stopped::Dropped && analysis.rounds > 0 => return None,
        _ => {}
    }
    let last = analysis.arms.iter().flat_map(|arm| {
        arm.discarded.iter().map(|one| (one.round, format!("{}: {}", arm.name, one.why)))
    });
    let last = last.max_by_key(|(round, _)| *round).map(|(_, why)| why);
    Some(match (&document.stopped, last) {
        (Stopped::Ended { process }, _) => {
            format!("no verdict: {process} ended before a round was complete")
        }
        (Stopped::Interrupted, _) => {
            "interrupted before a round was complete: no verdict".to_string()
        }
        (_, Some(why)) => format!(
            "no verdict: {} of {} rounds had a block that is no evidence; the last one, {why}",
            analysis.dropped_rounds,
            analysis.rounds + analysis.dropped_rounds
        ),
        (_, None) => "no verdict: no round was complete".to_string(),
    })
}

fn subject(process: &Process) -> document::Process {
    document::Process {
        pid: process.pid,
        start_ticks: process.start_ticks,
        name: process.name.clone(),
        unit: process.unit.clone(),
        cgroup: process.cgroup.clone(),
    }
}

fn failure(error: SwitchError) -> Failure {
    match error {
        SwitchError::Ended(process) => Failure::usage(format!("{process} ended")),
        SwitchError::Executed(process) => {
            Failure::cannot(format!("{process} executed another program"))
        }
        SwitchError::Cannot(why) => Failure::cannot(why),
    }
}

/// Formats what a comparison would do.
pub fn in_words(plans: &Plans) -> String {
    let settings = &plans.settings;
    let mut text = String::new();
    for plan in &plans.processes {
        let [make, split] = match &plans.price {
            Some(price) => {
                plan.seconds(price).map(|time| format!("about {}", format::seconds(time)))
            }
            None => ["time unknown", "time unknown"].map(str::to_string),
        };
        text += &format!(
            "{} {}: {} can be on superpages, {} are; superpages: {make} for {}, {} more memory (zeros, at most {} of its resident memory); base \
             pages: {split}\n",
            format::name(&plan.process.name, 20),
            plan.process.pid,
            format::bytes(plan.coverage.eligible_bytes as f64),
            format::known(plan.coverage.share(), format::percent),
            format::counted(plan.to_make + plan.to_split, "superpage", "superpages"),
            plan.fill,
            format::percent(manage::FILL_COMPARED),
        );
    }
    if let Some(price) = &plans.price {
        text += &format!(
            "times: by a trial on own memory now, {} a superpage made, {} a split, half of the time in calls\n",
            format::seconds(price.made),
            format::seconds(price.split)
        );
    }
    let arms: Vec<&str> = plans.arms.iter().map(|arm| arm.name.as_str()).collect();
    text += &format!(
        "{} in rounds of {} blocks of {}, each {} after a switch; at most {}; metric {}\n",
        arms.join(", "),
        2 * arms.len(),
        format::seconds(settings.block_seconds),
        format::seconds(settings.settle_seconds),
        format::seconds(settings.max_seconds),
        format::name(&plans.metric.heading(), 60),
    );
    text += match plans.keep_if {
        None => "afterwards the memory is left as it was found\n",
        Some(KeepIf::Faster) => {
            "afterwards the memory is left as it was found, or on superpages if they are faster\n"
        }
    };
    text
}

/// The real time, until a signal.
struct Wall<'a> {
    began: Instant,
    interrupting: &'a Interrupting,
}

impl Clock for Wall<'_> {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn wait(&mut self, time: Duration) -> bool {
        self.interrupting.sleep_until(Instant::now() + time)
    }

    fn is_interrupted(&self) -> bool {
        self.interrupting.asked().load(Ordering::SeqCst) != 0
    }
}
