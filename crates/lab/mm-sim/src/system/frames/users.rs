//! Those who have frames: what compaction moves and reclaim evicts is followed in page tables.

use trace::{Page, SLOTS};

use super::Frames;
use crate::memory::{Eviction, Frame, Owner, Residents};
use crate::system::spaces::Spaces;

/// Those who have frames, as compaction and reclaim ask them.
#[derive(Debug)]
pub(crate) struct Users<'a> {
    pub spaces: &'a mut Spaces,
    pub frames: &'a mut Frames,
}

impl Users<'_> {
    /// Whether a page's frame belongs to more than the page: a superpage, mapped or split and kept
    /// together, or a reservation. Those move and go as their design says, not page by page.
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
        Eviction::Swapped
    }
}
