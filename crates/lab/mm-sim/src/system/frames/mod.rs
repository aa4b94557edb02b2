//! What frames belong to, beside the page that `crate::memory` knows as their owner: to reservations, to superpages that
//! were split and are kept together, and to further pages after a fork or of shared objects.
//!
//! Whoever changes what a frame belongs to hands in the memory, and the address spaces where a region must know.

mod free;
mod shared;
mod users;

use std::collections::{BTreeMap, BTreeSet};

use policy::Orders;
use trace::{Page, SLOTS};

use super::spaces::Spaces;
use super::spaces::region::RESERVED;
use crate::memory::{Frame, Memory, Mobility, Owner};
use crate::reservation::{Config, Flags, Key, ReservationId, Reservations};

pub(crate) use free::Run;
pub(crate) use users::Users;

/// The order of a superpage.
pub(crate) const LARGE_ORDER: u8 = 9;

/// The one queue of partly populated reservations that simulated systems keep.
pub(crate) const QUEUE: u8 = 0;

/// What frames belong to.
#[derive(Debug)]
pub(crate) struct Frames {
    reservations: Reservations,
    /// Reserved blocks whose frames were zeroed beforehand, by first frame.
    zeroed: BTreeSet<u32>,
    /// Frames mapped more than once: the pages beside the owner.
    shares: BTreeMap<u32, Vec<u32>>,
    /// Superpages whose mapping was split and that lie together still, by first frame: how many of
    /// their pages are mapped. The others' frames are held until memory is short.
    folios: BTreeMap<u32, u16>,
}

impl Frames {
    /// All frames are their owners' alone. A tick is in cycles.
    pub(crate) fn new(tick: u64, preemptible: Orders) -> Self {
        let preemption_sizes = preemptible.iter().collect();
        Self {
            reservations: Reservations::new(&Config { tick, queues: 1, preemption_sizes }),
            zeroed: BTreeSet::new(),
            shares: BTreeMap::new(),
            folios: BTreeMap::new(),
        }
    }

    /// The reservations.
    #[inline(always)]
    pub(crate) fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// Whether a reservation's block was zeroed beforehand.
    #[inline(always)]
    pub(crate) fn is_zeroed(&self, base: Frame) -> bool {
        !self.zeroed.is_empty() && self.zeroed.contains(&base.0)
    }

    /// A free block is reserved.
    pub(crate) fn reserve(
        &mut self,
        spaces: &mut Spaces,
        key: Key,
        block: (Frame, bool),
        now: u64,
    ) {
        let (base, zeroed) = block;
        if zeroed {
            self.zeroed.insert(base.0);
        } else {
            // Of a reservation that began there and was preempted.
            self.zeroed.remove(&base.0);
        }
        if key.order == LARGE_ORDER {
            spaces.mark(Page(key.page).region(), RESERVED);
        }
        self.reservations.create(key, base, QUEUE, now);
    }

    /// Pages of a reservation from a slot on are populated.
    #[inline(always)]
    pub(crate) fn populate(&mut self, id: ReservationId, slot: u32, count: u32, now: u64) {
        if count == 1 {
            self.reservations.populate(id, slot, now);
        } else {
            self.reservations.populate_run(id, slot, count, now);
        }
    }

    /// A reservation could not be filled.
    pub(crate) fn mark_bad(&mut self, id: ReservationId) {
        self.reservations.mark(id, Flags::BAD);
    }

    /// Breaks a reservation: its free part goes back, its pages are ordinary ones.
    pub(crate) fn break_one(
        &mut self,
        memory: &mut Memory,
        spaces: &mut Spaces,
        id: ReservationId,
    ) {
        let broken = self.reservations.break_reservation(id);
        self.is_gone(spaces, broken.key, broken.base);
        for (frame, pages) in broken.free_runs() {
            memory.free_run(frame, pages.into());
        }
    }

