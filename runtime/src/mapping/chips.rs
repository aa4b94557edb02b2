//! Small mappings on the pool: what `pieces` does on THP, with pages that cannot be unmapped in part.
//!
//! A program that grows by mappings smaller than a superpage gets them cut from extents of reserved
//! superpages. A chip that it unmaps stays mapped and is kept for the next request of that length,
//! cleared first; when all of a superpage is kept like that, the superpage goes back. What a program
//! does to parts of a chip is dealt with as for every mapping on the pool (`parts`).
//!
//! # Safety
//! Everything is reached under `CHIPS`. A chip that is kept belongs to nobody else: the program gave
//! it up.

use crate::ledger::{self, Column, Kind};
use crate::lock::{Level, Lock};
use crate::source;
use crate::{raw, settings};

use super::parts;
use super::table::{self, Range};

const SMALLEST: usize = 64 << 10;
/// A program that maps less than this in small pieces is left alone.
const UNTOUCHED_AT_FIRST: usize = 4 << 20;
/// How far ahead of the program the pool may be reserved.
const LARGEST_EXTENT: usize = 8 << 20;
const MOST_EXTENTS: usize = 1024;
const PAUSE: usize = 64;
const MOST_KEPT: usize = 256;

#[derive(Clone, Copy)]
struct Stretch {
    start: usize,
    end: usize,
}

struct Chips {
    seen: usize,
    /// Requests to be left to base pages before the pool is asked again.
    pause: usize,
    /// What is left of the newest extent.
    next: usize,
    end: usize,
    grow_by: usize,
    extents: [Stretch; MOST_EXTENTS],
    extents_used: usize,
    kept: [Stretch; MOST_KEPT],
    kept_used: usize,
}

const NOWHERE: Stretch = Stretch { start: 0, end: 0 };

static CHIPS: Lock<Chips> = Lock::new(
    Level::Chips,
    Chips {
        seen: 0,
        pause: 0,
        next: 0,
        end: 0,
        grow_by: 0,
        extents: [NOWHERE; MOST_EXTENTS],
        extents_used: 0,
        kept: [NOWHERE; MOST_KEPT],
        kept_used: 0,
    },
);

/// In a forked child.
pub fn after_fork() {
    CHIPS.after_fork(|_, _| {});
}

/// A cleared chip of `length` bytes, or `None` where base pages serve better, or there is nothing else.
pub fn take(length: usize) -> Option<usize> {
    if !(SMALLEST..source::superpage()).contains(&length) {
        return None;
    }
    let length = length.next_multiple_of(raw::base_page());
    let take = |chips: &mut Chips| {
        chips.seen = chips.seen.saturating_add(length);
        if chips.seen <= UNTOUCHED_AT_FIRST {
            return None;
        }
        chips.take_kept(length).or_else(|| chips.cut(length))
    };
    CHIPS.with_or(take, || None)
}

/// Something else is at `[from, to)` now: what was kept there is no more.
pub fn forget(from: usize, to: usize) {
    if are_used() {
        CHIPS.with(|chips| chips.forget_overlap(from, to));
    }
}

/// Keeps what the program unmaps, if all of it lies in an extent; `false`: it must be unmapped.
pub fn keep(start: usize, end: usize) -> bool {
    end - start >= SMALLEST && CHIPS.with_or(|chips| chips.keep(start, end), || false)
}

impl Chips {
    fn take_kept(&mut self, length: usize) -> Option<usize> {
        let kept = &self.kept[..self.kept_used];
        let at = kept.iter().position(|chip| chip.end - chip.start == length)?;
        let chip = self.kept[at];
        self.forget(at);
        let row = table::first(chip.start, chip.end);
        let is_still_here = row.is_some_and(|it| it.start <= chip.start && chip.end <= it.end);
        // Clearing fails where the program left it protected: then it is nobody's for good.
        (is_still_here && parts::zero(chip.start, chip.end)).then_some(chip.start)
    }

