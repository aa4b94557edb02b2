//! Users of frames besides the owner page in `crate::memory`: reservations, split superpages that keep their frames,
//! and further pages that share a frame after a fork or in shared objects.
//!
//! Callers pass in the memory, and the address spaces if a region must be updated.

use std::collections::{BTreeMap, BTreeSet};

use policy::Orders;
use trace::{Page, Region, SLOTS};

use super::clock::Clock;
use super::spaces::Spaces;
use super::spaces::region::RESERVED;
use crate::memory::{Eviction, Frame, Memory, Mobility, Owner, Residents};
use crate::reservation::{Config, Depopulated, Flags, Key, ReservationId, Reservations};

pub(crate) const LARGE_ORDER: u8 = 9;

/// Number of the only queue of partly populated reservations.
pub(crate) const QUEUE: u8 = 0;

#[derive(Debug)]
pub(crate) struct Frames {
    reservations: Reservations,
    /// First frames of reserved blocks that were zeroed beforehand.
    zeroed: BTreeSet<u32>,
    /// The additional pages of frames that are mapped more than once.
    shares: BTreeMap<u32, Vec<u32>>,
    /// Split superpages that keep their frames, by first frame, with the number of pages still mapped. The frames of
    /// the other pages are held until memory is short.
    folios: BTreeMap<u32, u16>,
}

impl Frames {
    /// Creates an empty state. `tick` is in cycles.
    pub(crate) fn new(tick: u64, preemptible: Orders) -> Self {
        let preemption_sizes = preemptible.iter().collect();
        Self {
            reservations: Reservations::new(&Config { tick, queues: 1, preemption_sizes }),
            zeroed: BTreeSet::new(),
            shares: BTreeMap::new(),
            folios: BTreeMap::new(),
        }
    }

    #[inline(always)]
    pub(crate) fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// Returns whether a reservation's block was zeroed beforehand.
    #[inline(always)]
    pub(crate) fn is_zeroed(&self, base: Frame) -> bool {
        !self.zeroed.is_empty() && self.zeroed.contains(&base.0)
    }

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
            // An entry may be left from a preempted reservation that began at the same frame.
            self.zeroed.remove(&base.0);
        }
        if key.order == LARGE_ORDER {
            spaces.mark(Page(key.page).region(), RESERVED);
        }
        self.reservations.create(key, base, QUEUE, now);
    }

    #[inline(always)]
    pub(crate) fn populate(&mut self, id: ReservationId, slot: u32, count: u32, now: u64) {
        if count == 1 {
            self.reservations.populate(id, slot, now);
        } else {
            self.reservations.populate_run(id, slot, count, now);
        }
    }

    /// Marks a reservation whose filling failed.
    pub(crate) fn mark_bad(&mut self, id: ReservationId) {
        self.reservations.mark(id, Flags::BAD);
    }

    /// Breaks a reservation: frees its unpopulated part, and its pages become ordinary ones.
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

    /// Preempts reservations until a block of an order is free. Returns the number of broken ones; `None` if no such
    /// block can be obtained.
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
            // Unmarks the reservation's own regions: the last page may have been a child's.
            let regions = spaces.around(Page(key.page).region());
            regions.for_each(|region| spaces.unmark(region, RESERVED));
        }
    }

    /// Migrates all pages of an inactive reservation and frees its whole block (Quicksilver). Returns the number of
    /// moved pages; `None` if they could not be moved.
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
        // Allocates all new frames first, so no page moves unless all can. None may come from this block.
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
            // After a fork and the exit of the parent, the page may belong to the child.
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

    pub(crate) fn hold(&mut self, base: Frame) {
        self.folios.insert(base.0, SLOTS as u16);
    }

    /// Ends the hold, because the frames form a superpage again.
    pub(crate) fn end_hold(&mut self, base: Frame) {
        self.folios.remove(&base.0);
    }

    /// Returns whether no split superpage holds frames.
    #[cfg(test)]
    pub(crate) fn nothing_held(&self) -> bool {
        self.folios.is_empty()
    }

    /// Returns the number of used frames of a split superpage, if its frames are held.
    pub(crate) fn used_of_held(&self, base: Frame) -> Option<u16> {
        self.folios.get(&base.0).copied()
    }

    /// Checks reservations and all records about frames. `is_used` returns whether a page has a frame. Reports the
    /// first error.
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

// Frames without users: freed, or kept for their reservation or split superpage.

/// Contiguous frames that belonged to contiguous pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    page: u32,
    first: u32,
    count: u32,
}

impl Run {
    pub(crate) fn new(page: Page, frame: Frame) -> Self {
        Self { page: page.0, first: frame.0, count: 1 }
    }

    pub(crate) fn first(&self) -> Frame {
        Frame(self.first)
    }

