//! Frames that no page has any more: freed, or kept for what they belong to.

use trace::{Page, SLOTS};

use super::Frames;
use super::LARGE_ORDER;
use crate::memory::{Frame, Memory, Owner};
use crate::reservation::{Depopulated, ReservationId};
use crate::system::clock::Clock;
use crate::system::spaces::Spaces;

/// Frames side by side that belonged to pages side by side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    page: u32,
    first: u32,
    count: u32,
}

impl Run {
    /// A page and its frame.
    pub(crate) fn new(page: Page, frame: Frame) -> Self {
        Self { page: page.0, first: frame.0, count: 1 }
    }

    /// The first frame.
    pub(crate) fn first(&self) -> Frame {
        Frame(self.first)
    }

    /// Takes one page more, with its frame. `false`: they are not the next.
    #[inline]
    pub(crate) fn take(&mut self, page: Page, frame: Frame) -> bool {
        let is_next = self.first + self.count == frame.0 && self.page + self.count == page.0;
        self.count += u32::from(is_next);
        is_next
    }
}

impl Frames {
    /// Frees frames that lie together and belonged to pages that lie together.
    pub(crate) fn free(
        &mut self,
        memory: &mut Memory,
        spaces: &mut Spaces,
        clock: &Clock,
        run: Run,
    ) {
        let Run { page, first, count } = run;
        // A run does not cross a superpage's worth of frames, so that it is of one reservation or folio.
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

    /// As `free`, where some of the frames may be of reservations (of any size).
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

    /// Frees a superpage that was mapped whole; one of a reservation goes back to it.
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

    /// Frames of a reservation are populated no more; with the last one all of it is free.
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

    /// Frames of a split superpage are held until memory is short, or all of them are unused.
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

    /// Gives back the frames that split superpages hold for pages that are gone. Returns how many, and of how many
    /// superpages.
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
