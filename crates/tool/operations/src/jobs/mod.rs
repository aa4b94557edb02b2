//! `Job`: a fully specified experiment, from signal handling to its document.
//!
//! Used by `compare` and by other commands that compare runs (`verify-cost`).
//! See docs/decisions/settings.md#1.

pub mod arms;
mod preload;
pub(crate) mod progress;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use experiment::document::{Arm, Document, Judging, LeftOut, SCHEMA};
use experiment::execute::{Interrupt, Launcher, Options, Prepare, Prepared, RunError};
use experiment::metric::{Metric, MetricSpec};
use experiment::procedure::{self, Question, Settings};
use experiment::service::Service;
use host::{Root, Snapshot};
use launch::{Recipe, Word};
use sys::user::User;

pub use arms::WarmMemory;
pub use progress::Bar;

use crate::Failure;
use crate::pool_guard::{self, PoolPolicy};
use crate::reporter::say;
use crate::{design, facts, signals};

/// An experiment to run.
pub struct Job {
    /// The command to start.
    pub command: Vec<Word>,
    /// The command to display.
    pub shown: Vec<Word>,
    /// Service hooks (setup, ready, load, teardown), and the user who runs the service.
    pub service: Option<(Service, Option<User>)>,
    /// The arms, the reference first; empty: the default three.
    pub recipes: Vec<Recipe>,
    /// Whether to leave out arms that cannot run here, with the reason. The reference must run.
    pub is_choice: bool,
    /// Whether to run the reference a second time, as an A/A arm.
    pub aa: bool,
    /// Whether to lend pages to a hugetlb pool that is too small.
    pub pool: PoolPolicy,
    /// Metrics that the program reports.
    pub metrics: Vec<MetricSpec>,
    /// Whether the verdict is about the metrics instead of the run time.
    pub metric_is_primary: bool,
    /// Order, warm-ups, stopping rule.
    pub settings: Settings,
    /// Thresholds of the verdicts.
    pub judging: Judging,
    /// When to warm memory before a run.
    pub warm_memory: arms::WarmMemory,
    /// Whether failed runs count.
    pub ignore_failure: bool,
    /// Whether to hide progress.
    pub quiet: bool,
}

/// The plans of an experiment's arms.
#[derive(Debug)]
pub struct Plans {
    /// The commands of a service, with their names.
    pub service: Vec<(String, String)>,
    /// The arms that would run.
    pub arms: Vec<Arm>,
    /// Arms that would not run.
    pub left_out: Vec<LeftOut>,
    /// Each change to a hugetlb pool, as text.
    pub would_lend: Vec<String>,
}

/// Outcome of a job.
pub enum JobOutcome {
    /// The comparison.
    Document(Box<Document>),
    /// The signal that interrupted the job, and the completed runs if they suffice for a verdict. The process ends
    /// by this signal.
    Signal(i32, Option<Box<Document>>),
}

impl JobOutcome {
    /// Returns the same outcome, but interrupted if a signal arrived during cleanup.
    pub fn interrupted_by(self, signal: Option<i32>) -> Self {
        match (self, signal) {
            (Self::Document(made), Some(signal)) => Self::Signal(signal, Some(made)),
            (outcome, _) => outcome,
        }
    }
}

impl Job {
    /// Plans the arms and the lending of pool pages. Changes nothing.
    ///
    /// # Errors
    /// The job contradicts itself, or its reference cannot run here.
    pub fn plans(&self) -> Result<Plans, Failure> {
        self.compiled()?;
        let mut facts = facts::read();
        let asked = self.requested();
        let (would_lend, mut refused) = match self.pool {
            PoolPolicy::Lend => pool_guard::preview(&asked.recipes(), None, &mut facts),
            PoolPolicy::Keep => (Vec::new(), Vec::new()),
        };
        let (arms, left_out) = asked.plan(&self.command, &facts, refused.pop())?;
        let service = self.service.iter().flat_map(|(service, _)| service.commands());
        let service = service.map(|(name, text)| (name.to_string(), text.to_string())).collect();
        Ok(Plans { service, arms, left_out, would_lend })
    }

    fn requested(&self) -> arms::RequestedArms {
        match self.is_choice {
            true => arms::RequestedArms::by_default(&self.recipes),
            false => arms::RequestedArms::new(&self.recipes, self.aa),
        }
    }

    fn compiled(&self) -> Result<Vec<Metric>, Failure> {
        let compiled = self.metrics.iter().map(|metric| Metric::compile(&metric.regex));
        compiled.collect::<Result<_, _>>().map_err(Failure::usage)
    }

    /// Runs the experiment.
    pub fn run(&self) -> Result<JobOutcome, Failure> {
        self.run_and(&mut || ())
    }

    /// Runs the experiment, and calls `between` after each block of runs (two of every arm).
    pub fn run_and(&self, between: &mut dyn FnMut()) -> Result<JobOutcome, Failure> {
        self.run_interleaved(&mut |_| Ok(()), between)
    }

    /// Runs the experiment, and calls `prepare` before each run.
    pub fn run_prepared(&self, prepare: Prepare) -> Result<JobOutcome, Failure> {
        self.run_interleaved(prepare, &mut || ())
    }

