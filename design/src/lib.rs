//! A superpage design as a value: when each of the five events in a superpage's life happens, at
//! what grain, in which place (Zhu, Cox, Rixner 2020).
//!
//! Physical **allocation**, physical **preparation**, **mapping**, **unmapping**, physical
//! **deallocation**: one module each, and one for what surrounds them (`memory`, `fault`). A design
//! is read from TOML ([`Design::from_toml`]) and decides nothing by itself: `lab` carries it out on
//! a simulated machine. No I/O, no clock, no kernel.
#![forbid(unsafe_code)]

mod allocation;
mod check;
mod deallocation;
mod defaults;
pub mod designs;
mod diff;
mod error;
mod field;
mod mapping;
mod preparation;
mod read;
mod schema;
mod surroundings;
mod unmapping;
mod value;
mod write;

pub use allocation::{Allocation, Effort, Eligible, Form, Growth, Shortage, Trigger};
pub use deallocation::{BloatRecovery, Deallocation, Release};
pub use diff::{Difference, diff};
pub use error::{DesignError, Problem, nearest};
pub use mapping::{CleanPages, MapWhen, Mapping, Sampling, Scan, ScanOrder};
pub use preparation::{BackgroundFill, Grain, Prefault, Preparation, Prezero, ZeroStores};
pub use surroundings::{Fault, Locking, Memory, Reclaim, ResidentCount};
pub use unmapping::Unmapping;
pub use value::Value;

/// A superpage design.
#[derive(Debug, Clone, PartialEq)]
pub struct Design {
    /// Its name, as on the command line.
    pub name: String,
    /// One line for people.
    pub summary: String,
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
}

impl Design {
    /// Reads a design. `file` is what errors call the text.
    ///
    /// Keys that are left out have the value of [`Design::default`]. What is wrong is told all at once, each
    /// with its line: syntax, unknown keys, types, numbers out of range, rules that exclude each other.
    pub fn from_toml(file: &str, text: &str) -> Result<Self, DesignError> {
        read::design(file, text)
    }

    /// Writes every key, in the order of the five events. [`Design::from_toml`] gives back the same design.
    pub fn to_toml(&self) -> String {
        write::toml(self)
    }

    /// Every key that it has, with its tables before it (`mapping.scan.every`), in the same order.
    pub fn keys(&self) -> Vec<(String, Value)> {
        write::pairs(self)
    }

    /// What is wrong with it, for designs made in code: the same rules as for files, without lines.
    pub fn check(&self) -> Vec<Problem> {
        check::problems(self)
    }
}
