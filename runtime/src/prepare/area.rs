//! The area: address space of the library's own, cut into superpages, and what mappings and the heap
//! get of it. Used through [`with`] by this room's other files.
//!
//! Mappings are cut from below, the heap's arenas from above. A mapping is a run of superpages of which
//! as many as possible are ready; the rest is mapped now. Its length is rounded up to whole superpages
//! where that is at most an eighth of it: what lies behind the end is not the program's, but comes with
//! the superpage.
//!
//! # Safety
//! The rows lie in a mapping of their own, reached under the lock. What is mapped at a row's address is
//! what its state says, unless the program changed it behind libc: `stock` looks before it writes.

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::chunk::{Chunk, State};
use super::fetch;
use super::requests::Taken;
use super::superpages;
use super::watch::Watch;
use crate::ledger::{self, Kind, Prepared};
use crate::lock::Lock;
use crate::mapping::demote;
use crate::raw::{self, Errno};
use crate::settings;
use crate::source::{self, superpage};

/// Address space, where there is no limit on it. It costs nothing but a row of 6 bytes per superpage
/// that was ever used. Where there is one, a 16th at most of what could
/// not be had: the rest is the program's.
const LARGEST: usize = 256 << 30;
/// Less than this is not worth a thread.
const SMALLEST: usize = 256 << 20;

/// The area and the books about it.
pub struct Area {
    /// Its address.
    pub start: usize,
    rows: *mut Chunk,
    /// Rows.
    pub count: usize,
    /// The arenas' part begins here, and ends with the area.
    pub heap: usize,
    /// Rows below it may be something else than empty; the arenas' apart.
    pub used: usize,
    /// Superpages held for nobody in particular.
    pub stock: u64,
    /// How many of them wait to be zeroed.
    pub dirty: u64,
    /// How many there are to be; grows with what is asked for and could not be had.
    pub target: u64,
    /// Whether the stock is being filled up.
    pub is_filling: bool,
    /// Whether the thread has a CPU to work on. What it could not zero again goes back to the kernel.
    pub has_cpu: bool,
    /// Whether somebody took something or gave it back since the thread last looked.
    pub was_used: bool,
    /// What is being touched in order.
    pub watch: Watch,
    /// Whether there is no room for an area.
    is_refused: bool,
}
// SAFETY: the pointer is to a mapping that belongs to the area alone.
unsafe impl Send for Area {}

static AREA: Lock<Area> = Lock::new(Area {
    start: 0,
    rows: std::ptr::null_mut(),
    count: 0,
    heap: 0,
    used: 0,
    stock: 0,
    dirty: 0,
    target: 0,
    is_filling: false,
    has_cpu: true,
    was_used: false,
    watch: Watch::new(),
    is_refused: false,
});

/// Where it is, for questions that need no lock.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Whether `[from, to)` may touch the area.
pub fn may_hold(from: usize, to: usize) -> bool {
    from < HIGHEST.load(Ordering::Relaxed) && to > LOWEST.load(Ordering::Relaxed)
}

/// Runs `work` with the area, under its lock.
pub fn with<R>(work: impl FnOnce(&mut Area) -> R) -> R {
    AREA.with(work)
}

/// For `fork`.
pub fn take_lock() {
    AREA.take();
}

/// For `fork`.
pub fn release_lock() {
    AREA.release();
}

impl Area {
    /// Reserves the address space, at the first request.
    pub fn set_up(&mut self) -> Option<()> {
        if self.count > 0 || self.is_refused {
            return (!self.is_refused).then_some(());
        }
        let (mut size, flags) = (LARGEST, raw::PRIVATE_ANONYMOUS | libc::MAP_NORESERVE);
        let start = loop {
            match source::reserve(size, superpage()) {
                Ok(start) => break Some(start),
                Err(_) if size >= 16 * SMALLEST => size /= 16,
                Err(_) => break None,
            }
        };
        let count = size / superpage();
        let bytes = (count * size_of::<Chunk>()).next_multiple_of(raw::base_page());
        // SAFETY: fresh memory, all zero, which is a table of empty rows.
        let rows = unsafe { raw::mmap(0, bytes, raw::READ_WRITE, flags, -1, 0) };
        let (Some(start), Ok(rows)) = (start, rows) else {
            self.is_refused = true;
            return None;
        };
        (self.start, self.rows) = (start, rows as *mut Chunk);
        (self.count, self.heap) = (count, count);
        LOWEST.store(start, Ordering::Relaxed);
        HIGHEST.store(start + size, Ordering::Relaxed);
        Some(())
    }

    /// The row of an address.
    pub fn at(&self, address: usize) -> usize {
        address.saturating_sub(self.start) / superpage()
    }

    /// The address of a row.
    pub fn address(&self, at: usize) -> usize {
        self.start + at * superpage()
    }

