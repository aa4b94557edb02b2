//! Mappings and objects: create, reserve, grow, fork.

use std::collections::BTreeMap;

use super::{Frames, HugetlbPool, MappingId, ObjectId, Place, Regions, TooFew};
use crate::memory::Frame;

/// Backing of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Private memory: every index needs a page, even if nothing is written at first.
    Private,
    /// Shared memory: an object, from index `start` on.
    Shared {
        /// The object.
        object: ObjectId,
        /// Object index of the mapping's first page.
        start: u32,
    },
}

/// A request for a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Backing.
    pub kind: Kind,
    /// Number of pages.
    pub pages: u32,
    /// Whether to reserve pages (no MAP_NORESERVE).
    pub reserve: bool,
    /// Nodes that the pages may come from.
    pub place: Place,
}

/// A mapping. Indexes are relative to the mapping, from 0.
#[derive(Debug)]
pub(super) struct Mapping {
    pub kind: Backing,
    /// The indexes still mapped.
    pub live: Regions,
    pub length: u32,
}

#[derive(Debug)]
pub(super) enum Backing {
    Private(Private),
    Shared { object: ObjectId, start: u32 },
}

#[derive(Debug)]
pub(super) struct Private {
    /// Reservation map. A mapping with a map owns its reservation (HPAGE_RESV_OWNER). Children and mappings without a
    /// reservation have none.
    pub used: Option<Regions>,
    /// Page number of each index; 0: none.
    pub pages: Vec<u32>,
    /// Parts, between holes, from which the owner took a page (HPAGE_RESV_UNMAPPED). In the kernel this is a flag of a
    /// VMA, and holes split a mapping into several VMAs.
    pub robbed: Regions,
}

#[derive(Debug, Default)]
pub(super) struct Object {
    pub reserved: Regions,
    pub pages: BTreeMap<u32, u32>,
    /// Length in pages; a fault past the end fails.
    pub length: u32,
    pub mappings: u32,
    /// Whether the object has a name or a descriptor, so it outlives its mappings.
    pub open: bool,
}

impl HugetlbPool {
    /// Creates an empty object. It lives until it is [`close`](Self::close)d and no longer mapped.
    pub fn create_object(&mut self) -> ObjectId {
        let id = ObjectId(self.next_object);
        self.next_object += 1;
        self.objects.insert(id, Object { open: true, ..Object::default() });
        id
    }

    /// Maps pages, and reserves those without a reservation (`hugetlb_reserve_pages`).
    ///
    /// # Errors
    /// [`TooFew`]: the pool cannot reserve the pages; nothing is mapped.
    pub fn map(&mut self, request: Request, frames: &mut impl Frames) -> Result<MappingId, TooFew> {
        let Request { kind, pages, reserve, place } = request;
        let kind = match kind {
            Kind::Private => {
                if reserve {
                    self.store.reserve(pages.into(), place, frames)?;
                }
                let used = reserve.then(Regions::default);
                Backing::Private(Private {
                    used,
                    pages: vec![0; pages as usize],
                    robbed: Regions::default(),
                })
            }
            Kind::Shared { object, start } => {
                let shared = self.objects.get_mut(&object).expect("an object that was made");
                if reserve {
                    let pending = shared.reserved.chg(start, start + pages);
                    if let Err(short) = self.store.reserve(pending.missing().into(), place, frames)
                    {
                        pending.abort();
                        return Err(short);
                    }
                    shared.reserved.add(pending);
                }
                shared.mappings += 1;
                // A writable mapping extends the file to the mapping's end (`hugetlbfs_file_mmap`).
                shared.length = shared.length.max(start + pages);
                Backing::Shared { object, start }
            }
        };
        let mut live = Regions::default();
        live.add(live.chg(0, pages));
        Ok(self.enter(Mapping { kind, live, length: pages }))
    }

    fn enter(&mut self, mapping: Mapping) -> MappingId {
        let id = MappingId(self.next_mapping);
        self.next_mapping += 1;
        self.mappings.insert(id, mapping);
        id
    }

