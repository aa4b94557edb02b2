//! `Sample`: everything known of one run. Base units; unknown is `null`.

use serde::{Deserialize, Serialize};

use crate::service::Phases;
use crate::supply::Supplied;
use crate::watch::Observed;

/// What a run counted for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// Before the clock counts: warms memory and caches, and is watched thoroughly.
    WarmUp,
    /// Measured.
    #[default]
    Measured,
}

/// One run of one arm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Sample {
    /// Which arm, counted from 0, the reference.
    pub arm: u32,
    /// What it counted for.
    pub purpose: Purpose,
    /// Its ABBA block; for a warm-up, which warm-up.
    pub block: u32,
    /// Its place in the block.
    pub slot: u32,
    /// From before the fork until the program had ended; of a service, the same of its load.
    #[serde(deserialize_with = "units::elapsed")]
    pub wall_seconds: f64,
    /// In user mode, all its processes; of a service, from its start until it had stopped, and so below.
    #[serde(deserialize_with = "units::seconds")]
    pub user_seconds: f64,
    /// In the kernel, all its processes.
    #[serde(deserialize_with = "units::seconds")]
    pub system_seconds: f64,
    /// Faults without I/O.
    #[serde(deserialize_with = "units::count")]
    pub minor_faults: u64,
    /// Faults with I/O.
    #[serde(deserialize_with = "units::count")]
    pub major_faults: u64,
    /// The largest resident set of any one of its processes; hugetlb pages are not in it.
    #[serde(deserialize_with = "units::bytes")]
    pub max_rss_bytes: u64,
    /// What was seen of its memory.
    pub memory: Observed,
    /// THP faults on this machine that fell back to base pages during the run.
    #[serde(deserialize_with = "units::count")]
    pub thp_fault_fallbacks: Option<u64>,
    /// Times a process on this machine waited for compaction during the run.
    #[serde(deserialize_with = "units::count")]
    pub compaction_stalls: Option<u64>,
    /// Times a process on this machine waited for reclaim during the run.
    #[serde(deserialize_with = "units::count")]
    pub reclaim_stalls: Option<u64>,
    /// Free memory in blocks of at least a superpage, before the run.
    #[serde(deserialize_with = "units::bytes")]
    pub free_superpage_bytes_before: Option<u64>,
    /// The same after it.
    #[serde(deserialize_with = "units::bytes")]
    pub free_superpage_bytes_after: Option<u64>,
    /// The program's own figure of merit, if it was looked for.
    #[serde(deserialize_with = "units::figure_of_merit")]
    pub metric: Option<f64>,
    /// Further figures, in the order of the document's `more_metrics`; none if the first is unknown.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "units::figure_of_merit"
    )]
    pub more_metrics: Vec<f64>,
    /// Exit code; `null` if a signal ended it.
    #[serde(deserialize_with = "units::exit_code")]
    pub exit_code: Option<i32>,
    /// The signal that ended it, if one did.
    #[serde(deserialize_with = "units::signal")]
    pub signal: Option<i32>,
    /// Memory touched and given back just before, so that frames were equally warm for every arm.
    #[serde(deserialize_with = "units::bytes")]
    pub warmed_bytes: u64,
    /// Bytes of padding put into its environment.
    pub environment_padding: u32,
    /// Whether libsuperpage.so, which was to be in it, said so; `null` if nobody asked, or nobody knows.
    #[serde(default)]
    pub library_answered: Option<bool>,
    /// What the program asked the library for in superpages, whatever came of it; `null` as above.
    #[serde(default, deserialize_with = "units::bytes")]
    pub library_asked_bytes: Option<u64>,
    /// What superpage did for a design that it put in force itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub design: Option<live::Report>,
    /// Superpages that superpage made free for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supplied: Option<Supplied>,
    /// Processes it left behind, ended afterwards.
    pub stragglers: u32,
    /// Of a service: what it took besides the load.
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

    /// Whether the program said it succeeded.
    pub fn succeeded(&self) -> bool {
        self.exit_code == Some(0)
    }

    /// The program's figure of the document's `index`-th metric, from 0.
    pub fn metric_at(&self, index: usize) -> Option<f64> {
        match index.checked_sub(1) {
            None => self.metric,
            Some(further) => self.more_metrics.get(further).copied(),
        }
    }

    /// How long it was watched, about.
    pub fn watched_seconds(&self) -> f64 {
        self.wall_seconds + self.service.map_or(0.0, |phases| phases.before_load())
    }

    /// How long all of the run took.
    pub fn run_seconds(&self) -> f64 {
        self.wall_seconds + self.service.map_or(0.0, |phases| phases.seconds())
    }

    /// The most memory it held at once; `None` of a run too short to be seen.
    pub fn peak_bytes(&self) -> Option<u64> {
        self.memory.peak_resident_bytes
    }
}
