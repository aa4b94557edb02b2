//! The counters file of a run: 64-bit words that sum up what memory libsuperpage.so requested and got.
//!
//! All processes of a run map the file shared and add to it atomically, so the sums of a killed process stay, and no
//! lock or cleanup is needed. A ring of records (`looks`) follows the sums. Readers check the version ([`MAGIC`]).
//! See docs/decisions/compare.md#4.

use crate::looks::LOOKS_END;

words! {
    /// Kinds of memory, in file order; the names are the words of SUPERPAGE_MEMORY.
    #[allow(missing_docs, reason = "the variants are those words")]
    Kind {
        Heap = "heap",
        Mmap = "mmap",
        Shared = "shm",
        Text = "text",
        Data = "data",
        Stack = "stack",
        Files = "files",
    }
}

words! {
    /// Sums for each kind, in bytes, in file order.
    Column {
        /// On pages of the hugetlb pool. They are reserved, or populated if a fault could fail despite the reservation.
        Hugetlb = "hugetlb_bytes",
        /// Advised with MADV_HUGEPAGE.
        Advised = "advised_bytes",
        /// Fell back: on base pages, or on THP where hugetlb pages were requested.
        FellBack = "fell_back_bytes",
        /// On base pages on purpose: too small for a superpage, or the unaligned ends of a mapping.
        Small = "small_bytes",
        /// Refused: the request failed.
        Refused = "refused_bytes",
        /// Unmapped or discarded while the process ran.
        Returned = "returned_bytes",
    }
}

words! {
    /// Why a request did not get the pages it asked for; counted in requests, in file order.
    Reason {
        /// The pool has too few free pages that are not reserved.
        PoolShort = "pool-short",
        /// The machine has no pool of that page size.
        NoPool = "no-pool",
        /// The process may not use the pool (SHM_HUGETLB without CAP_IPC_LOCK or the shm group).
        NoPermission = "no-permission",
        /// A hugetlb cgroup or memory policy could make a fault fail despite the reservation, or a resource limit is
        /// set.
        Limit = "limit",
        /// The kernel has no THP, or THP is off for this memory.
        ThpOff = "thp-off",
        /// Copied for a forked child, or requested while a thread was forking.
        Forked = "forked",
        /// Part of a superpage was unmapped, moved or given another protection.
        Split = "split",
        /// Some calls on the memory would fail on hugetlb pages but not on base pages: userfaultfd is unavailable, a
        /// seccomp filter is set, or the memory is a System V segment.
        Unprotected = "unprotected",
        /// The kernel refused for another reason.
        Kernel = "kernel",
        /// No superpage fits at that address, because of a neighbouring mapping, a limit or a debugger's breakpoint.
        Place = "place",
        /// The program brings its own allocator, whose heap is left alone.
        OwnAllocator = "own-allocator",
        /// Another process maps the shared memory, or the kernel writes to it (registered buffers): the memory cannot
        /// be moved, and a call that needs a move fails.
        Held = "held",
        /// Too little free memory is contiguous: each first touch of advised memory would compact memory.
        Fragmented = "fragmented",
        /// Contiguous memory ran out while advised memory was touched. A later check noticed this, and counted it once.
        Compacted = "compacted",
        /// The program is built with a sanitizer and runs without the library.
        Instrumented = "instrumented",
        /// Code or a mapped file that the page cache holds in small pages.
        SmallFilePages = "small-file-pages",
        /// The program maps this code again from its file (V8), so the code must not be copied.
        MappedAgain = "mapped-again",
        /// Too little free memory is contiguous: smaller superpages were requested.
        Smaller = "smaller",
        /// A mapped file that the page cache holds in small pages was copied.
        Copied = "copied",
        /// The program's stack is executable, or its protection is unknown; thread stacks must then be executable, too.
        ExecutableStack = "executable-stack",
    }
}

