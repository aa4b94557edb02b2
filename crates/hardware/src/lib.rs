//! Translation hardware and the costs of a machine, simulated.
//!
//! A [`Machine`] is a value read from TOML: the shapes of its TLBs and page-walk caches, the latencies
//! of its caches, and what its kernel's work costs. [`dispatch`] makes the machine's TLB, a
//! [`Translate`], of the type that simulates it fastest. The TLB counts ([`Tally`]), and
//! [`Machine::walk_cycles`] turns counts into cycles. No I/O, no clock, nothing random.
#![forbid(unsafe_code)]

mod dispatch;
mod fast;
mod machine;
mod naive;
mod near;
mod size;
mod tally;
mod translate;

pub use dispatch::{Visitor, dispatch};
pub use machine::{
    Array, BULKS, Cache, CostLine, Costs, Footprint, Index, Machine, MachineError, Nanoseconds,
    Nested, Replacement, Stores, Tlb, UnknownMachine, WalkCaches, Zeroing, costs_marked, names,
    preset, preset_text, with_costs,
};
pub use naive::Naive;
pub use size::{SIZES, Size};
pub use tally::{Level, READS, Tally};
pub use translate::Translate;
