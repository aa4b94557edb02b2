//! Event 4: a superpage mapping is destroyed.

use core::time::Duration;

use crate::Condition;

/// The rules of mapping destruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmapping {
    /// Freeing a part of it splits the mapping (always true of what exists; false: the call is refused).
    pub partial_free: bool,
    /// Changing the protection of a part splits the mapping.
    pub partial_protect: bool,
    /// A write to a clean, read-only superpage demotes it to base pages (FreeBSD).
    pub clean_write_demotes: bool,
    /// Superpages that are watched and of which this holds are split.
    pub when: Option<Condition>,
    /// How superpages are watched.
    pub scan: Option<Watch>,
}

/// A daemon that watches which base pages of superpages are accessed: for a while they are mapped by base pages, in
/// place (HugeScope and FHPM point the superpage's entry to a table of its own).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch {
    /// Time between passes.
    pub every: Duration,
    /// How long accesses are counted.
    pub window: Duration,
    /// Superpages watched in a pass, at most.
    pub superpages: u32,
    /// They are watched only while less than this per cent of memory is free (100: always).
    pub below_percent: u8,
}
