//! Page faults: performs the policy's actions and charges their costs.

use std::ops::Range;

use policy::rules::Effort;
use policy::{Action, Event, Facts, FaultAction, How, Reads};
use trace::{Backing, Page, Pages, Region, SLOTS};

use super::clock::Payer;
use super::frames::LARGE_ORDER;
use super::spaces::Place;
use super::spaces::region::{Entry, LISTED, PROTECTED, RESERVED, ZEROS};
use super::{Stop, System};
use crate::Cause;
use crate::memory::{Frame, Mobility, Owner};
use crate::reservation::{Key, ReservationId};

const READ_AROUND: u32 = 16;

impl System {
    /// Handles a touch of a page that is not mapped, or not for this access.
    pub(crate) fn fault(&mut self, page: Page, write: bool) -> Result<(), Stop> {
        self.trap();
        let place = self.spaces.place_of(page)?;
        let mut failed = None;
        loop {
            let facts = self.facts_of_fault(page, place);
            let action = match failed.take() {
                None => self.policy.fault(write, &facts),
                Some(action) => self.policy.no_memory(action, &facts),
            };
            match self.perform_at_fault(action, page, write, place)? {
                Served::Done => return Ok(()),
                Served::Again => {}
                Served::NoMemory => {
                    self.counters.fallbacks += 1;
                    failed = Some(action);
                }
            }
        }
    }

    fn perform_at_fault(
        &mut self,
        action: FaultAction,
        page: Page,
        write: bool,
        place: Place,
    ) -> Result<Served, Stop> {
        let region = page.region();
        match action {
            FaultAction::MapZeros { order } => self.map_zeros(page, order, place),
            FaultAction::MakeSuperpage { order, effort } => {
                // The region may be mapped to the shared zero page.
                let was_zeros = self.spaces.at(region).has(ZEROS);
                if was_zeros {
                    let zeros = self.spaces.regions_of(region);
                    zeros.for_each(|region| self.spaces.unmap_large(region));
                }
                let done = match order {
                    LARGE_ORDER => self.fresh_superpage(region, effort),
                    larger if larger > LARGE_ORDER => self.fresh_larger(region),
                    _ => self.fresh_pages(page, order, write),
                };
                if was_zeros && !done && order == LARGE_ORDER {
                    self.map_zeros_singly(region, Some(page));
                }
                return Ok(if done { Served::Done } else { Served::NoMemory });
            }
            FaultAction::Reserve { order, effort, preempt } => {
                let done = self.reserve(page, order, effort, preempt);
                return Ok(if done { Served::Again } else { Served::NoMemory });
            }
            FaultAction::MapReserved { around } => self.map_reserved(page, write, around, place),
            FaultAction::MapFile => self.map_file(region),
            FaultAction::MapBase { pages } => self.map_base(page, pages, write, place)?,
            FaultAction::MapInObject => self.map_in_object(page, write, place),
            FaultAction::MapPooled => {
                let pool = self
                    .pool
                    .of(&self.spaces, region, place)
                    .expect("it was among the policy's facts");
                self.pool_fault(page, pool, write)?;
            }
            FaultAction::Demote => {
                self.demote(region, Payer::Program);
                return Ok(Served::Again);
            }
            FaultAction::DemoteAndCopy => {
                self.demote(region, Payer::Program);
                self.copy_page(page)?;
            }
            FaultAction::MakeWritable | FaultAction::Reuse if self.spaces.is_large(region) => {
                let regions = self.spaces.regions_of(region);
                regions.for_each(|region| self.spaces.take_large(region));
            }
            FaultAction::Nothing => {}
            FaultAction::CopyPage => {
                self.clock.spend(Cause::Map, self.costs.map_page);
                self.copy_page(page)?;
            }
            FaultAction::Reuse => {
                self.clock.spend(Cause::Map, self.costs.map_page);
                self.spaces.take_page(page);
            }
            FaultAction::MapInPlace { writable } => {
                self.clock.spend(Cause::Map, self.costs.map_page);
                self.map_in_place(region, writable);
            }
            FaultAction::MapResident { around } => {
                self.clock.spend(Cause::Map, self.costs.map_page);
                self.spaces.map_resident(page, write);
                self.map_neighbours(page, around, place);
                self.promote(page, place);
            }
            FaultAction::MakeWritable => {
                self.clock.spend(Cause::Map, self.costs.map_page);
                self.spaces.set_dirty(page);
                self.promote(page, place);
            }
        }
        Ok(Served::Done)
    }

