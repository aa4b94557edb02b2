//! Journalled knobs: the only way in which this project changes a setting of the machine.
//!
//! Life of a change: the knob's value is read, the change is appended to the journal and synced,
//! the knob is written, read back, and what was got is appended. `Journal::restore`, its drop, or
//! after a crash [`restore_orphans`] undo the changes, last knob first. [`Journal::keep`] forgets
//! them instead. One journal at a time holds the lock; the kernel frees it when the writer ends,
//! however it ends, so a journal without a locked lock file has no owner.
//!
//! Programs that only raise a pool or its overcommit limit for their time do not need the journal: any
//! number of them share the knob ([`SharedKnob`]).
//!
//! What is never done: writing a path that is not a [`Knob`], overwriting what somebody else set
//! meanwhile, or applying a journal of another boot.

mod knob;
mod restore;
mod shared;
mod writer;

pub use knob::JournalError;
pub use knob::canonical;
pub use knob::{KhugepagedKnob, Knob, NotAKnob};
pub use restore::{Outcome, Restoration};
pub use restore::{restore_dead, restore_orphans};
pub use shared::{Change, Claim, SharedKnob};
pub use writer::Holder;
pub use writer::{Journal, KnobWriter, Written};

/// The journal's name in its directory.
pub const FILE: &str = "journal.jsonl";
/// The lock file's name in the same directory.
pub const LOCK: &str = "lock";
