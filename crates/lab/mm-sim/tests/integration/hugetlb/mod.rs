//! The pool against its reference model; nodes; file regions.

mod examples;
mod naive;

use std::collections::BTreeSet;

use proptest::prelude::*;
use superpage_mm_sim::hugetlb::{
    Fault, Frames, HugetlbPool, Kind, MappingId, ObjectId, Place, Regions, Request, Why,
};
use superpage_mm_sim::memory::Frame;

use naive::{Naive, OneObject, Said};

/// Memory of one or more nodes that records which blocks it gave out.
pub struct Blocks {
    left: Vec<Vec<u32>>,
}

impl Blocks {
    /// Creates this many blocks on each node.
    pub fn new(nodes: u8, blocks: u32) -> Self {
        let left = (0..u32::from(nodes)).map(|node| (node * 1000..node * 1000 + blocks).collect());
        Self { left: left.collect() }
    }
    fn count(&self) -> u64 {
        self.left.iter().map(|node| node.len() as u64).sum()
    }
}

impl Frames for Blocks {
    fn allocate(&mut self, node: u8) -> Option<Frame> {
        self.left[usize::from(node)].pop().map(|block| Frame(block << 9))
    }
    fn free(&mut self, frame: Frame, node: u8) {
        assert!(
            frame.0 >> 9 >= u32::from(node) * 1000 && frame.0 >> 9 < (u32::from(node) + 1) * 1000
        );
        assert!(!self.left[usize::from(node)].contains(&(frame.0 >> 9)), "freed twice");
        self.left[usize::from(node)].push(frame.0 >> 9);
    }
}

/// Numbers are taken modulo the number of mappings, objects and so on that exist.
#[derive(Debug, Clone)]
enum Do {
    Private { pages: u32, reserve: bool },
    Shared { object: usize, start: u32, pages: u32, reserve: bool },
    Fault { mapping: usize, index: u32, write: bool, undo: bool },
    Fork(usize),
    Unmap { mapping: usize, from: u32, pages: u32 },
    Exit(usize),
    Discard { mapping: usize, from: u32, pages: u32 },
    Extend { mapping: usize, pages: u32 },
    Create,
    Close(usize),
    Truncate { object: usize, length: u32 },
    Punch { object: usize, from: u32, pages: u32 },
    Resize(u64),
    Overcommit(u64),
}

fn operation() -> impl Strategy<Value = Do> {
    let which = any::<usize>();
    let (small, reserve) = (0..8u32, prop::bool::weighted(0.8));
    prop_oneof![
        3 => (1..6u32, reserve).prop_map(|(pages, reserve)| Do::Private { pages, reserve }),
        3 => (which, small.clone(), 1..6u32, reserve).prop_map(|(object, start, pages, reserve)| {
            Do::Shared { object, start, pages, reserve }
        }),
        12 => (which, small.clone(), any::<bool>(), prop::bool::weighted(0.2)).prop_map(
            |(mapping, index, write, undo)| Do::Fault { mapping, index, write, undo }
        ),
        3 => which.prop_map(Do::Fork),
        2 => (which, small.clone(), 1..6u32)
            .prop_map(|(mapping, from, pages)| Do::Unmap { mapping, from, pages }),
        1 => which.prop_map(Do::Exit),
        2 => (which, small.clone(), 1..6u32)
            .prop_map(|(mapping, from, pages)| Do::Discard { mapping, from, pages }),
        1 => (which, 1..4u32).prop_map(|(mapping, pages)| Do::Extend { mapping, pages }),
        1 => Just(Do::Create),
        1 => which.prop_map(Do::Close),
        1 => (which, small.clone()).prop_map(|(object, length)| Do::Truncate { object, length }),
        1 => (which, small, 1..6u32)
            .prop_map(|(object, from, pages)| Do::Punch { object, from, pages }),
        2 => (0..14u64).prop_map(Do::Resize),
        1 => (0..6u64).prop_map(Do::Overcommit),
    ]
}

struct Both {
    pool: HugetlbPool,
    naive: Naive,
    memory: Blocks,
    made: u32,
    objects: Vec<ObjectId>,
}

impl Both {
    fn new(blocks: u32) -> Self {
        let naive = Naive { memory: blocks.into(), ..Naive::default() };
        let (pool, memory) = (HugetlbPool::new(1, 0), Blocks::new(1, blocks));
        Self { pool, naive, memory, made: 0, objects: Vec::new() }
    }

    fn map(&mut self, kind: Kind, pages: u32, reserve: bool) -> Result<(), TestCaseError> {
        let request = Request { kind, pages, reserve, place: Place::ANY };
        let said = self.pool.map(request, &mut self.memory).map_err(|few| few.short_by);
        prop_assert_eq!(said, self.naive.map(self.made, request));
        self.made += u32::from(said.is_ok());
        Ok(())
    }

