//! Knobs: every change of a machine setting is saved on disk first, here. A command that changes a setting for itself appends to
//! the journal ([`Journal`]); commands that raise a pool or its overcommit limit for a run share the knob ([`SharedKnob`]).
//!
//! A change reads the knob's value, appends the change to the journal and syncs it, writes the knob, reads it back,
//! and appends the result. `Journal::restore`, its drop, or after a crash [`restore_orphans`] undo the changes, last
//! knob first. [`Journal::keep`] forgets them instead. One journal at a time holds the lock; the kernel releases it
//! when the writer ends, for any reason, so a journal without a locked lock file has no owner.
//!
//! Never done: writing a path that is not a [`Knob`], overwriting another writer's later value, or applying a
//! journal of another boot.

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

/// File name of the journal.
pub const FILE: &str = "journal.jsonl";
/// File name of the lock, in the same directory.
pub const LOCK: &str = "lock";
