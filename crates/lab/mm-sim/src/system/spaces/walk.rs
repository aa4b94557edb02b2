//! The page tables as the processor reads them: a stream's accesses through the TLB, up to where one needs attention.
//!
//! A hit reads the region's one byte and the TLB, nothing else; a walk reads the region's line.

use machine::{Level, Size};
use tlb_sim::Translate;
use trace::{Access, Page, Region};

use super::Spaces;
use super::region::{
    ACCESSED, BASE, CHECK, CONT, Entry, HUGE, Kind, LARGE, QUIET, SIZE, UNACCESSED,
};

/// Why the loop was left, and at which access.
pub(crate) enum Attention {
    /// All is done.
    None,
    /// The page is not mapped.
    Absent(usize),
    /// The write must be looked at.
    Check(usize),
}

/// How the TLB sees superpages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Superpage {
    /// Base pages of one that one entry translates: for those the filter takes any page.
    pub same: u32,
    /// log2 of the regions of one that has several, where the TLB has no size for it of its own: its page's number is that
    /// of the superpage.
    pub group: u32,
    /// The TLB's size for it.
    pub size: Size,
}

impl Superpage {
    /// What the TLB is asked for, of a page of a region of this kind.
    #[inline(always)]
    pub(crate) fn of(self, page: u32, kind: Kind) -> (u32, Size) {
        match kind & SIZE {
            HUGE => (page >> self.group, self.size),
            other => (page, size_of(other)),
        }
    }
}

/// The page size of a kind, for the TLB.
const fn size_of(kind: Kind) -> Size {
    match kind & SIZE {
        BASE => Size::Base,
        CONT => Size::Cont,
        LARGE => Size::Large,
        // See `Superpage::of`; named so that the numbers are those of `Size` and there is nothing to do.
        _ => Size::Huge,
    }
}

impl Spaces {
    /// Everything that is a hit, or a walk to a page that is mapped. With `sample`, entries are marked accessed and
    /// walks counted.
    #[inline(always)]
    pub(crate) fn walk<T: Translate>(
        &mut self,
        tlb: &mut T,
        last: &mut u32,
        accesses: &[Access],
        from: usize,
        sample: bool,
        superpage: Superpage,
    ) -> Attention {
        let Self { kinds, regions, tables, misses, lines, .. } = self;
        let kinds = &mut kinds[..];
        let mut previous = *last;
        for (ahead, access) in accesses[from..].iter().enumerate() {
            let at = from + ahead;
            let access = access.0;
            // The same page again, read, or written after a write: the first-level TLB has it at its front.
            if access | (previous & Access::WRITE) == previous {
                continue;
            }
            let page = Page(access & !Access::WRITE);
            let region = page.region();
            let Some(kind_of) = kinds.get_mut(region.index()) else {
                *last = previous;
                return Attention::Absent(at);
            };
            let kind = *kind_of;
            if kind & CHECK != 0 && access & Access::WRITE != 0 {
                *last = previous;
                return Attention::Check(at);
            }
            // The same superpage again is a hit too.
            if kind & LARGE != 0 && (page.0 ^ previous & !Access::WRITE) < superpage.same {
                previous = access;
                continue;
            }
            let (number, size) = superpage.of(page.0, kind);
            if tlb.look_up(number, size) != Level::Walk {
                previous = access;
                continue;
            }
            if kind & LARGE == 0 {
                lines.read(page, tlb);
            }
            if kind & QUIET == 0 {
                let found = regions.extend(region);
                let large = kind & LARGE != 0;
                if !large && !tables.is_present(found.place, page.slot()) {
                    *last = previous;
                    return Attention::Absent(at);
                }
                found.flags |= ACCESSED;
                let noted = found.flags & UNACCESSED != 0 && !large;
                if noted {
                    let entry = tables.entry(found.place, page.slot());
                    *entry = entry.without(Entry::UNACCESSED);
                }
                if sample && !large {
                    let entry = tables.entry(found.place, page.slot());
                    *entry = entry.with(Entry::ACCESSED);
                    if let Some(misses) = misses {
                        misses.count(page);
                    }
                } else if !noted && (large || *tables.present(found.place) == [!0; 8]) {
                    *kind_of |= QUIET;
                }
            }
            previous = access;
        }
        *last = previous;
        Attention::None
    }

    /// A region was walked to.
    pub(crate) fn walked(&mut self, region: Region) {
        self.region(region).flags |= ACCESSED;
    }
}
