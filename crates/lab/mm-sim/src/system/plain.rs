//! Fast path for the commonest faults: base pages of anonymous memory, in a region that has pages already. The frames
//! come from free memory or from the region's reservation. The design's rules must not depend on other facts.
//! Contiguous faults are served together. The results equal those of `fault`, page by page. Only `engine` calls this
//! file. See docs/decisions/policy.md#5.

use policy::{Plain, Reads};
use trace::{Access, Advice, Event, Page, SLOTS};

use super::System;
use super::frames::LARGE_ORDER;
use super::spaces::region::Entry;
use crate::Cause;
use crate::memory::{Frame, Mobility, Owner};
use crate::reservation::ReservationId;

impl System {
    /// Returns the number of plain faults at the start of `accesses`: contiguous pages whose frames will be contiguous.
    /// The first access is known to find its page absent.
    #[inline]
    pub(crate) fn plain_ahead(&self, accesses: &[Access]) -> u32 {
        let (Some(access), Some((first, mapping))) = (accesses.first(), self.spaces.last_place())
        else {
            return 0;
        };
        #[cfg(test)]
        if self.serves_singly {
            return 0;
        }
        if self.page_order > 0 {
            return 0;
        }
        let page = access.page();
        let is_ours = (*first..mapping.end).contains(&page.0);
        let is_plain = mapping.is_anonymous() && mapping.pool.is_none();
        if !is_ours || !is_plain {
            return 0;
        }
        // Without a page table the policy may want a superpage.
        let Some(entries) = self.spaces.entries_from(page) else { return 0 };
        if entries[0] != Entry::EMPTY {
            return 0;
        }
        let frames = match self.policy.plain(access.writes(), &self.spaces.facts_of(mapping)) {
            Plain::Base => self.memory.side_by_side(Mobility::Movable, 0).max(1),
            Plain::Reserved { below } if !self.joins => self.reserved_ahead(page, below),
            Plain::Reserved { .. } | Plain::None => 0,
        };
        if frames < 2 || accesses.get(1).is_none_or(|next| next.0 != access.0 + 1) {
            return frames.min(1);
        }
        let most = frames.min(mapping.end - page.0) as usize;
        let wanted = (access.0..).zip(entries).take(most);
        let fits = accesses.iter().zip(wanted);
        fits.take_while(|(access, (wanted, entry))| access.0 == *wanted && **entry == Entry::EMPTY)
            .count() as u32
    }

    /// Returns the number of pages from `page` on whose frames lie in a reservation and only need populating.
    #[inline]
    fn reserved_ahead(&self, page: Page, below: u32) -> u32 {
        // Resident unmapped pages may be mapped along with a neighbour, which is not plain.
        let Some(mapped) = self.spaces.mapped_if_all(page.region()) else { return 0 };
        let reservations = self.frames.reservations();
        let Some(id) = reservations.find(page.0) else { return 0 };
        if reservations.key(id).order != LARGE_ORDER {
            return 0;
        }
        // Excludes the page that completes the reservation, and the page at which the policy fills the rest.
        let most = (below - 1).saturating_sub(reservations.popcnt(id)).min(SLOTS - 1 - mapped);
        let slot = page.slot();
        match most {
            0 => 0,
            1 => u32::from(!reservations.is_populated(id, slot)),
            _ => reservations.clear_ahead(id, slot).min(most),
        }
    }

    /// Maps `count` pages that [`Self::plain_ahead`] found plain. Returns `false`, with no effect, if no frame is free.
    #[inline]
    pub(crate) fn plain_faults(&mut self, page: Page, write: bool, count: u32) -> bool {
        if self.is_single {
            let (frame, zeroed) = if count > 1 {
                (self.memory.allocate_side_by_side(Mobility::Movable, 0, count), false)
            } else {
                match self.memory.allocate(0, Mobility::Movable, 0, self.physical.prefers_zeroed) {
                    Some(got) => (got.frame, got.zeroed),
                    None => return false,
                }
            };
            self.map_plain(page, frame, write, count);
            self.trap();
            self.charge_faults(u64::from(count - 1), u64::from(count) * u64::from(!zeroed));
            return true;
        }
        let reservations = self.frames.reservations();
        let id = reservations.find(page.0).expect("found when it was looked ahead");
        let base = reservations.base(id);
        let zeroes = u64::from(!self.frames.is_zeroed(base));
        self.map_plain(page, Frame(base.0 + page.slot()), write, count);
        self.trap();
        self.charge_faults(0, zeroes);
        self.populate_plain(id, page.slot(), 1);
        if count > 1 {
            let more = u64::from(count - 1);
            self.charge_faults(more, more * zeroes);
            // The last change determines the reservation's queue position, so one update suffices.
            self.populate_plain(id, page.slot() + 1, count - 1);
        }
        true
    }

