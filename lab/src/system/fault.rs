//! A page fault, by the design's rules.

use design::{Eligible, Form, Grain, MapWhen, Prefault, Shortage, Trigger};
use trace::{Backing, Page, SLOTS};

use super::allocate::{LARGE_ORDER, Payer};
use super::region::{CHECK, CONT, COW, DIRTY, Entry, LISTED, POOL, RESERVED, SIZE, ZEROS};
use super::space::Place;
use super::{Stop, System};
use crate::Cause;
use crate::memory::{Frame, Mobility, Owner};

impl System {
    /// The program touched a page that is not mapped, or not for this.
    pub(crate) fn fault(&mut self, page: Page, write: bool) -> Result<(), Stop> {
        self.trap();
        let place = self.place_of(page)?;
        let region = page.region().0;
        if self.spaces.is_large(region) {
            return self.fault_under_superpage(page, write, place);
        }
        let entry = self.spaces.entry(page);
        if entry.frame().is_some() {
            return self.soft_fault(page, write, place);
        }
        if let Some(pool) = place.1.pool
            && self.pool_backs(pool, region)
        {
            return self.pool_fault(page, pool, write);
        }
        if entry.is_empty() {
            if self.shared_fault(page, write, place) {
                return Ok(());
            }
            if !write && self.zero_fault(page, place) {
                return Ok(());
            }
            if self.wants_superpage(region, place) && self.superpage_fault(region, place) {
                return Ok(());
            }
        }
        if self.design.allocation.form == Form::Reservation && self.is_eligible(place.1) {
            return self.reserved_fault(page, write, place);
        }
        self.base_fault(page, write, place)
    }

    /// A daemon has this address space to itself: the fault waits until it has done.
    #[cold]
    fn wait_for_lock(&mut self) {
        let now = self.clock.now();
        if self.locked.1 > now {
            let threads = u64::from(self.clock.pace.threads.max(1));
            self.clock.spend(Cause::Lock, (self.locked.1 - now) * threads);
        }
        self.locked.0 = u32::MAX;
    }

    /// What every fault costs.
    #[inline]
    pub(crate) fn trap(&mut self) {
        self.counters.faults += 1;
        self.clock.spend(Cause::Fault, self.costs.fault);
        let threads = self.clock.pace.threads;
        if threads > 1 {
            self.clock.spend(Cause::Lock, self.costs.beside * u64::from(threads - 1));
        }
        if self.locked.0 == self.running {
            self.wait_for_lock();
        }
    }

    /// Whether a mapping may have superpages, by the design and what the program advised.
    pub(crate) fn is_eligible(&self, mapping: super::space::Mapping) -> bool {
        mapping.advised.unwrap_or(self.design.allocation.eligible == Eligible::Always)
            && (mapping.is_anonymous() || self.design.allocation.form == Form::Reservation)
    }

    /// Whether a first fault here is to get a whole superpage.
    fn wants_superpage(&self, region: u32, (first, mapping): Place) -> bool {
        self.rules.superpage_at_fault
            && self.spaces.regions[region as usize].resident == 0
            && self.is_eligible(mapping)
            && mapping.holds_window(first, region << 9)
            && self.spaces.regions[region as usize].place == super::region::NO_TABLE
    }

    /// A read of untouched memory maps the shared zeros: a superpage of them, or a page.
    fn zero_fault(&mut self, page: Page, (first, mapping): Place) -> bool {
        let region = page.region().0;
        if !self.design.allocation.zero_page || !mapping.is_anonymous() {
            return false;
        }
        self.clock.spend(Cause::Map, self.costs.map_page);
        if self.wants_superpage(region, (first, mapping)) {
            self.map_large(region, Frame(0), false);
            self.spaces.region(region).flags |= ZEROS;
        } else {
            self.spaces.map_entry(page, Entry::zero_page());
        }
        true
    }

