//! `Program`: a stream made of consecutive steps.

use std::collections::VecDeque;
use std::convert::Infallible;

use trace::{Block, Event, Pace, Process, Source};

use super::space::{Area, Extent};
use super::{Description, Emit, Figure, Setup, WorkloadError};

/// The stream of a workload.
pub type Stream = Box<dyn Source<Error = Infallible> + Send>;

/// A workload's description and its stream, or the error.
pub(super) type Built = Result<(Description, Stream), WorkloadError>;

/// A part of a program. `fill` adds to the block until the block is full or the step ends. Returns `true` if the step
/// continues; then it has added something.
pub(crate) trait Step: Send {
    fn fill(&mut self, block: &mut Block) -> bool;

    /// Approximate number of accesses and runs that the step will add, for progress reports; `None` if unknown.
    fn records(&self) -> Option<u64> {
        None
    }
}

impl<F: FnMut(&mut Block) -> bool + Send> Step for F {
    fn fill(&mut self, block: &mut Block) -> bool {
        self(block)
    }
}

/// A step that consists only of events.
struct Events(VecDeque<Event>);

impl Step for Events {
    fn fill(&mut self, block: &mut Block) -> bool {
        self.0.drain(..).for_each(|event| block.event(event));
        false
    }

    fn records(&self) -> Option<u64> {
        Some(0)
    }
}

/// A step with a known approximate length.
struct Counted<S>(u64, S);

impl<S: Step> Step for Counted<S> {
    fn fill(&mut self, block: &mut Block) -> bool {
        self.1.fill(block)
    }

    fn records(&self) -> Option<u64> {
        Some(self.0)
    }
}

/// A sequence of steps.
#[derive(Default)]
pub(crate) struct Program {
    steps: VecDeque<Box<dyn Step>>,
    /// Names of its phases, in order.
    pub phases: Vec<&'static str>,
}

impl Program {
    /// Makes a program that starts with one process.
    pub fn new(setup: &Setup) -> Self {
        let mut program = Self::default();
        program.events([Event::Spawn(Process(setup.first_process))]);
        program
    }

    /// Adds a step.
    pub fn step(&mut self, step: impl Step + 'static) -> &mut Self {
        self.steps.push_back(Box::new(step));
        self
    }

    /// Adds events.
    pub fn events(&mut self, events: impl IntoIterator<Item = Event>) -> &mut Self {
        self.step(Events(events.into_iter().collect()))
    }

    /// Adds a step of about `records` accesses and runs.
    pub fn counted(&mut self, records: u64, step: impl Step + 'static) -> &mut Self {
        self.step(Counted(records, step))
    }

    /// Approximate number of accesses and runs of all steps; `None` if the number of any step is
    /// unknown.
    pub fn records(&self) -> Option<u64> {
        self.steps.iter().map(|step| step.records()).sum()
    }

    /// Starts a phase.
    pub fn phase(&mut self, name: &'static str) -> &mut Self {
        self.phases.push(name);
        self.events([Event::Phase(name.to_string())])
    }

    /// Sets the pace of the following accesses.
    pub fn pace(&mut self, pace: Pace) -> &mut Self {
        self.events([Event::Pace(pace)])
    }

    /// Maps a whole area.
    pub fn map(&mut self, area: Area) -> &mut Self {
        self.events([area.map()])
    }

    /// Ends the process of [`Program::new`] and describes the program.
    pub fn exit(mut self, setup: &Setup, threads: u16, figure: Figure, extent: Extent) -> Built {
        self.events([Event::Exit(Process(setup.first_process))]);
        self.describe(setup, threads, figure, extent)
    }

    /// Describes a program whose processes have ended.
    pub fn describe(self, setup: &Setup, threads: u16, figure: Figure, extent: Extent) -> Built {
        let description = Description {
            name: setup.name(),
            summary: setup.entry().summary,
            footprint_pages: extent.pages,
            superpages: extent.superpages,
            threads,
            figure,
            phases: self.phases.clone(),
            regions: extent.regions as u32,
            records: self.records(),
        };
        Ok((description, Box::new(self)))
    }
}

impl Source for Program {
    type Error = Infallible;

    fn next(&mut self, block: &mut Block) -> Result<bool, Infallible> {
        block.clear();
        while !block.is_full() {
            let Some(step) = self.steps.front_mut() else { break };
            if step.fill(block) {
                break;
            }
            self.steps.pop_front();
        }
        Ok(!block.accesses.is_empty() || !block.events.is_empty())
    }
}
