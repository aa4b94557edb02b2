//! Allocates physical frames for the program and the daemons: attempts, their order, and their costs.

use policy::rules::Effort;
use policy::{Action, Compaction, Event, Facts, Result as Ended};
use trace::{Page, SLOTS};

use super::clock::Payer;
use super::frames::{LARGE_ORDER, QUEUE, Users};
use super::spaces::Place;
use super::{Stop, System};
use crate::fragment::PhysicalMemoryView;
use crate::memory::compaction::{Mode, Outcome, Request};
use crate::memory::{Allocated, Frame, Mobility, Owner, PAGEBLOCK, Reclaimed};
use crate::reservation::ReservationId;
use crate::{Cause, memory};

impl System {
    /// Allocates a base page. If no page is free, the policy's actions free some: break a reservation, release held
    /// frames, reclaim.
    pub(crate) fn base_page(&mut self, payer: Payer) -> Result<Allocated, Stop> {
        loop {
            let zeroed = self.physical.prefers_zeroed;
            if let Some(got) = self.memory.allocate(0, Mobility::Movable, 0, zeroed) {
                return Ok(got);
            }
            if !self.free_frames_for(payer, 1) {
                return Err(Stop::OutOfMemory);
            }
        }
    }

    /// Frees at least one frame if possible. Returns whether it did.
    fn free_frames_for(&mut self, payer: Payer, wanted: u64) -> bool {
        let mut event = Event::NoPage { wanted };
        loop {
            let action = self.policy.on(event, &Facts::default());
            let done = match action {
                Action::BreakReservation { .. } => self.break_oldest(),
                Action::ReleaseHeld { .. } => self.release_held(payer) > 0,
                Action::Reclaim { pages, lumpy, .. } => self.reclaim(payer, pages, lumpy) > 0,
                _ => return false,
            };
            if done {
                return true;
            }
            event = Event::Outcome { action, result: Ended::Nothing, cost: 0 };
        }
    }

    /// Reclaims pages. Returns the number of freed frames.
    pub(crate) fn reclaim(&mut self, payer: Payer, wanted: u64, lumpy: bool) -> u64 {
        if !self.spaces.can_swap() && self.memory.cache_frames() == 0 {
            // Linux does not scan anonymous pages without free swap.
            return 0;
        }
        let mut users = Users { spaces: &mut self.spaces, frames: &mut self.frames };
        let mut report = Reclaimed::default();
        for node in 0..self.memory.nodes() {
            report = report
                + if lumpy {
                    memory::lumpy(&mut self.memory, &mut users, node, LARGE_ORDER)
                } else {
                    memory::reclaim(&mut self.memory, &mut users, node, wanted - report.evicted)
                };
            let is_enough =
                if lumpy { self.memory.free_superpages() > 0 } else { report.evicted >= wanted };
            if is_enough {
                break;
            }
        }
        let cost = report.scanned * self.costs.scan_page + report.written * self.costs.write_page;
        self.clock.charge(payer, Cause::Reclaim, cost);
        self.counters.reclaimed += report.evicted;
        report.evicted
    }

    /// Allocates a superpage with an effort. `is_copy`: mapped pages are to be copied into it; else a fault needs it.
    pub(crate) fn superpage(
        &mut self,
        effort: Effort,
        payer: Payer,
        is_copy: bool,
    ) -> Option<Allocated> {
        if let Some(got) = self.free_superpage() {
            return Some(got);
        }
        let mut event = Event::NoSuperpage { effort, is_copy };
        loop {
            let action = self.policy.on(event, &Facts::default());
            let result = match action {
                Action::Compact { mode, .. } => self.compact_directly(payer, mode),
                Action::Reclaim { pages, lumpy, .. } => {
                    self.reclaim(payer, pages, lumpy);
                    Ended::Nothing
                }
                Action::Wake => {
                    self.daemons.wake_compaction();
                    return None;
                }
                _ => return None,
            };
            if let Some(got) = self.free_superpage() {
                return Some(got);
            }
            event = Event::Outcome { action, result, cost: 0 };
        }
    }