    fn run_interleaved(
        &self,
        prepare: Prepare,
        between: &mut dyn FnMut(),
    ) -> Result<JobOutcome, Failure> {
        let compiled = self.compiled()?;
        // Catch signals before any setting is changed, so that every changed setting is restored.
        let interrupt = Arc::new(Interrupt::default());
        let interrupting = signals::interrupt_experiment(Arc::clone(&interrupt))?;
        let mut facts = facts::read();
        let asked = self.requested();
        let goes_on = || !interrupt.is_asked();
        let (guard, not_raised) =
            pool_guard::raise_for_arms(self.pool, &asked.recipes(), &facts, &goes_on);
        if let Some(signal) = interrupting.received() {
            return Ok(JobOutcome::Signal(signal, None));
        }
        facts = facts::read();
        let named = !self.recipes.is_empty() && !self.is_choice;
        let (mut arms, mut left_out) = asked.plan(&self.command, &facts, not_raised)?;
        if let Some((_, Some(user))) = &self.service {
            arms.iter().try_for_each(|arm| preload::reaches(&arm.plan, &facts, user))?;
        }
        for arm in arms.iter().filter(|arm| !self.quiet && arm.plan.is_out_of_reach()) {
            arm.plan.warnings().for_each(|note| say(&format!("{}: {note}", arm.name)));
        }

        let machine = Snapshot::read(&Root::real());
        let superpage = facts::superpage(&machine).unwrap_or(machine.page_size);
        let began = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let before = host::Before::read(&Root::real());
        let ran = loop {
            let plans: Vec<launch::Plan> = arms.iter().map(|arm| arm.plan.clone()).collect();
            let policies = arms.iter().map(|arm| design::recipe::in_force(&arm.recipe));
            let policies = policies.collect::<Result<_, Failure>>()?;
            let options = Options {
                metrics: compiled.clone(),
                ignore_failure: self.ignore_failure,
                superpage,
                warms_memory: self.warm_memory.applies(&machine),
                journal: pool_guard::journal_dir(),
            };
            let launcher = Launcher::new(&plans, options, &interrupt)?.in_force(policies);
            let launcher = launcher.serving(self.service.clone());
            let mut launcher = Prepared { launcher, prepare: &mut *prepare };
            let names: Vec<String> = arms.iter().map(|arm| arm.name.clone()).collect();
            let mut bar =
                progress::Bar::new(&names, &self.settings, self.quiet).warns_of_load(&before);
            let count = arms.len() as u32;
            let question = self.question();
            let settings = &self.settings;
            let ran = procedure::run(&mut launcher, count, settings, &question, &mut |event| {
                bar.show(&event);
                if matches!(event, procedure::Event::Block(..)) && !interrupt.is_asked() {
                    between();
                }
            });
            bar.clear();
            match ran {
                // If a default arm fails, keep the results of the other arms.
                Err(RunError::Failed { arm, how, said }) if !named && arm != arms[0].name => {
                    arms.retain(|one| one.name != arm);
                    let why = format!("the program {how}{said}");
                    left_out.push(LeftOut { name: arm, why });
                }
                Err(RunError::Service { arm, source }) if !named && arm != arms[0].name => {
                    arms.retain(|one| one.name != arm);
                    left_out.push(LeftOut { name: arm, why: source.to_string() });
                }
                ran => break ran,
            }
        };
        let neighbours = before.until_now(&Root::real());
        let changed_meanwhile = facts::thp_changes(&machine, &Snapshot::read(&Root::real()));
        let lent = guard.raised.clone();
        for line in guard.restore() {
            say(&line);
        }
        let ran = match ran {
            Err(RunError::Interrupted) => {
                return Ok(JobOutcome::Signal(interrupting.signal(), None));
            }
            ran => ran?,
        };
        // The signal may also arrive at the end of the last run.
        let is_interrupted =
            ran.stopped == procedure::Stopped::Interrupted || interrupting.received().is_some();
        let document = Box::new(Document {
            schema: SCHEMA.to_string(),
            superpage_version: env!("CARGO_PKG_VERSION").to_string(),
            began_unix_seconds: began,
            command: self.shown.clone(),
            service: self.service.as_ref().map(|(service, _)| service.clone()),
            settings: self.settings,
            judging: self.judging,
            metric_is_primary: self.metric_is_primary,
            metric: self.metrics.first().cloned(),
            more_metrics: self.metrics.iter().skip(1).cloned().collect(),
            arms,
            left_out,
            machine,
            lent,
            changed_meanwhile,
            samples: ran.samples,
            stopped: ran.stopped,
            looks: ran.looks,
            elapsed_seconds: ran.elapsed.as_secs_f64(),
            neighbours: Some(neighbours),
            predicted: None,
            arrays: None,
        });
        Ok(match is_interrupted {
            true => JobOutcome::Signal(interrupting.signal(), Some(document)),
            false => JobOutcome::Document(document),
        })
    }

    fn question(&self) -> Question {
        let metrics_better = self.metrics.iter().map(|metric| metric.better).collect();
        Question { margin: self.judging.margin(None), metrics_better }
    }
}
