//! Which base pages of the region of packed objects are in use, superpage by superpage.
//!
//! Life of a superpage: free -> `renew`ed when it is mapped -> its pages claimed by objects -> released one object
//! at a time -> free again. A superpage is one unit of memory to the kernel: pages of it that were unmapped stay
//! charged to the process's control group until the last one is unmapped, or the superpage is split. Those are its
//! `dead` pages. A superpage of the pool is unmapped only as a whole, once all of its pages are released: it has no dead
//! pages, and stays `is_on_pool` until then.
//!
//! Everything is atomic, so releasing takes no lock. Claiming and renewing are for whoever has the region's lock.
//! A page that is released twice counts once.

use std::ops::Range;
use std::sync::atomic::{
    AtomicBool, AtomicU16, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Base pages of a superpage at most.
pub const MAX_PAGES: usize = 512;
const WORDS: usize = MAX_PAGES / 64;

/// A superpage of the region. All zero: free.
#[derive(Default)]
pub struct Slots {
    /// A bit for each base page in use.
    used: [AtomicU64; WORDS],
    /// How many are.
    live: AtomicU16,
    /// Pages that were released while others were in use, and are charged still.
    dead: AtomicU16,
    /// Whether nothing is charged any more but what is in use: it was split.
    is_split: AtomicBool,
    /// Whether somebody else's memory was found in it.
    is_foreign: AtomicBool,
    /// Whether it was mapped on the pool, and is not unmapped yet.
    is_on_pool: AtomicBool,
}

/// Totals, in base pages.
pub struct Totals {
    /// In use.
    pub live: AtomicUsize,
    /// Charged and not in use.
    pub dead: AtomicUsize,
}

impl Totals {
    /// None.
    pub const fn new() -> Self {
        Self { live: AtomicUsize::new(0), dead: AtomicUsize::new(0) }
    }
}

/// The superpages of the region, of `pages` base pages each.
#[derive(Clone, Copy)]
pub struct Table<'a> {
    superpages: &'a [Slots],
    totals: &'a Totals,
    pages: usize,
}

impl<'a> Table<'a> {
    /// Of at most [`MAX_PAGES`] base pages each.
    pub fn new(superpages: &'a [Slots], totals: &'a Totals, pages: usize) -> Self {
        debug_assert!((1..=MAX_PAGES).contains(&pages));
        Self { superpages, totals, pages }
    }

    /// The parts of `count` pages from `first` on, by superpage; what lies behind the table is left out.
    fn parts(self, first: usize, count: usize) -> impl Iterator<Item = (&'a Slots, usize, usize)> {
        let end = (first + count).min(self.superpages.len() * self.pages);
        (first / self.pages..end.div_ceil(self.pages)).map(move |number| {
            let start = number * self.pages;
            let (from, to) = (first.max(start), end.min(start + self.pages));
            (&self.superpages[number], from - start, to - start)
        })
    }

    /// These pages are in use.
    pub fn claim(self, first: usize, count: usize) {
        for (slots, from, to) in self.parts(first, count) {
            let set = slots.change(from, to, |word, mask| !word.fetch_or(mask, AcqRel) & mask);
            slots.live.fetch_add(set, AcqRel);
            self.totals.live.fetch_add(set.into(), Relaxed);
        }
    }

    /// Whether a page is in use.
    pub fn is_used(self, page: usize) -> bool {
        let slots = &self.superpages[page / self.pages];
        let at = page % self.pages;
        slots.used[at / 64].load(Acquire) >> (at % 64) & 1 == 1
    }

