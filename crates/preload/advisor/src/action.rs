//! What an advisor asks of the library.

use crate::Source;

/// The action to perform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Nothing,
    /// Leave the memory as it is; keep a mapping that the program unmaps.
    Keep,
    /// Release the memory.
    Release,
    /// Refuse the mapping.
    Refuse,
    /// Leave the memory on base pages.
    GiveUp,
    /// Advise the first bytes of the piece (MADV_HUGEPAGE), so that its first touch makes superpages.
    Advise {
        /// Number of bytes.
        bytes: u64,
        /// Order of the superpages.
        order: u8,
        /// Whether the superpages count as taken until they are touched.
        promised: bool,
    },
    /// Advise all of the piece, but allow only smaller superpages from an offset on: the kernel does not try the
    /// largest size where page tables exist.
    AdviseSmaller {
        /// Offset in the piece, in bytes.
        from: u64,
        /// Order of the superpages before the offset.
        order: u8,
        /// Whether the bytes before the offset count as taken until they are touched.
        promised: bool,
    },
    /// Allow no superpages from an offset of the piece on. The bytes before the offset are advised again. The piece can
    /// still be moved as a whole.
    Unadvise {
        /// Offset in the piece, in bytes.
        from: u64,
        /// Order of the superpages before the offset.
        order: u8,
        /// Whether the superpages count as taken until they are touched.
        promised: bool,
    },
    /// Leave the piece's advice on the memory that was added to it.
    Inherit {
        /// Whether the superpages count as taken until they are touched.
        promised: bool,
    },
    /// Advise all of a partly advised piece, so that it is one mapping.
    Join,
    /// Probe whether this many superpages can be allocated at once, and how long each takes.
    Probe {
        /// Number of superpages.
        count: u64,
        /// Maximum time for one superpage, in microseconds; the probe may stop at a slower one.
        limit: u32,
    },
    /// Have a privileged supplier free this many superpages.
    Obtain {
        /// Number of superpages.
        count: u64,
    },
    /// Clear a kept mapping and hand it out.
    HandOut,
    /// Learn facts; the outcome event carries them.
    Read(Source),
    /// Populate the next pages of the piece, after the last batch.
    Populate {
        /// Maximum number of pages.
        most: u32,
    },
    /// Let the kernel make superpages of the existing pages, or map the file's superpages.
    Collapse {
        /// Order of the superpages.
        order: u8,
    },
    /// Copy the pages into superpages; the program does not run meanwhile.
    Copy {
        /// Order of the superpages.
        order: u8,
    },
    /// Advise nothing until the program has requested this many more bytes.
    Wait {
        /// Number of bytes.
        bytes: u64,
    },
}

/// How an action ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The action was carried out.
    Done {
        /// Number of pages affected.
        pages: u32,
    },
    /// There was nothing to act on.
    Nothing,
    /// The action was not worthwhile, or the memory does not qualify.
    Unfit,
    /// Out of memory.
    NoMemory,
    /// The action could not be tried.
    Unavailable,
}
