//! Looks that processes with libsuperpage.so made at their own memory. Reads the records of [`abi::looks`] during a
//! run. Any process of the run may write anything into a record, so values are only used as numbers.
//! See docs/decisions/watch.md#5.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;
use std::time::Duration;

use abi::looks::{FIELDS, Field, HEAD, RECORDS, WANTED, Why, word};
use host::coverage::Coverage;
use sys::shared::SharedWords;
use units::{ByteSize, PageSize, Pid};

/// What a process read about its own memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OwnLook {
    /// Pid of the process in its own namespace.
    pub pid: Pid,
    /// Time of the look, since boot.
    pub at: Duration,
    /// Reason of the look; `None`: a reason of another version.
    pub why: Option<Why>,
    /// High-water mark in bytes, without pages of a pool; `None`: unknown.
    pub high_water: Option<u64>,
    /// Memory by page size; `None`: the process read none.
    pub coverage: Option<Coverage>,
}

/// The records of a run's processes. Each is read once.
#[derive(Debug)]
pub(crate) struct OwnLooks {
    words: SharedWords,
    next: u64,
    default_pool: PageSize,
}

impl OwnLooks {
    pub(crate) fn new(words: SharedWords, default_pool: PageSize) -> Self {
        Self { words, next: 0, default_pool }
    }

    /// Makes processes read their memory from now on.
    pub(crate) fn ask(&self) {
        self.words.word(WANTED).store(1, Relaxed);
    }

    /// Returns the records written since the last call. An incomplete record is left for later, unless this call
    /// `is_last`.
    pub(crate) fn take(&mut self, is_last: bool) -> Vec<OwnLook> {
        let head = self.words.long(HEAD).load(Acquire);
        let records = RECORDS as u64;
        // Overwritten records are lost, and impossible numbers are ignored.
        if head.saturating_sub(self.next) > records {
            self.next = head - records;
        }
        let mut found = Vec::new();
        while self.next < head {
            let number = self.next;
            match self.read(number) {
                Some(fields) => found.push(self.understand(&fields)),
                // Skip the record if its writer may have been killed.
                None if !is_last && head - number < records / 2 => break,
                None => {}
            }
            self.next += 1;
        }
        found
    }

    fn read(&self, number: u64) -> Option<[u64; FIELDS]> {
        let stamp = || self.words.long(word(number, Field::Stamp));
        if stamp().load(Acquire) != number + 1 {
            return None;
        }
        let fields = Field::ALL.map(|field| self.words.long(word(number, field)).load(Relaxed));
        fence(Acquire);
        (stamp().load(Relaxed) == number + 1).then_some(fields)
    }