    /// Appends a page and its frame. Returns `false` if they do not continue the run.
    #[inline]
    pub(crate) fn take(&mut self, page: Page, frame: Frame) -> bool {
        let is_next = self.first + self.count == frame.0 && self.page + self.count == page.0;
        self.count += u32::from(is_next);
        is_next
    }
}

impl Frames {
    pub(crate) fn free(
        &mut self,
        memory: &mut Memory,
        spaces: &mut Spaces,
        clock: &Clock,
        run: Run,
    ) {
        let Run { page, first, count } = run;
        // Splits the run at pageblock boundaries, so that it belongs to at most one split superpage.
        let cut = SLOTS - Frame(first).slot();
        if count > cut {
            self.free(memory, spaces, clock, Run { page, first, count: cut });
            let rest = Run { page: page + cut, first: first + cut, count: count - cut };
            return self.free(memory, spaces, clock, rest);
        }
        let head = Frame(first).pageblock().0;
        if self.folios.contains_key(&head) {
            return self.free_of_folio(memory, head, first, count);
        }
        if !self.reservations.is_empty() {
            return self.free_reserved(memory, spaces, clock, first, count);
        }
        memory.free_run(Frame(first), count);
    }

    /// As [`Self::free`], if some frames may belong to reservations of any size.
    fn free_reserved(
        &mut self,
        memory: &mut Memory,
        spaces: &mut Spaces,
        clock: &Clock,
        first: u32,
        count: u32,
    ) {
        let mut at = 0;
        while at < count {
            let frame = Frame(first + at);
            let length = match self.reservations.at(frame) {
                Some(id) => {
                    let order = self.reservations.key(id).order;
                    let within = (1 << order) - (frame.0 - self.reservations.base(id).0);
                    let length = within.min(count - at);
                    self.unreserve(memory, spaces, clock, id, (frame, length));
                    length
                }
                None => {
                    let rest = (at..count)
                        .find(|&ahead| self.reservations.at(Frame(first + ahead)).is_some())
                        .unwrap_or(count);
                    memory.free_run(frame, rest - at);
                    rest - at
                }
            };
            at += length;
        }
    }

    /// Frees a superpage that was mapped as one. Frames of a reservation return to the reservation.
    pub(crate) fn free_superpage(
        &mut self,
        memory: &mut Memory,
        spaces: &mut Spaces,
        clock: &Clock,
        base: Frame,
    ) {
        match self.reservations.at(base) {
            Some(id) => self.unreserve(memory, spaces, clock, id, (base, SLOTS)),
            None => memory.free(base, LARGE_ORDER),
        }
    }

    /// Depopulates frames of a reservation. After the last one, frees the whole block.
    fn unreserve(
        &mut self,
        memory: &mut Memory,
        spaces: &mut Spaces,
        clock: &Clock,
        id: ReservationId,
        (first, count): (Frame, u32),
    ) {
        let key = self.reservations.key(id);
        let slot = first.0 - self.reservations.base(id).0;
        for frame in first.0..first.0 + count {
            memory.set_owner(Frame(frame), Owner::None);
        }
        if let Depopulated::Empty { base, order } =
            self.reservations.depopulate_run(id, slot, count, clock.now())
        {
            self.is_gone(spaces, key, base);
            memory.free_run(base, 1 << order);
        }
    }

    /// Holds freed frames of a split superpage until memory is short or all of them are unused.
    fn free_of_folio(&mut self, memory: &mut Memory, head: u32, first: u32, count: u32) {
        for frame in first..first + count {
            memory.set_owner(Frame(frame), Owner::None);
        }
        let left = self.folios.get_mut(&head).expect("looked up by the caller");
        *left -= count as u16;
        if *left == 0 {
            self.folios.remove(&head);
            memory.free(Frame(head), LARGE_ORDER);
        }
    }

    /// Frees the frames that split superpages hold for unmapped pages. Returns the numbers of frames and of superpages.
    pub(crate) fn release_held(&mut self, memory: &mut Memory) -> (u64, u64) {
        let folios = std::mem::take(&mut self.folios);
        let superpages = folios.len() as u64;
        let mut freed = 0;
        for head in folios.into_keys() {
            let mut run = None;
            for frame in head..=head + SLOTS {
                let held = frame < head + SLOTS && memory.owner(Frame(frame)) == Owner::None;
                match (held, run) {
                    (true, None) => run = Some(frame),
                    (false, Some(start)) => {
                        memory.free_run(Frame(start), frame - start);
                        freed += u64::from(frame - start);
                        run = None;
                    }
                    _ => {}
                }
            }
        }
        (freed, superpages)
    }
}

// Frames with several users: all users except the owner are recorded.

impl Frames {
    /// Returns whether no frame is mapped more than once.
    pub(crate) fn nothing_shared(&self) -> bool {
        self.shares.is_empty()
    }

