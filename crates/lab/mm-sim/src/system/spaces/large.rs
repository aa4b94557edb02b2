//! Superpages and runs of 16 pages: mapped, split, taken away; and whether pages lie together.

use policy::Population;
use trace::{Page, Region, SLOTS};

use super::region::{
    BASE, CHECK, CONT, COW, DIRTY, Entry, HUGE, LARGE, NO_TABLE, POOL, RESERVED, RegionEntry, SIZE,
    ZEROS,
};
use super::{Spaces, TlbInvalidation};
use crate::memory::Frame;

impl Spaces {
    /// Maps a region to the 512 frames from `base` on. What its table held must be gone or be these frames.
    pub(crate) fn map_large(&mut self, region: Region, base: Frame, dirty: bool) {
        let resident = i64::from(self.regions[region].resident);
        self.count_resident(region, i64::from(SLOTS) - resident);
        self.count_superpages(region, 1);
        let at = self.region(region);
        let table = std::mem::replace(&mut at.place, base.0);
        at.clean = 0;
        at.flags &= RESERVED | POOL;
        if dirty {
            at.flags |= DIRTY;
        }
        self.kinds[region.index()] = if dirty { LARGE } else { LARGE | CHECK };
        if table != NO_TABLE {
            self.tables.end(table);
            self.invalidations.push(TlbInvalidation::Region(region));
        }
    }

    /// Maps a region to the superpage of zeros, which takes no memory: none of it is resident.
    pub(crate) fn map_zeros(&mut self, region: Region) {
        self.map_large(region, Frame(0), false);
        self.mark(region, ZEROS);
        self.count_resident(region, -i64::from(SLOTS));
        self.count_zeros(region, 1);
    }

    /// A region that is mapped as a superpage is a part of a larger one, if there are such.
    pub(crate) fn join_larger(&mut self, region: Region) {
        if self.group > 0 {
            let zeros = i64::from(self.regions[region].has(ZEROS));
            self.count_zeros(region, -zeros);
            self.kinds[region.index()] |= HUGE;
            self.count_part(region, 1);
            self.count_zeros(region, zeros);
        }
    }

    /// A part of a larger superpage is a superpage of its own.
    pub(crate) fn leave_larger(&mut self, region: Region) {
        self.invalidations.push(TlbInvalidation::Region(region));
        self.count_part(region, -1);
        self.kinds[region.index()] = self.kinds[region.index()] & CHECK | LARGE;
    }

    /// The first frame of a region that is mapped as a superpage.
    pub(crate) fn base(&self, region: Region) -> Frame {
        debug_assert!(self.is_large(region));
        Frame(self.regions[region].place)
    }

    /// Splits a superpage: its pages are mapped singly, to the same frames.
    pub(crate) fn split(&mut self, region: Region) {
        self.invalidations.push(TlbInvalidation::Region(region));
        self.count_superpages(region, -1);
        let table = self.tables.make();
        let at = self.region(region);
        let base = std::mem::replace(&mut at.place, table);
        let (dirty, cow) = (at.has(DIRTY), at.has(COW));
        at.flags &= if cow { RESERVED | COW } else { RESERVED };
        at.clean = if dirty { 0 } else { SLOTS as u16 };
        let mut flags = Entry::EMPTY;
        if dirty {
            flags = flags.with(Entry::DIRTY);
        }
        if cow {
            flags = flags.with(Entry::COW);
        }
        *self.tables.present_mut(table) = [!0; 8];
        for (slot, entry) in (0..).zip(self.tables.table_mut(table)) {
            *entry = flags.at(Frame(base + slot));
        }
        self.kinds[region.index()] = if dirty && !cow { BASE } else { BASE | CHECK };
    }

    /// Takes a superpage away; its frames are the caller's matter. A reservation of the region stays.
    pub(crate) fn unmap_large(&mut self, region: Region) {
        let at = self.regions[region];
        if at.has(ZEROS) {
            self.count_zeros(region, -1);
        }
        self.count_superpages(region, -1);
        self.count_part(region, -i64::from(self.is_part(region)));
        self.count_resident(region, -i64::from(at.resident));
        self.invalidations.push(TlbInvalidation::Region(region));
        self.kinds[region.index()] = BASE;
        let at = self.region(region);
        *at = RegionEntry { process: at.process, flags: at.flags & RESERVED, ..RegionEntry::EMPTY };
    }

