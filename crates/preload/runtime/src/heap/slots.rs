//! Base pages in use in the region of packed objects, by superpage.
//!
//! Life of a superpage: free -> `renew`ed when it is mapped -> its pages claimed by objects -> released object by
//! object -> free. The kernel charges a superpage as one unit: its unmapped pages stay charged to the control group
//! until the last page is unmapped or the superpage is split. These are its `dead` pages.
//!
//! All state is atomic. Releasing takes no lock; claiming and renewing take the region's lock. A page released twice
//! counts once.

use std::ops::Range;
use std::sync::atomic::{
    AtomicBool, AtomicU16, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Maximum base pages of a superpage.
pub const MAX_PAGES: usize = 512;
const WORDS: usize = MAX_PAGES / 64;

/// A superpage of the region. All zero: free.
#[derive(Default)]
pub struct Slots {
    /// One bit per base page in use.
    used: [AtomicU64; WORDS],
    /// Number of base pages in use.
    live: AtomicU16,
    /// Pages released while others were in use; they are still charged.
    dead: AtomicU16,
    /// Split: only pages in use are charged.
    is_split: AtomicBool,
    /// The superpage contains another mapping.
    is_foreign: AtomicBool,
}

/// Totals, in base pages.
pub struct Totals {
    /// In use.
    pub live: AtomicUsize,
    /// Charged and not in use.
    pub dead: AtomicUsize,
}

impl Totals {
    /// Zero pages.
    pub const fn new() -> Self {
        Self { live: AtomicUsize::new(0), dead: AtomicUsize::new(0) }
    }
}

/// The superpages of the region, each of `pages` base pages.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    superpages: &'a [Slots],
    totals: &'a Totals,
    pages: usize,
}

impl<'a> Table<'a> {
    /// A table of superpages with at most [`MAX_PAGES`] base pages each.
    pub fn new(superpages: &'a [Slots], totals: &'a Totals, pages: usize) -> Self {
        debug_assert!((1..=MAX_PAGES).contains(&pages));
        Self { superpages, totals, pages }
    }

    /// Splits `count` pages from `first` on by superpage; pages beyond the table are left out.
    fn parts(self, first: usize, count: usize) -> impl Iterator<Item = (&'a Slots, usize, usize)> {
        let end = (first + count).min(self.superpages.len() * self.pages);
        (first / self.pages..end.div_ceil(self.pages)).map(move |number| {
            let start = number * self.pages;
            let (from, to) = (first.max(start), end.min(start + self.pages));
            (&self.superpages[number], from - start, to - start)
        })
    }

    /// Claims these pages.
    pub fn claim(self, first: usize, count: usize) {
        for (slots, from, to) in self.parts(first, count) {
            let set = slots.change(from, to, |word, mask| !word.fetch_or(mask, AcqRel) & mask);
            slots.live.fetch_add(set, AcqRel);
            self.totals.live.fetch_add(set.into(), Relaxed);
        }
    }

    /// Releases these pages, which are unmapped; returns whether anything changed.
    pub fn release(self, first: usize, count: usize) -> bool {
        let mut is_any = false;
        for (slots, from, to) in self.parts(first, count) {
            let freed = slots.change(from, to, |word, mask| word.fetch_and(!mask, AcqRel) & mask);
            if freed == 0 {
                continue;
            }
            is_any = true;
            self.totals.live.fetch_sub(freed.into(), Relaxed);
            let is_last = slots.live.fetch_sub(freed, AcqRel) == freed;
            if !is_last && !slots.is_split.load(Acquire) {
                slots.dead.fetch_add(freed, AcqRel);
                self.totals.dead.fetch_add(freed.into(), Relaxed);
            }
            // This also covers a last page that another thread released meanwhile.
            if slots.live.load(Acquire) == 0 {
                self.clear_dead(slots);
            }
        }
        is_any
    }

    /// Resets the dead pages, which are no longer charged: the superpage was split, is free, or is mapped again.
    fn clear_dead(self, slots: &Slots) {
        let dead = slots.dead.swap(0, AcqRel);
        self.totals.dead.fetch_sub(dead.into(), Relaxed);
    }

    /// Prepares superpages that were free and are mapped again.
    pub fn renew(self, first: usize, count: usize) {
        for slots in &self.superpages[first..first + count] {
            self.clear_dead(slots);
            slots.is_split.store(false, Release);
        }
    }

    /// Marks superpages that contain other mappings: they are not used again.
    pub fn abandon(self, first: usize, count: usize) {
        for slots in &self.superpages[first..first + count] {
            slots.is_foreign.store(true, Release);
        }
    }

    /// Returns the first run of `least` to `most` free superpages in `among` and outside `besides`.
    pub fn free_run(
        self,
        least: usize,
        most: usize,
        among: Range<usize>,
        besides: &Range<usize>,
    ) -> Option<Range<usize>> {
        let is_free = |number: &usize| {
            let slots = &self.superpages[*number];
            slots.live.load(Acquire) == 0
                && !slots.is_foreign.load(Acquire)
                && !besides.contains(number)
        };
        let mut first = among.start;
        while first < among.end {
            let run = (first..among.end).take(most).take_while(is_free).count();
            if run >= least {
                return Some(first..first + run);
            }
            first += run + 1;
        }
        None
    }

