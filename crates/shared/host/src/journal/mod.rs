//! Changes of machine settings (knobs), each saved on disk before it is made. A command that changes a setting for
//! itself appends to the journal ([`Journal`]). Commands that raise a pool or its overcommit limit for a run share the
//! knob ([`SharedKnob`]).
//!
//! For each change, the journal reads the knob's value, appends a record, syncs the file, writes the knob, reads the
//! knob back, and appends the result. [`Journal::restore`] or dropping the journal undoes the changes, last knob first;
//! after a crash, [`restore_orphans`] does. [`Journal::keep`] forgets the changes instead. Only one journal at a time
//! holds the lock file's lock. The kernel releases the lock when the writer ends for any reason, so a journal whose
//! lock is free has no owner.
//!
//! This module never writes a path that is not a [`Knob`], overwrites another writer's later value, or applies a
//! journal of another boot.

mod knob;
mod restore;
mod shared;
mod writer;

pub use knob::JournalError;
pub use knob::canonical;
pub use knob::{KhugepagedKnob, Knob, NotAKnob};
pub use restore::{Left, Outcome, Restoration};
pub use restore::{left_changed, restore_dead, restore_orphans};
pub use shared::{Change, Claim, SharedKnob};
pub use writer::Holder;
pub use writer::{Journal, KnobWriter, Written};

/// File name of the journal.
pub const FILE: &str = "journal.jsonl";
/// File name of the lock, in the same directory.
pub const LOCK: &str = "lock";
