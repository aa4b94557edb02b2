//! Models of programs: the published set, and small programs that show one mechanism each.

mod mechanisms;

use super::catalog::Entry;

/// The models.
pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "growing-heap",
        summary: "a heap that grows by brk in steps (128K) and is written at once; mechanism check",
        options: &["size", "step"],
        build: mechanisms::growing_heap,
    },
    Entry {
        name: "sparse",
        summary: "one page in each 2 MiB is touched, then read at random; mechanism check",
        options: &["size", "operations", "weight", "seed"],
        build: mechanisms::sparse,
    },
];
