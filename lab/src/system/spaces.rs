//! All virtual memory of the machine: regions, tables, processes, reservations, and who shares frames.
//!
//! The physical side (`crate::memory`) asks it to move or give up pages ([`Residents`]); it asks for
//! nothing itself. What must leave the TLBs is noted in `shoot` for the engine.

use std::collections::BTreeMap;

use trace::{Page, Pages, SLOTS};

use super::misses::Misses;
use super::region::{
    ACCESSED, BASE, CHECK, CONT, Entry, Kind, LARGE, NO_TABLE, NOBODY, Present, RESERVED, Region,
    Regions, SIZE, Tables,
};
use super::space::Process;
use crate::memory::{Eviction, Frame, Owner, Residents};
use crate::reservation::Reservations;

/// What must leave the TLBs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shoot {
    /// A base page.
    Page(u32),
    /// All of a region.
    Region(u32),
    /// Everything.
    All,
}

/// Beyond so many, emptying the TLB is what a kernel does, and quicker (Linux: 33 pages,
/// `tlb_single_page_flush_ceiling`).
pub(crate) const MANY: usize = 33;

/// The virtual memory of all processes.
#[derive(Debug)]
pub(crate) struct Spaces {
    pub kinds: Vec<Kind>,
    pub regions: Regions,
    pub tables: Tables,
    pub processes: BTreeMap<u32, Process>,
    pub reservations: Reservations,
    /// Frames mapped more than once: the pages beside the owner.
    pub shares: BTreeMap<u32, Vec<u32>>,
    /// Superpages whose mapping was split and that lie together still, by first frame: how many of
    /// their pages are mapped. The others' frames are held until memory is short.
    pub folios: BTreeMap<u32, u16>,
    /// Walks, for designs that ask for them.
    pub misses: Option<Misses>,
    /// For the engine.
    pub shoot: Vec<Shoot>,
    /// The virtual time of what happens now, for the reservations.
    pub now: u64,
    /// The first process of the program: those before it spoiled the memory.
    pub first_process: u32,
    /// Base pages resident for the program.
    pub resident: u64,
    /// Superpages mapped for the program.
    pub superpages: u64,
    /// Pages swapped out now, and how many there is room for.
    pub swapped: u64,
    pub swap: u64,
}

impl Spaces {
    /// Makes room for the regions of `pages`.
    pub(crate) fn cover(&mut self, pages: Pages) {
        let regions = ((pages.first.0 + pages.count).div_ceil(SLOTS) + 1) as usize;
        if regions > self.regions.len() {
            self.regions.grow(regions);
            self.kinds.resize(regions, BASE);
            if let Some(misses) = &mut self.misses {
                misses.cover(regions);
            }
        }
    }

    #[inline]
    pub(crate) fn region(&mut self, region: u32) -> &mut Region {
        self.regions.edit(&mut self.kinds, region as usize)
    }

    /// Whether a page more can be swapped out.
    pub(crate) fn can_swap(&self) -> bool {
        self.swapped < self.swap
    }

    #[inline]
    pub(crate) fn is_large(&self, region: u32) -> bool {
        self.kinds[region as usize] & SIZE == LARGE
    }

    /// The entry of a base page; empty where the region has no table.
    #[inline]
    pub(crate) fn entry(&self, page: Page) -> Entry {
        match self.regions[page.region().0 as usize].place {
            NO_TABLE => Entry::EMPTY,
            table => self.tables.table(table)[page.slot() as usize],
        }
    }

    /// The entry of a base page, in a table that is made if need be.
    #[inline]
    pub(crate) fn entry_mut(&mut self, page: Page) -> &mut Entry {
        let region = self.regions.extend(page.region().0 as usize);
        if region.place == NO_TABLE {
            region.place = self.tables.make();
        }
        self.tables.entry(region.place, page.slot())
    }

    #[inline]
    pub(crate) fn is_ours(&self, process: u32) -> bool {
        process >= self.first_process && process != NOBODY
    }

    /// `pages` more base pages (fewer, if negative) are resident in a region.
    #[inline]
    pub(crate) fn count_resident(&mut self, region: u32, pages: i64) {
        let at = self.regions.extend(region as usize);
        at.resident = (i64::from(at.resident) + pages) as u16;
        if at.process >= self.first_process {
            self.resident = self.resident.wrapping_add_signed(pages);
        }
    }

    /// `count` more superpages are mapped in a region's process.
    pub(crate) fn count_superpages(&mut self, region: u32, count: i64) {
        let process = self.regions[region as usize].process;
        if self.is_ours(process) {
            self.superpages = self.superpages.wrapping_add_signed(count);
        }
        if let Some(process) = self.processes.get_mut(&process) {
            process.superpages = process.superpages.wrapping_add_signed(count);
        }
    }

    /// Takes a page's mapping away; its frame stays.
    pub(crate) fn unmap_entry(&mut self, page: Page) {
        let clean = !self.entry(page).has(Entry::DIRTY);
        self.scatter(page.region().0);
        let region = self.regions.edit(&mut self.kinds, page.region().0 as usize);
        if self.tables.is_present(region.place, page.slot()) {
            self.tables.clear_present(region.place, page.slot());
            region.clean -= u16::from(clean);
            self.shoot_page(page);
        }
    }

