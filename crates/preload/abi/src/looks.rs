//! What a process found in its own page tables right before it freed memory, and at exit: records in a ring behind the
//! sums. Every process of a run writes to the ring, and the command reads the ring while the run lasts.
//!
//! Life of a record: a writer takes the next number from [`HEAD`] (fetch_add), stores 0 in the [`Field::Stamp`] of
//! record `number % RECORDS`, stores the other fields, and stores `number + 1` in the stamp (release). A reader keeps a
//! record if its stamp was `number + 1` before and after it read the fields. Later records overwrite those that a slow
//! reader missed.
//! See docs/decisions/watch.md#5.

use crate::counters::PREPARED_END;

words! {
    /// Words of a record, in order.
    Field {
        /// The record's number plus 1; 0 while a process writes the record.
        Stamp = "stamp",
        /// Process id.
        Pid = "pid",
        /// Time, in nanoseconds of CLOCK_MONOTONIC.
        At = "at",
        /// Reason, as a number of [`Why`].
        Why = "why",
        /// High-water mark of the resident set (`ru_maxrss`), without hugetlb pages; 0: unknown.
        HighWater = "high_water_bytes",
        /// Anonymous memory mapped by PTEs. This and the fields below are all 0 if the process did not
        /// read its memory.
        AnonBase = "anon_base_bytes",
        /// Anonymous memory mapped by PMDs.
        AnonThp = "anon_thp_bytes",
        /// Shared memory mapped by PTEs.
        ShmemBase = "shmem_base_bytes",
        /// Shared memory mapped by PMDs.
        ShmemPmd = "shmem_pmd_bytes",
        /// Page cache mapped by PTEs.
        FileBase = "file_base_bytes",
        /// Page cache mapped by PMDs.
        FilePmd = "file_pmd_bytes",
        /// Hugetlb pages.
        Hugetlb = "hugetlb_bytes",
        /// Size of the hugetlb pages; 0: the default size.
        HugetlbSize = "hugetlb_page_bytes",
        /// Anonymous memory on base pages, in VMAs that hold a whole aligned superpage.
        EligibleBase = "eligible_base_bytes",
        /// Swapped out.
        Swapped = "swapped_bytes",
    }
}

words! {
    /// Why a process wrote a record.
    Why {
        /// The process is about to free memory.
        GivesBack = "gives-back",
        /// The process is about to exit.
        Ends = "ends",
        /// The program started; memory was not read.
        Begins = "begins",
    }
}

/// Number of records in the ring.
pub const RECORDS: usize = 64;
/// Number of words in a record.
pub const FIELDS: usize = Field::ALL.len();
/// Index of a word: not 0 while the command wants processes to read their memory. If 0, processes only record start and
/// exit.
pub const WANTED: usize = PREPARED_END;
/// Index of the word that holds the number of the next record.
pub const HEAD: usize = PREPARED_END + 1;
const BASE: usize = PREPARED_END + 2;
/// The end of the ring.
pub(crate) const LOOKS_END: usize = BASE + RECORDS * FIELDS;

/// Index of the word of a field of record `number`.
pub const fn word(number: u64, field: Field) -> usize {
    BASE + (number % RECORDS as u64) as usize * FIELDS + field as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_follow_each_other_and_begin_again_after_the_last() {
        assert_eq!(word(0, Field::Stamp), BASE);
        assert_eq!(word(1, Field::Stamp), word(0, Field::Swapped) + 1);
        assert_eq!(word(RECORDS as u64, Field::At), word(0, Field::At));
        assert_eq!(word(RECORDS as u64 - 1, Field::Swapped) + 1, LOOKS_END);
    }
}