    /// Allocates a superpage from free memory.
    pub(crate) fn free_superpage(&mut self) -> Option<Allocated> {
        let zeroed = self.physical.prefers_zeroed;
        let got = self.memory.allocate(LARGE_ORDER, Mobility::Movable, 0, zeroed);
        if got.is_some() || !self.physical.is_ideal {
            return got
                .map(|got| Allocated { zeroed: got.zeroed || self.physical.is_ideal, ..got });
        }
        self.allocate_ideal()
    }

    /// Allocates a superpage in the ideal model: pages in the way move at no cost. Compaction moves pages only into
    /// free frames, and frames that programs freed inside reservations stay reserved. So if compaction is skipped for
    /// lack of free memory, reservations are broken, in designs that break them under memory shortage.
    fn allocate_ideal(&mut self) -> Option<Allocated> {
        let request = Request {
            whole: true,
            ..Request::direct(0, LARGE_ORDER, Mobility::Movable, Mode::Sync)
        };
        loop {
            let mut users = Users { spaces: &mut self.spaces, frames: &mut self.frames };
            let done = self.compaction.compact(&mut self.memory, &mut users, request);
            if let Some(got) = self.memory.allocate(LARGE_ORDER, Mobility::Movable, 0, false) {
                return Some(Allocated { zeroed: true, ..got });
            }
            let breaks = self.policy.breaks_reservations();
            if done.result != Outcome::Skipped || !breaks || !self.break_oldest() {
                return None;
            }
        }
    }

    fn compact_directly(&mut self, payer: Payer, mode: Compaction) -> Ended {
        let mode = match mode {
            Compaction::Async => Mode::Async,
            Compaction::SyncLight | Compaction::Proactive => Mode::SyncLight,
            Compaction::Sync => Mode::Sync,
        };
        match self.compact(payer, mode) {
            Outcome::Skipped | Outcome::Deferred | Outcome::Contended => Ended::Unavailable,
            _ => Ended::Nothing,
        }
    }

    pub(crate) fn compact(&mut self, payer: Payer, mode: Mode) -> Outcome {
        // khugepaged compacts in its own context, as a fault does.
        let request = Request::direct(0, LARGE_ORDER, Mobility::Movable, mode);
        let (permille, pages) = self.physical.contended;
        if self.compaction.is_contended(permille) {
            let pages = u64::from(pages);
            self.counters.compactions += 1;
            self.counters.migrated += pages;
            self.clock.charge(payer, Cause::Compact, pages * self.costs.migrate_page);
            return Outcome::Contended;
        }
        self.run_compaction(payer, request)
    }

    pub(crate) fn run_compaction(&mut self, payer: Payer, request: Request) -> Outcome {
        let mut users = Users { spaces: &mut self.spaces, frames: &mut self.frames };
        let report = self.compaction.compact(&mut self.memory, &mut users, request);
        match report.result {
            Outcome::Deferred => self.counters.compactions_deferred += 1,
            _ => self.counters.compactions += 1,
        }
        let cost =
            report.looked_at * self.costs.scan_page + report.migrated * self.costs.migrate_page;
        self.clock.charge(payer, Cause::Compact, cost);
        self.counters.migrated += report.migrated;
        report.result
    }

    /// Breaks the least recently changed reservation and frees its unpopulated part. Returns `false` if there is none.
    pub(crate) fn break_oldest(&mut self) -> bool {
        let oldest = self.frames.reservations().newer(QUEUE, None);
        oldest.is_some_and(|oldest| {
            self.break_one(oldest);
            true
        })
    }

    /// Breaks a reservation: frees its unpopulated part, and its pages become ordinary ones.
    pub(crate) fn break_one(&mut self, id: ReservationId) {
        self.counters.broken += 1;
        self.frames.break_one(&mut self.memory, &mut self.spaces, id);
    }

    /// Frees the frames that split superpages hold for unmapped pages. Returns the number of frames.
    pub(crate) fn release_held(&mut self, payer: Payer) -> u64 {
        let (freed, superpages) = self.frames.release_held(&mut self.memory);
        self.clock.charge(payer, Cause::Map, self.costs.split * superpages);
        freed
    }
}

// Kernel pages of several processor pages: mapped and zeroed as a whole, with an entry per processor page. See
// docs/decisions/lab-model.md#19.

impl System {
    /// Returns the base pages of the kernel page around `page` that lie in its mapping.
    fn kernel_page(
        &self,
        page: Page,
        (first, mapping): Place,
    ) -> impl Iterator<Item = Page> + use<> {
        let start = page.0 >> self.page_order << self.page_order;
        (start.max(first)..(start + (1 << self.page_order)).min(mapping.end)).map(Page)
    }

