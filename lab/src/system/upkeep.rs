//! Daemons that keep memory: Quicksilver's eviction and background preparation, prezeroing,
//! compaction, reclaim at the watermarks, recovery of bloat.

use design::Release;
use trace::{Page, Pages, SLOTS};

use super::System;
use super::allocate::{LARGE_ORDER, Payer};
use super::daemons::{Next, Pass};
use super::region::{COW, POOL, RESERVED, ZEROS};
use super::reserve::QUEUE;
use crate::Cause;
use crate::memory::compaction::{Mode, Request};
use crate::reservation::Flags;
use crate::touched::Seen;

impl System {
    /// Quicksilver: reservations that did not change for a while have their pages moved elsewhere, so that
    /// their superpages become free whole. The queue is in order of time: the first active one ends the pass.
    pub(crate) fn evacuate_inactive(&mut self, pass: &mut Pass) -> Next {
        let Release::Inactive { after, budget_pages, .. } = self.design.deallocation.release else {
            return Next::Period;
        };
        let (now, after) = (self.daemons.now, self.clock.cycles(after));
        if pass.began.is_none() {
            pass.budget = budget_pages;
        }
        let mut passed = None;
        while pass.budget > 0 {
            if self.is_piece_done() {
                return Next::More;
            }
            let found = self.spaces.reservations.oldest_inactive(QUEUE, passed, now, after);
            let Some(id) = found else { break };
            match self.evacuate(id) {
                Some(pages) => {
                    pass.budget = pass.budget.saturating_sub(pages);
                    self.counters.evacuated += 1;
                    self.counters.migrated += u64::from(pages);
                    self.clock
                        .spend_behind(Cause::Compact, self.costs.migrate_page * u64::from(pages));
                }
                None if self.memory.free_frames() == 0 => {
                    // Nowhere to move to: the next one gives its free part.
                    let Some(next) = self.spaces.reservations.newer(QUEUE, Some(id)) else { break };
                    self.break_one(next);
                }
                None => passed = Some(id),
            }
        }
        Next::Period
    }

    /// Quicksilver's asynchronous variants: reservations are completed, the most recently changed first.
    pub(crate) fn fill_in_background(&mut self, pass: &mut Pass) -> Next {
        let Some(fill) = self.design.preparation.background else { return Next::Period };
        if pass.began.is_none() {
            pass.budget = fill.budget_pages;
        }
        let mut id = self.spaces.reservations.newest_partial(QUEUE, None, fill.at);
        while let Some(this) = id.filter(|_| pass.budget > 0) {
            if self.is_piece_done() {
                return Next::More;
            }
            id = self.spaces.reservations.newest_partial(QUEUE, Some(this), fill.at);
            let page = self.spaces.reservations.key(this).page;
            let region = page >> 9;
            let process = self.spaces.regions[region as usize].process;
            let place = self.spaces.processes.get(&process).and_then(|own| own.find(Page(page)));
            let whole = place.is_some_and(|(first, mapping)| {
                mapping.is_anonymous() && mapping.holds_window(first, region << 9)
            });
            // After a fork a child's pages may keep a reservation whose region got a superpage since.
            let large = self.spaces.is_large(region);
            if whole && !large && !self.spaces.regions[region as usize].has(COW) {
                pass.budget -= self.fill(this, Payer::Daemon, pass.budget);
            } else {
                self.spaces.reservations.mark(this, Flags::BAD);
            }
        }
        Next::Period
    }

    /// Zeroes free blocks ahead of demand, within the design's budget.
    pub(crate) fn prezero(&mut self) -> Next {
        let Some(prezero) = self.design.preparation.prezero else { return Next::Period };
        let free = self.memory.free_frames().max(1);
        let permille = self.memory.zeroed_frames() * 1000 / free;
        if permille < u64::from(prezero.start_permille) {
            self.daemons.zeroing = true;
        }
        for _ in 0..prezero.blocks {
            let permille = self.memory.zeroed_frames() * 1000 / free;
            if !self.daemons.zeroing || permille >= u64::from(prezero.stop_permille) {
                self.daemons.zeroing = false;
                break;
            }
            let Some(block) = self.memory.take_unzeroed(prezero.order) else { break };
            self.memory.put_zeroed(block, prezero.order);
            let pages = 1u64 << prezero.order;
            self.counters.prezeroed += pages;
            let cost = self.costs.zero_large * pages / u64::from(SLOTS);
            self.clock.spend_behind(Cause::Zero, cost);
        }
        Next::Period
    }