    /// Makes the program wait until a daemon releases its lock on the address space.
    #[cold]
    fn wait_for_lock(&mut self) {
        let threads = u64::from(self.clock.pace().threads.max(1));
        let cycles = self.daemons.end_lock(self.clock.now());
        self.clock.spend(Cause::Lock, cycles * threads);
    }

    #[inline]
    pub(crate) fn trap(&mut self) {
        self.counters.faults += 1;
        self.clock.spend(Cause::Fault, self.costs.fault);
        let threads = self.clock.pace().threads;
        if threads > 1 {
            self.clock.spend(Cause::Lock, self.costs.beside * u64::from(threads - 1));
        }
        if self.daemons.locks(self.spaces.running()) {
            self.wait_for_lock();
        }
    }

    fn map_zeros(&mut self, page: Page, order: u8, place: Place) {
        let region = page.region();
        self.clock.spend(Cause::Map, self.costs.map_page);
        match order {
            LARGE_ORDER => {
                self.spaces.map_zeros(region);
            }
            larger if larger > LARGE_ORDER => self.map_larger_zeros(region),
            _ => {
                self.spaces.map_zero_page(page);
                self.map_zeros_around(page, place);
            }
        }
    }

    /// Allocates, zeroes and maps a whole superpage. `false`: none was available.
    fn fresh_superpage(&mut self, region: Region, effort: policy::rules::Effort) -> bool {
        let Some(got) = self.superpage(effort, Payer::Program, false) else { return false };
        self.clock.spend(Cause::Fault, self.costs.superpage_fault);
        if !got.zeroed {
            self.clock.spend(Cause::Zero, self.costs.zero_large);
            self.counters.zeroed += u64::from(SLOTS);
        }
        self.counters.superpage_faults += 1;
        self.counters.made_at_fault += 1;
        self.memory.set_owner(got.frame, Owner::Page(region.first()));
        self.map_superpage(region, got.frame, true);
        true
    }

    /// As [`Self::fresh_superpage`], for a size between a base page and a superpage (mTHP).
    pub(crate) fn fresh_pages(&mut self, page: Page, order: u8, write: bool) -> bool {
        let region = page.region();
        let start = page.0 >> order << order;
        let Some(got) = self.memory.allocate(order, Mobility::Movable, 0, false) else {
            return false;
        };
        let runs = order >= 4 && self.joins && self.spaces.may_have_runs(region);
        for ahead in 0..1 << order {
            self.install(Page(start + ahead), Frame(got.frame.0 + ahead), write);
        }
        let pages = 1u64 << order;
        self.counters.zeroed += pages;
        self.clock.spend(Cause::Zero, self.costs.zero_page * pages);
        self.clock.spend(Cause::Map, self.costs.map_page * pages);
        if runs {
            self.spaces.set_runs(region);
        }
        true
    }

    /// Maps the touched base page, and empty ones after it.
    fn map_base(&mut self, page: Page, pages: u32, write: bool, place: Place) -> Result<(), Stop> {
        if self.page_order > 0 {
            return self.map_kernel_pages(page, pages, write, place);
        }
        for ahead in 1..pages {
            let next = Page(page.0 + ahead);
            if self.spaces.entry(next).is_empty() {
                self.single(next, write, place)?;
                self.clock.spend(Cause::Map, self.costs.map_page);
            }
        }
        self.single(page, write, place)?;
        self.read_around(page, place);
        Ok(())
    }

    pub(crate) fn single(
        &mut self,
        page: Page,
        write: bool,
        (_, mapping): Place,
    ) -> Result<(), Stop> {
        let got = self.base_page(Payer::Program)?;
        self.prepare_page(page, mapping.backing, got.zeroed);
        self.install(page, got.frame, write);
        Ok(())
    }

