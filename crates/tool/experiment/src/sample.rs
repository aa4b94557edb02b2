//! `Sample`: all facts about one run. Base units; unknown is `null`.

use serde::{Deserialize, Serialize};

use crate::service::Phases;
use crate::supply::Supplied;
use crate::watch::Observed;

/// Purpose of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// Unmeasured: warms memory and caches, and is watched thoroughly.
    WarmUp,
    /// Measured.
    #[default]
    Measured,
}

/// One run of one arm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Sample {
    /// Index of the arm; 0 is the reference.
    pub arm: u32,
    /// Purpose of the run.
    pub purpose: Purpose,
    /// ABBA block; for a warm-up, its index.
    pub block: u32,
    /// Position in the block.
    pub slot: u32,
    /// Wall time from just before the fork until the program ended; for a service, wall time of its load.
    #[serde(deserialize_with = "units::elapsed")]
    pub wall_seconds: f64,
    /// User CPU time of all processes. For a service, this and the following fields are from its start until it had
    /// stopped.
    #[serde(deserialize_with = "units::seconds")]
    pub user_seconds: f64,
    /// Kernel CPU time of all processes.
    #[serde(deserialize_with = "units::seconds")]
    pub system_seconds: f64,
    /// Number of faults without I/O.
    #[serde(deserialize_with = "units::count")]
    pub minor_faults: u64,
    /// Number of faults with I/O.
    #[serde(deserialize_with = "units::count")]
    pub major_faults: u64,
    /// Maximum resident set of any one process, without hugetlb pages.
    #[serde(deserialize_with = "units::bytes")]
    pub max_rss_bytes: u64,
    /// Memory observed by the watch.
    pub memory: Observed,
    /// THP faults on this machine that fell back to base pages during the run.
    #[serde(deserialize_with = "units::count")]
    pub thp_fault_fallbacks: Option<u64>,
    /// Number of waits for compaction on this machine during the run.
    #[serde(deserialize_with = "units::count")]
    pub compaction_stalls: Option<u64>,
    /// Number of waits for reclaim on this machine during the run.
    #[serde(deserialize_with = "units::count")]
    pub reclaim_stalls: Option<u64>,
    /// Bytes of free memory in blocks of at least a superpage, before the run.
    #[serde(deserialize_with = "units::bytes")]
    pub free_superpage_bytes_before: Option<u64>,
    /// Bytes of free memory in blocks of at least a superpage, after the run.
    #[serde(deserialize_with = "units::bytes")]
    pub free_superpage_bytes_after: Option<u64>,
    /// The program's own figure of merit, if requested.
    #[serde(deserialize_with = "units::figure_of_merit")]
    pub metric: Option<f64>,
    /// Further metrics, in the order of the document's `more_metrics`; empty if the first is unknown.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "units::figure_of_merit"
    )]
    pub more_metrics: Vec<f64>,
    /// Exit code; `null` if a signal ended the program.
    #[serde(deserialize_with = "units::exit_code")]
    pub exit_code: Option<i32>,
    /// The signal that ended the program, if any.
    #[serde(deserialize_with = "units::signal")]
    pub signal: Option<i32>,
    /// Bytes of memory touched and released just before the run, so that frames were equally warm for every arm.
    #[serde(deserialize_with = "units::bytes")]
    pub warmed_bytes: u64,
    /// Bytes of padding in the program's environment.
    pub environment_padding: u32,
    /// Whether libsuperpage.so, if planned, reported that it was loaded; `null` if it was not planned, or if the answer
    /// is unknown.
    #[serde(default)]
    pub library_answered: Option<bool>,
    /// Bytes of superpages that the program requested from the library, granted or not; `null` if the
    /// library was not planned, or if the number is unknown.
    #[serde(default, deserialize_with = "units::bytes")]
    pub library_asked_bytes: Option<u64>,
    /// Number of forks of processes in which the library was active; `null` as above.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "units::count")]
    pub library_forks: Option<u64>,
    /// What superpage did for a design that it enforced itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub design: Option<live::Report>,
    /// Superpages that superpage freed for the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supplied: Option<Supplied>,
    /// Number of processes that the run left behind, and that were ended afterwards.
    pub stragglers: u32,
    /// For a service: times of the other phases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Phases>,
}

units::checked!(Sample);

impl Sample {
    fn check(&self) -> Result<(), String> {
        match (self.exit_code, self.signal) {
            (Some(_), Some(_)) => Err("it has both an exit_code and a signal".to_string()),
            _ if self.metric.is_none() && !self.more_metrics.is_empty() => {
                Err("it has more_metrics and no metric".to_string())
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the program succeeded.
    pub fn succeeded(&self) -> bool {
        self.exit_code == Some(0)
    }

    /// Returns the program's value of the document's `index`-th metric, from 0.
    pub fn metric_at(&self, index: usize) -> Option<f64> {
        match index.checked_sub(1) {
            None => self.metric,
            Some(further) => self.more_metrics.get(further).copied(),
        }
    }

    /// Returns the approximate duration of the watch in seconds.
    pub fn watched_seconds(&self) -> f64 {
        self.wall_seconds + self.service.map_or(0.0, |phases| phases.before_load())
    }

    /// Returns the duration of the whole run in seconds.
    pub fn run_seconds(&self) -> f64 {
        self.wall_seconds + self.service.map_or(0.0, |phases| phases.seconds())
    }

    /// Returns the maximum memory at one time, in bytes; `None` for a run too short to be observed.
    pub fn peak_bytes(&self) -> Option<u64> {
        self.memory.peak_resident_bytes
    }
}