    /// A whole superpage at once: allocated, zeroed, mapped. `false`: none was to be had.
    fn superpage_fault(&mut self, region: u32, (_, mapping): Place) -> bool {
        let allocation = &self.design.allocation;
        let effort = match mapping.advised {
            Some(true) => allocation.effort_advised,
            _ => allocation.effort,
        };
        let Some(got) = self.superpage(effort, Payer::Program) else {
            self.counters.fallbacks += 1;
            return false;
        };
        self.clock.spend(Cause::Fault, self.costs.superpage_fault);
        if !got.zeroed {
            self.clock.spend(Cause::Zero, self.costs.zero_large);
            self.counters.zeroed += u64::from(SLOTS);
        }
        self.counters.superpage_faults += 1;
        self.counters.made_at_fault += 1;
        self.memory.set_owner(got.frame, Owner::Page(Page(region << 9)));
        self.map_superpage(region, got.frame, true);
        true
    }

    /// One base page, or a run of them where the design has smaller sizes or prefaults.
    pub(crate) fn base_fault(&mut self, page: Page, write: bool, place: Place) -> Result<(), Stop> {
        if self.smaller_fault(page, write, place) {
            return Ok(());
        }
        if let Prefault::Doubling(limit) = self.design.preparation.prefault {
            for ahead in 1..self.batch(page, limit, place) {
                let next = Page(page.0 + ahead);
                if self.spaces.entry(next).is_empty() {
                    self.single(next, write, place)?;
                }
            }
        }
        self.single(page, write, place)
    }

    /// How many pages a fault maps, from the faulting one on (Lameter: doubles while faults are sequential,
    /// clipped to the mapping and to the page-table page).
    fn batch(&mut self, page: Page, limit: u8, (_, mapping): Place) -> u32 {
        let sequential = self.predicted == page.0;
        self.batch_order = if sequential { (self.batch_order + 1).min(limit) } else { 0 };
        let end = mapping.end.min((page.region().0 + 1) << 9);
        let count = (1 << self.batch_order).min(end - page.0);
        self.predicted = page.0 + count;
        count
    }

    fn single(&mut self, page: Page, write: bool, (_, mapping): Place) -> Result<(), Stop> {
        let got = self.base_page(Payer::Program)?;
        self.prepare_page(page, mapping.backing, got.zeroed);
        self.install(page, got.frame, write);
        Ok(())
    }

    /// The contents of a page that was absent: zeros, or read from its file or from swap.
    pub(crate) fn prepare_page(&mut self, page: Page, backing: Backing, zeroed: bool) {
        if self.spaces.entry(page).is_swapped() {
            self.spaces.swapped -= 1;
            self.counters.read += 1;
            return self.clock.spend(Cause::Read, self.costs.read_page);
        }
        match backing {
            Backing::File { cached: true, .. } => {}
            Backing::File { cached: false, .. } => {
                self.counters.read += 1;
                self.clock.spend(Cause::Read, self.costs.read_page);
            }
            _ if zeroed => {}
            _ => {
                self.counters.zeroed += 1;
                self.clock.spend(Cause::Zero, self.costs.zero_page);
            }
        }
    }

    /// Maps a frame, which becomes the page's own.
    pub(crate) fn install(&mut self, page: Page, frame: Frame, write: bool) {
        let region = page.region().0;
        self.memory.set_owner(frame, Owner::Page(page));
        let mut entry = Entry::of(frame);
        if write || !self.rules.track_clean {
            entry = entry.with(Entry::DIRTY);
        }
        self.spaces.map_entry(page, entry);
        self.spaces.count_resident(region, 1);
        self.populated(region, 1);
    }

    /// A region has `more` pages than before: it may be a candidate now.
    #[inline]
    pub(crate) fn populated(&mut self, region: u32, more: u16) {
        let at = self.spaces.regions.extend(region as usize);
        let crossed = (at.resident - more..at.resident).contains(&(self.rules.crossing - 1));
        if crossed && !at.has(LISTED | RESERVED) {
            // Looked at once: a heap that has not grown over the whole window yet is left to the scan.
            let inside =
                self.last.is_some_and(|(first, mapping)| mapping.holds_window(first, region << 9));
            if inside {
                self.spaces.region(region).flags |= LISTED;
                self.daemons.candidates.push_back(region);
            }
        }
    }

