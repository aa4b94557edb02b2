//! Filters remove only accesses that hit in every TLB of their kind: compared with a simple LRU model, miss by miss.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{Item, read, write};
use proptest::collection::vec;
use proptest::prelude::*;
use superpage_trace::{
    Access, Backing, Block, Event, Filter, Header, MruSets, Page, Pages, Process, Region, SLOTS,
};

/// Sets as lists, most recently used first.
struct Lru {
    sets: Vec<Vec<u64>>,
    ways: usize,
}

impl Lru {
    fn new(sets: usize, ways: usize) -> Self {
        Self { sets: vec![Vec::new(); sets], ways }
    }
    fn hit(&mut self, key: u64) -> bool {
        let sets = self.sets.len() as u64;
        let set = &mut self.sets[(key % sets) as usize];
        let place = set.iter().position(|&one| one == key);
        place.map(|place| set.remove(place));
        set.insert(0, key);
        set.truncate(self.ways);
        place.is_some()
    }
    fn flush(&mut self) {
        self.sets.iter_mut().for_each(Vec::clear);
    }
}

/// The effects of a stream on a machine.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    /// The misses in order: array (base, superpage, second level) and key.
    misses: Vec<(u8, u64)>,
    /// For each interval between two events: the pages that were touched, and those that were written.
    touched: Vec<(BTreeSet<u32>, BTreeSet<u32>)>,
    accesses: u64,
}

/// Simulates a first level that is split by size, and a second level for both sizes. Every second region is on a
/// superpage. Events change that and flush the TLB.
fn simulate(
    items: &[Item],
    (base, base_ways): (usize, usize),
    (large, ways): (usize, usize),
) -> Seen {
    let (mut small, mut big) = (Lru::new(base, base_ways), Lru::new(large, ways));
    let mut second = Lru::new(64, 6);
    let mut address = BTreeMap::new();
    let (mut seen, mut parity) = (Seen::default(), 0);
    seen.touched.push(Default::default());
    for item in items {
        match item {
            Item::Event(event) => {
                if let Event::Map { pages, address: at, .. } = event {
                    address.insert(pages.first.region(), at / u64::from(SLOTS));
                }
                [&mut small, &mut big, &mut second].iter_mut().for_each(|array| array.flush());
                parity ^= 1;
                seen.touched.push(Default::default());
            }
            Item::Access(access, count) => {
                seen.accesses += u64::from(*count);
                let page = access.page();
                let (touched, written) = seen.touched.last_mut().unwrap();
                touched.insert(page.0);
                if access.writes() {
                    written.insert(page.0);
                }
                let region = address[&page.region()];
                let super_backed = page.region().0 % 2 == parity;
                let key = region * u64::from(SLOTS) + u64::from(page.slot());
                let (array, key) = if super_backed { (1, region) } else { (0, key) };
                let hit = if super_backed { big.hit(key) } else { small.hit(key) };
                if !hit {
                    seen.misses.push((array, key));
                    if !second.hit(key << 1 | u64::from(array)) {
                        seen.misses.push((2, key));
                    }
                }
            }
        }
    }
    seen
}

/// Twelve regions at addresses far from their numbers, and accesses that return to few pages.
fn stream() -> impl Strategy<Value = Vec<Block>> {
    let access =
        (0u32..12, prop_oneof![3 => 0u32..3, 1 => 0u32..64, 1 => 0u32..SLOTS], any::<bool>());
    let access = access.prop_map(|(region, slot, writes)| {
        let page = Page::new(Region(region), slot);
        if writes { Access::write(page) } else { Access::read(page) }
    });
    // A program that moves among a few places.
    let walk = (vec(access, 1..8), vec(any::<prop::sample::Index>(), 0..300)).prop_map(
        |(places, steps)| steps.iter().map(|step| places[step.index(places.len())]).collect(),
    );
    let blocks = vec((walk, any::<bool>()), 1..6).prop_map(|walks| {
        let block = |(accesses, event): (Vec<Access>, bool)| {
            let mut block = Block { accesses, ..Block::default() };
            if event {
                let middle = block.accesses.len() as u32 / 2;
                block.events.push((middle, Event::RequestBegin));
            }
            block
        };
        walks.into_iter().map(block).collect::<Vec<Block>>()
    });
    (vec(0u64..1 << 30, 12), blocks).prop_map(|(addresses, mut blocks)| {
        let mut first = Block::default();
        first.event(Event::Spawn(Process(0)));
        for (region, address) in (0..).zip(addresses) {
            first.event(Event::Map {
                pages: Pages { first: Region(region).first(), count: SLOTS },
                address: address * u64::from(SLOTS),
                backing: Backing::Anonymous,
            });
        }
        blocks.insert(0, first);
        blocks
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn misses_touches_and_totals_stay(
        blocks in stream(), times in 0u32..3, ways in 1usize..6, super_ways in 1usize..6,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.spt");
        let (base, large) = (16usize << times, 8usize << times);
        let all = |filter| {
            write(&path, &Header { filter, ..Header::new("test") }, &blocks);
            simulate(&read(&path), (base, ways), (large, super_ways))
        };
        assert!(MruSets::INTEL.is_exact_for(base as u32, large as u32));
        let plain = all(Filter::None);
        // This filter is exact for any TLB, also for one with a single set.
        prop_assert_eq!(&all(Filter::SamePage), &plain);
        prop_assert_eq!(&all(Filter::SetMru(MruSets::INTEL)), &plain);
    }
}

#[test]
fn alternation_becomes_two_records() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let accesses = [Access::read(Page(1)), Access::read(Page(514))].repeat(1000);
    let blocks = [Block { accesses, ..Block::default() }];
    let filter = Filter::SetMru(MruSets::INTEL);
    write(&path, &Header { filter, ..Header::new("test") }, &blocks);
    let expected =
        [Item::Access(Access::read(Page(1)), 1), Item::Access(Access::read(Page(514)), 1999)];
    assert_eq!(read(&path), expected);
    assert!(!MruSets::INTEL.is_exact_for(8, 8) && !MruSets::INTEL.is_exact_for(16, 4));
}
