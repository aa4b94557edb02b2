//! Running processes: which ones a command means, and where their memory is on superpages.
//!
//! Nothing here writes to a process or to the machine. No function reads smaps unless its name says so: smaps holds a
//! process's mmap lock for as long as the kernel walks a whole mapping.
#![forbid(unsafe_code)]

mod applications;
mod demand;
pub mod map;
mod naming;
mod selection;
pub mod smaps;
mod space;
pub mod why;

pub use applications::{Application, Bound, Identity, NamedBytes, OwnFigure, Source, jvm_switch};
pub use demand::{
    Demand, Image, LeftOut, Need, Part, PrivateMemory, SharedKind, SharedMemory, largest_backed,
};
pub use naming::Naming;
pub use selection::{Process, SelectError, Selected, Target, hides_processes, select};
pub use space::{AddressSpace, Block, Extent, Pages, SpaceError};