    /// Returns whether pages other than the owner use a frame.
    pub(crate) fn is_shared(&self, frame: Frame) -> bool {
        !self.shares.is_empty() && self.shares.contains_key(&frame.0)
    }

    /// Returns whether other pages use any frame of the superpage at `base`.
    pub(crate) fn is_any_shared(&self, base: Frame) -> bool {
        !self.shares.is_empty() && self.shares.range(base.0..base.0 + SLOTS).next().is_some()
    }

    pub(crate) fn share(&mut self, frame: Frame, page: Page) {
        self.shares.entry(frame.0).or_default().push(page.0);
    }

    /// Removes the use of `frame` by `page`. Returns whether other pages still use the frame.
    #[inline]
    pub(crate) fn drop_share(&mut self, memory: &mut Memory, page: Page, frame: Frame) -> bool {
        !self.shares.is_empty() && self.drop_one_share(memory, page, frame)
    }

    fn drop_one_share(&mut self, memory: &mut Memory, page: Page, frame: Frame) -> bool {
        let Some(further) = self.shares.get_mut(&frame.0) else { return false };
        if memory.owner(frame) == Owner::Page(page) {
            let heir = further.remove(0);
            memory.set_owner(frame, Owner::Page(Page(heir)));
        } else {
            further.retain(|&other| other != page.0);
        }
        if further.is_empty() {
            self.shares.remove(&frame.0);
        }
        true
    }

    /// Converts the sharing of a superpage to sharing of its pages. Returns the regions that map the superpage.
    pub(crate) fn split_shares(&mut self, memory: &Memory, base: Frame) -> Vec<Region> {
        let Owner::Page(owner) = memory.owner(base) else { return Vec::new() };
        let regions: Vec<Region> = self.mappers(owner, base).map(|page| page.region()).collect();
        self.shares.remove(&base.0);
        if let [_, others @ ..] = regions.as_slice()
            && !others.is_empty()
        {
            for slot in 0..SLOTS {
                let pages = others.iter().map(|region| Page::new(*region, slot).0);
                self.shares.insert(base.0 + slot, pages.collect());
            }
        }
        regions
    }

    /// Returns all pages that use a frame, whose owner is `owner`.
    pub(crate) fn mappers(&self, owner: Page, frame: Frame) -> impl Iterator<Item = Page> {
        let further = self.shares.get(&frame.0).into_iter().flatten();
        std::iter::once(owner).chain(further.map(|&page| Page(page)))
    }

    /// Returns the pages other than the owner that use a frame.
    pub(crate) fn sharers(&self, frame: Frame) -> &[u32] {
        self.shares.get(&frame.0).map_or(&[], |pages| pages)
    }
}

// Updates of page tables when compaction moves or reclaim evicts pages.

/// The users of frames, as seen by compaction and reclaim.
#[derive(Debug)]
pub(crate) struct Users<'a> {
    pub spaces: &'a mut Spaces,
    pub frames: &'a mut Frames,
}

impl Users<'_> {
    /// Returns whether a page's frame is held by a superpage (mapped, or split and kept together) or a reservation. The
    /// design decides how these move or are freed, never page by page.
    fn is_held(&self, page: Page, frame: Frame) -> bool {
        let Frames { reservations, folios, .. } = &*self.frames;
        let in_reservation = || !reservations.is_empty() && reservations.at(frame).is_some();
        self.spaces.is_large(page.region())
            || folios.contains_key(&(frame.0 & !(SLOTS - 1)))
            || in_reservation()
    }
}

impl Residents for Users<'_> {
    fn moved(&mut self, owner: Owner, from: Frame, to: Frame) -> bool {
        let Owner::Page(page) = owner else { return matches!(owner, Owner::Cache(_)) };
        if self.is_held(page, from) {
            return false;
        }
        debug_assert_eq!(
            self.spaces.entry(page).frame(),
            Some(from),
            "the reverse map of {page:?}"
        );
        for mapper in self.frames.mappers(page, from) {
            self.spaces.move_page(mapper, to);
            self.spaces.invalidate_page(mapper);
        }
        if let Some(further) = self.frames.shares.remove(&from.0) {
            self.frames.shares.insert(to.0, further);
        }
        true
    }

    fn referenced(&mut self, owner: Owner, _: Frame) -> bool {
        let Owner::Page(page) = owner else { return false };
        self.spaces.was_accessed(page.region())
    }

    fn evicted(&mut self, owner: Owner, frame: Frame) -> Eviction {
        let Owner::Page(page) = owner else { return Eviction::Freed };
        let stays = !self.spaces.can_swap()
            || self.is_held(page, frame)
            || self.frames.shares.contains_key(&frame.0);
        if stays {
            return Eviction::Refused;
        }
        self.spaces.swap_out(page);
        self.spaces.mark_swapped(page);
        Eviction::Swapped
    }
}
