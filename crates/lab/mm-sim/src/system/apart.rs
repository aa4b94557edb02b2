//! Plain faults on pages that lie apart, one after another: what is the same for all of them is looked up once, and
//! charged at the end. As in `plain`, all of it does what `fault` would; only `engine` calls it.

use policy::{Plain, Reads};
use trace::{Access, Advice, Event, Page, SLOTS};

use super::System;
use super::frames::LARGE_ORDER;
use crate::memory::{Frame, Mobility};

/// Where faults take their frames.
#[derive(Debug, Clone, Copy)]
enum Frames {
    /// From here on side by side; so many are left.
    Free { next: u32, left: u32 },
    /// From the reservation of the page, while it has less than this.
    Reserved { below: u32 },
}

/// Faults that follow one another in one mapping.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Apart {
    first: u32,
    end: u32,
    write: bool,
    dirty: bool,
    frames: Frames,
    /// How many took free frames, and are not charged yet.
    taken: u32,
}

/// Accesses that are looked ahead.
const AHEAD: usize = 32;
/// Accesses, or events, that are looked at together.
pub(crate) const PIECE: usize = 8;
/// Closer pages share lines of the host's caches, more or less.
const NEAR: u32 = 64;

impl Apart {
    /// No fault is one of these.
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
    /// What is the same for plain faults as that of `access`, which was served.
    #[inline]
    pub(crate) fn begin_apart(&self, access: Access) -> Apart {
        let Some((first, mapping)) = self.spaces.last_place() else { return Apart::NONE };
        let frames = match self.policy.plain(access.writes(), &mapping.facts()) {
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

    /// Serves a fault, if it is as the others. The page was walked to and is not mapped.
    #[inline(always)]
    pub(crate) fn plain_apart(&mut self, apart: &mut Apart, access: Access) -> bool {
        let page = access.page();
        if access.writes() != apart.write || !(apart.first..apart.end).contains(&page.0) {
            return false;
        }
        // Without a table a superpage may be wanted.
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
        // As where pages lie side by side: what completes it, or has the rest prepared, is another matter.
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

    /// Charges what has not been charged yet. No fault is one of these afterwards.
    #[inline(always)]
    pub(crate) fn end_apart(&mut self, apart: &mut Apart) {
        if apart.taken > 0 {
            self.memory.allocate_side_by_side(Mobility::Movable, 0, apart.taken);
            self.charge_faults(u64::from(apart.taken), u64::from(apart.taken));
        }
        *apart = Apart::NONE;
    }

    /// Prefetches what faults on pages that are accessed soon after the one at `found`, which faulted, will read. Where
    /// they are far apart, each is a miss of the host's caches. `prefetched`: up to where that was done.
    #[inline(always)]
    pub(crate) fn prefetch_faults(
        &self,
        accesses: &[Access],
        found: usize,
        prefetched: &mut usize,
    ) {
        let (page, next) = (accesses[found].page().0, accesses.get(found + 1));
        if found + AHEAD - PIECE >= *prefetched
            && next.is_some_and(|next| next.page().0.abs_diff(page) >= NEAR)
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

    /// The same for discards of single pages, of which [`PIECE`] are carried out next: what depends on the page is
    /// prefetched for those after them, what depends on its frame for these.
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
