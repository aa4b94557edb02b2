//! Errors that prevent a launch as requested.

use std::path::PathBuf;

use units::PageSize;

use crate::note::LargerThp;
use crate::recipe::spec;
use crate::{Pages, Word};

/// Why a plan could not be made or executed. Each text ends with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// No such program in PATH or at that path.
    #[error("program `{0}` was not found; check the spelling, or give its path")]
    ProgramNotFound(Word),
    /// The program exists, but is not executable.
    #[error("program {0} cannot be executed ({1}); give a program file with execute permission")]
    NotExecutable(PathBuf, String),
    /// Transparent superpages of the largest size are off for all processes. The field is the file that switches all
    /// sizes. Since Linux 6.8 each size also has its own switch, which takes precedence.
    #[error(
        "transparent superpages are disabled on this machine: {0}, or `enabled` of the largest \
         hugepages-<size>kB beside it, is `never`; enable them on request with: echo madvise > \
         {0}, and if the other does not say `inherit`: echo madvise into that too"
    )]
    ThpOff(String),
    /// The kernel was built without transparent superpages.
    #[error("this kernel has no transparent superpages; use --pages hugetlb")]
    NoThp,
    /// Transparent superpages of this size are off.
    #[error(
        "transparent superpages of {0} are disabled, or not supported by this kernel; enable them \
         on request with: echo madvise > \
         /sys/kernel/mm/transparent_hugepage/hugepages-{kib}kB/enabled", kib = .0.bytes() >> 10
    )]
    ThpSizeOff(PageSize),
    /// This machine's kernel has no transparent superpages of that size.
    #[error(
        "there are no transparent superpages of {size} (the largest are {largest}); pages of {size} \
         come from a hugetlb pool: superpage pool set {size_word}:+N (as root), and --pages hugetlb",
        size_word = spec(*size)
    )]
    NoThpSize {
        /// Requested size.
        size: PageSize,
        /// Largest available size.
        largest: PageSize,
    },
    /// Larger sizes are enabled too, and only the machine's settings can exclude them.
    #[error(
        "transparent superpages of {} cannot be used alone: larger sizes are enabled too ({}), \
         and the kernel prefers the largest; disable those (echo never > \
         /sys/kernel/mm/transparent_hugepage/hugepages-<size>kB/enabled), or run without \
         --fallback error",
        .0.size,
        .0.sizes()
    )]
    LargerThp(LargerThp),
    /// The kernel would make superpages by itself, everywhere.
    #[error(
        "a design cannot be in force: the kernel makes transparent superpages itself everywhere, and \
         cannot be kept from that for one program before Linux 6.18; change it with: echo madvise > \
         /sys/kernel/mm/transparent_hugepage/enabled"
    )]
    ThpAlways,
    /// The kernel would make superpages by itself, in memory outside the superpage files.
    #[error(
        "superpages cannot be made in place: the kernel cannot be kept from making superpages of a program's other memory \
         before Linux 6.18; use --executor collapse"
    )]
    InPlaceAlways,
    /// Superpage files are not available.
    #[error(
        "superpages cannot be made in place: {0}; this needs CAP_SYS_ADMIN: run superpage as root"
    )]
    InPlace(#[from] sys::SysError),
    /// No design decides which superpages to make.
    #[error(
        "pages `collapsed` are made as a design says; use --design DESIGN, or design=DESIGN in an arm"
    )]
    NoDesign,
    /// No pool has free pages, and there are no transparent superpages.
    #[error(
        "no superpages are available: no hugetlb pool has free pages, and transparent superpages \
         are disabled; grow a pool (as root) with: superpage pool set default:+SIZE, or: echo \
         madvise > /sys/kernel/mm/transparent_hugepage/enabled"
    )]
    NoSuperpages,
    /// The library that backs the memory is missing.
    #[error(
        "libsuperpage.so is not beside superpage nor in ../lib (`cargo install` leaves it out); build it with cargo \
         build --release and put it there"
    )]
    NoLibrary,
    /// LD_PRELOAD cannot name the library.
    #[error("LD_PRELOAD cannot hold a path with a space or colon ({0}); move libsuperpage.so")]
    LibraryPath(String),
    /// The machine has no pool of this page size.
    #[error("this machine has no hugetlb pool of {0} pages; it has {1}")]
    NoSuchPool(PageSize, String),
    /// The pool has no available page and may not grow.
    #[error(
        "the hugetlb pool of {size} pages is empty ({total} in all, {free} free, {reserved} \
         reserved, overcommit {overcommit}); grow it (as root) with: superpage pool set {}:+N{}", spec(*size),
         if *is_gigantic { "" } else { ", or for the run with --pool lend" }
    )]
    PoolEmpty {
        /// Page size of the pool.
        size: PageSize,
        /// Number of pages in the pool.
        total: u64,
        /// Number of free pages.
        free: u64,
        /// Number of free pages that are reserved.
        reserved: u64,
        /// Number of pages by which the pool may grow on demand.
        overcommit: u64,
        /// Whether the pool cannot grow on demand.
        is_gigantic: bool,
    },
    /// fallback=error was requested for superpages that are never refused.
    #[error(
        "--fallback error cannot be used with --pages {0}: only a hugetlb pool (or thp:SIZE) refuses requests; use --pages \
         hugetlb"
    )]
    NothingToRefuse(Pages),
    /// fallback=error was requested for a program that libsuperpage.so cannot reach.
    #[error(
        "{0} would run on base pages ({1}): it is not started; to start it, run without --fallback error"
    )]
    NotReached(PathBuf, String),
    /// The kernel refused to start the program.
    #[error("{program} could not be started: {source}{remedy}")]
    Start {
        /// Path of the program.
        program: PathBuf,
        /// The errno.
        source: std::io::Error,
        /// The remedy after a semicolon, or an empty string.
        remedy: &'static str,
    },
}