    /// Marks the superpage with the most dead pages before `end` as split. Returns the superpage and one of its pages
    /// in use, by which the caller splits it.
    pub fn split_worst(self, end: usize) -> Option<(usize, usize)> {
        let among = self.superpages[..end].iter().enumerate();
        let (number, slots) = among.max_by_key(|(_, slots)| slots.dead.load(Relaxed))?;
        if slots.dead.load(Relaxed) == 0 {
            return None;
        }
        slots.is_split.store(true, Release);
        self.clear_dead(slots);
        let used = slots.used.iter().map(|word| word.load(Acquire)).enumerate();
        let (word, bits) = used.filter(|(_, bits)| *bits != 0).last()?;
        Some((number, word * 64 + 63 - bits.leading_zeros() as usize))
    }
}

impl Slots {
    /// Changes the bits of `[from, to)`; returns the number of bits that changed.
    fn change(&self, from: usize, to: usize, change: impl Fn(&AtomicU64, u64) -> u64) -> u16 {
        let mut changed = 0;
        for (at, word) in self.used.iter().enumerate() {
            let (low, high) = (from.max(at * 64), to.min(at * 64 + 64));
            if low < high {
                let mask = u64::MAX >> (64 - (high - low)) << (low % 64);
                changed += change(word, mask).count_ones() as u16;
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference model: one state per page.
    struct Twin {
        used: Vec<bool>,
        dead: Vec<bool>,
        split: Vec<bool>,
        pages: usize,
    }

    impl Twin {
        fn all(&self, number: usize) -> std::ops::Range<usize> {
            number * self.pages..(number + 1) * self.pages
        }

        fn is_free(&self, number: usize) -> bool {
            self.all(number).all(|page| !self.used[page])
        }

        fn release(&mut self, first: usize, count: usize) {
            for page in first..(first + count).min(self.used.len()) {
                let was_used = std::mem::replace(&mut self.used[page], false);
                self.dead[page] |= was_used;
            }
            for number in 0..self.split.len() {
                if self.split[number] || self.is_free(number) {
                    let pages = self.all(number);
                    self.dead[pages].fill(false);
                }
            }
        }
    }

    fn count(pages: &[bool]) -> usize {
        pages.iter().filter(|is| **is).count()
    }

    #[test]
    fn the_table_agrees_with_its_twin() {
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = move |most: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % most as u64) as usize
        };
        for pages in [16, 100, 512] {
            const COUNT: usize = 24;
            let superpages: Vec<Slots> = (0..COUNT).map(|_| Slots::default()).collect();
            let totals = Totals::new();
            let table = Table::new(&superpages, &totals, pages);
            let all = COUNT * pages;
            let mut twin = Twin {
                used: vec![false; all],
                dead: vec![false; all],
                split: vec![false; COUNT],
                pages,
            };
            for step in 0..4000 {
                let first = next(all);
                let size = 1 + next(if step % 2 == 0 { 3 * pages } else { all / 2 });
                match next(8) {
                    0..3 => {
                        let end = (first + size).min(all);
                        for number in first / pages..end.div_ceil(pages) {
                            if twin.is_free(number) {
                                table.renew(number, 1);
                                twin.split[number] = false;
                            }
                        }
                        // Only pages that are not charged are mapped again.
                        let is_new = (first..end).all(|page| !twin.dead[page]);
                        if is_new {
                            table.claim(first, size);
                            twin.used[first..end].fill(true);
                        }
                    }
                    3..7 => {
                        table.release(first, size);
                        twin.release(first, size);
                    }
                    _ => {
                        let dead = |number: usize| count(&twin.dead[twin.all(number)]);
                        let most = (0..COUNT).map(dead).max().expect("some");
                        match table.split_worst(COUNT) {
                            Some((number, page)) => {
                                assert_eq!(dead(number), most);
                                assert!(twin.used[number * pages + page]);
                                twin.split[number] = true;
                                let pages = twin.all(number);
                                twin.dead[pages].fill(false);
                            }
                            None => assert_eq!(most, 0),
                        }
                    }
                }
                assert_eq!(totals.live.load(Relaxed), count(&twin.used), "step {step}");
                assert_eq!(totals.dead.load(Relaxed), count(&twin.dead), "step {step}");
                let (least, from, besides) = (1 + next(4), next(COUNT), next(COUNT));
                let (most, besides) = (least + next(3), besides..besides + 2);
                let is_free = |it: usize| it < COUNT && twin.is_free(it) && !besides.contains(&it);
                let first = (from..COUNT).find(|at| (*at..at + least).all(is_free));
                let end = |at: usize| (at..at + most).find(|it| !is_free(*it)).unwrap_or(at + most);
                let found = table.free_run(least, most, from..COUNT, &besides);
                assert_eq!(found, first.map(|at| at..end(at)), "step {step}");
            }
            assert!(count(&twin.used) < all);
        }
    }

    #[test]
    fn what_is_released_twice_or_by_two_counts_once() {
        let superpages: Vec<Slots> = (0..8).map(|_| Slots::default()).collect();
        let totals = Totals::new();
        let table = Table::new(&superpages, &totals, MAX_PAGES);
        for _ in 0..200 {
            table.renew(0, 8);
            table.claim(0, 8 * MAX_PAGES);
            std::thread::scope(|scope| {
                for from in 0..4 {
                    scope.spawn(move || {
                        for at in (from % 2..64).step_by(2) {
                            table.release(at * 64, 64);
                        }
                    });
                }
            });
            assert_eq!(totals.live.load(Relaxed), 0);
            table.renew(0, 8);
            assert_eq!(totals.dead.load(Relaxed), 0);
        }
    }
}
