//! Mappings and objects: made, reserved for, grown, inherited.

use std::collections::BTreeMap;

use super::{Frames, HugetlbPool, MappingId, ObjectId, Place, Regions, TooFew};

/// What is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Private memory: a page for each index must be had, also where nothing is written at first.
    Private,
    /// An object, from this index of it on.
    Shared {
        /// Which.
        object: ObjectId,
        /// The object's index of the mapping's first page.
        start: u32,
    },
}

/// What a mapping is asked to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What is mapped.
    pub kind: Kind,
    /// How many pages.
    pub pages: u32,
    /// Pages are reserved (no MAP_NORESERVE).
    pub reserve: bool,
    /// Where they may come from.
    pub place: Place,
}

/// A mapping. Indexes are its own, from 0 on.
#[derive(Debug)]
pub(super) struct Mapping {
    pub kind: Backing,
    /// The indexes that are still mapped.
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
    /// The reservation's map, which makes it the reservation's owner (HPAGE_RESV_OWNER). Children and
    /// mappings without reservation have none.
    pub used: Option<Regions>,
    /// The page behind each index, 0: none.
    pub pages: Vec<u32>,
    /// The parts, between holes, of which a page was taken for the owner (HPAGE_RESV_UNMAPPED: a flag of
    /// each of the areas into which holes split a mapping).
    pub robbed: Regions,
}

/// A shared object.
#[derive(Debug, Default)]
pub(super) struct Object {
    pub reserved: Regions,
    pub pages: BTreeMap<u32, u32>,
    /// Its length in pages: no fault is served past it.
    pub length: u32,
    pub mappings: u32,
    /// It has a name or a descriptor: it outlives its mappings.
    pub open: bool,
}

impl HugetlbPool {
    /// A new, empty object that stays until it is [`close`](Self::close)d and mapped no more.
    pub fn create_object(&mut self) -> ObjectId {
        let id = ObjectId(self.next_object);
        self.next_object += 1;
        self.objects.insert(id, Object { open: true, ..Object::default() });
        id
    }

    /// Maps pages, and reserves those for which no reservation exists (`hugetlb_reserve_pages`).
    ///
    /// # Errors
    /// [`TooFew`]: the pool has too few pages to reserve; nothing is mapped.
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
                // A writable mapping makes the file as long as it is (`hugetlbfs_file_mmap`).
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

    /// Makes a private mapping longer by `pages`; the owner of a reservation reserves them as well. A
    /// heap on the pool grows so (by further mappings, in truth).
    ///
    /// # Errors
    /// [`TooFew`]: the pool has too few pages to reserve; the mapping is as it was.
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

    /// A child's copy of a mapping. It shares the pages, and owns no reservation.
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
