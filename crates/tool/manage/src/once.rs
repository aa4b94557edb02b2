//! Superpages for a running process now, and base pages again.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use services::{Process, SpaceError};
use units::ByteSize;

use crate::collapse::{Collapsed, Limits};
use crate::memory::{Block, Coverage, Forbidden, Ineligible, ManageError, Memory, Survey};
use crate::record::check_uncompared;
use crate::split::Split;

/// Zeroed memory that `superpage manage --once` may add to a process, as a share of its resident memory, unless asked
/// otherwise. It stays until an undo. A manager has no such limit: its design says how full a block must be.
pub const FILL: f64 = 0.03;
/// The same for `superpage compare --pid`: more, because the arm on superpages needs 90 % of the memory on them, and a
/// split gives the zeros back some seconds later. See docs/decisions/running-services.md#3.
pub const FILL_COMPARED: f64 = 0.1;

/// What is wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Largest share of the time, 0 to 1, that is spent in calls.
    pub duty: f64,
    /// Time for all.
    pub within: Duration,
    /// Zeroed memory that may be added, as a share of the process's resident memory.
    pub fill: f64,
    /// Bytes that stay available on the machine.
    pub headroom: ByteSize,
    /// What is no obstacle although it forbids superpages.
    pub overrides: Vec<Forbidden>,
}

/// What would be done.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// The process.
    pub process: Process,
    /// Coverage now.
    pub coverage: Coverage,
    /// What forbids superpages, apart from what the request overrides.
    pub forbidden: Vec<Forbidden>,
    /// Resident bytes that cannot be on superpages, by reason.
    pub ineligible: BTreeMap<Ineligible, ByteSize>,
    /// Number of blocks that would be collapsed, if each may be filled.
    pub superpages: u64,
    /// Zeroed bytes that would fill them, at most the request's share.
    pub fill: ByteSize,
    /// The blocks, first to last.
    #[serde(skip)]
    pub blocks: Vec<Block>,
    #[serde(skip)]
    survey: Survey,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The process.
    pub process: Process,
    /// Coverage before.
    pub before: Coverage,
    /// Coverage afterwards; `None`: the process ended, or executed another program.
    pub after: Option<Coverage>,
    /// What forbids superpages. If anything does, nothing was made.
    pub forbidden: Vec<Forbidden>,
    /// Resident bytes that cannot be on superpages, by reason.
    pub ineligible: BTreeMap<Ineligible, ByteSize>,
    /// What was made and skipped.
    #[serde(flatten)]
    pub collapsed: Collapsed,
    /// Resident memory before, from the kernel's counters.
    pub resident_before: Option<ByteSize>,
    /// And afterwards.
    pub resident_after: Option<ByteSize>,
}

/// What was undone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Undone {
    /// The process.
    pub process: Process,
    /// Superpages that were recorded as made.
    pub recorded: u64,
    /// Coverage before.
    pub before: Coverage,
    /// Coverage afterwards; `None`: the process ended.
    pub after: Option<Coverage>,
    /// What was split.
    #[serde(flatten)]
    pub split: Split,
    /// Resident memory before, from the kernel's counters.
    pub resident_before: Option<ByteSize>,
    /// And afterwards.
    pub resident_after: Option<ByteSize>,
}

