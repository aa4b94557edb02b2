//! What a process read of its own memory before it gave memory back, and when it ended: a ring of records behind the
//! sums, into which every process of a run writes and which the command reads while the run lasts.
//!
//! Life of a record: a writer takes the next number from [`HEAD`] (fetch_add), stores 0 in the [`Field::Stamp`] of the
//! record `number % RECORDS`, stores the other fields, and stores `number + 1` in the stamp (release). A reader keeps a
//! record if its stamp was `number + 1` before and after it read the fields. What a reader misses is overwritten.
//! See docs/decisions/watch.md#5.

use crate::counters::PREPARED_END;

words! {
    /// The words of a record, in their order.
    Field {
        /// The record's number and 1; 0 while it is being written.
        Stamp = "stamp",
        /// The process.
        Pid = "pid",
        /// When, in nanoseconds of CLOCK_MONOTONIC.
        At = "at",
        /// Why, as a number of [`Why`].
        Why = "why",
        /// The kernel's high-water mark of its resident memory, without pages of a pool; 0: unknown.
        HighWater = "high_water_bytes",
        /// Bytes by kind and by the size of the entry that maps them. All of them are 0 if memory was not read.
        AnonBase = "anon_base_bytes",
        /// See `AnonBase`, and so on.
        AnonThp = "anon_thp_bytes",
        /// Shared memory.
        ShmemBase = "shmem_base_bytes",
        /// See `ShmemBase`.
        ShmemPmd = "shmem_pmd_bytes",
        /// Page cache.
        FileBase = "file_base_bytes",
        /// See `FileBase`.
        FilePmd = "file_pmd_bytes",
        /// Pages of a pool.
        Hugetlb = "hugetlb_bytes",
        /// Their size; 0: the default size.
        HugetlbSize = "hugetlb_page_bytes",
        /// Anonymous memory in base pages, in mappings that hold a whole superpage.
        EligibleBase = "eligible_base_bytes",
        /// In swap.
        Swapped = "swapped_bytes",
    }
}

words! {
    /// Why a process looked.
    Why {
        /// It is about to give memory back.
        GivesBack = "gives-back",
        /// It is about to end.
        Ends = "ends",
        /// It began to execute its program: nothing was read.
        Begins = "begins",
    }
}

/// Records in the ring.
pub const RECORDS: usize = 64;
/// Words of a record.
pub const FIELDS: usize = Field::ALL.len();
/// Not 0 while the command wants processes to read their memory. Without that they say only that they end.
pub const WANTED: usize = PREPARED_END;
/// The number of the next record.
pub const HEAD: usize = PREPARED_END + 1;
const BASE: usize = PREPARED_END + 2;
/// The end of the ring.
pub(crate) const LOOKS_END: usize = BASE + RECORDS * FIELDS;

/// The word of a field of the record of this number.
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
