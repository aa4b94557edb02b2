//! Which ranges of the program's own mappings lie on private or shared hugetlb pages of our making.
//!
//! The kernel cannot unmap, protect or advise part of a hugetlb page, and a program that asked for
//! ordinary memory may do just that. Here is looked up whether a range that a call names touches
//! such a page. Ranges enter when they are mapped and leave when they are unmapped or replaced
//! through libc. A range that is unmapped past this library (libc's own calls, raw system calls)
//! stays until somebody trips over it: a row is a guess that the kernel confirms or refutes
//! (`demote` asks it before it acts on one).
//!
//! # Safety
//! The rows live in a mapping of their own that only grows, reached under the lock.

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::lock::{Level, Lock};
use crate::{maps, raw, source};

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

/// What the program asked for about a range by advice that the kernel keeps per mapping. A copy
/// that takes the range's place is advised alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// MADV_DONTFORK
    pub dont_fork: bool,
    /// MADV_DONTDUMP
    pub dont_dump: bool,
    /// MADV_SEQUENTIAL or MADV_RANDOM; 0: MADV_NORMAL. Mappings that differ in it are not one.
    pub order: c_int,
    /// mlock, or with MLOCK_ONFAULT; of base pages alone, because the pool has no such mark.
    pub locked: Locked,
}

/// Whether memory was locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locked {
    /// It was not.
    #[default]
    No,
    /// As a whole.
    Now,
    /// Page by page, as they are touched.
    OnFault,
}

/// A range and what is known about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Where it is.
    pub range: Range,
    /// What was advised.
    pub marks: Marks,
    /// First address of the mapping that it was made as a part of, and the one after the last: with the
    /// tail of base pages, and as it was then.
    pub mapping: (usize, usize),
    /// Whether it is on base pages after all. Of shared memory that is an object of its own, which a call
    /// about the whole mapping puts together again; private memory has boundaries here that the program
    /// did not make.
    pub is_ordinary: bool,
    /// The thread (its errno's address) whose call is unmapping it: it is no longer found. 0: none.
    leaving: usize,
}

struct Rows {
    rows: *mut Row,
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
    add_part(range, (range.start, range.end))
}

/// The same for the superpages of a mapping that has more than superpages.
pub fn add_part(range: Range, mapping: (usize, usize)) -> bool {
    enter(Row { range, marks: Marks::default(), mapping, is_ordinary: false, leaving: 0 })
}

/// The same for base pages that the program has as a part of such a mapping.
pub fn add_ordinary(range: Range, mapping: (usize, usize)) -> bool {
    enter(Row { range, marks: Marks::default(), mapping, is_ordinary: true, leaving: 0 })
}

fn enter(row: Row) -> bool {
    let entered = TABLE.with_or(|table| table.insert(row), || false);
    if entered {
        LOWEST.fetch_min(row.range.start, Ordering::Relaxed);
        HIGHEST.fetch_max(row.range.end, Ordering::Relaxed);
    }
    entered
}

/// Runs `work`, which takes away what is at `[from, to)`, and forgets it if that worked. The lock is not held
/// meanwhile, so what is there is not found from the beginning on: what another thread maps there as soon as it
/// is free is another row.
pub fn replacing<T, E>(
    from: usize,
    to: usize,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    if !may_overlap(from, to) {
        return work();
    }
    let me = raw::errno_address();
    let set = |before: usize, after: usize| {
        let change = |row: &mut Row| {
            if row.leaving == before {
                row.leaving = after;
            }
        };
        TABLE.with(|table| table.change(from, to, change))
    };
    set(0, me);
    let result = work();
    match result {
        Ok(_) => TABLE.with(|table| table.cut_if(from, to, |row| row.leaving == me)),
        Err(_) => set(me, 0),
    };
    result
}

/// Runs `work`, which puts ordinary memory in the place of the private page at `start`, if it is still
/// entered, and forgets the page if that worked. Nobody unmaps it through libc meanwhile.
pub fn replacing_page(start: usize, page: usize, work: impl FnOnce() -> bool) -> bool {
    let replace = |table: &mut Rows| {
        let end = start + page;
        let is_here = |row: &Row| {
            let Range { start: from, end: to, shared, .. } = row.range;
            !shared && from <= start && end <= to && row.leaving == 0
        };
        let is_replaced = table.slice().iter().any(is_here) && work();
        if is_replaced {
            table.cut(start, end);
            let (range, mapping) = (Range { start, end, page, shared: false }, (start, end));
            let marks = Marks::default();
            table.insert(Row { range, marks, mapping, is_ordinary: true, leaving: 0 });
        }
        is_replaced
    };
    TABLE.with_or(replace, || false)
}

/// Forgets whatever lies in `[from, to)`; ranges that stick out are cut.
pub fn remove(from: usize, to: usize) {
    if may_overlap(from, to) {
        TABLE.with(|table| table.cut(from, to));
    }
}

/// Whether `[from, to)` may touch a range: a quick answer for the many calls that do not.
pub fn may_overlap(from: usize, to: usize) -> bool {
    from < to && from < HIGHEST.load(Ordering::Relaxed) && to > LOWEST.load(Ordering::Relaxed)
}

/// The first range, by address, that overlaps `[from, to)`.
pub fn first(from: usize, to: usize) -> Option<Range> {
    first_row(from, to, |row| !row.is_ordinary).map(|row| row.range)
}

/// The first row that `is_meant`, with all that is known about it.
pub fn first_row(from: usize, to: usize, is_meant: impl Fn(&Row) -> bool) -> Option<Row> {
    if from >= to || !may_overlap(from, to) {
        return None;
    }
    let find = |table: &mut Rows| {
        let overlapping = table.slice().iter().filter(|row| row.is_found(from, to));
        overlapping.filter(|row| is_meant(row)).min_by_key(|row| row.range.start).copied()
    };
    TABLE.with_or(find, || as_the_kernel_says(from, to).filter(|row| is_meant(row)))
}