    /// A size between a base page and a superpage (mTHP): the largest whose aligned pages are all absent.
    fn smaller_fault(&mut self, page: Page, write: bool, (first, mapping): Place) -> bool {
        if self.rules.smaller.is_empty() || !self.is_eligible(mapping) {
            return false;
        }
        let region = page.region().0;
        for at in (0..self.rules.smaller.len()).rev() {
            let order = self.rules.smaller[at];
            let start = page.0 >> order << order;
            let end = start + (1 << order);
            if start < first || end > mapping.end {
                continue;
            }
            if !(start..end).all(|page| self.spaces.entry(Page(page)).is_empty()) {
                continue;
            }
            let Some(got) = self.memory.allocate(order, Mobility::Movable, 0, false) else {
                self.counters.fallbacks += 1;
                continue;
            };
            let was_empty = self.spaces.regions[region as usize].present == [0; 8];
            let was_cont = self.spaces.kinds[region as usize] & SIZE == CONT;
            for ahead in 0..1 << order {
                self.install(Page(start + ahead), Frame(got.frame.0 + ahead), write);
            }
            let pages = 1u64 << order;
            self.counters.zeroed += pages;
            self.clock.spend(Cause::Zero, self.costs.zero_page * pages);
            self.clock.spend(Cause::Map, self.costs.map_page * pages);
            if order >= 4 && (was_empty || was_cont) && self.rules.contiguous_entries {
                self.spaces.kinds[region as usize] |= CONT;
            }
            return true;
        }
        false
    }

    /// The page has a frame but no mapping, or not for writing.
    fn soft_fault(&mut self, page: Page, write: bool, place: Place) -> Result<(), Stop> {
        let region = page.region().0;
        let entry = self.spaces.entry(page);
        self.clock.spend(Cause::Map, self.costs.map_page);
        if write && entry.has(Entry::COW) {
            return self.copy_on_write(page);
        }
        if !self.spaces.regions[region as usize].is_present(page.slot()) {
            if self.map_full_reservation(page, write, place) {
                return Ok(());
            }
            let entry = if write { entry.with(Entry::DIRTY) } else { entry };
            self.spaces.map_entry(page, entry);
            self.map_neighbours(page, place);
        } else if write && !entry.has(Entry::DIRTY) {
            self.spaces.entry_mut(page).set_dirty();
            self.spaces.region(region).clean -= 1;
        }
        self.promote(region, place);
        Ok(())
    }

    /// Pages beside it that are in memory are mapped too, as if read (FreeBSD: `vm_fault_prefault`).
    pub(crate) fn map_neighbours(&mut self, page: Page, (first, mapping): Place) {
        let Prefault::Resident(side) = self.design.preparation.prefault else { return };
        let side = u32::from(side);
        let start = page.0.saturating_sub(side).max(first).max(page.region().first().0);
        let end = (page.0 + side + 1).min(mapping.end).min(page.region().first().0 + SLOTS);
        for beside in (start..end).map(Page) {
            let entry = self.spaces.entry(beside);
            let mapped = self.spaces.regions[page.region().0 as usize].is_present(beside.slot());
            if entry.frame().is_some() && !mapped {
                self.spaces.map_entry(beside, entry.without(Entry::DIRTY));
                self.clock.spend(Cause::Map, self.costs.map_page);
            }
        }
    }

    /// A fault on a page under a superpage mapping: zeros, shared after a fork, or read-only and clean.
    fn fault_under_superpage(&mut self, page: Page, write: bool, place: Place) -> Result<(), Stop> {
        let region = page.region().0;
        let at = self.spaces.regions[region as usize];
        if !write {
            return Ok(());
        }
        if at.has(POOL)
            && let Some(pool) = self.pool_of(region, place)
        {
            return self.pool_fault(page, pool, true);
        }
        if at.has(ZEROS) {
            self.unmap_zeros(region);
            if self.superpage_fault(region, place) {
                return Ok(());
            }
            return self.base_fault(page, true, place);
        }
        if at.has(COW) {
            return self.copy_superpage(page);
        }
        if self.design.unmapping.clean_write_demotes {
            self.demote(region, Payer::Program);
            return self.soft_fault(page, true, place);
        }
        self.spaces.region(region).flags |= DIRTY;
        self.spaces.kinds[region as usize] &= !CHECK;
        Ok(())
    }

