//! What libsuperpage.so counts about the memory it was asked for: a file of 64-bit words.
//!
//! All processes of one run map it and add to it, so that what a killed process got is not lost. Sums need no lock and
//! no cleaning up. Behind them lies a ring of records (`looks`). A reader checks the version.
//! See docs/decisions/compare.md#4.

use crate::looks::LOOKS_END;

words! {
    /// Kinds of memory, in the order of the file; the names are the words of SUPERPAGE_MEMORY.
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
    /// What is summed up for each kind, in bytes; in the order of the file.
    Column {
        /// Given pages of the hugetlb pool: reserved, or populated where a reservation cannot hold.
        Hugetlb = "hugetlb_bytes",
        /// Given memory with advice for transparent superpages.
        Advised = "advised_bytes",
        /// Given base pages although superpages were asked for: what fell back.
        FellBack = "fell_back_bytes",
        /// Given base pages on purpose: too small, or the ends that no superpage fits into.
        Small = "small_bytes",
        /// Refused: the request failed.
        Refused = "refused_bytes",
        /// Given back while the process ran.
        Returned = "returned_bytes",
    }
}

words! {
    /// Why a request did not get what it asked for; counted in requests, in the order of the file.
    Reason {
        /// The pool has too few pages that are neither used nor reserved.
        PoolShort = "pool-short",
        /// There is no pool of that size.
        NoPool = "no-pool",
        /// The process may not use it (SHM_HUGETLB without CAP_IPC_LOCK or the shm group).
        NoPermission = "no-permission",
        /// Reserved, but a cgroup or memory policy would have made a fault fail: found by populating.
        Limit = "limit",
        /// The kernel has no transparent superpages, or they are off for this memory.
        ThpOff = "thp-off",
        /// A forked child's copy.
        Forked = "forked",
        /// Part of a superpage was unmapped, moved or protected differently.
        Split = "split",
        /// On hugetlb pages not every later call would work as on ordinary memory: without userfaultfd, or of a
        /// System V segment.
        Unprotected = "unprotected",
        /// The kernel refused for another reason.
        Kernel = "kernel",
        /// Where the memory lies there can be no superpage: a neighbour, a limit, a debugger's mark.
        Place = "place",
        /// The program has an allocator of its own, which keeps its heap.
        OwnAllocator = "own-allocator",
        /// Another process has the shared memory, or the kernel writes to it (registered buffers): it cannot
        /// be moved, and a call that needs that fails.
        Held = "held",
        /// Too little free memory is contiguous: advised memory would be compacted at each first touch.
        Fragmented = "fragmented",
        /// Contiguity went away while advised memory was touched: seen afterwards, once for each look.
        Compacted = "compacted",
        /// The program is of a sanitizer and runs without the library.
        Instrumented = "instrumented",
        /// Code or a mapped file that the kernel holds in small pages.
        SmallFilePages = "small-file-pages",
        /// Code that its program maps again from its file (V8): it may not be copied.
        MappedAgain = "mapped-again",
        /// Too little free memory is contiguous: smaller superpages were requested instead.
        Smaller = "smaller",
        /// A mapped file that was cached in small pages was copied.
        Copied = "copied",
        /// The program's stack is executable, or nobody knows, and then threads' stacks must be, too.
        ExecutableStack = "executable-stack",
    }
}

impl Reason {
    /// A clause for people.
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

/// A pool that could not serve all that was requested of it, in pages over the life of the processes: memory that was
/// freed and requested again counts twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// Bytes of a page.
    pub page: u64,
    /// Pages for all that was requested, rounded up.
    pub wanted: u64,
    /// Pages for what of it was given, rounded up.
    pub had: u64,
    /// Bytes that are on other pages, or were refused.
    pub missing: u64,
    /// What most requests met that got none; `None`: unknown.
    pub why: Option<Reason>,
}

impl Shortage {
    /// From sums of bytes and numbers of requests; `None`: nothing is missing, or only because of forks, whose copies lie on
    /// base pages whatever the pool has.
    pub fn from_sums(
        page: u64,
        bytes: impl Fn(Kind, Column) -> u64,
        times: impl Fn(Reason) -> u64,
    ) -> Option<Self> {
        let all = |column| Kind::ALL.iter().map(|kind| bytes(*kind, column)).sum::<u64>();
        let (given, missing) = (all(Column::Hugetlb), all(Column::FellBack) + all(Column::Refused));
        let others = Reason::ALL.into_iter().filter(|why| *why != Reason::Forked);
        let why = others.max_by_key(|why| times(*why)).filter(|why| times(*why) > 0);
        let is_copied = why.is_none() && times(Reason::Forked) > 0;
        if missing == 0 || is_copied || page == 0 {
            return None;
        }
        let pages = |bytes: u64| bytes.div_ceil(page);
        Some(Self { page, wanted: pages(given + missing), had: pages(given), missing, why })
    }
}

