//! Superpages made and split in running processes from outside, once or for as long as a service runs.
#![forbid(unsafe_code)]

mod collapse;
mod memory;
pub mod once;
mod realtime;
pub mod record;
mod split;

pub use collapse::{Collapsed, Limits, Skip};
pub use memory::{Block, Coverage, Forbidden, Ineligible, ManageError, Memory, Survey};
pub use record::Record;
pub use split::{Kept, Split};