    /// Extends a private mapping by `pages`. The owner of a reservation also reserves these pages. Models the growth of
    /// a heap on the pool (in reality with further mappings).
    ///
    /// # Errors
    /// [`TooFew`]: the pool cannot reserve the pages; the mapping is unchanged.
    pub fn extend(
        &mut self,
        mapping: MappingId,
        pages: u32,
        place: Place,
        frames: &mut impl Frames,
    ) -> Result<(), TooFew> {
        let mapping = self.mappings.get_mut(&mapping).expect("a live mapping");
        let Backing::Private(private) = &mut mapping.kind else {
            unreachable!("only private mappings grow")
        };
        if private.used.is_some() {
            self.store.reserve(pages.into(), place, frames)?;
        }
        let end = mapping.length + pages;
        mapping.live.add(mapping.live.chg(mapping.length, end));
        mapping.length = end;
        private.pages.resize(end as usize, 0);
        Ok(())
    }

    /// Copies a mapping for a child: the copy shares the pages and owns no reservation.
    pub fn fork(&mut self, mapping: MappingId) -> MappingId {
        let parent = &self.mappings[&mapping];
        let kind = match &parent.kind {
            Backing::Private(private) => {
                for &number in private.pages.iter().filter(|&&number| number != 0) {
                    self.pages.get(number).users += 1;
                }
                Backing::Private(Private {
                    used: None,
                    pages: private.pages.clone(),
                    robbed: Regions::default(),
                })
            }
            &Backing::Shared { object, start } => {
                self.objects.get_mut(&object).expect("it is mapped").mappings += 1;
                Backing::Shared { object, start }
            }
        };
        let (live, length) = (parent.live.clone(), parent.length);
        self.enter(Mapping { kind, live, length })
    }
}

// Faults: page allocation, copy on write, and the shortage of pages (`hugetlb_fault`, `hugetlb_no_page`, `hugetlb_wp`,
// `alloc_hugetlb_folio`).

/// Outcome of a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A page was taken from the pool; the caller zeroes it.
    Fresh {
        /// The page.
        frame: Frame,
        /// Whether the page was reserved for this index.
        reserved: bool,
    },
    /// The page was present and is mapped unchanged.
    Present(Frame),
    /// A write to a page that is shared since a fork; the caller copies the page.
    Copied {
        /// The old page; other sharers keep it.
        from: Frame,
        /// The writer's new page.
        to: Frame,
    },
    /// The reservation's owner wrote to a shared page while the pool was empty. The owner keeps the page and the
    /// children lose it (`unmap_ref_private`). Later a child is killed if it faults on a missing page in the same part
    /// of its mapping, between two holes.
    Robbed {
        /// The page.
        frame: Frame,
        /// The mappings that lost the page.
        children: Vec<MappingId>,
    },
    /// The process is killed (SIGBUS).
    Killed(Why),
}

/// Why a fault kills the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// No page was reserved, and none is available.
    PoolEmpty,
    /// The page was reserved, but the allowed nodes have none free: memory policy and cpuset break the reservation.
    NodesEmpty,
    /// The owner of the reservation has taken the page.
    Robbed,
    /// The index is past the object's end.
    PastEnd,
}

impl HugetlbPool {
    /// Handles a fault at an index of a mapping. `write`: the page will be written.
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

    /// Copies a shared page. The copy uses no reservation: the shared page used the owner's, and other mappings have
    /// none (`cow_from_owner`).
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

    /// Undoes a [`Fault::Fresh`] that could not be completed, and restores its reservation
    /// (`restore_reserve_on_error`).
    ///
    /// The kernel frees such a page to memory if its node has surplus, even if the restored reservation needs the page.
    /// The simulation keeps the page then.
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
                    // An entry without a page would count as a reservation.
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

// Freeing pages: unmap, discard, truncate.

impl HugetlbPool {
    /// Unmaps `from..to` of a mapping, and releases its unused reservation (`hugetlb_vm_op_close`). A mapping without
    /// pages left is removed. An object's pages stay until the object is removed.
    pub fn unmap(&mut self, mapping: MappingId, from: u32, to: u32, frames: &mut impl Frames) {
        let found = self.mappings.get_mut(&mapping).expect("a live mapping");
        let parts: Vec<(u32, u32)> = found.live.within(from, to).collect();
        found.live.del(from, to);
        let gone = found.live.is_empty();
        match &mut found.kind {
            Backing::Private(private) => {
                let mut unused = 0;
                for (from, to) in parts {
                    for slot in &mut private.pages[from as usize..to as usize] {
                        let number = std::mem::take(slot);
                        if number != 0
                            && let Some(page) = self.pages.drop_user(number)
                        {
                            self.store.give(page, false, frames);
                        }
                    }
                    let used = private.used.as_ref().map_or(to - from, |used| used.count(from, to));
                    unused += to - from - used;
                }
                self.store.unreserve(unused.into(), frames);
            }
            &mut Backing::Shared { object, .. } => {
                if gone {
                    self.objects.get_mut(&object).expect("it is mapped").mappings -= 1;
                    self.evict(object, frames);
                }
            }
        }
        if gone {
            self.mappings.remove(&mapping);
        }
    }

