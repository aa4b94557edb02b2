//! Which ranges of the program's own mappings lie on private or shared hugetlb pages of our making.
//!
//! The kernel cannot unmap, protect or advise part of a hugetlb page, and a program that asked for
//! ordinary memory may do just that. Here is looked up whether a range that a call names touches
//! such a page. Ranges enter when they are mapped and leave when they are unmapped or replaced
//! through libc; a range that a program unmaps by a raw system call stays until somebody trips over
//! it, which is why users of an answer must expect the kernel to disagree.
//!
//! # Safety
//! The rows live in a mapping of their own that only grows, reached under the lock.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::lock::{Level, Lock};
use crate::raw;

/// A range on hugetlb pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First address, aligned to the page size.
    pub start: usize,
    /// Address after the last, aligned likewise.
    pub end: usize,
    /// Size of its pages.
    pub page: usize,
    /// Whether it is shared memory.
    pub shared: bool,
}

impl Range {
    /// Whether a page of it is only partly inside `[from, to)`.
    pub fn is_cut_by(&self, from: usize, to: usize) -> bool {
        let inside =
            |edge: usize| edge > self.start && edge < self.end && !edge.is_multiple_of(self.page);
        inside(from) || inside(to)
    }
}

struct Rows {
    rows: *mut Range,
    used: usize,
    room: usize,
}
// SAFETY: the pointer is to a mapping that belongs to this table alone.
unsafe impl Send for Rows {}

static TABLE: Lock<Rows> = Lock::new(Level::Table, NO_ROWS);
const NO_ROWS: Rows = Rows { rows: std::ptr::null_mut(), used: 0, room: 0 };
/// The span of all ranges there ever were: most calls are outside, and then no lock is needed.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Enters a range. If there is no memory for the table it is not entered, and `false` is returned:
/// then the range must not be handed out.
pub fn add(range: Range) -> bool {
    let entered = TABLE.with_or(|table| table.insert(range), || false);
    if entered {
        LOWEST.fetch_min(range.start, Ordering::Relaxed);
        HIGHEST.fetch_max(range.end, Ordering::Relaxed);
    }
    entered
}

/// Runs `work`, which takes away what is at `[from, to)`, and forgets it if that worked. Nobody
/// enters a range meanwhile: what another thread maps there as soon as it is free is entered after.
pub fn replacing<T, E>(
    from: usize,
    to: usize,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    if !may_overlap(from, to) {
        return work();
    }
    let work = Cell::new(Some(work));
    let run = || work.take().expect("it runs once")();
    let run_and_cut = |table: &mut Rows| {
        let result = run();
        if result.is_ok() {
            table.cut(from, to);
        }
        result
    };
    TABLE.with_or(run_and_cut, run)
}

/// Forgets whatever lies in `[from, to)`; ranges that stick out are cut.
pub fn remove(from: usize, to: usize) {
    if may_overlap(from, to) {
        TABLE.with(|table| table.cut(from, to));
    }
}

/// Whether `[from, to)` may touch a range: a quick answer for the many calls that do not.
pub fn may_overlap(from: usize, to: usize) -> bool {
    from < HIGHEST.load(Ordering::Relaxed) && to > LOWEST.load(Ordering::Relaxed)
}

/// The first range, by address, that overlaps `[from, to)`.
pub fn first(from: usize, to: usize) -> Option<Range> {
    if !may_overlap(from, to) {
        return None;
    }
    let find = |table: &mut Rows| {
        let rows = table.slice();
        let overlapping = rows.iter().filter(|row| row.start < to && from < row.end);
        overlapping.min_by_key(|row| row.start).copied()
    };
    TABLE.with_or(find, || None)
}

/// In a forked child: what another thread was changing is forgotten. `fork` asks the kernel.
pub fn after_fork() {
    TABLE.after_fork(|table, was_held| {
        if was_held {
            *table = NO_ROWS;
        }
    });
}

/// Whether anything was ever entered.
pub fn is_in_use() -> bool {
    HIGHEST.load(Ordering::Relaxed) != 0
}

impl Rows {
    fn slice(&self) -> &[Range] {
        if self.rows.is_null() {
            return &[];
        }
        // SAFETY: `used` rows have been written.
        unsafe { std::slice::from_raw_parts(self.rows, self.used) }
    }

    fn insert(&mut self, range: Range) -> bool {
        if self.used == self.room && !self.grow() {
            return false;
        }
        // SAFETY: `used` is below `room`.
        unsafe { self.rows.add(self.used).write(range) };
        self.used += 1;
        true
    }

    fn grow(&mut self) -> bool {
        let room = (self.room * 2).max(raw::base_page() / size_of::<Range>());
        // SAFETY: fresh memory; the old rows are copied and then nobody's.
        unsafe {
            let bytes = room * size_of::<Range>();
            let Ok(fresh) = raw::mmap(0, bytes, raw::READ_WRITE, raw::PRIVATE_ANONYMOUS, -1, 0)
            else {
                return false;
            };
            let fresh = fresh as *mut Range;
            if self.used > 0 {
                std::ptr::copy_nonoverlapping(self.rows, fresh, self.used);
                let _ = raw::munmap(self.rows as usize, self.room * size_of::<Range>());
            }
            self.rows = fresh;
        }
        self.room = room;
        true
    }

    fn cut(&mut self, from: usize, to: usize) {
        let mut at = 0;
        while at < self.used {
            // SAFETY: `at` is below `used`.
            let row = unsafe { &mut *self.rows.add(at) };
            if row.end <= from || row.start >= to {
                at += 1;
                continue;
            }
            let (left, right) = (row.start < from, row.end > to);
            let tail = Range { start: to, ..*row };
            match (left, right) {
                (true, _) => row.end = from,
                (false, true) => row.start = to,
                (false, false) => {
                    self.used -= 1;
                    // SAFETY: both are below the old `used`; the last takes the place of this one.
                    unsafe { *self.rows.add(at) = *self.rows.add(self.used) };
                    continue;
                }
            }
            at += 1;
            // The middle was taken out: the rest is a row of its own. Without room for it the
            // table forgets it, and the kernel's refusals reach the program.
            if left && right {
                self.insert(tail);
            }
        }
    }
}