    /// Fills an absent page with zeros, or reads it from its file or from swap.
    pub(crate) fn prepare_page(&mut self, page: Page, backing: Backing, zeroed: bool) {
        if self.spaces.leave_swap(page) {
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

    /// Maps a frame and makes the page its owner.
    pub(crate) fn install(&mut self, page: Page, frame: Frame, write: bool) {
        self.memory.set_owner(frame, Owner::Page(page));
        self.spaces.map_page(page, frame, write || !self.reads.has(Reads::WRITTEN));
        self.populated(page.region(), 1);
    }

    /// Records that a region has `more` additional pages, and possibly lists it as a candidate.
    #[inline]
    pub(crate) fn populated(&mut self, region: Region, more: u16) {
        let at = self.spaces.at(region);
        let (before, after) = (at.resident - more, at.resident);
        if self.policy.is_crossed(before, after) && !at.has(LISTED) {
            let is_reserved = at.has(RESERVED);
            self.crossed(region, (before, after), is_reserved);
        }
    }

    /// Asks the policy whether to list a region that grew from `before` to `after` pages.
    #[cold]
    fn crossed(&mut self, region: Region, (before, after): (u16, u16), is_reserved: bool) {
        let mut facts = Facts::default();
        facts.region.reservation = is_reserved.then(Default::default);
        // Test this now, because the touched mapping is known here.
        facts.region.inside = self
            .spaces
            .last_place()
            .is_some_and(|(first, at)| at.holds_window(*first, region.first().0));
        if self.policy.on(Event::Grew { before, after }, &facts) == Action::List {
            self.spaces.mark(region, LISTED);
            self.daemons.list(region);
        }
    }

    /// Maps resident neighbours of a page as if read: up to `around` on each side, within its mapping and its region.
    pub(crate) fn map_neighbours(&mut self, page: Page, around: u8, (first, mapping): Place) {
        if around == 0 {
            return;
        }
        let (side, region) = (u32::from(around), page.region().first().0);
        let start = page.0.saturating_sub(side).max(first).max(region);
        self.map_beside(start..(page.0 + side + 1).min(mapping.end).min(region + SLOTS));
    }

    fn map_beside(&mut self, pages: Range<u32>) {
        let is_noted = self.reads.has(Reads::UNACCESSED);
        let mapped =
            self.spaces.map_neighbours(pages, if is_noted { Entry::UNACCESSED } else { 0 });
        self.clock.spend(Cause::Map, self.costs.map_page * mapped);
    }

    /// Reads and maps the aligned pages around a file page, at the price of one read (FreeBSD: VM_FAULT_READ_DEFAULT;
    /// Linux: fault_around_bytes), if memory is free.
    pub(crate) fn read_around(&mut self, page: Page, (first, mapping): Place) {
        if !matches!(mapping.backing, Backing::File { cached: false, .. }) {
            return;
        }
        let start = page.0 & !(READ_AROUND - 1);
        let pages = start.max(first)..(start + READ_AROUND).min(mapping.end);
        for beside in pages.clone().map(Page) {
            if self.spaces.entry(beside).is_empty() {
                let Some(frame) = self.frame_beside(beside) else { continue };
                self.memory.set_owner(frame, Owner::Page(beside));
                self.spaces.make_resident(beside, frame, 1);
                self.populated(beside.region(), 1);
                self.counters.read += 1;
            }
        }
        self.map_beside(pages);
    }

    /// Returns a frame for a file page that is read along with another: from the page's reservation, or any free frame.
    fn frame_beside(&mut self, page: Page) -> Option<Frame> {
        let reservations = self.frames.reservations();
        let Some(id) = reservations.find(page.0) else {
            return Some(self.memory.allocate(0, Mobility::Movable, 0, false)?.frame);
        };
        let slot = page.0 - reservations.key(id).page;
        if reservations.is_populated(id, slot) {
            return None;
        }
        let frame = Frame(reservations.base(id).0 + slot);
        self.frames.populate(id, slot, 1, self.clock.now());
        Some(frame)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Served {
    /// The fault was handled.
    Done,
    /// A preparation was made; the policy is asked again.
    Again,
    NoMemory,
}

// Reservations: create, populate, fill, map in place, break.

impl System {
    /// Fills and maps a page of a reservation.
    pub(crate) fn map_reserved(&mut self, page: Page, write: bool, around: u8, place: Place) {
        let region = page.region();
        let reservations = self.frames.reservations();
        let id = reservations.find(page.0).expect("it was among the policy's facts");
        let slot = page.0 - reservations.key(id).page;
        let base = reservations.base(id);
        self.prepare_page(page, place.1.backing, self.frames.is_zeroed(base));
        self.frames.populate(id, slot, 1, self.clock.now());
        self.install(page, Frame(base.0 + slot), write);
        self.map_reserved_around(page, write, id, place);
        self.read_around(page, place);
        self.map_neighbours(page, around, place);
        self.fill_at_fault(page, write, id, place);
        self.find_runs(region);
        self.promote(page, place);
    }

    /// Prepares the rest of a reservation if the policy decides so.
    fn fill_at_fault(&mut self, page: Page, write: bool, id: ReservationId, place: Place) {
        let mut facts =
            policy::Facts { mapping: self.spaces.facts_of(&place.1), ..Default::default() };
        facts.region.reservation = Some(self.reservation_facts(id, page));
        facts.region.inside = self.is_inside(page, place);
        let action = self.policy.on(Event::Populated, &facts);
        if action != Action::Populate {
            return;
        }
        self.fill(id, Payer::Program);
        let is_whole = |part| self.spaces.at(part).resident == SLOTS as u16;
        if !self.spaces.around(page.region()).all(is_whole) {
            return;
        }
        facts.place.0 = page.0.into();
        self.add_whole(page, &mut facts);
        if let Action::MakeSuperpage { how: How::InPlace { writable }, .. } =
            self.policy.on(Event::Prepared { write }, &facts)
        {
            self.map_in_place(page.region(), writable);
        }
    }

    /// Returns the reservation of a region, and its first frame.
    fn reserved(&self, region: Region) -> (ReservationId, Frame) {
        let reservations = self.frames.reservations();
        let id = reservations.find(region.first().0).expect("it was among the policy's facts");
        (id, reservations.base(id))
    }

    /// Maps the superpage of a file that is wholly in memory. Processes that map the same file do not share frames in
    /// the simulation; each has its own copy.
    pub(crate) fn map_file(&mut self, region: Region) {
        let (id, base) = self.reserved(region);
        for (part, slot) in self.spaces.around(region).zip((0..).step_by(SLOTS as usize)) {
            self.memory.set_pages(Frame(base.0 + slot), SLOTS, part.first());
            self.frames.populate(id, slot, SLOTS, self.clock.now());
        }
        self.map_in_place(region, false);
    }

    pub(crate) fn break_in(&mut self, region: Region) {
        let Some(smallest) = self.physical.reserved.smallest() else { return };
        for page in (region.first().0..region.next().first().0).step_by(1 << smallest) {
            if let Some(id) = self.frames.reservations().find(page) {
                self.break_one(id);
            }
        }
    }

    /// Creates a reservation for the extent around `page`. Returns `false` if no memory was available.
    pub(crate) fn reserve(&mut self, page: Page, order: u8, effort: Effort, preempt: bool) -> bool {
        let key = Key { page: page.0 >> order << order, order };
        let mut got = self.block(order);
        if got.is_none()
            && preempt
            && let Some(broken) = self.frames.preempt(&mut self.memory, order)
        {
            self.counters.broken += u64::from(broken);
            got = self.block(order);
        }
        if got.is_none() && order == LARGE_ORDER {
            got = self.superpage(effort, Payer::Program, false).map(|got| (got.frame, got.zeroed));
        }
        let Some(block) = got else { return false };
        self.counters.reserved += 1;
        self.clock.spend(Cause::Map, self.costs.reserve);
        if order > LARGE_ORDER {
            // The extent may reach past the mapping.
            self.spaces.cover(Pages { first: Page(key.page), count: 1 << order });
        }
        self.frames.reserve(&mut self.spaces, key, block, self.clock.now());
        true
    }

    fn block(&mut self, order: u8) -> Option<(Frame, bool)> {
        if order > LARGE_ORDER {
            let (base, zeroed) = self.free_larger()?;
            return Some((base, zeroed == 1 << order));
        }
        let zeroed = self.physical.prefers_zeroed;
        let got = self.memory.allocate(order, crate::memory::Mobility::Movable, 0, zeroed)?;
        Some((got.frame, got.zeroed || self.physical.is_ideal))
    }

    /// Prepares the clear pages of a reservation: resident but not mapped. Returns the number of pages.
    pub(crate) fn fill(&mut self, id: ReservationId, payer: Payer) -> u32 {
        let reservations = self.frames.reservations();
        let (key, base) = (reservations.key(id), reservations.base(id));
        let zeroed = self.frames.is_zeroed(base);
        let mut filled = 0;
        for (start, length) in self.runs_to_fill(id, key) {
            let (first, frame) = (Page(key.page + start), Frame(base.0 + start));
            for ahead in 0..length {
                let owner = Owner::Page(Page(first.0 + ahead));
                self.memory.set_owner(Frame(frame.0 + ahead), owner);
            }
            self.frames.populate(id, start, length, self.clock.now());
            self.spaces.make_resident(first, frame, length);
            filled += length;
            if !zeroed {
                self.clock.charge(payer, Cause::Zero, self.costs.zero_run(u64::from(length)));
                if payer == Payer::Program {
                    self.counters.zeroed += u64::from(length);
                }
            }
        }
        self.clock.charge(payer, Cause::Map, self.costs.reserved_page * u64::from(filled));
        if payer == Payer::Program && filled > 0 {
            self.counters.superpage_faults += 1;
        }
        filled
    }

    /// Returns the runs of clear pages to fill, ascending, each within one region: first slot and length.
    fn runs_to_fill(&self, id: ReservationId, key: Key) -> Vec<(u32, u32)> {
        let order = key.order.min(LARGE_ORDER);
        let owner = self.spaces.at(Page(key.page).region()).process;
        let mut runs = Vec::new();
        for (part, first) in (0u32..).zip((0..1u32 << key.order).step_by(1 << order)) {
            let region = Page(key.page + first).region();
            // A region into which a mapping may grow has no owner yet. A split-off superpage has all its pages.
            if self.spaces.at(region).process != owner || self.spaces.is_large(region) {
                continue;
            }
            let mut population = *self.frames.reservations().population(id, part);
            self.spaces.exclude_unfit(Key { page: key.page + first, order }, &mut population);
            let clear = crate::reservation::clear_runs(&population, 1 << order);
            runs.extend(clear.map(|(start, length)| (first + u32::from(start), length.into())));
        }
        runs
    }

    /// After a page was mapped: promotes its region if all pages are mapped and the policy decides so.
    pub(crate) fn promote(&mut self, page: Page, place: Place) {
        let region = page.region();
        let at = self.spaces.at(region);
        let is_large = self.spaces.is_large(region);
        if at.resident != SLOTS as u16 || is_large || *self.spaces.present(region) != [!0; 8] {
            return;
        }
        if self.reserves_larger() && !self.is_mapped_around(region) {
            return;
        }
        let facts = self.facts_of_mapped(page, place);
        match self.policy.on(Event::Mapped, &facts) {
            Action::MakeSuperpage { how: How::InPlace { writable }, .. } => {
                self.map_in_place(region, writable);
            }
            Action::WriteProtect => {
                self.spaces.around(region).for_each(|part| self.spaces.mark(part, PROTECTED));
            }
            _ => {}
        }
    }

    /// Maps a region, or all regions of a larger superpage, as one superpage. The pages lie in place in their
    /// reservation.
    pub(crate) fn map_in_place(&mut self, region: Region, dirty: bool) {
        let (_, base) = self.reserved(region);
        self.clock.spend(Cause::Map, self.costs.promote << self.group);
        self.counters.made_in_place += 1;
        for (part, slot) in self.spaces.around(region).zip((0..).step_by(SLOTS as usize)) {
            if self.spaces.is_large(part) {
                // The region was split off a larger superpage.
                self.spaces.unmap_large(part);
            }
            self.map_superpage(part, Frame(base.0 + slot), dirty);
            self.spaces.mark(part, RESERVED);
            self.spaces.join_larger(part);
        }
    }

    /// Finds runs of 16 pages that the hardware joins in one TLB entry.
    pub(crate) fn find_runs(&mut self, region: Region) {
        if self.joins {
            self.spaces.find_runs(region);
        }
    }
}
