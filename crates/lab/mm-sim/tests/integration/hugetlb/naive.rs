//! Reference model of the pool: sets of indexes; the counters are recounted from the sets each time.

use std::collections::{BTreeMap, BTreeSet};

use superpage_mm_sim::hugetlb::{Counts, Fault, Kind, MappingId, ObjectId, Request, Why};

#[derive(Debug, Clone, Default)]
pub struct OneMapping {
    /// The object, and the mapping's first index in it; `None` for a private mapping.
    pub shared: Option<(ObjectId, u32)>,
    pub mapped: BTreeSet<u32>,
    /// Of the owner of a reservation: the indexes for which a reserved page was used.
    pub used: Option<BTreeSet<u32>>,
    /// The pages by index. Each page has a unique name.
    pub pages: BTreeMap<u32, u32>,
    /// The indexes at which a missing page kills the process.
    pub robbed: BTreeSet<u32>,
    pub length: u32,
}

#[derive(Debug, Default)]
pub struct OneObject {
    pub entries: BTreeSet<u32>,
    pub pages: BTreeSet<u32>,
    pub length: u32,
    pub open: bool,
}

#[derive(Debug, Default)]
pub struct Naive {
    pub mappings: BTreeMap<MappingId, OneMapping>,
    pub objects: BTreeMap<ObjectId, OneObject>,
    pub total: u64,
    pub surplus: u64,
    pub overcommit: u64,
    /// Number of blocks that memory has left.
    pub memory: u64,
    pub names: u32,
}

impl Naive {
    fn reserved(&self) -> u64 {
        let unused = |mapping: &OneMapping| match &mapping.used {
            Some(used) => mapping.mapped.difference(used).count(),
            None => 0,
        };
        let private: usize = self.mappings.values().map(unused).sum();
        let waiting = |object: &OneObject| object.entries.difference(&object.pages).count();
        (private + self.objects.values().map(waiting).sum::<usize>()) as u64
    }

    fn free(&self) -> u64 {
        let names: BTreeSet<u32> =
            self.mappings.values().flat_map(|mapping| mapping.pages.values().copied()).collect();
        let shared: usize = self.objects.values().map(|object| object.pages.len()).sum();
        self.total - (names.len() + shared) as u64
    }

    pub fn counts(&self) -> Counts {
        let (total, free) = (self.total, self.free());
        Counts { total, free, reserved: self.reserved(), surplus: self.surplus }
    }

    /// Reserves `pages` more.
    fn promise(&mut self, pages: u64) -> Result<(), u64> {
        let short = (self.reserved() + pages).saturating_sub(self.free());
        let room = self.overcommit.saturating_sub(self.surplus).min(self.memory);
        if short > room {
            return Err(short - room);
        }
        self.more_surplus(short);
        Ok(())
    }

    fn more_surplus(&mut self, pages: u64) {
        self.total += pages;
        self.surplus += pages;
        self.memory -= pages;
    }

    fn less_surplus(&mut self) {
        self.total -= 1;
        self.surplus -= 1;
        self.memory += 1;
    }

    /// Updates the pool after `pages` were freed, and then `promises` reservations ended.
    fn settle(&mut self, pages: u64, promises: u64) {
        for _ in 0..pages {
            if self.surplus > 0 {
                self.less_surplus();
            }
        }
        for _ in 0..promises {
            if self.surplus > 0 && self.free() > 0 {
                self.less_surplus();
            }
        }
    }

    fn has_user(&self, name: u32) -> bool {
        self.mappings.values().any(|mapping| mapping.pages.values().any(|&other| other == name))
    }

