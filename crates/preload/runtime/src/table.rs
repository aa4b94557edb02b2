//! Which ranges of the program's own mappings lie on private or shared hugetlb pages of our making.
//!
//! The kernel cannot unmap, protect or advise part of a hugetlb page, and a program that asked for
//! ordinary memory may do just that. Here is looked up whether a range that a call names touches
//! such a page. Ranges enter when they are mapped and leave when they are unmapped or replaced
//! through libc. A range that is unmapped past this library (libc's own calls, raw system calls)
//! stays until somebody trips over it: an entry is a guess that the kernel confirms or refutes
//! (`demote` asks it before it acts on one).
//!
//! # Safety
//! The entries live in a mapping of their own that only grows, reached under the lock.

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::lock::{Lock, Rank};
use crate::{maps, raw, sizes};

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
    /// mbind(2)
    pub policy: Option<MemoryPolicy>,
    /// mlock, or with MLOCK_ONFAULT; of base pages alone, because the pool has no such mark.
    pub locked: Locked,
}

/// A memory policy other than the default, of nodes below 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPolicy {
    /// With its flags.
    pub mode: c_int,
    /// A bit for each node.
    pub nodes: u64,
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
pub struct Entry {
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

/// (t)
struct Entries {
    entries: *mut Entry,
    used: usize,
    capacity: usize,
}
// SAFETY: the pointer is to a mapping that belongs to this table alone.
unsafe impl Send for Entries {}

static TABLE: Lock<Entries> = Lock::new(Rank::Table, NO_ENTRIES);
const NO_ENTRIES: Entries = Entries { entries: std::ptr::null_mut(), used: 0, capacity: 0 };
/// (a) The span of all ranges there ever were: most calls are outside, and then no lock is needed.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Enters a range. If there is no memory for the table it is not entered, and `false` is returned:
/// then the range must not be handed out.
pub fn add(range: Range) -> bool {
    add_part(range, (range.start, range.end))
}

/// The same for the superpages of a mapping that has more than superpages.
pub fn add_part(range: Range, mapping: (usize, usize)) -> bool {
    enter(Entry::new(range, mapping, false))
}

/// The same for base pages that the program has as a part of such a mapping.
pub fn add_ordinary(range: Range, mapping: (usize, usize)) -> bool {
    enter(Entry::new(range, mapping, true))
}

fn enter(entry: Entry) -> bool {
    let entered = TABLE.with_or(|table| table.insert(entry), || false);
    if entered {
        LOWEST.fetch_min(entry.range.start, Ordering::Relaxed);
        HIGHEST.fetch_max(entry.range.end, Ordering::Relaxed);
    }
    entered
}

/// Runs `work`, which takes away what is at `[from, to)`, and forgets it if that worked. The lock is not held
/// meanwhile, so what is there is not found from the beginning on: what another thread maps there as soon as it
/// is free is another entry.
pub fn replacing<T, E>(
    from: usize,
    to: usize,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    replacing_if(from, to, |_| true, work)
}

/// The same where what `work` returns says whether it `took` what is there away.
pub fn replacing_if<T, E>(
    from: usize,
    to: usize,
    took: impl FnOnce(&T) -> bool,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    if !may_overlap(from, to) {
        return work();
    }
    let me = raw::errno_address();
    let set = |before: usize, after: usize| {
        let change = |entry: &mut Entry| {
            if entry.leaving == before {
                entry.leaving = after;
            }
        };
        TABLE.with(|table| table.change(from, to, change))
    };
    set(0, me);
    let result = work();
    match result.as_ref().is_ok_and(took) {
        true => TABLE.with(|table| table.cut_if(from, to, |entry| entry.leaving == me)),
        false => set(me, 0),
    };
    result
}

/// Runs `work`, which puts ordinary memory in the place of the private page at `start`, if it is still
/// entered, and forgets the page if that worked. Nobody unmaps it through libc meanwhile.
pub fn replacing_page(start: usize, page: usize, work: impl FnOnce() -> bool) -> bool {
    let replace = |table: &mut Entries| {
        let end = start + page;
        let is_here = |entry: &Entry| {
            let Range { start: from, end: to, shared, .. } = entry.range;
            !shared && from <= start && end <= to && entry.leaving == 0
        };
        let is_replaced = table.slice().iter().any(is_here) && work();
        if is_replaced {
            table.cut(start, end);
            let (range, mapping) = (Range { start, end, page, shared: false }, (start, end));
            table.insert(Entry::new(range, mapping, true));
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
    first_entry(from, to, |entry| !entry.is_ordinary).map(|entry| entry.range)
}

/// The first entry that `is_meant`, with all that is known about it.
pub fn first_entry(from: usize, to: usize, is_meant: impl Fn(&Entry) -> bool) -> Option<Entry> {
    if from >= to || !may_overlap(from, to) {
        return None;
    }
    let find = |table: &mut Entries| {
        let overlapping = table.slice().iter().filter(|entry| entry.is_found(from, to));
        overlapping.filter(|entry| is_meant(entry)).min_by_key(|entry| entry.range.start).copied()
    };
    TABLE.with_or(find, || as_the_kernel_says(from, to).filter(|entry| is_meant(entry)))
}

/// The same for a signal handler that interrupted who changes the table.
fn as_the_kernel_says(from: usize, to: usize) -> Option<Entry> {
    let mut found = None;
    maps::each(|vma| {
        let (start, end) = (vma.start, vma.end);
        let is_ours = vma.is_anonymous_hugetlb() || vma.is_in_place();
        if found.is_none() && is_ours && start < to && from < end {
            let (page, shared) = (sizes::superpage(), vma.is_shared_memory());
            let range = Range { start, end, page, shared };
            found = Some(Entry::new(range, (start, end), false));
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
    let note = |entry: &mut Entry| {
        if !entry.is_ordinary || entry.range.shared {
            change(&mut entry.marks);
        }
    };
    TABLE.with(|table| table.change(from, to, note));
}

/// In a forked child: what another thread was changing is forgotten, and that memory was locked. `fork` asks the kernel.
pub fn after_fork() {
    TABLE.after_fork(|table, was_held| {
        if was_held {
            *table = NO_ENTRIES;
        }
        let me = raw::errno_address();
        let stay = |entry: &mut Entry| {
            if entry.leaving != me {
                entry.leaving = 0;
            }
            // Locks are not inherited.
            entry.marks.locked = Locked::No;
        };
        table.change(0, usize::MAX, stay);
    });
}

/// Whether anything was ever entered.
pub fn is_in_use() -> bool {
    HIGHEST.load(Ordering::Relaxed) != 0
}

impl Entry {
    fn new(range: Range, mapping: (usize, usize), is_ordinary: bool) -> Self {
        Self { range, marks: Marks::default(), mapping, is_ordinary, leaving: 0 }
    }

    fn overlaps(&self, from: usize, to: usize) -> bool {
        self.range.start < to && from < self.range.end
    }

    fn is_found(&self, from: usize, to: usize) -> bool {
        self.overlaps(from, to) && self.leaving == 0
    }
}

impl Entries {
    fn slice(&self) -> &[Entry] {
        if self.entries.is_null() {
            return &[];
        }
        // SAFETY: `used` entries have been written.
        unsafe { std::slice::from_raw_parts(self.entries, self.used) }
    }

    fn insert(&mut self, entry: Entry) -> bool {
        if entry.is_ordinary && !entry.range.shared {
            // Many small ones side by side say no more than one.
            let leaving = entry.leaving;
            let alike = |other: &Entry| {
                other.is_ordinary && !other.range.shared && other.leaving == leaving
            };
            let (start, end) = (entry.range.start, entry.range.end);
            let beside = |other: &Entry| other.range.end == start || other.range.start == end;
            if let Some(at) = self.slice().iter().position(|it| alike(it) && beside(it)) {
                // SAFETY: `at` is below `used`.
                let other = unsafe { &mut (*self.entries.add(at)).range };
                (other.start, other.end) = (other.start.min(start), other.end.max(end));
                return true;
            }
        }
        if self.used == self.capacity && !self.grow() {
            return false;
        }
        // SAFETY: `used` is below `capacity`.
        unsafe { self.entries.add(self.used).write(entry) };
        self.used += 1;
        true
    }

    fn grow(&mut self) -> bool {
        let capacity = (self.capacity * 2).max(raw::base_page() / size_of::<Entry>());
        let Ok(fresh) = raw::map(capacity * size_of::<Entry>(), 0) else { return false };
        let fresh = fresh as *mut Entry;
        // SAFETY: fresh memory; the old entries are copied and then nobody's.
        unsafe {
            if self.used > 0 {
                std::ptr::copy_nonoverlapping(self.entries, fresh, self.used);
                let _ = raw::munmap(self.entries as usize, self.capacity * size_of::<Entry>());
            }
            self.entries = fresh;
        }
        self.capacity = capacity;
        true
    }

    /// Changes what is known of `[from, to)`: entries that stick out are divided.
    fn change(&mut self, from: usize, to: usize, change: impl Fn(&mut Entry)) {
        let mut at = 0;
        while at < self.used {
            let entry = self.slice()[at];
            let mut changed = entry;
            change(&mut changed);
            if !entry.overlaps(from, to) || changed == entry {
                at += 1;
                continue;
            }
            // Cut out and entered again: at the end, where it is met once more and is right.
            let Range { start, end, .. } = entry.range;
            // Of a superpage all or nothing: the range may be of a call that the kernel refuses.
            let page = if entry.is_ordinary { 1 } else { entry.range.page };
            let first = start.max(from - from % page);
            let last = end.min(to.checked_next_multiple_of(page).unwrap_or(usize::MAX));
            changed.range = Range { start: first, end: last, ..entry.range };
            self.cut_if(changed.range.start, changed.range.end, |other| *other == entry);
            self.insert(changed);
            at = 0;
        }
    }

    fn cut(&mut self, from: usize, to: usize) {
        self.cut_if(from, to, |_| true);
    }

    fn cut_if(&mut self, from: usize, to: usize, is_meant: impl Fn(&Entry) -> bool) {
        let mut at = 0;
        while at < self.used {
            // SAFETY: `at` is below `used`.
            let entry = unsafe { &mut *self.entries.add(at) };
            if !entry.overlaps(from, to) || !is_meant(entry) {
                at += 1;
                continue;
            }
            let (left, right) = (entry.range.start < from, entry.range.end > to);
            let tail = Entry { range: Range { start: to, ..entry.range }, ..*entry };
            match (left, right) {
                (true, _) => entry.range.end = from,
                (false, true) => entry.range.start = to,
                (false, false) => {
                    self.used -= 1;
                    // SAFETY: both are below the old `used`; the last takes the place of this one.
                    unsafe { *self.entries.add(at) = *self.entries.add(self.used) };
                    continue;
                }
            }
            at += 1;
            // The middle was taken out: the rest is an entry of its own. Without memory for it the
            // table forgets it, and the kernel's refusals reach the program.
            if left && right {
                self.insert(tail);
            }
        }
    }
}
