//! `Simulation`: a simulated machine behind a trait that hides its TLB type.
//!
//! This crate compiles the engine for each TLB type, so that the engine's loop can inline the TLB.

use machine::Machine;
use policy::Policy;
use tlb_sim::{Translate, Visitor};
use trace::Block;
use units::ByteSize;

use crate::fragment::Fragmentation;
use crate::memory::{Layout, LayoutError};
use crate::system::{Engine, Outcome, Stop, System, kernel_memory};
use crate::touched::{Counts, TouchedView};

/// A machine under a policy, which executes a workload's blocks.
pub trait Simulation: Send {
    /// Fragments memory under the policy `under`, the same for all designs, for a workload that needs `superpages`
    /// superpages; `seed` seeds the random numbers. Returns the first unused region and process.
    ///
    /// # Errors
    /// A fragmenter's event that no program can issue.
    fn fragment(
        &mut self,
        how: &Fragmentation,
        under: Policy,
        superpages: u64,
        seed: u64,
    ) -> Result<(u32, u32), String>;
    /// Returns whether the machine needs to know which pages are touched, not only how many.
    fn watches(&self) -> bool;
    /// Starts counting walks to base pages.
    fn count_walks(&mut self);
    /// Returns the number of walks to base pages, by superpage-sized range of the program's memory.
    fn walks(&mut self) -> Vec<u64>;
    /// Executes a block, unless the program has stopped.
    fn block(&mut self, block: &Block, touched: TouchedView<'_>);
    /// Executes blocks for which only the number of touched pages is known.
    fn blocks(&mut self, turn: &[(Block, Counts)]);
    /// Ends the run. Returns the reason of an early stop, if any, and the results.
    fn finish(self: Box<Self>) -> (Option<Stop>, Outcome);
}

/// Creates a machine with this memory, layout, policy and swap.
///
/// # Errors
/// [`LayoutError`]: invalid division of memory.
pub fn simulation(
    machine: &Machine,
    policy: Policy,
    memory: ByteSize,
    layout: &Layout,
    swap: ByteSize,
) -> Result<Box<dyn Simulation>, LayoutError> {
    let nodes = layout.shape(memory, machine.base_page.bytes(), kernel_memory(memory))?;
    let system = System::new(machine, policy, memory, nodes, swap);
    Ok(tlb_sim::dispatch(machine, Build { system, machine }))
}

struct Build<'a> {
    system: System,
    machine: &'a Machine,
}

impl Visitor for Build<'_> {
    type Output = Box<dyn Simulation>;
    fn visit<T: Translate>(self, tlb: T) -> Self::Output {
        let engine = Engine::new(tlb, self.system, self.machine.clone());
        Box::new(Running { engine, stop: None })
    }
}

struct Running<T> {
    engine: Engine<T>,
    stop: Option<Stop>,
}

impl<T: Translate> Simulation for Running<T> {
    fn fragment(
        &mut self,
        how: &Fragmentation,
        under: Policy,
        superpages: u64,
        seed: u64,
    ) -> Result<(u32, u32), String> {
        self.engine.fragment(how, under, superpages, seed)
    }

    fn watches(&self) -> bool {
        self.engine.system.watches()
    }

    fn count_walks(&mut self) {
        self.engine.system.count_walks();
    }

    fn walks(&mut self) -> Vec<u64> {
        self.engine.system.walks()
    }

    fn block(&mut self, block: &Block, touched: TouchedView<'_>) {
        if self.stop.is_none() {
            self.stop = self.engine.block(block, touched).err();
            self.engine.system.settle(touched.counts, self.stop.is_none());
        }
    }

    fn blocks(&mut self, turn: &[(Block, Counts)]) {
        for (block, counts) in turn {
            self.block(block, TouchedView { counts: *counts, pages: None });
        }
    }

    fn finish(mut self: Box<Self>) -> (Option<Stop>, Outcome) {
        self.engine.book();
        let system = &mut self.engine.system;
        if !matches!(self.stop, Some(Stop::IllFormed(_))) {
            system.check();
        }
        (self.stop, system.finish())
    }
}