    /// Takes reservations apart for a block of a size. Returns how many; `None`: no such block can be had so.
    pub(crate) fn preempt(&mut self, memory: &mut Memory, order: u8) -> Option<u32> {
        let yielded = self.reservations.preempt(order)?;
        for (frame, pages) in yielded.free_runs {
            memory.free_run(frame, pages.into());
        }
        Some(yielded.broken)
    }

    fn is_gone(&mut self, spaces: &mut Spaces, key: Key, base: Frame) {
        self.zeroed.remove(&base.0);
        if key.order >= LARGE_ORDER {
            // Its own regions': the last page may have been a child's.
            let regions = spaces.around(Page(key.page).region());
            regions.for_each(|region| spaces.unmark(region, RESERVED));
        }
    }

    /// Migrates all pages of an inactive reservation and gives its block back whole (Quicksilver).
    /// Returns how many were moved; `None`: they could not be.
    pub(crate) fn evacuate(
        &mut self,
        memory: &mut Memory,
        spaces: &mut Spaces,
        id: ReservationId,
    ) -> Option<u32> {
        let key = self.reservations.key(id);
        let mut regions = spaces.around(Page(key.page).region());
        if regions.any(|region| spaces.is_large(region)) || !self.shares.is_empty() {
            return None;
        }
        let base = self.reservations.base(id);
        let slots: Vec<u32> = (0..1u32 << key.order)
            .filter(|&slot| self.reservations.is_populated(id, slot))
            .collect();
        // First all new frames, so that nothing is half moved; they must not come from this block.
        let mut frames = Vec::with_capacity(slots.len());
        for _ in &slots {
            match memory.allocate(0, Mobility::Movable, 0, false) {
                Some(got) => frames.push(got.frame),
                None => {
                    frames.into_iter().for_each(|frame| memory.free(frame, 0));
                    return None;
                }
            }
        }
        self.reservations.remove(id);
        self.is_gone(spaces, key, base);
        for (&slot, frame) in slots.iter().zip(frames) {
            // After a fork and the parent's end the page may be the child's.
            let Owner::Page(page) = memory.owner(Frame(base.0 + slot)) else { continue };
            memory.set_owner(Frame(base.0 + slot), Owner::None);
            memory.set_owner(frame, Owner::Page(page));
            spaces.move_page(page, frame);
            if spaces.is_present(page) {
                spaces.invalidate_page(page);
            }
        }
        memory.free_run(base, 1 << key.order);
        Some(slots.len() as u32)
    }

    /// The frames of a superpage that was split are held together.
    pub(crate) fn hold(&mut self, base: Frame) {
        self.folios.insert(base.0, SLOTS as u16);
    }

    /// They are a superpage's again.
    pub(crate) fn end_hold(&mut self, base: Frame) {
        self.folios.remove(&base.0);
    }

    /// Whether no split superpage has its frames held.
    #[cfg(test)]
    pub(crate) fn nothing_held(&self) -> bool {
        self.folios.is_empty()
    }

    /// How many frames of a split superpage are used, if its frames are held.
    pub(crate) fn used_of_held(&self, base: Frame) -> Option<u16> {
        self.folios.get(&base.0).copied()
    }

    /// Says what is wrong, if anything is: with reservations, and with the notes of those for which `is_used` says
    /// that a page has the frame.
    pub(crate) fn verify(&self, is_used: impl Fn(u32) -> bool) -> Result<(), String> {
        self.reservations.verify()?;
        if let Some(frame) = self.shares.keys().find(|frame| !is_used(**frame)) {
            return Err(format!("frame {frame} is shared and in nobody's table"));
        }
        let reserved = |base: &&u32| {
            let id = self.reservations.at(Frame(**base));
            id.is_some_and(|id| self.reservations.base(id).0 == **base)
        };
        match self.zeroed.iter().find(|base| !reserved(base)) {
            Some(base) => Err(format!("frame {base} is noted as zeroed and begins no reservation")),
            None => Ok(()),
        }
    }
}
