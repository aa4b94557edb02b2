//! The rules of a design: when each of the five events in a superpage's life happens, at what grain, in which place
//! (Zhu, Cox, Rixner 2020).
//!
//! Physical **allocation**, physical **preparation**, **mapping**, **unmapping**, physical **deallocation**: one
//! module each, and one for what surrounds them. Plain values that `design` reads from a file; what they mean is
//! [`crate::Policy`]'s.

mod allocation;
mod deallocation;
pub mod defaults;
mod estimate;
mod mapping;
mod memory;
mod preparation;
mod unmapping;

pub use allocation::{Allocation, Effort, Eligible, Form, Growth, Shortage, Trigger};
pub use deallocation::{BloatRecovery, Deallocation, Release};
pub use estimate::{Estimate, Profile, Span};
pub use mapping::{CleanPages, MapWhen, Mapping, Sampling, Scan, ScanOrder};
pub use memory::{Fault, Locking, Memory, Reclaim, ResidentCount};
pub use preparation::{BackgroundFill, Grain, Prefault, Preparation, Prezero, ZeroStores};
pub use unmapping::{Unmapping, Watch};

/// All rules of a design.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// A free physical superpage is acquired.
    pub allocation: Allocation,
    /// Its initial contents are produced.
    pub preparation: Preparation,
    /// A virtual superpage is mapped to it.
    pub mapping: Mapping,
    /// The mapping is destroyed.
    pub unmapping: Unmapping,
    /// The physical superpage is freed, whole or in part.
    pub deallocation: Deallocation,
    /// How the physical memory below is kept: mobility, compaction, reclaim.
    pub memory: Memory,
    /// How concurrent faults are serialised.
    pub fault: Fault,
    /// What superpages cost and gain, for conditions.
    pub estimate: Option<Estimate>,
    /// Where the program misses the TLB, known beforehand.
    pub profile: Option<Profile>,
}
