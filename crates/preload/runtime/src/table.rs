//! The ranges of the program's mappings that this library has put on hugetlb pages, private or shared.
//!
//! The kernel cannot unmap, protect or advise part of a hugetlb page, but a program that asked for ordinary memory may
//! try. The table tells whether a call touches such a page. Ranges are added when they are mapped, and removed when
//! they are unmapped or replaced through libc. A range that is unmapped without this library (libc's own calls, raw
//! system calls) stays in the table. An entry is therefore a guess: `demote` asks the kernel before it acts on one.
//!
//! # Safety
//! The entries live in a mapping of their own, which only grows and is accessed under the lock.

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::lock::{Lock, Rank};
use crate::{maps, raw, sizes};

/// A range of hugetlb pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First address, aligned to the page size.
    pub start: usize,
    /// Last address plus one, aligned likewise.
    pub end: usize,
    /// Page size.
    pub page: usize,
    /// Whether the range is shared memory.
    pub shared: bool,
}

/// Advice that the kernel keeps per VMA, for one range. A copy that replaces the range gets the same advice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// MADV_DONTFORK
    pub dont_fork: bool,
    /// MADV_DONTDUMP
    pub dont_dump: bool,
    /// MADV_SEQUENTIAL or MADV_RANDOM; 0: MADV_NORMAL. VMAs that differ in it do not merge.
    pub order: c_int,
    /// mbind(2)
    pub policy: Option<MemoryPolicy>,
    /// Memory locks; only of base pages, because hugetlb VMAs have no flag for locks.
    pub locked: Locked,
}

/// A memory policy other than the default, on nodes below 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPolicy {
    /// Mode with its flags.
    pub mode: c_int,
    /// One bit for each node.
    pub nodes: u64,
}

/// How memory is locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locked {
    /// Not locked.
    #[default]
    No,
    /// All pages (mlock).
    Now,
    /// Each page when it is touched (MLOCK_ONFAULT).
    OnFault,
}

/// A range and its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Addresses.
    pub range: Range,
    /// Advice.
    pub marks: Marks,
    /// `[start, end)` of the program's mapping that the range is part of, as it was when mapped, including the tail on
    /// base pages.
    pub mapping: (usize, usize),
    /// Whether the range is on base pages. A shared range is then an object of its own; a call on the whole mapping
    /// joins the parts again. A private range then has VMA borders that the program did not make.
    pub is_ordinary: bool,
    /// The thread (address of its errno) that is unmapping the range, which look-ups then skip. 0: none.
    unmapping_thread: usize,
}

/// (t): guarded by the lock `TABLE`.
struct Entries {
    entries: *mut Entry,
    used: usize,
    capacity: usize,
}
// SAFETY: the pointer is to a mapping that only this table uses.
unsafe impl Send for Entries {}

static TABLE: Lock<Entries> = Lock::new(Rank::Table, NO_ENTRIES);
const NO_ENTRIES: Entries = Entries { entries: std::ptr::null_mut(), used: 0, capacity: 0 };
/// (a) Bounds of all ranges ever added. Most calls lie outside and need no lock.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Adds a range; `false`: there is no memory for the entry, and the range must not be handed out.
pub fn add(range: Range) -> bool {
    add_part(range, (range.start, range.end))
}

/// As [`add`], for the superpages of a mapping that also has base pages.
pub fn add_part(range: Range, mapping: (usize, usize)) -> bool {
    enter(Entry::new(range, mapping, false))
}

/// As [`add`], for the base pages of a mapping that also has superpages.
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

/// Runs `work`, which unmaps or replaces `[from, to)`, and removes the range if `work` succeeds. The lock is not held
/// meanwhile. Look-ups skip the range from the start: another thread may map memory there, with an entry of its own, as
/// soon as the range is free.
pub fn replacing<T, E>(
    from: usize,
    to: usize,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    replacing_if(from, to, |_| true, work)
}

/// As [`replacing`]; `took` tells from the result of `work` whether the range is gone.
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
            if entry.unmapping_thread == before {
                entry.unmapping_thread = after;
            }
        };
        TABLE.with(|table| table.change(from, to, change))
    };
    set(0, me);
    let result = work();
    match result.as_ref().is_ok_and(took) {
        true => TABLE.with(|table| table.cut_if(from, to, |entry| entry.unmapping_thread == me)),
        false => set(me, 0),
    };
    result
}