    /// Unmaps all of a mapping when its process exits.
    pub fn unmap_all(&mut self, mapping: MappingId, frames: &mut impl Frames) {
        let length = self.mappings[&mapping].length;
        self.unmap(mapping, 0, length, frames);
    }

    /// Frees the pages in `from..to` of a mapping (MADV_DONTNEED). The owner's reservation is restored with each freed
    /// page, unless the pool has surplus (`__unmap_hugepage_range`, mm/hugetlb.c, Linux 6.7 and later).
    ///
    /// If a child still shares the page, the kernel removes the map's entry at once, but counts the reservation only
    /// when the child releases the page. If the owner unmaps in between, the kernel subtracts a reservation that was
    /// not counted: HugePages_Rsvd read 2^64 - 1 on Linux 6.18 (measured: three pages mapped, one touched, fork, munmap
    /// by the parent). The simulation restores a reservation only with a freed page. Shared objects keep their pages.
    pub fn discard(&mut self, mapping: MappingId, from: u32, to: u32, frames: &mut impl Frames) {
        let found = self.mappings.get_mut(&mapping).expect("a live mapping");
        let Backing::Private(private) = &mut found.kind else { return };
        for index in found.live.within(from, to).flat_map(|(from, to)| from..to) {
            let number = std::mem::take(&mut private.pages[index as usize]);
            if number == 0 {
                continue;
            }
            let Some(page) = self.pages.drop_user(number) else { continue };
            let restored = private.used.as_mut().filter(|_| self.store.surplus() == 0);
            let restore = restored.is_some_and(|used| used.del(index, index + 1) > 0);
            self.store.give(page, restore, frames);
        }
    }

    /// Truncates or extends an object to `length` pages: pages and reservations past the end are freed
    /// (`remove_inode_hugepages`, `hugetlb_unreserve_pages`).
    pub fn truncate(&mut self, object: ObjectId, length: u32, frames: &mut impl Frames) {
        self.punch(object, length, u32::MAX, frames);
        let object = self.objects.get_mut(&object).expect("an object that was made");
        object.length = length;
        let promised = object.reserved.del(length, u32::MAX);
        self.store.unreserve(promised.into(), frames);
    }

    /// Frees the pages in `from..to` of an object (FALLOC_FL_PUNCH_HOLE). Later faults on these pages have no
    /// reservation. A reservation whose page was never allocated stays.
    pub fn punch(&mut self, object: ObjectId, from: u32, to: u32, frames: &mut impl Frames) {
        let object = self.objects.get_mut(&object).expect("an object that was made");
        let gone: Vec<u32> = object.pages.range(from..to).map(|(&index, _)| index).collect();
        for index in gone {
            let number = object.pages.remove(&index).expect("listed");
            let page = self.pages.drop_user(number).expect("an object is a page's only user");
            object.reserved.del(index, index + 1);
            self.store.give(page, false, frames);
        }
    }

    /// Drops an object's name and descriptors; the object is removed once no longer mapped.
    pub fn close(&mut self, object: ObjectId, frames: &mut impl Frames) {
        self.objects.get_mut(&object).expect("an object that was made").open = false;
        self.evict(object, frames);
    }

    fn evict(&mut self, object: ObjectId, frames: &mut impl Frames) {
        let found = &self.objects[&object];
        if !found.open && found.mappings == 0 {
            self.truncate(object, 0, frames);
            self.objects.remove(&object);
        }
    }
}
