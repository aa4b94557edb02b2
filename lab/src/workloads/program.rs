//! `Program`: a stream made of steps, one after the other.

use std::collections::VecDeque;
use std::convert::Infallible;

use trace::{Block, Event, Source};

use super::Emit;

/// The stream of a workload.
pub type Stream = Box<dyn Source<Error = Infallible> + Send>;

/// A piece of a program: it adds to the block until that is full or the piece is over. `true`: there
/// is more of it. A step that returns `true` has added something.
pub(crate) trait Step: Send {
    fn fill(&mut self, block: &mut Block) -> bool;
}

impl<F: FnMut(&mut Block) -> bool + Send> Step for F {
    fn fill(&mut self, block: &mut Block) -> bool {
        self(block)
    }
}

/// Steps that follow one another.
#[derive(Default)]
pub(crate) struct Program {
    steps: VecDeque<Box<dyn Step>>,
}

impl Program {
    /// Adds a step.
    pub fn step(&mut self, step: impl Step + 'static) -> &mut Self {
        self.steps.push_back(Box::new(step));
        self
    }

    /// Adds events.
    pub fn events(&mut self, events: impl IntoIterator<Item = Event>) -> &mut Self {
        let mut events = events.into_iter().collect::<VecDeque<_>>();
        self.step(move |block: &mut Block| {
            for event in events.drain(..) {
                block.event(event);
            }
            false
        })
    }

    /// Begins a phase.
    pub fn phase(&mut self, name: &str) -> &mut Self {
        self.events([Event::Phase(name.to_string())])
    }

    /// As the engine reads it.
    pub fn stream(self) -> Stream {
        Box::new(self)
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