/// Runs `work`, which replaces the private page at `start` by ordinary memory, if the page is still in the table. If
/// `work` succeeds, the page is entered as ordinary. No thread unmaps the page through libc meanwhile.
pub fn replacing_page(start: usize, page: usize, work: impl FnOnce() -> bool) -> bool {
    let replace = |table: &mut Entries| {
        let end = start + page;
        let is_here = |entry: &Entry| {
            let Range { start: from, end: to, shared, .. } = entry.range;
            !shared && from <= start && end <= to && entry.unmapping_thread == 0
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

/// Removes `[from, to)`; entries that extend beyond it are cut.
pub fn remove(from: usize, to: usize) {
    if may_overlap(from, to) {
        TABLE.with(|table| table.cut(from, to));
    }
}

/// Whether `[from, to)` may overlap a range: a quick check that rules out most calls.
pub fn may_overlap(from: usize, to: usize) -> bool {
    from < to && from < HIGHEST.load(Ordering::Relaxed) && to > LOWEST.load(Ordering::Relaxed)
}

/// The first range on hugetlb pages, by address, that overlaps `[from, to)`.
pub fn first(from: usize, to: usize) -> Option<Range> {
    first_entry(from, to, |entry| !entry.is_ordinary).map(|entry| entry.range)
}

/// The first entry, by address, for which `is_meant` holds.
pub fn first_entry(from: usize, to: usize, is_meant: impl Fn(&Entry) -> bool) -> Option<Entry> {
    if from >= to || !may_overlap(from, to) {
        return None;
    }
    let find = |table: &mut Entries| {
        let overlapping = table.slice().iter().filter(|entry| entry.is_found(from, to));
        overlapping.filter(|entry| is_meant(entry)).min_by_key(|entry| entry.range.start).copied()
    };
    TABLE.with_or(find, || entry_from_maps(from, to).filter(|entry| is_meant(entry)))
}

/// As [`first_entry`], for a signal handler that interrupted an update of the table: reads the VMAs.
fn entry_from_maps(from: usize, to: usize) -> Option<Entry> {
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

/// Whether a range can be added now; `false` in a signal handler that interrupted an update.
pub fn can_be_changed() -> bool {
    !TABLE.is_held_here()
}

/// Applies `change` to the advice of `[from, to)`, rounded out to superpages.
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

/// In a forked child: empties a table that another thread was updating (`fork` reads the VMAs); drops memory locks.
pub fn after_fork() {
    TABLE.after_fork(|table, was_held| {
        if was_held {
            *table = NO_ENTRIES;
        }
        let me = raw::errno_address();
        let stay = |entry: &mut Entry| {
            if entry.unmapping_thread != me {
                entry.unmapping_thread = 0;
            }
            entry.marks.locked = Locked::No;
        };
        table.change(0, usize::MAX, stay);
    });
}

/// Whether any range was ever added.
pub fn is_in_use() -> bool {
    HIGHEST.load(Ordering::Relaxed) != 0
}

impl Entry {
    fn new(range: Range, mapping: (usize, usize), is_ordinary: bool) -> Self {
        Self { range, marks: Marks::default(), mapping, is_ordinary, unmapping_thread: 0 }
    }

    fn overlaps(&self, from: usize, to: usize) -> bool {
        self.range.start < to && from < self.range.end
    }

    fn is_found(&self, from: usize, to: usize) -> bool {
        self.overlaps(from, to) && self.unmapping_thread == 0
    }
}

impl Entries {
    fn slice(&self) -> &[Entry] {
        if self.entries.is_null() {
            return &[];
        }
        // SAFETY: `used` entries are initialized.
        unsafe { std::slice::from_raw_parts(self.entries, self.used) }
    }

    fn insert(&mut self, entry: Entry) -> bool {
        if entry.is_ordinary && !entry.range.shared {
            // Adjacent private ranges on base pages share one entry.
            let unmapping_thread = entry.unmapping_thread;
            let alike = |other: &Entry| {
                other.is_ordinary
                    && !other.range.shared
                    && other.unmapping_thread == unmapping_thread
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
        // SAFETY: fresh memory; the old entries are copied and not used any more.
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

    /// Applies `change` to `[from, to)`; entries that extend beyond it are split.
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
            // The entry is removed and added again at the end. The loop meets it once more and leaves it alone.
            let Range { start, end, .. } = entry.range;
            // Whole superpages only: the kernel may refuse a call on part of one.
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
                    // SAFETY: both indices are below the old `used`; the last entry replaces this one.
                    unsafe { *self.entries.add(at) = *self.entries.add(self.used) };
                    continue;
                }
            }
            at += 1;
            // The middle was removed: the rest needs an entry of its own. If there is no memory for one, the rest is
            // dropped, and the kernel's errors reach the program.
            if left && right {
                self.insert(tail);
            }
        }
    }
}
