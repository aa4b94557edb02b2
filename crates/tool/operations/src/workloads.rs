//! Settings of workloads, checked against this machine, and the commands that start them.

use std::num::NonZeroUsize;

use host::{MemInfo, Root};
use launch::Word;
use units::ByteSize;
use workload::{Options, Settings, Workload, WorkloadError};

use crate::Failure;

/// Options of a workload; shared with `compare`.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Workload options")]
pub struct WorkloadArgs {
    /// Memory to work on [default: 1G].
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true)]
    pub size: Option<ByteSize>,

    /// Seed of the random choices: the workload's data, and in a comparison the order of runs.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Threads.
    #[arg(long, default_value = "1", value_name = "N", value_parser = threads)]
    pub threads: NonZeroUsize,

    /// Options of some workloads only.
    #[command(flatten)]
    pub options: Options,
}

/// Parses a number of threads.
pub fn threads(text: &str) -> Result<NonZeroUsize, String> {
    text.trim().parse().map_err(|_| "expected a number of threads, at least 1".to_string())
}

impl WorkloadArgs {
    /// Returns the settings of `workload`, checked against this machine's free memory.
    pub fn settings(&self, workload: Workload) -> Result<Settings, Failure> {
        let settings = Settings {
            size: self.size.unwrap_or(workload.default_size()),
            seed: self.seed,
            threads: self.threads,
            options: self.options.clone(),
        };
        check(workload, &settings)?;
        Ok(settings)
    }

    /// Returns the same flags, but only the options that `workload` has; for flags given to several workloads.
    pub fn for_workload(&self, workload: Workload) -> Self {
        Self { options: self.options.for_workload(workload), ..self.clone() }
    }

    /// Returns the same flags with one option set, by the option's own parser.
    pub fn with(&self, option: &str, value: &str) -> Result<Self, Failure> {
        #[derive(clap::Parser)]
        #[command(no_binary_name = true, args_override_self = true)]
        struct Only {
            #[command(flatten)]
            args: WorkloadArgs,
        }
        let mut words =
            vec![format!("--seed={}", self.seed), format!("--threads={}", self.threads)];
        words.extend(self.size.map(|size| format!("--size={}", size.to_exact())));
        words.extend(self.options.to_arguments());
        words.push(format!("--{option}={value}"));
        let parsed = <Only as clap::Parser>::try_parse_from(words);
        parsed.map(|only| only.args).map_err(|error| {
            let said = error.to_string();
            let line = said.lines().next().unwrap_or_default().trim_start_matches("error: ");
            Failure::usage(format!("--vary {option}={value}: {line}"))
        })
    }

    /// Returns whether any flag was given that applies only to workloads.
    pub fn is_given(&self) -> bool {
        self.size.is_some() || self.threads.get() > 1 || self.options != Options::default()
    }
}

/// The failure of a workload: this machine's if its memory does not suffice, wrong usage otherwise.
pub fn failure(error: WorkloadError) -> Failure {
    match error {
        WorkloadError::TooLarge { .. } | WorkloadError::Allocation { .. } => Failure::cannot(error),
        error => Failure::usage(error),
    }
}

/// Fails if `workload` cannot run with these settings in this machine's free memory.
pub fn check(workload: Workload, settings: &Settings) -> Result<(), Failure> {
    let available = MemInfo::read(&Root::real()).ok().and_then(|memory| memory.available);
    workload.check(settings, available).map_err(failure)
}

/// Returns the command that runs `workload` in its own process: this program with its settings.
pub fn command(workload: Workload, settings: &Settings) -> Result<Vec<Word>, Failure> {
    let own = crate::programs::superpage()?;
    let mut words = vec![own.display().to_string(), "workload".into(), workload.to_string()];
    words.extend(["--size".into(), settings.size.to_exact()]);
    words.extend(["--seed".into(), settings.seed.to_string()]);
    words.extend(["--threads".into(), settings.threads.to_string()]);
    words.extend(settings.options.to_arguments());
    words.push("--json".to_string());
    Ok(words.into_iter().map(Word::from).collect())
}