    pub fn map(&mut self, id: u32, request: Request) -> Result<MappingId, u64> {
        let indexes: BTreeSet<u32> = (0..request.pages).collect();
        let mut mapping = OneMapping { mapped: indexes.clone(), ..OneMapping::default() };
        mapping.length = request.pages;
        match request.kind {
            Kind::Private if request.reserve => {
                self.promise(request.pages.into())?;
                mapping.used = Some(BTreeSet::new());
            }
            Kind::Private => {}
            Kind::Shared { object, start } => {
                let there: BTreeSet<u32> = indexes.iter().map(|index| start + index).collect();
                if request.reserve {
                    let missing = there.difference(&self.objects[&object].entries).count();
                    self.promise(missing as u64)?;
                    self.objects.get_mut(&object).unwrap().entries.extend(&there);
                }
                let found = self.objects.get_mut(&object).unwrap();
                found.length = found.length.max(start + request.pages);
                mapping.shared = Some((object, start));
            }
        }
        self.mappings.insert(MappingId(id), mapping);
        Ok(MappingId(id))
    }

    pub fn extend(&mut self, id: MappingId, pages: u32) -> Result<(), u64> {
        if self.mappings[&id].used.is_some() {
            self.promise(pages.into())?;
        }
        let mapping = self.mappings.get_mut(&id).unwrap();
        mapping.mapped.extend(mapping.length..mapping.length + pages);
        mapping.length += pages;
        Ok(())
    }

    /// Returns whether a fault at the index may use a reserved page.
    pub fn is_promised(&self, id: MappingId, index: u32) -> bool {
        let mapping = &self.mappings[&id];
        match mapping.shared {
            Some((object, start)) => {
                let object = &self.objects[&object];
                let index = start + index;
                index < object.length && object.entries.contains(&index)
            }
            None => mapping.used.as_ref().is_some_and(|used| !used.contains(&index)),
        }
    }

    /// Returns whether a page is available; if so, the page counts as used.
    fn can_take(&mut self, reserved: bool) -> bool {
        if reserved || self.free() > self.reserved() {
            return true;
        }
        let more = self.surplus < self.overcommit && self.memory > 0;
        if more {
            self.more_surplus(1);
        }
        more
    }

    pub fn fault(&mut self, id: MappingId, index: u32, write: bool) -> Said {
        let mapping = self.mappings[&id].clone();
        let promised = self.is_promised(id, index);
        if let Some((object, start)) = mapping.shared {
            let at = start + index;
            return match &self.objects[&object] {
                found if at >= found.length => Said::Killed(Why::PastEnd),
                found if found.pages.contains(&at) => Said::Present,
                _ if !self.can_take(promised) => Said::Killed(Why::PoolEmpty),
                _ => {
                    let found = self.objects.get_mut(&object).unwrap();
                    found.entries.insert(at);
                    found.pages.insert(at);
                    Said::Fresh(promised)
                }
            };
        }
        self.names += 1;
        let new = self.names;
        let Some(&name) = mapping.pages.get(&index) else {
            if mapping.robbed.contains(&index) {
                return Said::Killed(Why::Robbed);
            }
            if !self.can_take(promised) {
                return Said::Killed(Why::PoolEmpty);
            }
            let mapping = self.mappings.get_mut(&id).unwrap();
            mapping.pages.insert(index, new);
            if let Some(used) = &mut mapping.used {
                used.insert(index);
            }
            return Said::Fresh(promised);
        };
        let has_it = |mapping: &OneMapping| mapping.pages.values().any(|&other| other == name);
        let others: Vec<MappingId> = self
            .mappings
            .iter()
            .filter(|(_, m)| has_it(m))
            .map(|(&id, _)| id)
            .filter(|&other| other != id)
            .collect();
        if !write || others.is_empty() {
            return Said::Present;
        }
        if self.can_take(false) {
            self.mappings.get_mut(&id).unwrap().pages.insert(index, new);
            return Said::Copied;
        }
        if mapping.used.is_none() {
            return Said::Killed(Why::PoolEmpty);
        }
        for other in &others {
            let other = self.mappings.get_mut(other).unwrap();
            other.pages.remove(&index);
            let below = (0..=index).rev().take_while(|index| other.mapped.contains(index));
            let above = (index..).take_while(|index| other.mapped.contains(index));
            other.robbed.extend(below.chain(above));
        }
        Said::Robbed(others)
    }