words! {
    /// What was done so that superpages were ready before they were touched, in bytes; in the order of the file.
    Prepared {
        /// Zeroed again after use.
        Recycled = "recycled_bytes",
        /// Populated ahead of touches in a mapping.
        Ahead = "ahead_bytes",
        /// Handed out ready.
        HandedOut = "handed_out_bytes",
        /// Handed out of the stock, but the kernel had taken the pages.
        Lost = "lost_bytes",
        /// Asked for, and not ready.
        Missed = "missed_bytes",
        /// In the stock now: resident, but nobody's. Of a process that was killed, what was in it then.
        Stock = "stock_bytes",
        /// The most that was ever in the stock of one process.
        Most = "most_stock_bytes",
    }
}

/// `spledgr` and the version of this layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"spledgr\x07");

/// Words by which a process asks the command beside it for free superpages; of each the first four bytes. A process
/// that finds `WANTED` 0 and `SERVES` not writes a number there, wakes it, and waits for `SERVED` to change.
pub mod supply {
    /// Not 0 while somebody serves.
    pub const SERVES: usize = 3;
    /// Superpages that a process waits for; 0: none does.
    pub const WANTED: usize = 4;
    /// Answers so far.
    pub const SERVED: usize = 5;
    /// Superpages that were made free for the last of them.
    pub const GOT: usize = 6;
    /// When a process found last that none are had besides those that are free, in tenths of a second of
    /// CLOCK_MONOTONIC; 0: never.
    pub const REFUSED: usize = 7;
}

const PROCESSES: usize = 1;
const FORKS: usize = 2;
const SUM_BASE: usize = 8;
const REASON_BASE: usize = SUM_BASE + Kind::ALL.len() * Column::ALL.len();

const PREPARED_BASE: usize = REASON_BASE + Reason::ALL.len();

pub(crate) const PREPARED_END: usize = PREPARED_BASE + Prepared::ALL.len();

/// Words of sums, at the beginning of the file.
pub const SUMS: usize = PREPARED_END;
/// Words in the file.
pub const WORDS: usize = LOOKS_END;
/// Bytes in the file.
pub const BYTES: usize = WORDS * 8;

/// The word that counts processes in which the library was active.
pub const fn processes() -> usize {
    PROCESSES
}

/// The word that counts forks of such processes.
pub const fn forks() -> usize {
    FORKS
}

/// The word of one sum.
pub const fn sum(kind: Kind, column: Column) -> usize {
    SUM_BASE + kind as usize * Column::ALL.len() + column as usize
}

/// The word that counts one reason.
pub const fn reason(reason: Reason) -> usize {
    REASON_BASE + reason as usize
}

/// The word of what was prepared.
pub const fn prepared(what: Prepared) -> usize {
    PREPARED_BASE + what as usize
}

/// All zero, as a file starts out.
pub fn empty() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(&MAGIC.to_ne_bytes());
    bytes
}

/// The sums as they were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals([u64; SUMS]);

impl Totals {
    /// Reads the file's bytes; `None` if they are no counters of this version.
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

    /// Adds another file of the same run.
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

    /// How often a request met `why`.
    pub fn times(&self, why: Reason) -> u64 {
        self.0[reason(why)]
    }

    /// What a pool of pages of `page` bytes could not serve.
    pub fn shortage(&self, page: u64) -> Option<Shortage> {
        Shortage::from_sums(page, |kind, column| self.bytes(kind, column), |why| self.times(why))
    }

    /// What was prepared.
    pub fn prepared(&self, what: Prepared) -> u64 {
        self.0[prepared(what)]
    }

    /// One column over all kinds.
    pub fn all(&self, column: Column) -> u64 {
        Kind::ALL.iter().map(|kind| self.bytes(*kind, column)).sum()
    }

    /// What was asked for in superpages, whatever came of it.
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
        // A fork's copies are no shortage.
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
        // What a process gave back that another took is below zero, modulo 2^64.
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
