//! Private copies of file pages (`--files=copy`, the program's segments). To the kernel a copy is anonymous memory: a
//! discarded page reads as zeroes, while a discarded page of a file mapping is read from the file again.
//!
//! The list holds copies that are still mapped. A thread claims an entry before it changes the entry ((c) in `lock`).
//!
//! # Safety
//! Atomics only.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// `[start, end)`. A start of 0: free entry; of 1: claimed.
struct Copy {
    start: AtomicUsize,
    end: AtomicUsize,
}

const CLAIMED: usize = 1;
const MAX_COPIES: usize = 512;
static COPIES: [Copy; MAX_COPIES] =
    [const { Copy { start: AtomicUsize::new(0), end: AtomicUsize::new(0) } }; MAX_COPIES];
static ARE_ANY: AtomicBool = AtomicBool::new(false);

impl Copy {
    fn claim(&self, start: usize) -> bool {
        self.start.compare_exchange(start, CLAIMED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn set(&self, start: usize, end: usize) {
        self.end.store(end, Ordering::Relaxed);
        self.start.store(start, Ordering::Release);
    }

    fn range(&self) -> (usize, usize) {
        (self.start.load(Ordering::Acquire), self.end.load(Ordering::Relaxed))
    }
}

/// Adds `[start, end)` to the copies; `false`: the list is full.
pub fn add(start: usize, end: usize) -> bool {
    ARE_ANY.store(true, Ordering::Relaxed);
    for copy in &COPIES {
        let (from, to) = copy.range();
        // A large file is copied piece by piece: extend the entry of the previous piece.
        if from > CLAIMED && to == start && copy.claim(from) {
            copy.set(from, end);
            return true;
        }
    }
    let free = COPIES.iter().find(|copy| copy.claim(0));
    free.map(|copy| copy.set(start, end)).is_some()
}

/// The first copy that overlaps `[start, end)`, clipped to that range.
pub fn first(start: usize, end: usize) -> Option<(usize, usize)> {
    if !ARE_ANY.load(Ordering::Relaxed) {
        return None;
    }
    let parts = COPIES.iter().map(Copy::range);
    let parts = parts.filter(|(from, to)| *from > CLAIMED && *from < end && start < *to);
    parts.min().map(|(from, to)| (from.max(start), to.min(end)))
}

/// Removes `[start, end)`, which was unmapped or replaced.
pub fn forget(start: usize, end: usize) {
    if first(start, end).is_none() {
        return;
    }
    for copy in &COPIES {
        let (from, to) = copy.range();
        if from > CLAIMED && from < end && start < to && copy.claim(from) {
            match (from < start, end < to) {
                (true, is_cut) => {
                    copy.set(from, start);
                    // If the list is full, the rest counts as anonymous memory, as if it were no copy.
                    let _ = is_cut && add(end, to);
                }
                (false, true) => copy.set(end, to),
                (false, false) => copy.set(0, 0),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_cut_and_forgotten() {
        let of = |first_page: usize, last_page: usize| (first_page << 21, last_page << 21);
        let add = |range: (usize, usize)| assert!(add(range.0, range.1));
        let forget = |range: (usize, usize)| forget(range.0, range.1);
        let first = |range: (usize, usize)| first(range.0, range.1);
        assert_eq!(first(of(0, 100)), None);
        add(of(10, 20));
        add(of(20, 30));
        assert_eq!(first(of(0, 100)), Some(of(10, 30)));
        assert_eq!(first(of(12, 13)), Some(of(12, 13)));
        assert_eq!((first(of(5, 10)), first(of(30, 31))), (None, None));
        forget(of(14, 16));
        assert_eq!((first(of(0, 100)), first(of(14, 100))), (Some(of(10, 14)), Some(of(16, 30))));
        assert_eq!(first(of(14, 16)), None);
        forget(of(0, 12));
        assert_eq!(first(of(0, 100)), Some(of(12, 14)));
        forget(of(13, 29));
        assert_eq!((first(of(0, 100)), first(of(14, 100))), (Some(of(12, 13)), Some(of(29, 30))));
        forget(of(0, 100));
        assert_eq!(first(of(0, 100)), None);
        for page in 0..MAX_COPIES {
            add(of(2 * page + 1, 2 * page + 2));
        }
        assert!(!super::add(9 << 40, 10 << 40), "the list is full");
        forget(of(0, 4 * MAX_COPIES));
        assert_eq!(first(of(0, usize::MAX >> 21)), None);
    }
}
