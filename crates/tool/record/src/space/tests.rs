//! Compares random calls of several processes with a map of single pages. The checker of `superpage trace verify` also
//! checks the events.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use trace::{Block, Checker};

use super::*;

/// Number of pages that the calls use.
const PAGES: u64 = 3000;

#[derive(Debug, Clone)]
enum Call {
    Map(u64, u64, Kind, Rights),
    Unmap(u64, u64),
    Protect(u64, u64, Rights),
    Remap(u64, u64, u64, u64),
    Declare(u64, u64, Kind),
    Touch(u64),
    Fork,
    Exit(usize),
}

fn call() -> impl Strategy<Value = Call> {
    let range = || (0..PAGES, 1..PAGES / 2).prop_map(|(begin, length)| (begin, begin + length));
    let kind = || {
        prop_oneof![
            Just(Kind::Anonymous),
            Just(Kind::Heap),
            (0u64..3, 0u64..3).prop_map(|(object, at)| Kind::Shared(object, at)),
            (0u64..3).prop_map(Kind::File),
        ]
    };
    let rights = || prop_oneof![Just(Rights::None), Just(Rights::Read), Just(Rights::Write)];
    prop_oneof![
        4 => (range(), kind(), rights()).prop_map(|(at, kind, to)| Call::Map(at.0, at.1, kind, to)),
        3 => range().prop_map(|at| Call::Unmap(at.0, at.1)),
        2 => (range(), rights()).prop_map(|(at, to)| Call::Protect(at.0, at.1, to)),
        1 => (range(), range()).prop_map(|(old, new)| Call::Remap(old.0, old.1, new.0, new.1)),
        1 => (range(), kind()).prop_map(|(at, kind)| Call::Declare(at.0, at.1, kind)),
        4 => (0..PAGES).prop_map(Call::Touch),
        1 => Just(Call::Fork),
        1 => any::<usize>().prop_map(Call::Exit),
    ]
}

/// Reference model: for each page, whether it is accessible, and whether it ever was.
#[derive(Default, Clone)]
struct Twin {
    areas: BTreeMap<u64, Rights>,
    mapped: BTreeSet<u64>,
    /// Address for each dense page number.
    places: BTreeMap<u32, u64>,
}