    /// A row.
    pub fn row(&mut self, at: usize) -> &mut Chunk {
        assert!(at < self.count);
        // SAFETY: the table has `count` rows, and this is under the lock.
        unsafe { &mut *self.rows.add(at) }
    }

    /// Rows that may be something else than empty.
    pub fn busy_rows(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.used).chain(self.heap..self.count)
    }

    /// The best run of `count`, with the most ready ones in it, then the lowest: how many are ready, and
    /// its first row.
    pub fn best_run(&mut self, count: usize) -> Option<(usize, usize)> {
        let (mut free, mut ready, mut best) = (0, 0, None);
        let end = (self.used + count).min(self.heap);
        for at in 0..end {
            let chunk = *self.row(at);
            if !chunk.is_free() {
                (free, ready) = (0, 0);
                continue;
            }
            free += 1;
            ready += usize::from(chunk.state != State::Empty);
            if free > count {
                let left = self.row(at - count).state;
                ready -= usize::from(left != State::Empty);
            }
            if free >= count && best.is_none_or(|(most, _)| ready > most) {
                best = Some((ready, at + 1 - count));
                if ready == count {
                    break;
                }
            }
        }
        best
    }

    /// Gives away a run of `count`, the best there is: its address.
    pub fn hand_out(&mut self, kind: Kind, count: usize) -> Option<usize> {
        let (_, first) = self.best_run(count)?;
        let missing = self.make(kind, first, first + count, &mut |_, _| {})?;
        self.used = self.used.max(first + count);
        if missing > 0 {
            self.grow_target(count);
            let is_ready = |area: &mut Self, at: usize| area.row(at).is_prefaulted;
            let unready = (first..first + count).find(|at| !is_ready(self, *at));
            self.watch.mapping(first, first + count, unready.unwrap_or(first));
        }
        self.was_used = true;
        Some(self.address(first))
    }

    /// Gives the heap `[from, to)`.
    pub fn use_heap(
        &mut self,
        from: usize,
        to: usize,
        tell: &mut impl FnMut(usize, Taken),
    ) -> Option<()> {
        let missing = self.make(Kind::Heap, from, to, tell)?;
        if missing > 0 {
            self.grow_target(to - from);
        }
        self.watch.heap(from, to - 1, self.count);
        self.was_used = true;
        Some(())
    }

    /// A request was not served from the stock in full.
    fn grow_target(&mut self, asked: usize) {
        let limit = superpages(settings::get().prezero);
        self.target = ::ahead::Refill::grown(self.target, asked as u64, limit);
    }

    /// Gives `[from, to)` away; how many were not ready.
    fn make(
        &mut self,
        kind: Kind,
        from: usize,
        to: usize,
        tell: &mut impl FnMut(usize, Taken),
    ) -> Option<usize> {
        // What can fail comes first.
        self.each_run(from, to, |area, from, to, state| {
            let (start, length) = (area.address(from), (to - from) * superpage());
            match state {
                // SAFETY: address space of ours, in which nothing is.
                State::Empty => unsafe {
                    source::place(kind, start, length, raw::READ_WRITE).ok().map(drop)
                },
                _ => {
                    ledger::count(kind, ledger::Column::Advised, length);
                    area.keep_on_fork(from, to)
                }
            }
        })?;
        let mut missing = 0;
        for at in from..to {
            let before = self.row(at).state;
            if before == State::Given || before == State::Broken {
                continue;
            }
            let address = self.address(at);
            let is_dirty = matches!(before, State::Dirty | State::Zeroing);
            let taken = if is_dirty { Taken::Dirty } else { Taken::Zero };
            tell(address, taken);
            if self.row(at).is_stock() {
                self.stock -= 1;
                self.dirty -= u64::from(before == State::Dirty);
                ledger::prepared_less(Prepared::Stock, superpage());
            }
            let is_there = before == State::Ready && demote::is_present(address);
            let what = match before {
                State::Empty => Prepared::Missed,
                State::Ready if !is_there => Prepared::Lost,
                _ => Prepared::HandedOut,
            };
            ledger::prepared(what, superpage());
            if is_there {
                fetch::beginning_of(address);
            }
            missing += usize::from(before == State::Empty);
            *self.row(at) =
                Chunk { state: State::Given, is_wiped: false, is_prefaulted: is_there, unasked: 0 };
        }
        Some(missing)
    }

    /// Calls `work` for each stretch of `[from, to)` whose rows are in one state.
    fn each_run(
        &mut self,
        from: usize,
        to: usize,
        mut work: impl FnMut(&mut Self, usize, usize, State) -> Option<()>,
    ) -> Option<()> {
        let mut first = from;
        while first < to {
            let state = self.row(first).state;
            let mut end = first + 1;
            while end < to && self.row(end).state == state {
                end += 1;
            }
            if state != State::Given && state != State::Broken {
                work(self, first, end, state)?;
            }
            first = end;
        }
        Some(())
    }

    /// A child is to inherit the contents from now on.
    fn keep_on_fork(&mut self, from: usize, to: usize) -> Option<()> {
        if (from..to).any(|at| self.row(at).is_wiped) {
            let (start, length) = (self.address(from), (to - from) * superpage());
            // SAFETY: memory of ours; a flag of its mapping.
            unsafe { raw::madvise(start, length, libc::MADV_KEEPONFORK) }.ok()?;
        }
        Some(())
    }

    /// Takes back what was given.
    ///
    /// # Safety
    /// Nobody uses `[start, end)`, which lies in the area, afterwards.
    pub unsafe fn take_back(&mut self, start: usize, end: usize) -> Result<(), Errno> {
        if start >= end {
            return Ok(());
        }
        let mut first = self.at(start);
        self.watch.forget(first, self.at(end - 1) + 1);
        while self.address(first) < end {
            let until = self.at(end - 1) + 1;
            let run = self.whole_run(first, until, start, end);
            if run > first {
                // SAFETY: the contract.
                unsafe { self.keep_or_empty(first, run) }?;
                first = run;
                continue;
            }
            let (from, to) = (self.address(first).max(start), self.address(first + 1).min(end));
            let row = self.row(first);
            if matches!(row.state, State::Given | State::Broken) {
                row.state = State::Broken;
                // SAFETY: the contract.
                unsafe { raw::munmap(from, to - from) }?;
            }
            first += 1;
        }
        Ok(())
    }

    /// Where the rows from `first` on end that are given back whole.
    fn whole_run(&mut self, first: usize, until: usize, start: usize, end: usize) -> usize {
        let is_whole = |area: &mut Self, at: usize| {
            let row = *area.row(at);
            let asked_end = area.address(at + 1) - usize::from(row.unasked) * raw::base_page();
            row.state == State::Given && area.address(at) >= start && asked_end <= end
        };
        (first..until).find(|at| !is_whole(self, *at)).unwrap_or(until)
    }

    /// Keeps what the stock has room for, and gives the rest to the kernel. A run of which the stock has no
    /// other as long is kept whole, and the last of the stock go instead: who asks for as much again
    /// would find a hole in it. (The thread fills up while a burst is out: 36 superpages came back to
    /// room for 35, and of the next burst one waited for a fault. Measured, `bench touch --burst`.)
    ///
    /// # Safety
    /// Nobody uses these superpages any more.
    unsafe fn keep_or_empty(&mut self, from: usize, to: usize) -> Result<(), Errno> {
        self.was_used = true;
        let count = (to - from) as u64;
        let room = if self.has_cpu { self.target.saturating_sub(self.stock) } else { 0 };
        let is_whole = self.has_cpu && count <= self.target && self.is_missed(from, to);
        let kept = if is_whole { count } else { count.min(room) };
        let end = from + kept as usize;
        for at in from..end {
            *self.row(at) = Chunk { state: State::Dirty, ..EMPTY };
        }
        self.stock += kept;
        self.dirty += kept;
        ledger::prepared(Prepared::Stock, (end - from) * superpage());
        let too_much = kept.saturating_sub(room) as usize;
        self.drop_last(0..self.used, too_much, |state| {
            matches!(state, State::Ready | State::Dirty)
        });
        ledger::prepared_most(self.stock * superpage() as u64);
        // SAFETY: the contract.
        unsafe { self.empty(end, to) }
    }

    /// Whether the stock has no run as long as `[from, to)`. The heap chooses addresses itself.
    fn is_missed(&mut self, from: usize, to: usize) -> bool {
        let count = to - from;
        from < self.heap && self.best_run(count).is_none_or(|(ready, _)| ready < count)
    }

    /// Gives `[from, to)` to the kernel and keeps the address space.
    ///
    /// # Safety
    /// Nobody uses these superpages any more.
    pub unsafe fn empty(&mut self, from: usize, to: usize) -> Result<(), Errno> {
        if from >= to {
            return Ok(());
        }
        const NOTHING: c_int = libc::PROT_NONE;
        let (start, length) = (self.address(from), (to - from) * superpage());
        let flags = raw::PRIVATE_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the contract; a range of the area.
        unsafe { raw::mmap(start, length, NOTHING, flags, -1, 0) }?;
        for at in from..to {
            *self.row(at) = EMPTY;
        }
        Ok(())
    }
}

/// The row of an empty superpage.
pub const EMPTY: Chunk =
    Chunk { state: State::Empty, is_wiped: false, is_prefaulted: false, unasked: 0 };