impl Plan {
    /// Reads a process, and orders its blocks: by heat, hottest first, then the fullest first. `heat` is the share of the
    /// process's accesses by a block's first address; empty if unknown.
    ///
    /// # Errors
    /// The process ended or may not be read.
    pub fn read(
        memory: &Memory,
        request: &Request,
        heat: &BTreeMap<u64, f64>,
    ) -> Result<Self, ManageError> {
        let survey = memory.survey()?;
        let mut forbidden = memory.forbidden()?;
        forbidden.retain(|found| !request.overrides.contains(found));
        let coverage = survey.coverage();
        let mut blocks: Vec<Block> =
            survey.blocks.iter().filter(|block| block.pages.base > 0).copied().collect();
        let heat = |block: &Block| heat.get(&block.start).copied().unwrap_or(0.0);
        blocks.sort_by(|one, other| {
            let by_heat = heat(other).total_cmp(&heat(one));
            by_heat
                .then(other.pages.resident().cmp(&one.pages.resident()))
                .then(one.start.cmp(&other.start))
        });
        let most = memory.resident().map_or(0.0, |size| size.bytes() as f64 * request.fill);
        let (mut fill, mut superpages) = (0, 0);
        for block in &blocks {
            let missing = survey.missing(block).bytes();
            if block.pages.swapped == 0 && (fill + missing) as f64 <= most {
                (fill, superpages) = (fill + missing, superpages + 1);
            }
        }
        Ok(Self {
            process: memory.process.clone(),
            coverage,
            forbidden,
            ineligible: survey.ineligible.clone(),
            superpages,
            fill: ByteSize(fill),
            blocks,
            survey,
        })
    }
}

/// Puts a process's memory on superpages as planned. The record in `dir` has what is made.
///
/// # Errors
/// The process ended before, may not be read, or no record can be written.
pub fn collapse(
    memory: &Memory,
    plan: Plan,
    request: &Request,
    dir: &Path,
    goes_on: impl FnMut(usize) -> bool,
) -> Result<Outcome, ManageError> {
    check_uncompared(&memory.root, dir, &memory.process)?;
    let resident_before = memory.resident();
    let mut record = memory.record(dir)?;
    be_first();
    let limits = Limits {
        duty: request.duty,
        deadline: Instant::now().checked_add(request.within),
        fill: plan.fill,
        headroom: request.headroom,
    };
    let collapsed = match plan.forbidden.is_empty() {
        true => memory.collapse(&plan.survey, &plan.blocks, &limits, &mut record, goes_on),
        false => Collapsed::default(),
    };
    Ok(Outcome {
        process: plan.process,
        before: plan.coverage,
        after: coverage_after(memory)?,
        forbidden: plan.forbidden,
        ineligible: plan.ineligible,
        collapsed,
        resident_before,
        resident_after: memory.resident(),
    })
}

/// What [`undo`] would split; changes nothing.
///
/// # Errors
/// The process ended, may not be read, or its record cannot be read.
pub fn planned_undo(memory: &Memory, dir: &Path) -> Result<Undone, ManageError> {
    let record = memory.record(dir)?;
    let before = memory.survey()?.coverage();
    let resident = memory.resident();
    Ok(Undone {
        process: memory.process.clone(),
        recorded: record.starts().count() as u64,
        before,
        after: Some(before),
        split: Split::default(),
        resident_before: resident,
        resident_after: resident,
    })
}

/// Splits the superpages that the record in `dir` says were made, and forgets those that are split.
///
/// # Errors
/// The process ended before, may not be read, or its record cannot be read or written.
pub fn undo(
    memory: &Memory,
    dir: &Path,
    duty: f64,
    within: Duration,
) -> Result<Undone, ManageError> {
    check_uncompared(&memory.root, dir, &memory.process)?;
    let record = memory.record(dir)?;
    let starts: Vec<u64> = record.starts().collect();
    let survey = memory.survey()?;
    let resident_before = memory.resident();
    let deadline = Instant::now().checked_add(within);
    be_first();
    let split = memory.split(&starts, duty, deadline);
    record.keep(&split.left).map_err(ManageError::Record)?;
    Ok(Undone {
        process: memory.process.clone(),
        recorded: starts.len() as u64,
        before: survey.coverage(),
        after: coverage_after(memory)?,
        split,
        resident_before,
        resident_after: memory.resident(),
    })
}

/// Gives this thread the highest nice value: while it waits for a CPU in a call, the process may wait for it.
fn be_first() {
    const NICE: i32 = -20;
    let _ = sys::affinity::add_nice(NICE);
}

fn coverage_after(memory: &Memory) -> Result<Option<Coverage>, ManageError> {
    match memory.survey() {
        Ok(survey) => Ok(Some(survey.coverage())),
        Err(ManageError::Space(SpaceError::Ended) | ManageError::Executed) => Ok(None),
        Err(error) => Err(error),
    }
}