impl Twin {
    fn unmap(&mut self, begin: u64, end: u64) {
        self.areas.retain(|page, _| !(begin..end).contains(page));
        self.mapped.retain(|page| !(begin..end).contains(page));
    }
    fn map(&mut self, begin: u64, end: u64, rights: Rights) {
        for page in begin..end {
            self.areas.insert(page, rights);
            if rights != Rights::None {
                self.mapped.insert(page);
            }
        }
    }
    fn event(&mut self, event: &Event) {
        match *event {
            Event::Map { pages, address, .. } => {
                for at in 0..pages.count {
                    self.places.insert(pages.first.0 + at, address + u64::from(at));
                }
            }
            Event::Grow { pages } => {
                for at in pages.first.0..pages.first.0 + pages.count {
                    let address = self.places[&(at - 1)] + 1;
                    self.places.insert(at, address);
                }
            }
            Event::Unmap(pages) => {
                let gone = pages.first.0..pages.first.0 + pages.count;
                self.places.retain(|page, _| !gone.contains(page));
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_stream_maps_what_the_process_does(calls in prop::collection::vec(call(), 1..40)) {
        let (mut shared, mut out) = (SharedState::new(), vec![Event::Spawn(Process(0))]);
        let mut all = vec![(Space::new(Process(0)), Twin::default())];
        let (mut checker, mut next) = (Checker::new(), 1);
        for call in calls {
            let (last, few) = (all.len() - 1, all.len() < 5);
            let (space, twin) = &mut all[last];
            match call {
                Call::Map(begin, end, kind, rights) => {
                    space.map(begin, end, kind, rights, &mut shared, &mut out).unwrap();
                    twin.unmap(begin, end);
                    twin.map(begin, end, rights);
                }
                Call::Unmap(begin, end) => {
                    space.unmap(begin, end, &mut out);
                    twin.unmap(begin, end);
                }
                Call::Protect(begin, end, rights) => {
                    space.protect(begin, end, rights, &mut shared, &mut out).unwrap();
                    for page in begin..end {
                        if twin.areas.contains_key(&page) {
                            twin.map(page, page + 1, rights);
                        }
                    }
                }
                Call::Remap(old, end, new, new_end) => {
                    let rights = twin.areas.get(&old).copied().unwrap_or(Rights::Write);
                    space.remap((old, end), (new, new_end), false, &mut shared, &mut out).unwrap();
                    if old == new {
                        twin.unmap(new_end.min(end), end.max(new_end));
                        twin.map(end.min(new_end).max(end), new_end, rights);
                    } else {
                        twin.unmap(old, end);
                        twin.unmap(new, new_end);
                        twin.map(new, new_end, rights);
                    }
                }
                Call::Declare(begin, end, kind) => {
                    space.declare(begin, end, kind, Rights::Write, &mut shared, &mut out).unwrap();
                    twin.map(begin, end, Rights::Write);
                }
                Call::Touch(page) => {
                    let known = out.len();
                    let got = space.touch(page, &mut shared, &mut out).unwrap();
                    prop_assert_eq!(out.len() == known, twin.mapped.contains(&page));
                    if !twin.areas.contains_key(&page) {
                        twin.map(page, page + 1, Rights::Write);
                    }
                    twin.mapped.insert(page);
                    for event in &out {
                        twin.event(event);
                    }
                    prop_assert_eq!(twin.places.get(&got.0), Some(&page));
                }
                Call::Fork if few => {
                    let mut fork = Vec::new();
                    let child = space.fork(Process(next), &mut shared, &mut fork).unwrap();
                    let [Event::Fork { offset, .. }] = fork[..] else { panic!("{fork:?}") };
                    let mut copy = twin.clone();
                    copy.places = twin.places.iter().map(|(page, at)| (page + offset, *at)).collect();
                    out.append(&mut fork);
                    out.push(Event::Run(Process(next)));
                    next += 1;
                    all.push((child, copy));
                }
                Call::Exit(which) if last > 0 => {
                    let (space, _) = all.remove(which % all.len());
                    out.push(Event::Exit(space.process));
                    space.end(&mut shared);
                    out.push(Event::Run(all.last().unwrap().0.process));
                }
                Call::Fork | Call::Exit(_) => {}
            }
            let block =
                Block { events: out.iter().map(|event| (0, event.clone())).collect(), ..Block::default() };
            checker.block(&block).map_err(|(_, what)| TestCaseError::fail(what))?;
            let (_, twin) = all.last_mut().unwrap();
            for event in out.drain(..) {
                twin.event(&event);
            }
            let placed: BTreeSet<u64> = twin.places.values().copied().collect();
            prop_assert_eq!(placed.len(), twin.places.len(), "an address at two pages");
            prop_assert!(placed == twin.mapped, "not the mapped pages");
        }
    }
}

#[test]
fn a_mapping_too_long_to_number_is_placed_as_it_is_touched() {
    let (mut shared, mut out) = (SharedState::new(), Vec::new());
    let mut space = Space::new(Process(0));
    space.map(100, 1 << 40, Kind::Anonymous, Rights::Write, &mut shared, &mut out).unwrap();
    assert_eq!(out, []);
    space.touch(7 * 512 + 3, &mut shared, &mut out).unwrap();
    space.touch(150, &mut shared, &mut out).unwrap();
    let lengths: Vec<u32> = out.iter().filter_map(Event::pages).map(|pages| pages.count).collect();
    assert_eq!(lengths, [512, 412], "one window each, cut at the mapping's begin");
}

#[test]
fn more_than_can_be_numbered_is_full_and_no_panic() {
    let (mut shared, mut out) = (SharedState::new(), Vec::new());
    let mut space = Space::new(Process(0));
    let many = (0..crate::numbers::MAX_NUMBERS as u64 + 1)
        .try_for_each(|region| space.touch(region * 1024, &mut shared, &mut out).map(|_| ()));
    assert_eq!(many, Err(Full));
}
