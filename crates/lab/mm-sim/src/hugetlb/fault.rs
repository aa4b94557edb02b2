//! Faults: a page for an index, copying on write, and what happens when the pool is short
//! (`hugetlb_fault`, `hugetlb_no_page`, `hugetlb_wp`, `alloc_hugetlb_folio`).

use crate::memory::Frame;

use super::mapping::Backing;
use super::{Frames, HugetlbPool, MappingId, Place};

/// What became of a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A page of the pool was taken; the caller zeroes it.
    Fresh {
        /// The page.
        frame: Frame,
        /// It was promised to this index.
        reserved: bool,
    },
    /// The page that is there is mapped as it is.
    Present(Frame),
    /// A write to a page that is shared since a fork: the caller copies it.
    Copied {
        /// The page that the others keep.
        from: Frame,
        /// The writer's new page.
        to: Frame,
    },
    /// A write by the reservation's owner to a shared page, and the pool is short: the owner keeps the
    /// page, these children lose it (`unmap_ref_private`). A child that misses a page of such a
    /// mapping, up to its next holes, is killed.
    Robbed {
        /// The page.
        frame: Frame,
        /// The mappings that lost it.
        children: Vec<MappingId>,
    },
    /// The process is killed (SIGBUS).
    Killed(Why),
}

/// Why a fault kills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// No page was promised, and none can be had.
    PoolEmpty,
    /// One was promised, but the allowed nodes have none: policy and cpuset break the promise.
    NodesEmpty,
    /// The owner of the reservation has taken the page.
    Robbed,
    /// The object ends before this index.
    PastEnd,
}

impl HugetlbPool {
    /// A fault at an index of a mapping. `write`: the page will be written.
    pub fn fault(
        &mut self,
        mapping: MappingId,
        index: u32,
        write: bool,
        place: Place,
        frames: &mut impl Frames,
    ) -> Fault {
        let found = self.mappings.get_mut(&mapping).expect("a live mapping");
        debug_assert!(found.live.contains(index), "a fault outside of the mapping");
        match &mut found.kind {
            Backing::Shared { object, start } => {
                let index = *start + index;
                let object = self.objects.get_mut(object).expect("it is mapped");
                if index >= object.length {
                    return Fault::Killed(Why::PastEnd);
                }
                if let Some(&number) = object.pages.get(&index) {
                    return Fault::Present(self.pages.get(number).frame);
                }
                let pending = object.reserved.chg(index, index + 1);
                let reserved = pending.missing() == 0;
                let Some((frame, node)) = self.store.take(reserved, place, frames) else {
                    pending.abort();
                    return Fault::Killed(why_none(reserved));
                };
                object.reserved.add(pending);
                object.pages.insert(index, self.pages.add(frame, node));
                Fault::Fresh { frame, reserved }
            }
            Backing::Private(private) => {
                let slot = &mut private.pages[index as usize];
                if *slot != 0 {
                    let page = *self.pages.get(*slot);
                    if write && page.users > 1 {
                        return self.copy_on_write(mapping, index, place, frames);
                    }
                    return Fault::Present(page.frame);
                }
                if private.robbed.contains(index) {
                    return Fault::Killed(Why::Robbed);
                }
                let reserved = private.used.as_ref().is_some_and(|used| !used.contains(index));
                let Some((frame, node)) = self.store.take(reserved, place, frames) else {
                    return Fault::Killed(why_none(reserved));
                };
                if let Some(used) = &mut private.used {
                    used.add(used.chg(index, index + 1));
                }
                *slot = self.pages.add(frame, node);
                Fault::Fresh { frame, reserved }
            }
        }
    }

    /// The copy never comes out of a reservation: the owner's was used for the page it shares, others
    /// have none (`cow_from_owner`).
    fn copy_on_write(
        &mut self,
        mapping: MappingId,
        index: u32,
        place: Place,
        frames: &mut impl Frames,
    ) -> Fault {
        let taken = self.store.take(false, place, frames);
        let private = self.private(mapping);
        let (owner, number) = (private.used.is_some(), private.pages[index as usize]);
        let from = self.pages.get(number).frame;
        if let Some((to, node)) = taken {
            let copy = self.pages.add(to, node);
            self.private(mapping).pages[index as usize] = copy;
            let last = self.pages.drop_user(number);
            debug_assert!(last.is_none(), "it was shared");
            return Fault::Copied { from, to };
        }
        if !owner {
            return Fault::Killed(Why::PoolEmpty);
        }
        let mut children = Vec::new();
        for (&id, other) in &mut self.mappings {
            let Backing::Private(private) = &mut other.kind else { continue };
            let Some(slot) = private.pages.get_mut(index as usize) else { continue };
            if id != mapping && *slot == number {
                *slot = 0;
                let mut areas = other.live.within(0, other.length);
                let (from, to) = areas.find(|area| area.1 > index).expect("it is mapped");
                private.robbed.add(private.robbed.chg(from, to));
                self.pages.get(number).users -= 1;
                children.push(id);
            }
        }
        Fault::Robbed { frame: from, children }
    }

    /// Undoes a [`Fault::Fresh`] that could not be finished; a promise that it used is renewed
    /// (`restore_reserve_on_error`).
    ///
    /// The kernel gives such a page back to memory if its node has surplus, also where the renewed
    /// promise would need it; here it is kept then.
    pub fn undo(
        &mut self,
        mapping: MappingId,
        index: u32,
        reserved: bool,
        frames: &mut impl Frames,
    ) {
        let number = match &mut self.mappings.get_mut(&mapping).expect("a live mapping").kind {
            Backing::Shared { object, start } => {
                let index = *start + index;
                let object = self.objects.get_mut(object).expect("it is mapped");
                if !reserved {
                    // An entry without a page would be taken for a promise.
                    object.reserved.del(index, index + 1);
                }
                object.pages.remove(&index).expect("a page that was faulted in")
            }
            Backing::Private(private) => {
                if let Some(used) = private.used.as_mut().filter(|_| reserved) {
                    used.del(index, index + 1);
                }
                std::mem::take(&mut private.pages[index as usize])
            }
        };
        let page = self.pages.drop_user(number).expect("nobody shares it yet");
        self.store.give(page, reserved, frames);
    }

    pub(super) fn private(&mut self, mapping: MappingId) -> &mut super::mapping::Private {
        match &mut self.mappings.get_mut(&mapping).expect("a live mapping").kind {
            Backing::Private(private) => private,
            Backing::Shared { .. } => unreachable!("only private pages are copied"),
        }
    }
}

fn why_none(reserved: bool) -> Why {
    if reserved { Why::NodesEmpty } else { Why::PoolEmpty }
}