    fn understand(&self, fields: &[u64; FIELDS]) -> OwnLook {
        let of = |field: Field| fields[field as usize];
        let bytes = |field| ByteSize(of(field));
        let pool = bytes(Field::Hugetlb);
        let size = PageSize::new(of(Field::HugetlbSize)).unwrap_or(self.default_pool);
        let huge = ByteSize(of(Field::AnonThp).saturating_add(pool.bytes()));
        let coverage = Coverage {
            anon_base: bytes(Field::AnonBase),
            anon_thp: bytes(Field::AnonThp),
            shmem_base: bytes(Field::ShmemBase),
            shmem_pmd: bytes(Field::ShmemPmd),
            file_base: bytes(Field::FileBase),
            file_pmd: bytes(Field::FilePmd),
            hugetlb_private: (pool.bytes() > 0).then_some((size, pool)).into_iter().collect(),
            swapped: bytes(Field::Swapped),
            eligible: ByteSize(huge.bytes().saturating_add(of(Field::EligibleBase))),
            eligible_huge: huge,
            ..Coverage::default()
        };
        OwnLook {
            pid: Pid(i32::try_from(of(Field::Pid)).unwrap_or(0)),
            at: Duration::from_nanos(of(Field::At)),
            why: Why::ALL.into_iter().find(|why| *why as u64 == of(Field::Why)),
            high_water: Some(of(Field::HighWater)).filter(|bytes| *bytes > 0),
            coverage: Some(coverage).filter(|coverage| coverage.resident().bytes() > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::CounterFile;

    fn looks() -> (CounterFile, OwnLooks) {
        let counters = CounterFile::create().unwrap();
        let pool = PageSize::new(2 << 20).unwrap();
        let looks = OwnLooks::new(counters.words().unwrap(), pool);
        (counters, looks)
    }

    /// Writes a record as a process does, except for the stamp.
    fn begin(looks: &OwnLooks, fields: &[(Field, u64)]) -> u64 {
        let number = looks.words.long(HEAD).fetch_add(1, Relaxed);
        looks.words.long(word(number, Field::Stamp)).store(0, Relaxed);
        for (field, value) in fields {
            looks.words.long(word(number, *field)).store(*value, Relaxed);
        }
        number
    }

    fn write(looks: &OwnLooks, fields: &[(Field, u64)]) {
        let number = begin(looks, fields);
        looks.words.long(word(number, Field::Stamp)).store(number + 1, Relaxed);
    }

    #[test]
    fn a_record_is_read_once_and_with_all_its_fields() {
        let (_counters, mut looks) = looks();
        assert_eq!(looks.take(false), []);
        write(
            &looks,
            &[
                (Field::Pid, 7),
                (Field::At, 5),
                (Field::Why, Why::Ends as u64),
                (Field::HighWater, 900),
                (Field::AnonBase, 100),
                (Field::AnonThp, 200),
                (Field::EligibleBase, 60),
                (Field::Hugetlb, 400),
            ],
        );
        let found = looks.take(false);
        let [look] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((look.pid, look.at), (Pid(7), Duration::from_nanos(5)));
        assert_eq!(look.why, Some(Why::Ends));
        assert_eq!(look.high_water, Some(900));
        let coverage = look.coverage.as_ref().unwrap();
        assert_eq!(
            (coverage.resident(), coverage.superpage_bytes()),
            (ByteSize(700), ByteSize(600))
        );
        assert_eq!((coverage.eligible, coverage.eligible_huge), (ByteSize(660), ByteSize(600)));
        assert_eq!(looks.take(true), []);
    }

    #[test]
    fn memory_that_was_not_read_is_unknown_and_not_zero() {
        let (_counters, mut looks) = looks();
        write(&looks, &[(Field::Pid, 7)]);
        let found = looks.take(false).remove(0);
        assert_eq!((found.coverage, found.high_water), (None, None));
    }

    #[test]
    fn one_that_is_being_written_is_read_later_or_given_up_at_the_end() {
        let (_counters, mut looks) = looks();
        let number = begin(&looks, &[(Field::Pid, 1)]);
        write(&looks, &[(Field::Pid, 2)]);
        assert_eq!(looks.take(false), []);
        looks.words.long(word(number, Field::Stamp)).store(number + 1, Relaxed);
        let pids = |found: Vec<OwnLook>| found.iter().map(|look| look.pid.0).collect::<Vec<_>>();
        assert_eq!(pids(looks.take(false)), [1, 2]);
        begin(&looks, &[(Field::Pid, 3)]);
        write(&looks, &[(Field::Pid, 4)]);
        assert_eq!(pids(looks.take(true)), [4], "the writer of 3 was killed");
    }

    #[test]
    fn what_was_overwritten_is_lost_and_no_number_is_too_large() {
        let (_counters, mut looks) = looks();
        for pid in 0..RECORDS as u64 + 3 {
            write(&looks, &[(Field::Pid, pid)]);
        }
        let found = looks.take(false);
        assert_eq!((found.len(), found[0].pid), (RECORDS, Pid(3)));
        looks.words.long(HEAD).store(u64::MAX, Relaxed);
        assert!(looks.take(true).is_empty());
    }
}
