//! What the manager keeps in force, as data.

use std::collections::BTreeMap;
use std::path::PathBuf;

use host::Root;
use policy::Scale;
use serde::{Deserialize, Serialize};
use services::Process;
use units::{ByteSize, Pid};

use super::history::Point;
use super::members::{Found, LeftAlone};
use crate::config::{Cause, Mode};
use crate::memory::{Coverage, Forbidden, Memory, Survey};

/// Why no superpage is made now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pause {
    /// Less memory is available than the headroom.
    Memory,
    /// A realtime task is running.
    Realtime,
}

/// The manager's state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The manager; `None`: a manager of an earlier version.
    #[serde(default)]
    pub pid: Option<Pid>,
    /// The files of the configuration in force, in the order in which they were read.
    #[serde(default)]
    pub configuration: Vec<PathBuf>,
    /// Number of processes in which superpages are made.
    pub members: u64,
    /// Number of processes that are observed.
    pub observed: u64,
    /// Superpages made since the start.
    pub made: u64,
    /// Attempts without a superpage, by reason; one superpage may take several attempts.
    pub unmade: BTreeMap<String, u64>,
    /// Zeroed memory that filled them.
    pub filled: ByteSize,
    /// Superpages given back since the start.
    pub given_back: u64,
    /// Zeroed memory in them, by samples.
    pub given_back_bytes: ByteSize,
    /// Longest call since the start, in seconds; `None`: none was made.
    #[serde(deserialize_with = "units::seconds")]
    pub longest_seconds: Option<f64>,
    /// 99th percentile of the last calls, in seconds.
    #[serde(deserialize_with = "units::seconds")]
    pub p99_seconds: Option<f64>,
    /// Superpages made per second at most, adapted to how long calls take.
    #[serde(deserialize_with = "units::number")]
    pub rate: Option<f64>,
    /// Why none is made now.
    pub pause: Option<Pause>,
    /// Why superpages are given back now.
    pub shortage: Option<Cause>,
    /// CPU time of the manager since its start, in seconds.
    #[serde(deserialize_with = "units::seconds")]
    pub cpu_seconds: f64,
    /// Why the last record could not be written; nothing is made meanwhile.
    pub unrecorded: Option<String>,
    /// The processes for which a rule has a design.
    pub processes: Vec<Kept>,
    /// Processes that a rule means and that get nothing.
    pub left_alone: Vec<LeftAlone>,
    /// Figures of the managed processes over time, oldest first.
    pub history: Vec<Point>,
}

/// A process for which a rule has a design.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// The process.
    pub pid: Pid,
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: Option<String>,
    /// The design.
    pub design: String,
    /// The rule's mode.
    pub mode: Mode,
    /// What forbids superpages in it.
    pub forbidden: Vec<Forbidden>,
    /// How much of its memory is on superpages; `None`: it could not be read.
    pub coverage: Option<Coverage>,
    /// Number of superpages that the design would make of its memory as it is now.
    pub would_make: Option<u64>,
}

/// Reads the coverage of a process.
pub fn look(root: &Root, found: &Found) -> Kept {
    let Process { pid, name, unit, .. } = found.process.clone();
    let survey = Memory::open(root, &found.process).and_then(|memory| memory.survey()).ok();
    let least = live::least_filled(&found.design.policy(Scale::X86));
    let would_make = |survey: &Survey| {
        let wanted = survey.blocks.iter().filter(|block| {
            !block.is_shared && block.pages.base > 0 && block.pages.resident() >= u32::from(least)
        });
        wanted.count() as u64
    };
    Kept {
        pid,
        name,
        unit,
        design: found.group.design.clone(),
        mode: found.mode,
        forbidden: found.forbidden.clone(),
        coverage: survey.as_ref().map(Survey::coverage),
        would_make: survey.as_ref().map(would_make),
    }
}