impl Reason {
    /// The reason as a clause for messages.
    pub fn words(self) -> &'static str {
        match self {
            Self::PoolShort => "the hugetlb pool was short",
            Self::NoPool => "there is no hugetlb pool of that size",
            Self::NoPermission => "no permission to use hugetlb shared memory",
            Self::Limit => "a cgroup limit or memory policy stood in the way",
            Self::ThpOff => "transparent superpages are off for that memory",
            Self::Forked => "a forked child's memory was copied to base pages",
            Self::Split => "parts of superpages were unmapped or protected differently",
            Self::Unprotected => {
                "what a program may do to the memory could not be done on the pool"
            }
            Self::Kernel => "the kernel refused",
            Self::Place => "there was no room around it, or a debugger's mark in it",
            Self::OwnAllocator => "the program has an allocator of its own",
            Self::Held => "another process or a device held on to the memory",
            Self::Fragmented => "memory is fragmented: too few free superpages",
            Self::Compacted => "superpages ran out while memory was touched",
            Self::Instrumented => "a program with a sanitizer was left alone",
            Self::SmallFilePages => {
                "a file is cached in small pages, or code is not linked for superpages (--text=copy and \
                 --files=copy copy it)"
            }
            Self::Smaller => {
                "memory is fragmented: too few free superpages, so smaller ones were requested"
            }
            Self::Copied => {
                "files cached in small pages were copied, for each process that maps them"
            }
            Self::MappedAgain => "code that V8 maps again from its file is not copied",
            Self::ExecutableStack => "the program's stacks are executable, and were left alone",
        }
    }
}

/// Memory that a pool could not serve, in pages, summed over the life of the processes. Memory that was freed and
/// requested again counts twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Page size in bytes.
    pub page: u64,
    /// Pages requested, rounded up.
    pub wanted: u64,
    /// Pages given, rounded up.
    pub had: u64,
    /// Bytes that lie on other pages or were refused.
    pub missing: u64,
    /// The most frequent reason that the pool did not serve; `None`: unknown.
    pub why: Option<Reason>,
}

impl Shortage {
    /// Computes the shortage from sums of bytes and counts of reasons. Returns `None` if nothing is missing, or if only
    /// forks were short: their copies lie on base pages whatever the pool has.
    pub fn from_sums(
        page: u64,
        bytes: impl Fn(Kind, Column) -> u64,
        times: impl Fn(Reason) -> u64,
    ) -> Option<Self> {
        let all = |column| Kind::ALL.iter().map(|kind| bytes(*kind, column)).sum::<u64>();
        let (given, missing) = (all(Column::Hugetlb), all(Column::FellBack) + all(Column::Refused));
        // Why the pool did not serve, not why no THP were to be had in its place.
        let of_pool = Reason::ALL.into_iter().filter(|why| {
            !matches!(
                why,
                Reason::Forked | Reason::Fragmented | Reason::Compacted | Reason::Smaller
            )
        });
        let why = of_pool.max_by_key(|why| times(*why)).filter(|why| times(*why) > 0);
        let is_copied = why.is_none() && times(Reason::Forked) > 0;
        if missing == 0 || is_copied || page == 0 {
            return None;
        }
        let pages = |bytes: u64| bytes.div_ceil(page);
        Some(Self { page, wanted: pages(given + missing), had: pages(given), missing, why })
    }
}

words! {
    /// Superpages made ready before they were touched, in bytes, in file order.
    Prepared {
        /// Unmapped memory zeroed for reuse.
        Recycled = "recycled_bytes",
        /// Populated in a mapping before the program touched them.
        Ahead = "ahead_bytes",
        /// Served from the stock.
        HandedOut = "handed_out_bytes",
        /// Served from the stock, but the kernel had reclaimed the pages.
        Lost = "lost_bytes",
        /// Requested, but not in the stock.
        Missed = "missed_bytes",
        /// In the stock now: resident, but not mapped by the program. The stock of a killed process stays in the sum.
        Stock = "stock_bytes",
        /// Largest stock that any one process had.
        Most = "most_stock_bytes",
    }
}

/// `spledgr` and the layout version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"spledgr\x07");