    #[inline]
    fn populate_plain(&mut self, id: ReservationId, slot: u32, count: u32) {
        let now = self.clock.now();
        self.frames.populate(id, slot, count, now);
    }

    /// Charges faults, and the pages that they zeroed.
    #[inline(always)]
    pub(super) fn charge_faults(&mut self, faults: u64, zeroed: u64) {
        self.counters.faults += faults;
        self.clock.spend(Cause::Fault, self.costs.fault * faults);
        let beside = u64::from(self.clock.pace().threads.saturating_sub(1));
        self.clock.spend(Cause::Lock, self.costs.beside * beside * faults);
        self.counters.zeroed += zeroed;
        self.clock.spend(Cause::Zero, self.costs.zero_page * zeroed);
    }

    #[inline]
    fn map_plain(&mut self, page: Page, frame: Frame, write: bool, count: u32) {
        if count == 1 {
            self.memory.set_owner(frame, Owner::Page(page));
        } else {
            self.memory.set_pages(frame, count, page);
        }
        let dirty = write || !self.reads.has(Reads::WRITTEN);
        self.spaces.map_run(page, frame, count, dirty);
        self.populated(page.region(), count as u16);
    }
}

// Consecutive plain faults on scattered pages: the common state is looked up once, and the faults are charged at the
// end. The results equal those of `fault`. Only `engine` calls this.

#[derive(Debug, Clone, Copy)]
enum Frames {
    /// Contiguous free frames: the next one, and the number left.
    Free { next: u32, left: u32 },
    /// The page's reservation, while it has fewer than `below` pages.
    Reserved { below: u32 },
}

/// Common state of consecutive faults in one mapping.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Apart {
    first: u32,
    end: u32,
    write: bool,
    dirty: bool,
    frames: Frames,
    /// Number of free frames taken but not yet allocated and charged.
    taken: u32,
}

const AHEAD: usize = 32;
/// Number of accesses or events examined together.
pub(crate) const PIECE: usize = 8;
/// Pages closer than this share lines of the host's caches, approximately.
const SAME_LINES: u32 = 64;

impl Apart {
    /// A state that matches no fault.
    pub(crate) const NONE: Self = Self {
        first: 0,
        end: 0,
        write: false,
        dirty: false,
        frames: Frames::Reserved { below: 0 },
        taken: 0,
    };
}

impl System {
    /// Returns the common state of plain faults like that of `access`, which was just served.
    #[inline]
    pub(crate) fn begin_apart(&self, access: Access) -> Apart {
        let Some((first, mapping)) = self.spaces.last_place() else { return Apart::NONE };
        let frames = match self.policy.plain(access.writes(), &self.spaces.facts_of(mapping)) {
            Plain::Base => match self.memory.next_side_by_side(Mobility::Movable, 0) {
                Some((next, left)) => Frames::Free { next: next.0, left },
                None => return Apart::NONE,
            },
            Plain::Reserved { below } if !self.joins => Frames::Reserved { below },
            Plain::Reserved { .. } | Plain::None => return Apart::NONE,
        };
        let is_plain = mapping.is_anonymous() && mapping.pool.is_none() && self.page_order == 0;
        if !is_plain || self.daemons.locks(self.spaces.running()) {
            return Apart::NONE;
        }
        let write = access.writes();
        let dirty = write || !self.reads.has(Reads::WRITTEN);
        Apart { first: *first, end: mapping.end, write, dirty, frames, taken: 0 }
    }

    /// Serves a fault if it matches the common state. The page was walked to and is not mapped.
    #[inline(always)]
    pub(crate) fn plain_apart(&mut self, apart: &mut Apart, access: Access) -> bool {
        let page = access.page();
        if access.writes() != apart.write || !(apart.first..apart.end).contains(&page.0) {
            return false;
        }
        // Without a page table the policy may want a superpage.
        if !self.spaces.is_empty_beside_others(page) {
            return false;
        }
        match &mut apart.frames {
            Frames::Free { left: 0, .. } => return false,
            Frames::Free { next, left } => {
                let frame = Frame(*next);
                (*next, *left) = (*next + 1, *left - 1);
                apart.taken += 1;
                self.map_apart(page, frame, apart.dirty);
            }
            Frames::Reserved { below } => {
                let below = *below;
                return self.reserved_apart(page, below, apart.dirty);
            }
        }
        true
    }

