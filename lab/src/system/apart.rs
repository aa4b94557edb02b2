//! Plain faults on pages that lie apart, one after another: what is the same for all of them is looked up once, and
//! charged at the end. As in `plain`, all of it does what `fault` would; only `engine` calls it.

use policy::{Plain, Reads};
use trace::{Access, Advice, Event, Page, SLOTS};

use super::System;
use super::allocate::LARGE_ORDER;
use super::spaces::MOST_AHEAD;
use super::spaces::region::Entry;
use crate::memory::{Frame, Mobility};

/// Where faults take their frames.
#[derive(Debug, Clone, Copy)]
enum Frames {
    /// From here on side by side; so many are left.
    Free { next: u32, left: u32 },
    /// From the reservation of the page, while it has less than this.
    Reserved { below: u16 },
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
        let is_plain = mapping.is_anonymous() && mapping.pool.is_none();
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
    fn reserved_apart(&mut self, page: Page, below: u16, dirty: bool) -> bool {
        let Some(mapped) = self.spaces.mapped_if_all(page.region().0) else { return false };
        let reservations = self.frames.reservations();
        let Some(id) = reservations.find(page.0) else { return false };
        let populated = reservations.popcnt(id);
        // As where pages lie side by side: what completes it, or has the rest prepared, is another matter.
        if mapped >= SLOTS - 1
            || populated + 1 >= below
            || reservations.key(id).order != LARGE_ORDER
            || reservations.is_populated(id, page.slot() as u16)
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
        self.populated(page.region().0, 1);
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

    /// Reads what faults on pages that are accessed soon after `access`, which faulted, will read. Where they are far
    /// apart, each is a miss of the host's caches, and here these are waited for all at once: what depends on another
    /// miss is read when all of those are under way.
    pub(crate) fn glance(&self, access: Access, ahead: &[Access]) {
        if ahead.first().is_none_or(|next| next.page().0.abs_diff(access.page().0) < NEAR) {
            return;
        }
        let pages = ahead.iter().map(|access| access.page());
        let mut seen = self.spaces.glance_at(pages.clone());
        let reservations = self.frames.reservations();
        if !self.is_single && !reservations.is_empty() {
            for page in pages {
                if let Some(id) = reservations.find(page.0) {
                    let slot = page.0 - reservations.key(id).page;
                    let frame = Frame(reservations.base(id).0 + slot);
                    seen ^= u64::from(self.memory.owner_word(frame));
                }
            }
        }
        std::hint::black_box(seen);
    }

    /// The same for discards of single pages.
    pub(crate) fn glance_at_discards(&self, events: &[(u32, Event)]) {
        let mut entries = [Entry::EMPTY; MOST_AHEAD];
        let mut count = 0;
        for ((_, event), entry) in events.iter().zip(&mut entries) {
            let Event::Advise(pages, Advice::DontNeed | Advice::Free) = event else { break };
            *entry = self.spaces.glance(pages.first);
            count += 1;
        }
        let frames = || entries[..count].iter().filter_map(|entry| entry.frame());
        let mut seen = 0;
        for frame in frames() {
            seen ^= self.memory.owner_word(frame);
        }
        let reservations = self.frames.reservations();
        if reservations.is_empty() {
            self.memory.glance(frames());
        } else {
            for id in frames().filter_map(|frame| reservations.at(frame)) {
                seen ^= u32::from(reservations.popcnt(id));
            }
        }
        std::hint::black_box(seen);
    }
}