/// Words by which a process asks `superpage run` for free superpages; the futex of each is its first four bytes. If
/// `SERVES` is not 0 and `WANTED` is 0, the process stores a count in `WANTED`, wakes the command, and waits for
/// `SERVED` to change.
pub mod supply {
    /// Not 0 while the command serves requests.
    pub const SERVES: usize = 3;
    /// Superpages that a process waits for; 0: no request.
    pub const WANTED: usize = 4;
    /// Number of replies so far.
    pub const SERVED: usize = 5;
    /// Superpages freed for the last request.
    pub const GOT: usize = 6;
    /// When a process last failed to get superpages beyond those already free, in tenths of a second of
    /// CLOCK_MONOTONIC; 0: never.
    pub const REFUSED: usize = 7;
}

const PROCESSES: usize = 1;
const FORKS: usize = 2;
const SUM_BASE: usize = 8;
const REASON_BASE: usize = SUM_BASE + Kind::ALL.len() * Column::ALL.len();

const PREPARED_BASE: usize = REASON_BASE + Reason::ALL.len();

pub(crate) const PREPARED_END: usize = PREPARED_BASE + Prepared::ALL.len();

/// Number of words of sums, from the beginning of the file.
pub const SUMS: usize = PREPARED_END;
/// Number of words in the file.
pub const WORDS: usize = LOOKS_END;
/// Length of the file in bytes.
pub const BYTES: usize = WORDS * 8;

/// Index of the word that counts processes in which the library was active.
pub const fn processes() -> usize {
    PROCESSES
}

/// Index of the word that counts forks of processes in which the library was active.
pub const fn forks() -> usize {
    FORKS
}

/// Index of the word of one sum.
pub const fn sum(kind: Kind, column: Column) -> usize {
    SUM_BASE + kind as usize * Column::ALL.len() + column as usize
}

/// Index of the word that counts one reason.
pub const fn reason(reason: Reason) -> usize {
    REASON_BASE + reason as usize
}

/// Index of the word of one kind of preparation.
pub const fn prepared(what: Prepared) -> usize {
    PREPARED_BASE + what as usize
}

/// A new file: the magic number, then zeroes.
pub fn empty() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(&MAGIC.to_ne_bytes());
    bytes
}

/// The sums of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals([u64; SUMS]);

