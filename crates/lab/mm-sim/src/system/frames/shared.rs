//! Frames that several pages have: all but the owner are noted.

use trace::{Page, Region, SLOTS};

use super::Frames;
use crate::memory::{Frame, Memory, Owner};

impl Frames {
    /// Whether no frame is mapped more than once.
    pub(crate) fn nothing_shared(&self) -> bool {
        self.shares.is_empty()
    }

    /// Whether other pages than the owner have a frame.
    pub(crate) fn is_shared(&self, frame: Frame) -> bool {
        !self.shares.is_empty() && self.shares.contains_key(&frame.0)
    }

    /// Whether other pages have a frame of the superpage that begins here.
    pub(crate) fn is_any_shared(&self, base: Frame) -> bool {
        !self.shares.is_empty() && self.shares.range(base.0..base.0 + SLOTS).next().is_some()
    }

    /// One page more has a frame.
    pub(crate) fn share(&mut self, frame: Frame, page: Page) {
        self.shares.entry(frame.0).or_default().push(page.0);
    }

    /// `page` maps `frame` no more. `true`: others still do, and the frame is theirs.
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

    /// The regions that a shared superpage is mapped in: pages of each have its frames from now on, not the superpages.
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

    /// All pages that have a frame, whose owner is `owner`.
    pub(crate) fn mappers(&self, owner: Page, frame: Frame) -> impl Iterator<Item = Page> {
        let further = self.shares.get(&frame.0).into_iter().flatten();
        std::iter::once(owner).chain(further.map(|&page| Page(page)))
    }

    /// The pages beside the owner that have a frame.
    pub(crate) fn sharers(&self, frame: Frame) -> &[u32] {
        self.shares.get(&frame.0).map_or(&[], |pages| pages)
    }
}