    /// They no longer are, and nothing is mapped there, or it is of the pool. Whether anything changed.
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
            let counts_dead = !slots.is_split.load(Acquire) && !slots.is_on_pool.load(Acquire);
            if !is_last && counts_dead {
                slots.dead.fetch_add(freed, AcqRel);
                self.totals.dead.fetch_add(freed.into(), Relaxed);
            }
            // Also if another thread's were the last meanwhile.
            if slots.live.load(Acquire) == 0 {
                self.bury(slots);
            }
        }
        is_any
    }

    /// Its dead pages are not charged any more.
    fn bury(self, slots: &Slots) {
        let dead = slots.dead.swap(0, AcqRel);
        self.totals.dead.fetch_sub(dead.into(), Relaxed);
    }

    /// These superpages are mapped anew, on the pool or not; they were free.
    pub fn renew(self, first: usize, count: usize, is_on_pool: bool) {
        for slots in &self.superpages[first..first + count] {
            self.bury(slots);
            slots.is_split.store(false, Release);
            slots.is_on_pool.store(is_on_pool, Release);
        }
    }

    /// Whether a superpage was mapped on the pool, and no page of it is in use.
    pub fn is_empty_on_pool(self, number: usize) -> bool {
        let slots = &self.superpages[number];
        slots.is_on_pool.load(Acquire) && slots.live.load(Acquire) == 0
    }

    /// The first of `count` pages in a row that are not in use, in superpages that `may_be_used` and are on the pool, of those
    /// from `from` on, and then of those before it.
    pub fn find_hole(
        self,
        count: usize,
        from: usize,
        end: usize,
        may_be_used: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let from = from.min(end);
        let find = |among: Range<usize>| {
            let mut run = 0;
            for number in among {
                let slots = &self.superpages[number];
                let is_fit = slots.is_on_pool.load(Acquire) && may_be_used(number);
                if !is_fit || usize::from(slots.live.load(Acquire)) == self.pages {
                    run = 0;
                    continue;
                }
                for page in 0..self.pages {
                    let word = slots.used[page / 64].load(Acquire);
                    run = if word >> (page % 64) & 1 == 0 { run + 1 } else { 0 };
                    if run == count {
                        return Some(number * self.pages + page + 1 - count);
                    }
                }
            }
            None
        };
        find(from..end).or_else(|| find(0..end))
    }

    /// It is no longer on the pool.
    pub fn leave_pool(self, number: usize) {
        self.superpages[number].is_on_pool.store(false, Release);
    }

    /// They hold somebody else's memory, and are not used again.
    pub fn abandon(self, first: usize, count: usize) {
        for slots in &self.superpages[first..first + count] {
            slots.is_foreign.store(true, Release);
        }
    }

    /// The first `least` or more free superpages in a row, `most` of them, in `among` but not in `besides`.
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
                && !slots.is_on_pool.load(Acquire)
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

    /// The superpage with the most dead pages and one of its pages in use, which is to be split: its dead pages count
    /// no more. Those from `end` on are not looked at.
    pub fn split_worst(self, end: usize) -> Option<(usize, usize)> {
        let among = self.superpages[..end].iter().enumerate();
        let (number, slots) = among.max_by_key(|(_, slots)| slots.dead.load(Relaxed))?;
        if slots.dead.load(Relaxed) == 0 {
            return None;
        }
        slots.is_split.store(true, Release);
        self.bury(slots);
        let used = slots.used.iter().map(|word| word.load(Acquire)).enumerate();
        let (word, bits) = used.filter(|(_, bits)| *bits != 0).last()?;
        Some((number, word * 64 + 63 - bits.leading_zeros() as usize))
    }
}

impl Slots {
    /// Changes the bits of `[from, to)`; the number of those that `change` says it changed.
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

    /// The same, slowly: a state for each page.
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
                                table.renew(number, 1, false);
                                twin.split[number] = false;
                            }
                        }
                        // Only pages that are not charged are mapped anew.
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
    fn a_superpage_of_the_pool_is_kept_until_its_last_page_is_released() {
        let superpages: Vec<Slots> = (0..4).map(|_| Slots::default()).collect();
        let totals = Totals::new();
        let table = Table::new(&superpages, &totals, MAX_PAGES);
        table.renew(0, 2, true);
        table.renew(2, 2, false);
        // The first ends in the second superpage.
        table.claim(0, 600);
        table.claim(600, 400);
        assert!(table.is_used(0) && table.is_used(999) && !table.is_used(1000));
        table.release(0, 600);
        assert!(table.is_empty_on_pool(0) && !table.is_empty_on_pool(1));
        assert_eq!(totals.dead.load(Relaxed), 0, "no part of one can be given back");
        assert_eq!(table.split_worst(4), None);
        // Nor is it mapped again before it was unmapped.
        assert_eq!(table.free_run(1, 1, 0..4, &(0..0)), Some(2..3));
        table.leave_pool(0);
        assert_eq!(table.free_run(1, 1, 0..4, &(0..0)), Some(0..1));
        table.release(600, 400);
        assert!(table.is_empty_on_pool(1) && !table.is_empty_on_pool(2));
        // What was released is found again, across superpages, but in none that may not be used.
        table.renew(0, 3, true);
        table.claim(0, 1300);
        table.release(500, 30);
        table.release(1000, 100);
        let hole = |count, from| table.find_hole(count, from, 4, |number| number != 2);
        assert_eq!([hole(30, 0), hole(30, 1)], [Some(500), Some(500)]);
        assert_eq!([hole(24, 1), hole(25, 1)], [Some(1000), Some(500)]);
        assert_eq!(hole(31, 0), None);
        assert_eq!(table.find_hole(100, 3, 4, |_| true), Some(1000));
    }

    #[test]
    fn what_is_released_twice_or_by_two_counts_once() {
        let superpages: Vec<Slots> = (0..8).map(|_| Slots::default()).collect();
        let totals = Totals::new();
        let table = Table::new(&superpages, &totals, MAX_PAGES);
        for _ in 0..200 {
            table.renew(0, 8, false);
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
            table.renew(0, 8, false);
            assert_eq!(totals.dead.load(Relaxed), 0);
        }
    }
}