    /// What the engine asks before a write (or a read) where [`CHECK`] is set: is all well without a fault?
    pub(crate) fn is_fine(&mut self, page: Page, write: bool) -> bool {
        let region = page.region().0;
        let kind = self.spaces.kinds[region as usize];
        if !write {
            return true;
        }
        let at = self.spaces.region(region);
        if kind & SIZE == super::region::LARGE {
            return at.has(DIRTY) && !at.has(COW | ZEROS);
        }
        if !at.is_present(page.slot()) {
            // Not mapped: the walk will find that out, and fault once.
            return true;
        }
        let protected = at.has(super::region::PROTECTED);
        let entry = self.spaces.entry_mut(page);
        if entry.is_zero_page() {
            // Its mapping is taken away, so that the fault finds it absent.
            *entry = Entry::EMPTY;
            self.spaces.region(region).clear_present(page.slot());
            self.spaces.region(region).clean -= 1;
            self.spaces.shoot.push(super::spaces::Shoot::Page(page.0));
            return false;
        }
        if entry.has(Entry::COW) {
            return false;
        }
        if entry.has(Entry::DIRTY) {
            return true;
        }
        if protected {
            // Write-protected by an attempt at promotion (FreeBSD): the write faults and retries it.
            return false;
        }
        // The processor sets the dirty bit by itself.
        entry.set_dirty();
        let at = self.spaces.region(region);
        at.clean -= 1;
        if at.clean == 0 && !at.has(COW) {
            self.spaces.kinds[region as usize] &= !CHECK;
        }
        true
    }
}

/// What a design's rules come to, computed once.
#[derive(Debug)]
pub(crate) struct Rules {
    /// A first fault asks for a whole superpage.
    pub superpage_at_fault: bool,
    /// A fault that gets no superpage gets one base page, and nothing else is considered.
    pub one_page: bool,
    /// A fault on a page of a reservation of a superpage populates it and may promote it: nothing else is considered.
    pub one_reserved: bool,
    /// Reads leave pages clean, and that matters.
    pub track_clean: bool,
    /// Free memory may be zeroed already.
    pub prezero: bool,
    /// Orders between a base page and a superpage, ascending.
    pub smaller: Vec<u8>,
    /// The hardware joins 16 aligned base pages in one TLB entry.
    pub contiguous_entries: bool,
    /// From this many pages on a region is put on the list of candidates.
    pub crossing: u16,
    /// Frames of a split superpage are held until memory is short.
    pub keep_folios: bool,
    /// Accessed bits are kept per page.
    pub sample: bool,
    /// Reservations may be smaller than a superpage.
    pub orders: Vec<u8>,
    /// A shortage is met by preempting a reservation.
    pub preempt: bool,
}

impl Rules {
    pub(crate) fn new(design: &design::Design, base_page: u64, contiguous_entries: bool) -> Self {
        let allocation = &design.allocation;
        let orders: Vec<u8> = allocation
            .sizes
            .iter()
            .map(|size| (size.bytes() / base_page).max(1).ilog2() as u8)
            .collect();
        let scan = design.mapping.scan.as_ref();
        let crossing = scan.filter(|scan| scan.order == design::ScanOrder::Crossing);
        let superpage_form = allocation.form == Form::Superpage;
        Self {
            superpage_at_fault: allocation.trigger == Trigger::FirstFault
                && superpage_form
                && design.preparation.grain == Grain::Superpage
                && design.mapping.when == MapWhen::WithPreparation
                && orders.contains(&LARGE_ORDER),
            one_page: allocation.form != Form::Reservation
                && (!superpage_form || orders.iter().all(|&order| order >= LARGE_ORDER))
                && !matches!(design.preparation.prefault, Prefault::Doubling(_)),
            one_reserved: allocation.form == Form::Reservation
                && allocation.shortage != Shortage::Preempt
                && !allocation.zero_page
                && !contiguous_entries,
            track_clean: design.mapping.when == MapWhen::Prepared,
            prezero: design.preparation.prezero.is_some(),
            smaller: if superpage_form {
                orders.iter().copied().filter(|&order| order < LARGE_ORDER).collect()
            } else {
                Vec::new()
            },
            contiguous_entries,
            crossing: crossing.map_or(u16::MAX, |scan| scan.least_present.max(1)),
            keep_folios: design.deallocation.release == design::Release::UnderPressure,
            sample: scan.is_some_and(|scan| scan.sampling.is_some()),
            orders: if allocation.form == Form::Reservation { orders } else { Vec::new() },
            preempt: allocation.shortage == Shortage::Preempt,
        }
    }
}
