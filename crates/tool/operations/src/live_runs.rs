//! Runs a built-in workload or a program under designs. `superpage lab validate` compares the runs with simulations.
//! See docs/decisions/lab.md#8.

use std::sync::Arc;

use experiment::document::Judging;
use experiment::fragment::{Extent, Held, Kind};
use experiment::metric::MetricSpec;
use experiment::procedure::Settings as Procedure;
use experiment::stats::Better;
use experiment::stats::stopping::Rule;
use host::Root;
use launch::{Executor, Pages, Recipe};
use workload::Workload;

use crate::Failure;
use crate::jobs::{Job, JobOutcome, Plans, WarmMemory};
use crate::pool_guard::PoolPolicy;
use crate::predict::Subject;
use crate::{design, fragmentation, signals};

/// The runs to make. The first arm is on base pages.
#[derive(Debug)]
pub struct LiveRuns {
    /// What is run.
    pub subject: Subject,
    /// Seed of the order of runs.
    pub seed: u64,
    /// Designs: the arm's name, and the design's name on the command line.
    pub designs: Vec<(String, String)>,
    /// How superpages are made of reservations.
    pub executor: Executor,
    /// How free memory is fragmented: what stays in use, the level in percent, and the extent.
    pub fragmented: Option<(Kind, u8, Extent)>,
    /// Number of runs of each arm.
    pub runs: u32,
    /// Maximum seconds for all measured runs.
    pub max_seconds: f64,
    /// Whether to hide progress.
    pub quiet: bool,
}

/// Metrics of a workload with one thread, in the order in which samples hold them: CPU seconds of its timed phase, and of
/// the process before it. Other load changes them less than elapsed time. Programs have no metric: their time is the CPU
/// time of the whole run.
const CPU_TIMES: [(&str, &str); 2] = [
    ("timed phase", r#","cpu_seconds":([-+0-9.eE]+)"#),
    ("set-up", r#""cpu_seconds_before":([-+0-9.eE]+)"#),
];

/// The same for several threads: elapsed seconds.
const TIMES: [(&str, &str); 2] = [
    ("timed phase", r#""seconds":([-+0-9.eE]+),"cpu_seconds""#),
    ("set-up", r#""setup_seconds":([-+0-9.eE]+)"#),
];

impl LiveRuns {
    /// Fails early if the runs are impossible here.
    pub fn check(&self) -> Result<(), Failure> {
        if let Subject::Workload(workload, settings) = &self.subject {
            crate::workloads::check(*workload, settings)?;
        }
        self.job()?;
        match self.fragmented {
            None => Ok(()),
            Some((kind, level, extent)) => fragmentation::goal(kind, level, extent).map(drop),
        }
    }

    /// Returns the plan of each arm.
    ///
    /// # Errors
    /// The runs are impossible.
    pub fn plans(&self) -> Result<Plans, Failure> {
        self.job()?.plans()
    }

    /// Makes the runs. Free memory is compacted first, as simulated memory is whole; then it is fragmented before each run,
    /// if asked, and freed afterwards.
    pub fn run(&self) -> Result<JobOutcome, Failure> {
        let job = self.job()?;
        // Compaction raises a pool: catch signals, so that the pool is restored. Root only. Movable pages that stay would
        // let further superpages appear later.
        let interrupting = signals::interrupt_experiment(Arc::default())?;
        let superpage = fragmentation::superpage();
        if let Ok(superpage) = superpage {
            fragmentation::gather(superpage);
        }
        if let Some(signal) = interrupting.received() {
            return Ok(JobOutcome::Signal(signal, None));
        }
        let Some((kind, level, extent)) = self.fragmented else {
            return Ok(job.run()?.interrupted_by(interrupting.received()));
        };
        let superpage = superpage?;
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
        let command = self.subject.command()?;
        let mut shown = command.clone();
        let times: &[(&str, &str)] = match &self.subject {
            Subject::Program(_) => &[],
            Subject::Workload(workload, settings) => {
                shown[0] = "superpage".into();
                let all = if settings.threads.get() == 1 { &CPU_TIMES } else { &TIMES };
                // The timed phase of `touch` is all of it.
                if *workload == Workload::Touch { &all[..1] } else { all }
            }
        };
        let mut recipes = vec![Recipe::new(Pages::Base)];
        for (name, word) in &self.designs {
            let (name, design) = (name.clone(), Some(word.clone()));
            let executor = design::recipe::executor_of(&design::load(word)?.design, self.executor);
            // Accept approximations, because the laboratory simulates the approximated design.
            let approximate = true;
            let mut recipe =
                Recipe { name, design, executor, approximate, ..Recipe::new(Pages::System) };
            design::recipe::follow(&mut recipe)?;
            recipes.push(recipe);
        }
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
            metric_is_primary: !times.is_empty(),
            settings: Procedure {
                seed: self.seed,
                warm_ups: 1,
                rule,
                max_seconds: Some(self.max_seconds),
                patience_seconds: None,
            },
            judging: Judging::default(),
            // Warming would take the fragmented superpages, and fragmenting has already warmed free memory.
            warm_memory: match self.fragmented {
                None => WarmMemory::Auto,
                Some(_) => WarmMemory::Never,
            },
            ignore_failure: false,
            quiet: self.quiet,
        })
    }
}