    /// A page must leave the TLBs. Of more than [`MANY`] only the number counts: more are not noted.
    #[inline]
    pub(crate) fn shoot_page(&mut self, page: Page) {
        if self.shoot.len() <= MANY {
            self.shoot.push(Shoot::Page(page.0));
        }
    }

    /// A region's pages do not lie in runs of 16 any more, or a run is not mapped whole.
    #[inline]
    pub(crate) fn scatter(&mut self, region: u32) {
        if self.kinds[region as usize] & SIZE == CONT {
            self.kinds[region as usize] &= !SIZE;
            self.shoot.push(Shoot::Region(region));
        }
    }

    /// Maps a page whose entry holds a frame (or the page of zeros).
    #[inline]
    pub(crate) fn map_entry(&mut self, page: Page, entry: Entry) {
        let at = page.region().0 as usize;
        *self.entry_mut(page) = entry;
        let region = self.regions.extend(at);
        debug_assert!(!self.tables.is_present(region.place, page.slot()));
        self.tables.set_present(region.place, page.slot());
        if self.kinds[at] & SIZE == CONT {
            // What the TLB has of whole runs stays true.
            self.kinds[at] &= !SIZE;
        }
        if !entry.has(Entry::DIRTY) || entry.has(Entry::COW) {
            region.clean += u16::from(!entry.has(Entry::DIRTY));
            self.kinds[at] |= CHECK;
        }
    }

    /// Whether a page is mapped, singly.
    #[inline]
    pub(crate) fn is_present(&self, page: Page) -> bool {
        let region = page.region().0;
        !self.is_large(region)
            && self.tables.is_present(self.regions[region as usize].place, page.slot())
    }

    /// Which base pages of a region without a superpage are mapped.
    #[inline]
    pub(crate) fn present(&self, region: u32) -> &Present {
        self.tables.present(self.regions[region as usize].place)
    }

    /// Gives a region's table back if nothing is in it.
    pub(crate) fn tidy(&mut self, region: u32) {
        let at = self.regions.edit(&mut self.kinds, region as usize);
        if self.kinds[region as usize] & SIZE != LARGE
            && at.place != NO_TABLE
            && at.resident == 0
            && self.tables.table(at.place).iter().all(|entry| entry.is_empty())
        {
            self.tables.end(at.place);
            at.place = NO_TABLE;
            at.clean = 0;
            at.flags &= RESERVED;
            self.kinds[region as usize] = BASE;
        }
    }

    /// All pages that map `frame`, whose owner is `owner`.
    pub(crate) fn mappers(&self, owner: u32, frame: Frame) -> Vec<u32> {
        let further = self.shares.get(&frame.0).into_iter().flatten().copied();
        std::iter::once(owner).chain(further).collect()
    }
}

impl Residents for Spaces {
    fn moved(&mut self, owner: Owner, from: Frame, to: Frame) -> bool {
        let Owner::Page(page) = owner else { return matches!(owner, Owner::Cache(_)) };
        if self.is_held(page, from) {
            return false;
        }
        debug_assert_eq!(self.entry(page).frame(), Some(from), "the reverse map of {page:?}");
        for mapper in self.mappers(page.0, from) {
            let entry = self.entry_mut(Page(mapper));
            *entry = entry.at(to);
            self.scatter(mapper >> 9);
            self.shoot_page(Page(mapper));
        }
        if let Some(further) = self.shares.remove(&from.0) {
            self.shares.insert(to.0, further);
        }
        true
    }

    fn referenced(&mut self, owner: Owner, _: Frame) -> bool {
        let Owner::Page(page) = owner else { return false };
        // Kept per region: it was walked to since this was last asked of one of its pages.
        let region = self.regions.edit(&mut self.kinds, page.region().0 as usize);
        let referenced = region.has(ACCESSED);
        region.flags &= !ACCESSED;
        referenced
    }

    fn evicted(&mut self, owner: Owner, frame: Frame) -> Eviction {
        let Owner::Page(page) = owner else { return Eviction::Freed };
        if !self.can_swap() || self.is_held(page, frame) || self.shares.contains_key(&frame.0) {
            return Eviction::Refused;
        }
        self.unmap_entry(page);
        *self.entry_mut(page) = Entry::swapped();
        self.count_resident(page.region().0, -1);
        self.swapped += 1;
        Eviction::Swapped
    }
}

impl Spaces {
    /// Whether a page's frame belongs to more than the page: a superpage, mapped or split and kept
    /// together, or a reservation. Those move and go as their design says, not page by page.
    fn is_held(&self, page: Page, frame: Frame) -> bool {
        let region = page.region().0;
        let in_reservation =
            || !self.reservations.is_empty() && self.reservations.at(frame).is_some();
        self.is_large(region)
            || self.folios.contains_key(&(frame.0 & !(SLOTS - 1)))
            || in_reservation()
    }
}