    pub fn undo(&mut self, id: MappingId, index: u32, promised: bool) {
        let mapping = self.mappings.get_mut(&id).unwrap();
        mapping.pages.remove(&index);
        if let Some((object, start)) = mapping.shared {
            let object = self.objects.get_mut(&object).unwrap();
            object.pages.remove(&(start + index));
            if !promised {
                object.entries.remove(&(start + index));
            }
        } else if let Some(used) = mapping.used.as_mut().filter(|_| promised) {
            used.remove(&index);
        }
        // The page returns to memory, unless it is needed for a reservation.
        if self.surplus > 0 && self.free() > self.reserved() {
            self.less_surplus();
        }
    }

    pub fn fork(&mut self, id: MappingId, child: u32) {
        let parent = self.mappings[&id].clone();
        let copy = OneMapping { used: None, robbed: BTreeSet::new(), ..parent };
        self.mappings.insert(MappingId(child), copy);
    }

    pub fn unmap(&mut self, id: MappingId, from: u32, to: u32) {
        let before = self.reserved();
        let mapping = self.mappings.get_mut(&id).unwrap();
        let names: Vec<u32> = mapping.pages.range(from..to).map(|(_, &name)| name).collect();
        mapping.pages.retain(|index, _| !(from..to).contains(index));
        mapping.mapped.retain(|index| !(from..to).contains(index));
        let gone = mapping.mapped.is_empty();
        let shared = mapping.shared;
        if gone {
            self.mappings.remove(&id);
        }
        let freed = names.iter().filter(|&&name| !self.has_user(name)).count();
        self.settle(freed as u64, before - self.reserved());
        if let Some((object, _)) = shared {
            self.evict(object);
        }
    }

    pub fn discard(&mut self, id: MappingId, from: u32, to: u32) {
        for index in from..to {
            let Some(name) = self.mappings.get_mut(&id).unwrap().pages.remove(&index) else {
                continue;
            };
            if self.has_user(name) {
                continue;
            }
            if self.surplus > 0 {
                self.less_surplus();
            } else if let Some(used) = &mut self.mappings.get_mut(&id).unwrap().used {
                used.remove(&index);
            }
        }
    }

    pub fn punch(&mut self, id: ObjectId, from: u32, to: u32) {
        let object = self.objects.get_mut(&id).unwrap();
        let pages: Vec<u32> = object.pages.range(from..to).copied().collect();
        object.pages.retain(|index| !pages.contains(index));
        object.entries.retain(|index| !pages.contains(index));
        self.settle(pages.len() as u64, 0);
    }

    pub fn truncate(&mut self, id: ObjectId, length: u32) {
        self.punch(id, length, u32::MAX);
        let before = self.reserved();
        let object = self.objects.get_mut(&id).unwrap();
        object.entries.retain(|&index| index < length);
        object.length = length;
        self.settle(0, before - self.reserved());
    }

    pub fn evict(&mut self, id: ObjectId) {
        let mapped = |mapping: &OneMapping| mapping.shared.is_some_and(|(object, _)| object == id);
        if !self.objects[&id].open && !self.mappings.values().any(mapped) {
            self.truncate(id, 0);
            self.objects.remove(&id);
        }
    }

    pub fn resize(&mut self, pages: u64) -> u64 {
        while self.total - self.surplus < pages && self.surplus > 0 {
            self.surplus -= 1;
        }
        while self.total - self.surplus < pages && self.memory > 0 {
            self.total += 1;
            self.memory -= 1;
        }
        // Pages in use or reserved stay, as surplus.
        while self.total - self.surplus > pages {
            let kept = self.total - self.free() + self.reserved();
            if self.total - self.surplus > kept && self.free() > 0 {
                self.total -= 1;
                self.memory += 1;
            } else {
                self.surplus += 1;
            }
        }
        self.total - self.surplus
    }
}

/// Outcome of a fault, without frames.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    Fresh(bool),
    Present,
    Copied,
    Robbed(Vec<MappingId>),
    Killed(Why),
}

impl From<Fault> for Said {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Fresh { reserved, .. } => Self::Fresh(reserved),
            Fault::Present(_) => Self::Present,
            Fault::Copied { .. } => Self::Copied,
            Fault::Robbed { children, .. } => Self::Robbed(children),
            Fault::Killed(why) => Self::Killed(why),
        }
    }
}