    /// Something else is at `[from, to)` now.
    fn forget_overlap(&mut self, from: usize, to: usize) {
        let mut at = 0;
        while at < self.kept_used {
            let chip = self.kept[at];
            if chip.end <= from || chip.start >= to {
                at += 1;
                continue;
            }
            self.forget(at);
            for rest in [(chip.start, from), (to, chip.end)] {
                if rest.1 > rest.0 && rest.1 - rest.0 >= SMALLEST && self.kept_used < MOST_KEPT {
                    self.kept[self.kept_used] = Stretch { start: rest.0, end: rest.1 };
                    self.kept_used += 1;
                }
            }
        }
    }

    fn forget(&mut self, at: usize) {
        self.kept_used -= 1;
        self.kept[at] = self.kept[self.kept_used];
    }

    fn cut(&mut self, length: usize) -> Option<usize> {
        if self.end - self.next < length {
            self.renew()?;
        }
        let start = self.next;
        self.next += length;
        Some(start)
    }

    /// Takes the next extent; the rest of the last one is kept for smaller requests.
    fn renew(&mut self) -> Option<()> {
        if self.extents_used == MOST_EXTENTS {
            return None;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        let page = source::superpage();
        let length = (self.grow_by * 2).clamp(page, LARGEST_EXTENT.max(page));
        let start = source::reserve(length, page).ok()?;
        let range = Range { start, end: start + length, page, shared: false };
        // SAFETY: address space of our own.
        let placed =
            unsafe { source::place_hugetlb(start, length, raw::READ_WRITE, libc::MAP_PRIVATE) };
        if let Err(why) = placed {
            // Requests this small go to base pages, whatever else falls back to what.
            ledger::because(why);
            self.pause = PAUSE;
        }
        if placed.is_err() || !table::add(range) {
            // SAFETY: ours, and nobody has it yet.
            let _ = unsafe { raw::munmap(start, length) };
            return None;
        }
        ledger::count(Kind::Mmap, Column::Hugetlb, length);
        if self.end > self.next {
            self.keep(self.next, self.end);
        }
        self.extents[self.extents_used] = Stretch { start, end: start + length };
        self.extents_used += 1;
        (self.next, self.end, self.grow_by) = (start, start + length, length);
        Some(())
    }

    fn keep(&mut self, start: usize, end: usize) -> bool {
        let extents = &self.extents[..self.extents_used];
        let is_inside = extents.iter().any(|it| it.start <= start && end <= it.end);
        // What was turned into ordinary memory meanwhile is unmapped as such.
        let on_pool = table::first(start, end).is_some_and(|it| it.start <= start && end <= it.end);
        if !is_inside || !on_pool || self.kept_used == MOST_KEPT {
            return false;
        }
        // Unmapping again what is unmapped is allowed, and says nothing new.
        let mut union = Stretch { start, end };
        let mut at = 0;
        while at < self.kept_used {
            let other = self.kept[at];
            if other.start < union.end && union.start < other.end {
                union.start = union.start.min(other.start);
                union.end = union.end.max(other.end);
                self.forget(at);
                at = 0;
            } else {
                at += 1;
            }
        }
        self.kept[self.kept_used] = union;
        self.kept_used += 1;
        let (start, end) = (union.start, union.end);
        let page = source::superpage();
        for superpage in (start / page..end.div_ceil(page)).map(|index| index * page) {
            self.release_if_empty(superpage, page);
        }
        true
    }

    /// Gives a superpage back of which every chip is kept.
    fn release_if_empty(&mut self, start: usize, page: usize) {
        let end = start + page;
        // Part of it has not been handed out yet.
        if self.next < end && self.end > start {
            return;
        }
        let kept = &self.kept[..self.kept_used];
        let inside = |chip: &&Stretch| chip.start >= start && chip.end <= end;
        let bytes: usize = kept.iter().filter(inside).map(|chip| chip.end - chip.start).sum();
        if bytes < page {
            return;
        }
        // SAFETY: all of it was given up.
        if table::replacing(start, end, || unsafe { raw::munmap(start, page) }).is_err() {
            return;
        }
        ledger::count(Kind::Mmap, Column::Returned, page);
        let mut at = 0;
        while at < self.kept_used {
            if self.kept[at].start >= start && self.kept[at].end <= end {
                self.forget(at);
            } else {
                at += 1;
            }
        }
    }
}

/// Whether this process uses chips at all.
pub fn are_used() -> bool {
    let settings = settings::get();
    settings.memory.mmap && settings.is_hugetlb()
}