    #[inline(always)]
    fn reserved_apart(&mut self, page: Page, below: u32, dirty: bool) -> bool {
        let Some(mapped) = self.spaces.mapped_if_all(page.region()) else { return false };
        let reservations = self.frames.reservations();
        let Some(id) = reservations.find(page.0) else { return false };
        let populated = reservations.popcnt(id);
        // As in `reserved_ahead`, excludes the page that completes the reservation or has the rest filled.
        if mapped >= SLOTS - 1
            || populated + 1 >= below
            || reservations.key(id).order != LARGE_ORDER
            || reservations.is_populated(id, page.slot())
        {
            return false;
        }
        let base = reservations.base(id);
        let zeroed = self.frames.is_zeroed(base);
        self.map_apart(page, Frame(base.0 + page.slot()), dirty);
        self.charge_faults(1, u64::from(!zeroed));
        let now = self.clock.now();
        self.frames.populate(id, page.slot(), 1, now);
        true
    }

    #[inline(always)]
    fn map_apart(&mut self, page: Page, frame: Frame, dirty: bool) {
        self.memory.set_first_page(frame, page);
        self.spaces.map_run(page, frame, 1, dirty);
        self.populated(page.region(), 1);
    }

    /// Allocates the taken frames and charges the faults. Afterwards the state matches no fault.
    #[inline(always)]
    pub(crate) fn end_apart(&mut self, apart: &mut Apart) {
        if apart.taken > 0 {
            self.memory.allocate_side_by_side(Mobility::Movable, 0, apart.taken);
            self.charge_faults(u64::from(apart.taken), u64::from(apart.taken));
        }
        *apart = Apart::NONE;
    }

    /// Prefetches the data of faults that accesses shortly after `found` will cause. Scattered faults each miss the
    /// host's caches. `prefetched`: end of the accesses handled so far.
    #[inline(always)]
    pub(crate) fn prefetch_faults(
        &self,
        accesses: &[Access],
        found: usize,
        prefetched: &mut usize,
    ) {
        let (page, next) = (accesses[found].page().0, accesses.get(found + 1));
        if found + AHEAD - PIECE >= *prefetched
            && next.is_some_and(|next| next.page().0.abs_diff(page) >= SAME_LINES)
        {
            self.prefetch_piece(accesses, found, prefetched);
        }
    }

    fn prefetch_piece(&self, accesses: &[Access], found: usize, prefetched: &mut usize) {
        let at = |ahead: usize| (found + ahead).min(accesses.len());
        let from = at(1).max(*prefetched);
        *prefetched = at(AHEAD).max(from);
        let near = &accesses[from..*prefetched];
        for access in near {
            self.spaces.prefetch(access.page());
        }
        let reservations = self.frames.reservations();
        if self.is_single || reservations.is_empty() {
            return;
        }
        for page in near.iter().map(|access| access.page()) {
            if let Some(id) = reservations.find(page.0) {
                let slot = page.0 - reservations.key(id).page;
                self.memory.prefetch_owner(Frame(reservations.base(id).0 + slot));
            }
        }
        for access in &accesses[*prefetched..at(2 * AHEAD).max(*prefetched)] {
            reservations.prefetch(reservations.find(access.page().0));
        }
    }

    /// Prefetches the data of discards of single pages; the next [`PIECE`] events are executed now. For these,
    /// prefetches data that depends on the frame; for the events after them, data that depends on the page.
    pub(crate) fn prefetch_discards(&self, events: &[(u32, Event)]) {
        let reservations = self.frames.reservations();
        let pages = events.iter().map_while(|(_, event)| match event {
            Event::Advise(pages, Advice::DontNeed | Advice::Free) => Some(pages.first),
            _ => None,
        });
        for (ahead, page) in pages.take(2 * PIECE).enumerate() {
            if ahead >= PIECE {
                self.spaces.prefetch(page);
                continue;
            }
            let Some(frame) = self.spaces.get_entry(page).frame() else { continue };
            self.memory.prefetch_owner(frame);
            if reservations.is_empty() {
                self.memory.prefetch_block(frame);
            } else {
                reservations.prefetch(reservations.at(frame));
            }
        }
    }
}
