//! Event 4: a superpage mapping is destroyed.

/// The rules of mapping destruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unmapping {
    /// Freeing a part of it splits the mapping (always true of what exists; false: the call is refused).
    pub partial_free: bool,
    /// Changing the protection of a part splits the mapping.
    pub partial_protect: bool,
    /// A write to a clean, read-only superpage demotes it to base pages (FreeBSD).
    pub clean_write_demotes: bool,
}