/// The same for a signal handler that interrupted who changes the table.
fn as_the_kernel_says(from: usize, to: usize) -> Option<Row> {
    let mut found = None;
    maps::each(|vma| {
        let (start, end) = (vma.start, vma.end);
        if found.is_none() && vma.is_anonymous_hugetlb() && start < to && from < end {
            let (page, shared) = (source::superpage(), !vma.is_private());
            let range = Range { start, end, page, shared };
            let marks = Marks::default();
            let mapping = (start, end);
            found = Some(Row { range, marks, mapping, is_ordinary: false, leaving: 0 });
        }
    })?;
    found
}

/// Whether a range can be entered now: not by such a handler.
pub fn can_be_changed() -> bool {
    !TABLE.is_held_here()
}

/// Notes advice about whole superpages of `[from, to)`.
pub fn mark(from: usize, to: usize, change: impl Fn(&mut Marks)) {
    if !may_overlap(from, to) {
        return;
    }
    let note = |row: &mut Row| {
        if !row.is_ordinary || row.range.shared {
            change(&mut row.marks);
        }
    };
    TABLE.with(|table| table.change(from, to, note));
}

/// In a forked child: what another thread was changing is forgotten. `fork` asks the kernel.
pub fn after_fork() {
    TABLE.after_fork(|table, was_held| {
        if was_held {
            *table = NO_ROWS;
        }
        let me = raw::errno_address();
        let stay = |row: &mut Row| {
            if row.leaving != me {
                row.leaving = 0;
            }
        };
        table.change(0, usize::MAX, stay);
    });
}

/// Whether anything was ever entered.
pub fn is_in_use() -> bool {
    HIGHEST.load(Ordering::Relaxed) != 0
}

impl Row {
    fn overlaps(&self, from: usize, to: usize) -> bool {
        self.range.start < to && from < self.range.end
    }

    fn is_found(&self, from: usize, to: usize) -> bool {
        self.overlaps(from, to) && self.leaving == 0
    }
}

impl Rows {
    fn slice(&self) -> &[Row] {
        if self.rows.is_null() {
            return &[];
        }
        // SAFETY: `used` rows have been written.
        unsafe { std::slice::from_raw_parts(self.rows, self.used) }
    }

    fn insert(&mut self, row: Row) -> bool {
        if row.is_ordinary && !row.range.shared {
            // Many small ones side by side say no more than one.
            let leaving = row.leaving;
            let alike =
                |other: &Row| other.is_ordinary && !other.range.shared && other.leaving == leaving;
            let (start, end) = (row.range.start, row.range.end);
            let beside = |other: &Row| other.range.end == start || other.range.start == end;
            if let Some(at) = self.slice().iter().position(|it| alike(it) && beside(it)) {
                // SAFETY: `at` is below `used`.
                let other = unsafe { &mut (*self.rows.add(at)).range };
                (other.start, other.end) = (other.start.min(start), other.end.max(end));
                return true;
            }
        }
        if self.used == self.room && !self.grow() {
            return false;
        }
        // SAFETY: `used` is below `room`.
        unsafe { self.rows.add(self.used).write(row) };
        self.used += 1;
        true
    }

    fn grow(&mut self) -> bool {
        let room = (self.room * 2).max(raw::base_page() / size_of::<Row>());
        // SAFETY: fresh memory; the old rows are copied and then nobody's.
        unsafe {
            let bytes = room * size_of::<Row>();
            let Ok(fresh) = raw::mmap(0, bytes, raw::READ_WRITE, raw::PRIVATE_ANONYMOUS, -1, 0)
            else {
                return false;
            };
            let fresh = fresh as *mut Row;
            if self.used > 0 {
                std::ptr::copy_nonoverlapping(self.rows, fresh, self.used);
                let _ = raw::munmap(self.rows as usize, self.room * size_of::<Row>());
            }
            self.rows = fresh;
        }
        self.room = room;
        true
    }

    /// Changes what is known of `[from, to)`: rows that stick out are divided.
    fn change(&mut self, from: usize, to: usize, change: impl Fn(&mut Row)) {
        let mut at = 0;
        while at < self.used {
            let row = self.slice()[at];
            let mut changed = row;
            change(&mut changed);
            if !row.overlaps(from, to) || changed == row {
                at += 1;
                continue;
            }
            // Cut out and entered again: at the end, where it is met once more and is right.
            let Range { start, end, .. } = row.range;
            // Of a superpage all or nothing: the range may be of a call that the kernel refuses.
            let page = if row.is_ordinary { 1 } else { row.range.page };
            let first = start.max(from - from % page);
            let last = end.min(to.checked_next_multiple_of(page).unwrap_or(usize::MAX));
            changed.range = Range { start: first, end: last, ..row.range };
            self.cut_if(changed.range.start, changed.range.end, |other| *other == row);
            self.insert(changed);
            at = 0;
        }
    }

    fn cut(&mut self, from: usize, to: usize) {
        self.cut_if(from, to, |_| true);
    }

    fn cut_if(&mut self, from: usize, to: usize, is_meant: impl Fn(&Row) -> bool) {
        let mut at = 0;
        while at < self.used {
            // SAFETY: `at` is below `used`.
            let row = unsafe { &mut *self.rows.add(at) };
            if !row.overlaps(from, to) || !is_meant(row) {
                at += 1;
                continue;
            }
            let (left, right) = (row.range.start < from, row.range.end > to);
            let tail = Row { range: Range { start: to, ..row.range }, ..*row };
            match (left, right) {
                (true, _) => row.range.end = from,
                (false, true) => row.range.start = to,
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
