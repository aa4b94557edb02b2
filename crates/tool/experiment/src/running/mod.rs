//! Compares base pages and superpages of a service that already runs, by switching its memory back and forth.
//!
//! A *block* is a time during which all of the service's memory is in one state, and its metric is read. A *round* is a
//! group of two blocks of each arm in the order ABBA: what [`stats`](crate::stats) calls a block. Neighbours are paired
//! because a service's load drifts: the drift inside a round cancels.
//!
//! [`procedure`] decides what comes next. A [`Switch`] switches the memory, a [`Meter`] reads the metric; tests pass
//! simulated ones. The [`Document`](document::Document) has the facts, [`analysis`] the verdicts.
//! See docs/decisions/running-services.md#1.

pub mod analysis;
pub mod document;
pub mod html;
pub mod metric;
pub mod procedure;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A state of a service's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pages {
    /// No superpage: those there were are split.
    Base,
    /// All memory that can be on superpages is.
    Superpages,
}

/// Where the service's memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Resident bytes that superpages map, or could map.
    #[serde(deserialize_with = "units::bytes")]
    pub eligible_bytes: u64,
    /// Those that superpages map.
    #[serde(deserialize_with = "units::bytes")]
    pub superpage_bytes: u64,
}

impl Coverage {
    /// Returns the share of eligible memory on superpages; `None` if there is no eligible memory.
    pub fn share(&self) -> Option<f64> {
        let eligible = self.eligible_bytes as f64;
        (self.eligible_bytes > 0).then(|| self.superpage_bytes as f64 / eligible)
    }
}

/// What one switch did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Switched {
    /// Superpages that were made.
    #[serde(deserialize_with = "units::count")]
    pub made: u64,
    /// Superpages that were split.
    #[serde(deserialize_with = "units::count")]
    pub split: u64,
    /// Superpages that could not be split.
    #[serde(default, deserialize_with = "units::count")]
    pub kept: u64,
    /// Bytes of memory that could not be switched, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Duration of the switch in seconds.
    #[serde(deserialize_with = "units::seconds")]
    pub seconds: f64,
    /// Duration of its longest system call in seconds; `null` if it made none.
    #[serde(deserialize_with = "units::seconds")]
    pub longest_call_seconds: Option<f64>,
}

impl Switched {
    /// Returns the reason for which most memory could not be switched, and its bytes.
    pub fn largest_obstacle(&self) -> Option<(&str, u64)> {
        let largest = self.skipped.iter().max_by_key(|(_, bytes)| **bytes);
        largest.map(|(why, bytes)| (why.as_str(), *bytes))
    }
}

/// Why the memory was not switched or read.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// A process of the service ended.
    #[error("{0} ended")]
    Ended(String),
    /// A process of the service executed another program, whose memory is another one.
    #[error("{0} executed another program")]
    Executed(String),
    /// The machine or the user's rights do not allow it.
    #[error("{0}")]
    Cannot(String),
}

/// Switches the memory of a running service.
pub trait Switch {
    /// Brings all memory that can be switched into a state. Places that resist are counted, and are no error.
    ///
    /// # Errors
    /// A process ended or executed another program, or nothing can be switched.
    fn switch(&mut self, to: Pages) -> Result<Switched, SwitchError>;

    /// Reads where the memory is.
    ///
    /// # Errors
    /// A process ended, or its memory cannot be read.
    fn coverage(&mut self) -> Result<Coverage, SwitchError>;

    /// Brings the memory back into the state in which it was found, as far as possible. Processes that have ended are
    /// left out.
    ///
    /// # Errors
    /// A process that still runs could not be restored.
    fn restore(&mut self) -> Result<Switched, SwitchError>;
}

/// Why a block has no figure.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MeterError(pub String);

/// Reads the metric of a block.
pub trait Meter {
    /// Begins a block.
    ///
    /// # Errors
    /// The metric cannot be read.
    fn begin(&mut self) -> Result<(), MeterError>;

    /// Ends the block, and returns its figure: positive, in the metric's unit.
    ///
    /// # Errors
    /// The metric cannot be read, or has no figure for this block.
    fn end(&mut self) -> Result<f64, MeterError>;
}

/// The time of a comparison.
pub trait Clock {
    /// Returns the time since some moment.
    fn now(&self) -> Duration;

    /// Waits. Returns `false` early if the comparison is to end.
    fn wait(&mut self, time: Duration) -> bool;

    /// Returns whether the comparison is to end.
    fn is_interrupted(&self) -> bool;
}
