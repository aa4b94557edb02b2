//! The rules of a design: when each of the five events in a superpage's life happens, at what grain, in which place
//! (Zhu, Cox, Rixner 2020).
//!
//! Physical **allocation**, physical **preparation**, **mapping**, **unmapping**, physical **deallocation**: one
//! module each, and one for what surrounds them. Plain values that `design` reads from a file; what they mean is
//! [`crate::Policy`]'s.
//!
//! What a file leaves out is Linux's fault path as far as it is common to all its versions and modes (one superpage
//! size, given at the first fault if one is free, whole) and otherwise *off*: no daemon, no effort, no pool. Sources:
//! docs/sources/policies.md 3.1. A sub-table that is absent is a daemon that does not exist; one that is present but
//! empty has the numbers of its declaration.

mod allocation;
mod deallocation;
mod estimate;
mod mapping;
mod memory;
mod preparation;
pub mod table;
mod unmapping;

pub use allocation::{Allocation, Effort, Eligible, Form, Growth, Shortage, Trigger};
pub use deallocation::{BloatRecovery, Deallocation, Release};
pub use estimate::{Estimate, Profile, Span};
pub use mapping::{CleanPages, MapWhen, Mapping, Sampling, Scan, ScanOrder};
pub use memory::{Fault, Locking, Memory, PeriodicCompaction, Reclaim, ResidentCount};
pub use preparation::{BackgroundFill, Grain, Prefault, Preparation, Prezero, ZeroStores};
pub use unmapping::{CleanWrite, SplitOn, Unmapping, Watch};

use crate::rules::table::rules;

rules! {
    /// All rules of a design.
    pub struct Rules {
        /// A free physical superpage is acquired.
        allocation: Allocation = Allocation::default(), "allocation";
        /// Its initial contents are produced.
        preparation: Preparation = Preparation::default(), "preparation";
        /// A virtual superpage is mapped to it.
        mapping: Mapping = Mapping::default(), "mapping";
        /// The mapping is destroyed.
        unmapping: Unmapping = Unmapping::default(), "unmapping";
        /// The physical superpage is freed, whole or in part.
        deallocation: Deallocation = Deallocation::default(), "deallocation";
        /// How the physical memory below is kept: mobility, compaction, reclaim.
        memory: Memory = Memory::default(), "memory";
        /// How concurrent faults are serialised.
        fault: Fault = Fault::default(), "fault";
        /// What superpages cost and gain, for conditions.
        estimate: Option<Estimate> = None, "estimate";
        /// Where the program misses the TLB, known beforehand.
        profile: Option<Profile> = None, "profile";
    }
}
