//! Tables run together: what their rows need, each design under each conditions once, in one queue over all threads.
//!
//! The longest pass begins first, so that no thread is left with a long one at the end. Reports are kept until the
//! last table is made of them: some 50 KB each. A pass takes the memory of its machines, some 100 MB each of 32 GB
//! fragmented; there are as many passes at a time as threads.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Mutex;

use units::ByteSize;

use super::{Conditions, Entry, Runs, Table};
use crate::load::{self, Design};
use crate::{Experiment, Going, LabError, Report, side_by_side};

/// How far a rerun is. A cell is a design under one workload and fragmentation; several tables may need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step<'a> {
    /// Cells that are done.
    pub done: u64,
    /// Cells that there are.
    pub of: u64,
    /// The row that is run next.
    pub row: &'a str,
    /// Its fragmentation.
    pub fragmentation: &'a str,
}

/// Designs that share a pass: to make a stream takes up to as long as a design's machine takes to run it.
const TOGETHER: usize = 2;

/// Runs these tables. `step` is called before each pass with its progress; `whole` is given each table, in their order, as
/// soon as it and those before it are whole, and may break: then no further pass is begun. `going` is asked before each
/// piece of a pass, and may break: then passes under way are given up.
///
/// # Errors
/// The first pass that could not be run, or was given up; no further one is begun, and the tables that need it are not made.
pub fn run(
    entries: &[&Entry],
    step: &mut (dyn FnMut(Step<'_>) + Send),
    whole: &mut (dyn FnMut(Table) -> ControlFlow<()> + Send),
    going: Going,
) -> Result<(), LabError> {
    let passes = longest_first(passes(entries))?;
    let of = passes.iter().map(|pass| pass.designs.len() as u64).sum();
    let mut board = Board { waiting: entries, reports: BTreeMap::new(), of, step, whole };
    // A table may need nothing.
    if board.give().is_break() {
        return Ok(());
    }
    let board = Mutex::new((board, Ok(())));
    side_by_side::queue(passes, |pass| {
        let locked = || board.lock().expect("nothing in it panics");
        locked().0.tell(&pass);
        let ended = pass.run(going);
        let (board, result) = &mut *locked();
        match ended {
            Ok(reports) => board.add(&pass, reports),
            Err(error) => {
                *result = std::mem::replace(result, Ok(())).and(Err(error));
                ControlFlow::Break(())
            }
        }
    });
    board.into_inner().expect("nothing in it panics").1
}

/// Designs that take one pass over a workload's stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pass {
    /// The row that needs it first.
    name: &'static str,
    pub conditions: Conditions,
    pub designs: Vec<&'static str>,
}

/// What the tables need, each cell once.
pub(super) fn passes(entries: &[&Entry]) -> Vec<Pass> {
    let mut needed: BTreeMap<Conditions, (&'static str, Vec<&'static str>)> = BTreeMap::new();
    for Runs { name, conditions, designs } in entries.iter().flat_map(|entry| (entry.runs)()) {
        let (_, all) = needed.entry(conditions).or_insert((name, Vec::new()));
        for &design in designs {
            if !all.contains(&design) {
                all.push(design);
            }
        }
    }
    let mut passes = Vec::new();
    for (conditions, (name, designs)) in needed {
        let parts = designs.chunks(TOGETHER);
        passes.extend(parts.map(|part| Pass { name, conditions, designs: part.to_vec() }));
    }
    passes
}

/// Those of the longest streams first; of equally long ones those on memory that is fragmented, where designs have
/// more to do.
pub(super) fn longest_first(passes: Vec<Pass>) -> Result<Vec<Pass>, LabError> {
    let mut known = Vec::new();
    for pass in passes {
        known.push((pass.expected()?, pass));
    }
    known.sort_by_key(|(records, pass)| {
        Reverse((*records, pass.conditions.fragmentation != "none"))
    });
    Ok(known.into_iter().map(|(_, pass)| pass).collect())
}

impl Pass {
    /// Records that its machines carry out. A stream of which nobody knows is taken for a long one.
    fn expected(&self) -> Result<u64, LabError> {
        let (description, _) = self.experiment().workload.build()?;
        let records = description.records.unwrap_or(u64::MAX);
        Ok(records.saturating_mul(self.designs.len() as u64))
    }

    fn run(&self, going: Going) -> Result<Vec<Report>, LabError> {
        let experiment = self.experiment();
        let preset = |name: &&str| load::preset_on(name, &experiment.machine);
        let designs: Vec<Design> = self.designs.iter().map(preset).collect();
        crate::run_watched(&experiment, &designs, |_| going())
    }

    fn experiment(&self) -> Experiment {
        let Conditions { machine, memory, fragmentation, workload, seed } = self.conditions;
        Experiment {
            machine: machine::preset(machine).expect("a preset"),
            memory,
            fragmentation: fragmentation.parse().expect("written in a table"),
            fragmentation_name: fragmentation.to_string(),
            workload: workload.parse().expect("written in a table"),
            workload_name: workload.to_string(),
            seed,
            swap: ByteSize(0),
            layout: mm_sim::Layout::default(),
            utilisation: false,
        }
    }
}

/// What is done, and the tables that wait for what is not.
struct Board<'a> {
    waiting: &'a [&'a Entry],
    reports: BTreeMap<(Conditions, &'static str), Report>,
    /// Cells that there are.
    of: u64,
    step: &'a mut (dyn FnMut(Step<'_>) + Send),
    whole: &'a mut (dyn FnMut(Table) -> ControlFlow<()> + Send),
}

impl Board<'_> {
    fn tell(&mut self, pass: &Pass) {
        let (done, of) = (self.reports.len() as u64, self.of);
        let fragmentation = pass.conditions.fragmentation;
        (self.step)(Step { done, of, row: pass.name, fragmentation });
    }

    fn add(&mut self, pass: &Pass, reports: Vec<Report>) -> ControlFlow<()> {
        let names = pass.designs.iter().map(|&design| (pass.conditions, design));
        self.reports.extend(names.zip(reports));
        self.give()
    }

    /// Gives the tables that are whole, up to the first that is not.
    fn give(&mut self) -> ControlFlow<()> {
        while let Some((entry, rest)) = self.waiting.split_first() {
            let Some(table) = self.made(entry) else { break };
            self.waiting = rest;
            (self.whole)(table)?;
        }
        ControlFlow::Continue(())
    }

    fn made(&self, entry: &Entry) -> Option<Table> {
        let report = |conditions, design| self.reports.get(&(conditions, design));
        let row = |one: Runs| -> Option<Vec<&Report>> {
            one.designs.iter().map(|design| report(one.conditions, *design)).collect()
        };
        let reports: Option<Vec<_>> = (entry.runs)().into_iter().map(row).collect();
        reports.map(|reports| (entry.table)(entry, &reports))
    }
}