    fn mapping(&self, which: usize) -> Option<MappingId> {
        let count = self.naive.mappings.len();
        (count > 0).then(|| *self.naive.mappings.keys().nth(which % count).unwrap())
    }

    fn object(&self, which: usize, must_be_open: bool) -> Option<ObjectId> {
        let objects = self.naive.objects.iter().filter(|(_, object)| object.open || !must_be_open);
        let objects: Vec<ObjectId> = objects.map(|(&id, _)| id).collect();
        (!objects.is_empty()).then(|| objects[which % objects.len()])
    }

    fn perform(&mut self, what: &Do) -> Result<(), TestCaseError> {
        match *what {
            Do::Private { pages, reserve } => self.map(Kind::Private, pages, reserve)?,
            Do::Shared { object, start, pages, reserve } => {
                let Some(object) = self.object(object, true) else { return Ok(()) };
                self.map(Kind::Shared { object, start }, pages, reserve)?;
            }
            Do::Create => {
                let object = self.pool.create_object();
                self.objects.push(object);
                self.naive.objects.insert(object, OneObject { open: true, ..OneObject::default() });
            }
            Do::Resize(pages) => {
                prop_assert_eq!(
                    self.pool.resize(pages, None, &mut self.memory),
                    self.naive.resize(pages)
                );
            }
            Do::Overcommit(pages) => {
                self.pool.set_overcommit(pages);
                self.naive.overcommit = pages;
            }
            Do::Close(object) => {
                let Some(object) = self.object(object, true) else { return Ok(()) };
                self.pool.close(object, &mut self.memory);
                self.naive.objects.get_mut(&object).unwrap().open = false;
                self.naive.evict(object);
            }
            Do::Truncate { object, length } => {
                let Some(object) = self.object(object, false) else { return Ok(()) };
                self.pool.truncate(object, length, &mut self.memory);
                self.naive.truncate(object, length);
            }
            Do::Punch { object, from, pages } => {
                let Some(object) = self.object(object, false) else { return Ok(()) };
                self.pool.punch(object, from, from + pages, &mut self.memory);
                self.naive.punch(object, from, from + pages);
            }
            Do::Fault { mapping, index, write, undo } => {
                let Some(id) = self.mapping(mapping) else { return Ok(()) };
                let mapped = &self.naive.mappings[&id].mapped;
                let index = *mapped.iter().nth(index as usize % mapped.len()).unwrap();
                let promised = self.naive.is_promised(id, index);
                let fault = self.pool.fault(id, index, write, Place::ANY, &mut self.memory);
                let said = fault.into();
                prop_assert!(!promised || !matches!(said, Said::Killed(_)), "a promise was broken");
                prop_assert_eq!(&said, &self.naive.fault(id, index, write));
                if let (Said::Fresh(reserved), true) = (said, undo) {
                    self.pool.undo(id, index, reserved, &mut self.memory);
                    self.naive.undo(id, index, reserved);
                }
            }
            Do::Fork(mapping) => {
                let Some(id) = self.mapping(mapping) else { return Ok(()) };
                prop_assert_eq!(self.pool.fork(id), MappingId(self.made));
                self.naive.fork(id, self.made);
                self.made += 1;
            }
            Do::Unmap { mapping, from, pages } => {
                let Some(id) = self.mapping(mapping) else { return Ok(()) };
                self.pool.unmap(id, from, from + pages, &mut self.memory);
                self.naive.unmap(id, from, from + pages);
            }
            Do::Exit(mapping) => {
                let Some(id) = self.mapping(mapping) else { return Ok(()) };
                self.pool.unmap_all(id, &mut self.memory);
                self.naive.unmap(id, 0, u32::MAX);
            }
            Do::Discard { mapping, from, pages } => {
                let Some(id) = self.mapping(mapping) else { return Ok(()) };
                self.pool.discard(id, from, from + pages, &mut self.memory);
                self.naive.discard(id, from, from + pages);
            }
            Do::Extend { mapping, pages } => {
                let Some(id) = self.mapping(mapping) else { return Ok(()) };
                if self.naive.mappings[&id].shared.is_none() {
                    let memory = &mut self.memory;
                    let said = self.pool.extend(id, pages, Place::ANY, memory);
                    prop_assert_eq!(said.map_err(|few| few.short_by), self.naive.extend(id, pages));
                }
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::cases(500) as u32))]