    /// Maps the touched kernel page, and up to `pages` empty pages after it in its region.
    pub(crate) fn map_kernel_pages(
        &mut self,
        page: Page,
        pages: u32,
        write: bool,
        place: Place,
    ) -> Result<(), Stop> {
        let end = place.1.end.min(page.region().first().0 + SLOTS);
        let starts = (page.0..end).step_by(1 << self.page_order).take(pages as usize);
        for start in starts.map(Page) {
            self.map_kernel_page(start, page, write, place)?;
        }
        self.read_around(page, place);
        Ok(())
    }

    fn map_kernel_page(
        &mut self,
        at: Page,
        touched: Page,
        write: bool,
        place: Place,
    ) -> Result<(), Stop> {
        let all: Vec<Page> = self.kernel_page(at, place).collect();
        for &page in &all {
            if self.spaces.entry(page).is_zero_page() {
                self.spaces.empty_entry(page);
            }
        }
        let is_whole = all.len() == 1 << self.page_order;
        let is_empty = all.iter().all(|&page| self.spaces.entry(page).is_empty());
        if is_whole
            && is_empty
            && place.1.is_anonymous()
            && self.fresh_pages(at, self.page_order, write)
        {
            return Ok(());
        }
        // The kernel page is partly present, belongs to a file, or no kernel page is free.
        for page in all {
            if page == touched || self.spaces.entry(page).is_empty() {
                self.single(page, write, place)?;
                self.clock.spend(Cause::Map, self.costs.map_page);
            }
        }
        Ok(())
    }

    /// Maps the zero page at the other base pages of a kernel page.
    pub(crate) fn map_zeros_around(&mut self, touched: Page, place: Place) {
        for page in self.kernel_page(touched, place) {
            if page != touched && self.spaces.entry(page).is_empty() {
                self.spaces.map_zero_page(page);
                self.clock.spend(Cause::Map, self.costs.map_page);
            }
        }
    }

    /// As [`Self::map_kernel_pages`], for pages of a reservation.
    pub(crate) fn map_reserved_around(
        &mut self,
        touched: Page,
        write: bool,
        id: ReservationId,
        place: Place,
    ) {
        let reservations = self.frames.reservations();
        let (key, base) = (reservations.key(id), reservations.base(id));
        let zeroed = self.frames.is_zeroed(base);
        for page in self.kernel_page(touched, place) {
            let slot = page.0.wrapping_sub(key.page);
            let is_free = slot < 1 << key.order
                && self.spaces.entry(page).is_empty()
                && !self.frames.reservations().is_populated(id, slot);
            if is_free {
                self.prepare_page(page, place.1.backing, zeroed);
                self.frames.populate(id, slot, 1, self.clock.now());
                self.install(page, crate::memory::Frame(base.0 + slot), write);
                self.clock.spend(Cause::Map, self.costs.map_page);
            }
        }
    }
}

impl PhysicalMemoryView for System {
    fn blocks(&self) -> u64 {
        u64::from(self.memory.frames() / PAGEBLOCK)
    }

    fn free_superpages(&self) -> u64 {
        self.memory.free_superpages()
    }

    fn free_frames(&self) -> u64 {
        self.memory.free_frames()
    }

    fn is_whole(&self, block: u64) -> bool {
        let base = block as u32 * PAGEBLOCK;
        (base..base + PAGEBLOCK).all(|frame| self.memory.is_free(Frame(frame)))
    }

    fn occupy(&mut self, block: u64, from: u16, to: u16, mobility: Mobility) -> u64 {
        let base = block as u32 * PAGEBLOCK;
        let owner = match mobility {
            Mobility::Movable => Owner::Cache(0),
            Mobility::Reclaimable | Mobility::Unmovable => Owner::Kernel,
        };
        if mobility != Mobility::Movable && self.memory.is_movable_only(Frame(base)) {
            return 0;
        }
        let mut taken = 0;
        for frame in (u32::from(from)..u32::from(to)).map(|slot| Frame(base + slot)) {
            if self.memory.claim(frame, 0) {
                self.memory.set_owner(frame, owner);
                taken += 1;
            }
        }
        taken
    }
}