    /// kcompactd, or Ingens' periodic compaction.
    pub(crate) fn compact_in_background(&mut self, pass: &mut Pass) -> Next {
        let rules = self.design.memory.clone();
        if let Some((blocks, _)) = rules.periodic_compaction {
            if pass.began.is_none() {
                pass.budget = blocks;
            }
            while pass.budget > 0 {
                if self.is_piece_done() {
                    return Next::More;
                }
                if self.compact_one(Mode::Sync) == 0 {
                    break;
                }
                pass.budget -= 1;
            }
            return Next::Period;
        }
        if std::mem::take(&mut self.daemons.compaction_wanted) && rules.background_compaction {
            self.compact_one(Mode::SyncLight);
        }
        if self.daemons.compaction_rests > 0 {
            self.daemons.compaction_rests -= 1;
            return Next::Period;
        }
        if !self.compaction.is_wanted(&self.memory, 0) {
            return Next::Period;
        }
        let before = self.compaction.score(&self.memory, 0);
        self.run_compaction(Payer::Daemon, Request::proactive(0));
        if self.compaction.score(&self.memory, 0) >= before {
            // No progress: the next look is 2^6 intervals away (COMPACT_MAX_DEFER_SHIFT).
            self.daemons.compaction_rests = 64;
        }
        Next::Period
    }

    /// One compaction by a daemon; returns the pages it migrated.
    fn compact_one(&mut self, mode: Mode) -> u64 {
        let before = self.counters.migrated;
        self.run_compaction(Payer::Daemon, Request { mode, ..Request::daemon(0, LARGE_ORDER) });
        self.counters.migrated - before
    }

    /// kswapd: below the low watermark, frames are freed up to the high one.
    pub(crate) fn keep_watermarks(&mut self) -> Next {
        let watermarks = self.memory.watermarks(0);
        let free = self.memory.free_frames() + self.spaces.reservations.clear_frames();
        if free < watermarks.low {
            self.shrink_folios(Payer::Daemon);
            let free = self.memory.free_frames() + self.spaces.reservations.clear_frames();
            if free < watermarks.high {
                self.reclaim(Payer::Daemon, watermarks.high - free);
            }
        }
        Next::Period
    }

    /// HawkEye, and Linux' underused shrinker: superpages with many pages of zeros are split, and those pages
    /// freed. Pages that were never touched are zeros; others are not looked into.
    pub(crate) fn recover(&mut self, pass: &mut Pass, seen: Seen<'_>) -> Next {
        let (Some(bloat), Some(touched)) = (self.design.deallocation.bloat, seen.pages) else {
            return Next::Period;
        };
        let all = u64::from(self.memory.frames());
        let percent = |system: &Self| system.memory.free_frames() * 100 / all.max(1);
        if percent(self) < u64::from(bloat.below_percent) {
            self.daemons.recovering = true;
        }
        for region in pass.at..self.spaces.regions.len() as u32 {
            if !self.daemons.recovering {
                break;
            }
            if self.is_piece_done() {
                pass.at = region;
                return Next::More;
            }
            let at = self.spaces.regions[region as usize];
            if !self.spaces.is_large(region) || at.has(COW | POOL | ZEROS | RESERVED) {
                continue;
            }
            let used = touched.region(region);
            let zeros = SLOTS - used.iter().map(|word| word.count_ones()).sum::<u32>();
            // A page with contents shows that in its first bytes (9 on average); one of zeros is read whole.
            let cost =
                self.costs.scan_page * u64::from(SLOTS) + self.costs.copy_page * u64::from(zeros);
            self.clock.spend_behind(Cause::Scan, cost);
            if zeros <= u32::from(bloat.more_zero_than) {
                continue;
            }
            self.demote(region, Payer::Daemon);
            let books = self.clock.ledger;
            for slot in (0..SLOTS).filter(|slot| used[(slot / 64) as usize] >> (slot % 64) & 1 == 0)
            {
                self.release(Pages { first: Page(region << 9 | slot), count: 1 });
            }
            self.clock.restore(books);
            self.shrink_folios(Payer::Daemon);
            self.counters.recovered += u64::from(zeros);
            if percent(self) >= u64::from(bloat.until_percent) {
                self.daemons.recovering = false;
            }
        }
        Next::Period
    }
}