    #[test]
    fn the_pool_counts_as_defined(what in prop::collection::vec(operation(), 1..150), blocks in 0..20u32) {
        let mut both = Both::new(blocks);
        for what in &what {
            both.perform(what)?;
            prop_assert_eq!(both.pool.counts(), both.naive.counts(), "after {:?}", what);
            prop_assert_eq!(both.memory.count(), both.naive.memory);
            both.pool.verify().map_err(TestCaseError::fail)?;
        }
        // At the end all pages are returned.
        both.perform(&Do::Resize(0))?;
        while let Some(id) = both.mapping(0) {
            both.pool.unmap_all(id, &mut both.memory);
            both.naive.unmap(id, 0, u32::MAX);
        }
        while both.object(0, true).is_some() {
            both.perform(&Do::Close(0))?;
        }
        prop_assert_eq!(both.pool.counts(), Default::default());
        prop_assert_eq!(both.memory.count(), u64::from(blocks));
    }

    /// On several nodes, reservations hold unless a memory policy forbids nodes. If one does, the kernel's best-effort
    /// check and the fault may disagree, but the counters never do.
    #[test]
    fn promises_hold_on_nodes_unless_policy_breaks_them(
        what in prop::collection::vec((0..8u8, any::<usize>(), 0..8u32, 0..3u8, 1..8u64), 1..120),
    ) {
        let mut memory = Blocks::new(3, 6);
        let mut pool = HugetlbPool::new(3, 3);
        let mut mappings: Vec<(MappingId, u32)> = Vec::new();
        for (what, which, number, near, mask) in what {
            let bound = Place { near, allowed: mask };
            let place = if which % 3 == 0 { bound } else { Place { near, allowed: !0 } };
            let one = (!mappings.is_empty()).then(|| which % mappings.len().max(1));
            match (what, one) {
                (0, _) => {
                    pool.resize(u64::from(number) * 2, (which % 2 == 0).then_some(near), &mut memory);
                }
                (1 | 2, _) => {
                    let pages = 1 + number % 4;
                    let request = Request { kind: Kind::Private, pages, reserve: true, place };
                    if let Ok(id) = pool.map(request, &mut memory) {
                        mappings.push((id, pages));
                    }
                }
                (3, Some(at)) => {
                    let (id, _) = mappings.swap_remove(at);
                    pool.unmap_all(id, &mut memory);
                }
                (_, Some(at)) => {
                    let (id, pages) = mappings[at];
                    let fault = pool.fault(id, number % pages, true, place, &mut memory);
                    let fine = matches!(
                        fault,
                        Fault::Fresh { reserved: true, .. } | Fault::Present(_)
                    );
                    let forbidden = place.allowed & 7 != 7 && fault == Fault::Killed(Why::NodesEmpty);
                    prop_assert!(fine || forbidden, "{fault:?} at {place:?}");
                }
                _ => {}
            }
            pool.verify().map_err(TestCaseError::fail)?;
            let nodes: Vec<_> = (0..3).map(|node| pool.node_counts(node)).collect();
            let counts = pool.counts();
            prop_assert_eq!(nodes.iter().map(|node| node.total).sum::<u64>(), counts.total);
            prop_assert_eq!(nodes.iter().map(|node| node.free).sum::<u64>(), counts.free);
            prop_assert_eq!(nodes.iter().map(|node| node.surplus).sum::<u64>(), counts.surplus);
            prop_assert_eq!(memory.count() + counts.total, 18);
        }
    }

    #[test]
    fn regions_are_sets(what in prop::collection::vec((0..4u8, 0..60u32, 0..20u32), 1..80)) {
        let (mut regions, mut set) = (Regions::default(), BTreeSet::new());
        for (what, from, length) in what {
            let (to, range) = (from + length, from..from + length);
            let inside = set.range(range.clone()).count() as u32;
            match what {
                0 | 1 => {
                    let pending = regions.chg(from, to);
                    prop_assert_eq!(pending.missing(), length - inside);
                    if what == 0 {
                        prop_assert_eq!(regions.add(pending), length - inside);
                        set.extend(range);
                    } else {
                        pending.abort();
                    }
                }
                2 => {
                    prop_assert_eq!(regions.del(from, to), inside);
                    set.retain(|index| !range.contains(index));
                }
                _ => prop_assert_eq!(regions.count(from, to), inside),
            }
            let all: Vec<u32> = regions.within(0, 100).flat_map(|(from, to)| from..to).collect();
            prop_assert!(set.iter().copied().eq(all));
            prop_assert!((0..100).all(|index| regions.contains(index) == set.contains(&index)));
            let parts: Vec<(u32, u32)> = regions.within(0, 100).collect();
            prop_assert!(parts.windows(2).all(|pair| pair[0].1 < pair[1].0), "ranges are joined");
        }
    }
}
