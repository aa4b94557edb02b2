//! Prediction by replay: windows of the program, executed over memory of the same shape on base pages and on
//! superpages. See docs/decisions/prediction.md#11.

#[cfg(target_arch = "x86_64")]
mod windows;

use prediction::Range;

use super::Seconds;

/// A prediction by replay.
#[derive(Debug, Clone, PartialEq)]
pub struct Replayed {
    /// Share of the run's time that superpages would save.
    pub saved: Range,
    /// Number of windows.
    pub windows: usize,
    /// Number of instructions of all windows.
    pub instructions: u64,
    /// Share of the instructions that were replaced by moves.
    pub replaced: f64,
}

/// What is known of the program's runs on base pages.
#[derive(Debug, Clone, Copy)]
pub struct BaseRuns {
    /// Median seconds of the predicted part.
    pub part: Seconds,
    /// Median seconds of CPU time of whole runs.
    pub whole: f64,
    /// Median number of page faults.
    pub faults: f64,
}

#[cfg(not(target_arch = "x86_64"))]
impl Replayed {
    /// Windows are translated on x86-64 only.
    ///
    /// # Errors
    /// Always.
    pub fn new(
        _: &super::Subject,
        _: &BaseRuns,
        _: &prediction::Faults,
        _: bool,
    ) -> Result<Self, crate::Failure> {
        Err(crate::Failure::cannot("programs are replayed on x86-64 only"))
    }
}
