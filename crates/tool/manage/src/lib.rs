//! Superpages made and split in running processes from outside, once or for as long as a service runs.
#![forbid(unsafe_code)]

mod collapse;
pub mod config;
pub mod daemon;
mod holder;
mod memory;
pub mod once;
pub mod operation;
mod realtime;
pub mod record;
mod split;

pub use collapse::{Collapsed, Limits, Skip};
pub use memory::{Block, Coverage, Forbidden, Ineligible, ManageError, Memory, Survey};
pub use once::{FILL, FILL_COMPARED};
pub use record::Record;
pub use split::{Kept, Split};