    /// The superpage is the writer's alone, and may be written.
    pub(crate) fn take_large(&mut self, region: Region) {
        let at = self.region(region);
        at.flags = at.flags & !COW | DIRTY;
        self.kinds[region.index()] &= !CHECK;
    }

    /// Whether a region has nothing mapped, or nothing but whole runs of 16.
    pub(crate) fn may_have_runs(&self, region: Region) -> bool {
        self.kinds[region.index()] & SIZE == CONT || *self.present(region) == [0; 8]
    }

    /// All that is mapped of a region are whole runs of 16 pages.
    pub(crate) fn set_runs(&mut self, region: Region) {
        self.kinds[region.index()] |= CONT;
    }

    /// Looks whether runs of 16 aligned pages may each share a TLB entry: all are whole or empty, and lie together
    /// (as they do in a reservation, if no page was copied to another frame).
    pub(crate) fn find_runs(&mut self, region: Region) {
        let at = &self.regions[region];
        if !at.resident.is_multiple_of(16) || self.is_large(region) {
            return;
        }
        let lanes = self
            .present(region)
            .iter()
            .flat_map(|word| (0..4).map(move |lane| (word >> (16 * lane)) as u16));
        let whole = at.resident > 0
            && at.place != NO_TABLE
            && lanes.clone().all(|lane| lane == 0 || lane == !0)
            && lanes.enumerate().all(|(run, lane)| {
                lane == 0 || self.lies_together(Page::new(region, 16 * run as u32), 4)
            });
        let kind = &mut self.kinds[region.index()];
        let new = if whole { *kind & CHECK | CONT } else { *kind & CHECK };
        if *kind & SIZE != new & SIZE {
            *kind = new;
            self.invalidations.push(TlbInvalidation::Region(region));
        }
    }

    /// Whether the pages of a size from one on, in a region with a table, have aligned frames side by side.
    pub(crate) fn lies_together(&self, first: Page, order: u8) -> bool {
        let Some(table) = self.table(first.region()) else { return false };
        let mut frames =
            table[first.slot() as usize..][..1 << order].iter().map(|entry| entry.frame());
        let is_aligned = |frame: &Frame| frame.0.trailing_zeros() >= order.into();
        let first = frames.next().flatten().filter(is_aligned);
        first.is_some_and(|first| {
            (first.0 + 1..).zip(frames).all(|(next, frame)| frame == Some(Frame(next)))
        })
    }

    /// Whether all pages of a region have the frames from `base` on, and none is missing.
    pub(crate) fn lies_at(&self, region: Region, base: Frame) -> bool {
        if self.is_large(region) {
            return self.base(region) == base;
        }
        self.table(region).is_some_and(|table| {
            (base.0..).zip(table).all(|(frame, entry)| entry.frame() == Some(Frame(frame)))
        })
    }

    /// Which pages of a region with a table were written.
    pub(crate) fn dirty_map(&self, region: Region) -> Population {
        let mut dirty = [0; 8];
        for (slot, entry) in self.table(region).into_iter().flatten().enumerate() {
            dirty[slot / 64] |= u64::from(entry.has(Entry::DIRTY)) << (slot % 64);
        }
        dirty
    }

    /// Whether some of a region's pages were written, and whether all were, `but` aside.
    pub(crate) fn is_dirty(&self, region: Region, but: Option<Page>) -> (bool, bool) {
        let at = self.at(region);
        if self.is_large(region) {
            return (at.has(DIRTY), at.has(DIRTY));
        }
        if at.clean == 0 && *self.present(region) == [!0; 8] {
            return (true, true);
        }
        let mut dirty = self.dirty_map(region);
        let is_any = dirty != [0; 8];
        if let Some(page) = but.filter(|page| page.region() == region) {
            dirty[page.slot() as usize / 64] |= 1 << (page.slot() % 64);
        }
        (is_any, dirty == [!0; 8])
    }
}
