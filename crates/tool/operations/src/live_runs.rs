//! Designs on one of our workloads, live: what `superpage lab validate` sets beside simulations.
//! See docs/decisions/lab.md#8.

use std::sync::Arc;

use experiment::document::Judging;
use experiment::fragment::{Extent, Held, Kind};
use experiment::metric::MetricSpec;
use experiment::procedure::Settings as Procedure;
use experiment::stats::Better;
use experiment::stats::stopping::Rule;
use host::Root;
use launch::{Executor, Memory, Pages, Recipe};
use workload::{Settings, Workload};

use crate::Failure;
use crate::jobs::{Job, JobOutcome, Plans, WarmMemory};
use crate::pool_guard::PoolPolicy;
use crate::{design, fragmentation, signals};

/// What is run. Base pages are the first arm.
#[derive(Debug)]
pub struct LiveRuns {
    /// The kernel.
    pub workload: Workload,
    /// Its settings.
    pub settings: Settings,
    /// Designs, each as it is called and as it was named on the command line.
    pub designs: Vec<(String, String)>,
    /// How superpages are made of reservations.
    pub executor: Executor,
    /// How free memory is fragmented: what stays in use, the level in per cent, and of what.
    pub fragmented: Option<(Kind, u8, Extent)>,
    /// Runs of each arm.
    pub runs: u32,
    /// The most time for all measured runs.
    pub max_seconds: f64,
    /// No progress.
    pub quiet: bool,
}

/// What the workload says of a run, in the order of the samples' metrics: seconds of its timed phase, and of what
/// comes before it. `touch` has nothing before it.
const TIMES: [(&str, &str); 2] = [
    ("timed phase", r#""seconds":([-+0-9.eE]+),"cpu_seconds""#),
    ("set-up", r#""setup_seconds":([-+0-9.eE]+)"#),
];

impl LiveRuns {
    /// Whether it can be run here, as far as is known beforehand.
    pub fn check(&self) -> Result<(), Failure> {
        crate::workloads::check(self.workload, &self.settings)?;
        self.job()?;
        match self.fragmented {
            None => Ok(()),
            Some((kind, level, extent)) => fragmentation::goal(kind, level, extent).map(drop),
        }
    }

    /// What each arm would do.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn plans(&self) -> Result<Plans, Failure> {
        self.job()?.plans()
    }

    /// Makes the runs. Free memory is fragmented before each of them, and given back afterwards.
    pub fn run(&self) -> Result<JobOutcome, Failure> {
        let job = self.job()?;
        let Some((kind, level, extent)) = self.fragmented else { return job.run() };
        // What can be moved together is, so that what is fragmented is all that could be superpages. Root's alone.
        let superpage = fragmentation::superpage()?;
        // That raises a pool, which nobody would lower if a signal ended us.
        let interrupting = signals::interrupt_experiment(Arc::default())?;
        fragmentation::gather(superpage);
        if let Some(signal) = interrupting.received() {
            return Ok(JobOutcome::Signal(signal, None));
        }
        let goal = fragmentation::goal(kind, level, extent)?;
        let mut held: Option<Held> = None;
        let ran = job.run_prepared(&mut |interrupt| {
            let root = Root::real();
            match &mut held {
                Some(held) => held.renew(&root, || !interrupt.is_asked())?,
                None => held = Some(Held::take(&root, goal, |_, _| !interrupt.is_asked())?),
            }
            Ok(())
        });
        drop(held);
        fragmentation::gather(superpage);
        Ok(ran?.interrupted_by(interrupting.received()))
    }

    fn job(&self) -> Result<Job, Failure> {
        let command = crate::workloads::command(self.workload, &self.settings)?;
        let mut shown = command.clone();
        shown[0] = "superpage".into();
        let mut recipes = vec![Recipe::new(Pages::Base)];
        for (name, word) in &self.designs {
            let (name, design) = (name.clone(), Some(word.clone()));
            let executor = design::recipe::executor_of(&design::load(word)?.design, self.executor);
            // The laboratory simulates what is carried out, too.
            let approximate = true;
            let mut recipe =
                Recipe { name, design, executor, approximate, ..Recipe::new(Pages::System) };
            design::recipe::follow(&mut recipe)?;
            if recipe.pages == Pages::Thp && recipe.ahead.is_empty() {
                // The kernel alone is to decide: the library advises only what lies free in superpages.
                // See docs/decisions/contiguity.md#1.
                recipe.memory = Memory::default();
            }
            recipes.push(recipe);
        }
        let times = if self.workload == Workload::Touch { &TIMES[..1] } else { &TIMES };
        let metric = |(name, regex): &(&str, &str)| MetricSpec {
            name: (*name).to_string(),
            unit: Some("s".to_string()),
            regex: (*regex).to_string(),
            better: Better::Lower,
        };
        let rule = Rule {
            min_runs: self.runs,
            max_runs: self.runs,
            decide_after: None,
            ..Rule::default()
        };
        Ok(Job {
            service: None,
            command,
            shown,
            recipes,
            is_choice: false,
            aa: false,
            pool: PoolPolicy::Lend,
            metrics: times.iter().map(metric).collect(),
            metric_is_primary: true,
            settings: Procedure {
                seed: self.settings.seed,
                warm_ups: 1,
                rule,
                max_seconds: Some(self.max_seconds),
                patience_seconds: None,
            },
            judging: Judging::default(),
            // Warming takes superpages that were fragmented, and fragmenting has warmed what is free.
            warm_memory: match self.fragmented {
                None => WarmMemory::Auto,
                Some(_) => WarmMemory::Never,
            },
            ignore_failure: false,
            quiet: self.quiet,
        })
    }
}