impl Totals {
    /// Parses the bytes of a file; `None` if they are not counters of this version.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != BYTES {
            return None;
        }
        let mut words = [0; SUMS];
        for (word, eight) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_ne_bytes(eight.try_into().ok()?);
        }
        (words[0] == MAGIC).then_some(Self(words))
    }

    /// Adds the sums of another file of the same run.
    pub fn add(&mut self, other: &Self) {
        let most = prepared(Prepared::Most);
        for (word, (sum, more)) in self.0.iter_mut().zip(other.0).enumerate().skip(1) {
            *sum = if word == most { (*sum).max(more) } else { sum.wrapping_add(more) };
        }
    }

    /// Processes in which the library was active.
    pub fn processes(&self) -> u64 {
        self.0[PROCESSES]
    }

    /// Forks of such processes.
    pub fn forks(&self) -> u64 {
        self.0[FORKS]
    }

    /// One sum, in bytes.
    pub fn bytes(&self, kind: Kind, column: Column) -> u64 {
        self.0[sum(kind, column)]
    }

    /// Number of requests counted under `why`.
    pub fn times(&self, why: Reason) -> u64 {
        self.0[reason(why)]
    }

    /// What a pool of `page`-byte pages could not serve.
    pub fn shortage(&self, page: u64) -> Option<Shortage> {
        Shortage::from_sums(page, |kind, column| self.bytes(kind, column), |why| self.times(why))
    }

    /// One kind of preparation, in bytes.
    pub fn prepared(&self, what: Prepared) -> u64 {
        self.0[prepared(what)]
    }

    /// One column over all kinds.
    pub fn all(&self, column: Column) -> u64 {
        Kind::ALL.iter().map(|kind| self.bytes(*kind, column)).sum()
    }

    /// Bytes requested on superpages, whatever pages they got.
    pub fn asked(&self) -> u64 {
        let came = [Column::Hugetlb, Column::Advised, Column::FellBack, Column::Refused];
        came.iter().map(|column| self.all(*column)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_has_one_meaning() {
        let mut words: Vec<usize> = vec![0, processes(), forks()];
        for kind in Kind::ALL {
            words.extend(Column::ALL.map(|column| sum(kind, column)));
        }
        words.extend(Reason::ALL.map(reason));
        words.extend(Prepared::ALL.map(prepared));
        words.sort_unstable();
        let count = words.len();
        words.dedup();
        assert_eq!(words.len(), count);
        assert_eq!(words.last(), Some(&(SUMS - 1)));
    }

    #[test]
    fn what_is_written_is_read() {
        let mut bytes = empty();
        let at = sum(Kind::Data, Column::FellBack) * 8;
        bytes[at..at + 8].copy_from_slice(&77u64.to_ne_bytes());
        let totals = Totals::parse(&bytes).unwrap();
        assert_eq!(totals.bytes(Kind::Data, Column::FellBack), 77);
        assert_eq!(totals.all(Column::FellBack), 77);
        assert_eq!(totals.asked(), 77);
        assert_eq!(totals.times(Reason::PoolShort), 0);
    }

    #[test]
    fn a_short_pool_is_told_in_pages() {
        let of = |words: &[(usize, u64)]| {
            let mut bytes = empty();
            for (word, value) in words {
                bytes[word * 8..word * 8 + 8].copy_from_slice(&value.to_ne_bytes());
            }
            Totals::parse(&bytes).unwrap().shortage(2 << 20)
        };
        let (given, fell_back) =
            (sum(Kind::Heap, Column::Hugetlb), sum(Kind::Heap, Column::FellBack));
        let refused = sum(Kind::Mmap, Column::Refused);
        assert_eq!(of(&[(given, 64 << 20)]), None);
        let short =
            |wanted, had, missing, why| Some(Shortage { page: 2 << 20, wanted, had, missing, why });
        let some = [(given, 3 << 20), (fell_back, 62 << 20), (refused, 1)];
        assert_eq!(of(&some), short(33, 2, (62 << 20) + 1, None));
        let why = [(reason(Reason::PoolShort), 5), (reason(Reason::Forked), 9)];
        let all = [&some[..], &why].concat();
        assert_eq!(of(&all), short(33, 2, (62 << 20) + 1, Some(Reason::PoolShort)));
        // Nor do THP that were not to be had in place of the pool's pages say why the pool was short.
        for why in [Reason::Fragmented, Reason::Compacted, Reason::Smaller] {
            let all = [&all[..], &[(reason(why), 5)]].concat();
            assert_eq!(of(&all).unwrap().why, Some(Reason::PoolShort), "{why:?}");
        }
        // Copies of forked children do not count as a shortage.
        assert_eq!(of(&[some[1], (reason(Reason::Forked), 9)]), None);
    }

    #[test]
    fn counters_of_one_run_are_added() {
        let of = |words: &[(usize, u64)]| {
            let mut bytes = empty();
            for (word, value) in words {
                bytes[word * 8..word * 8 + 8].copy_from_slice(&value.to_ne_bytes());
            }
            Totals::parse(&bytes).unwrap()
        };
        let (most, heap) = (prepared(Prepared::Most), sum(Kind::Heap, Column::Advised));
        let mut totals = of(&[(processes(), 1), (heap, 10), (most, 7)]);
        // A process that frees what another process took has a sum below zero, modulo 2^64.
        totals.add(&of(&[(processes(), 2), (heap, 4u64.wrapping_neg()), (most, 5)]));
        assert_eq!(totals, of(&[(processes(), 3), (heap, 6), (most, 7)]));
    }

    #[test]
    fn what_is_no_counters_file_is_refused() {
        assert_eq!(Totals::parse(&[]), None);
        assert_eq!(Totals::parse(&empty()[..BYTES - 1]), None);
        assert_eq!(Totals::parse(&[0; BYTES]), None);
    }
}
