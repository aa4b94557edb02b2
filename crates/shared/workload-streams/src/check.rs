//! Reference checker of streams for the property tests: keeps every mapping of every process in plain sets, and panics
//! on errors.

use std::collections::{BTreeMap, BTreeSet};

use trace::{Access, Backing, Block, Event, Pages, Process, Source};

/// Measured properties of a stream.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Found {
    /// Maximum number of pages that are touched and not yet unmapped.
    pub peak_touched: u64,
    /// Maximum number of regions that contain such pages.
    pub peak_regions: u64,
    /// Highest region number plus one.
    pub regions: u32,
    pub phases: Vec<String>,
    pub processes: usize,
    /// Number of accesses of the program: counts times weights.
    pub accesses: u64,
    pub records: u64,
    pub first_touches: u64,
    pub requests: u64,
}

#[derive(Default)]
struct Mapped {
    owner: u32,
    backing: Option<Backing>,
    address: u64,
    writable: bool,
}

/// State of the reader.
#[derive(Default)]
pub(crate) struct Checker {
    pub found: Found,
    processes: BTreeSet<u32>,
    ended: BTreeSet<u32>,
    running: Option<u32>,
    pages: BTreeMap<u32, Mapped>,
    /// Virtual page numbers in use, as (process, page number).
    addresses: BTreeSet<(u32, u64)>,
    touched: BTreeSet<u32>,
    regions: BTreeMap<u32, u32>,
    weight: u64,
    in_request: bool,
}

impl Checker {
    pub fn new() -> Self {
        Self { weight: 1, ..Self::default() }
    }

    pub fn block(&mut self, block: &Block) {
        assert!(block.counts.is_empty() || block.counts.len() == block.accesses.len());
        let mut events = block.events.iter().peekable();
        for (index, &access) in block.accesses.iter().enumerate() {
            while let Some((_, event)) = events.next_if(|(at, _)| *at as usize <= index) {
                self.event(event);
            }
            let count = block.counts.get(index).copied().unwrap_or(1);
            assert!(count > 0, "count 0 of {access:?}");
            self.access(access, count.into());
        }
        let mut last = 0;
        for (at, _) in &block.events {
            assert!(*at >= last && *at as usize <= block.accesses.len(), "event order");
            last = *at;
        }
        events.for_each(|(_, event)| self.event(event));
    }

    fn access(&mut self, access: Access, count: u64) {
        let page = access.page().0;
        let mapped = self.pages.get(&page).unwrap_or_else(|| panic!("{access:?} is not mapped"));
        assert_eq!(Some(mapped.owner), self.running, "{access:?} of another process");
        assert!(mapped.writable || !access.writes(), "{access:?} is read-only");
        if matches!(mapped.backing, Some(Backing::File { .. })) {
            assert!(!access.writes(), "{access:?} writes a file that is only read");
        }
        self.found.accesses += count * self.weight;
        self.found.records += 1;
        if self.touched.insert(page) {
            assert_eq!(self.weight, 1, "a first touch must not be sampled: {access:?}");
            self.found.first_touches += 1;
            *self.regions.entry(page >> 9).or_default() += 1;
            self.found.peak_touched = self.found.peak_touched.max(self.touched.len() as u64);
            self.found.peak_regions = self.found.peak_regions.max(self.regions.len() as u64);
        }
    }

    fn map(&mut self, owner: u32, pages: Pages, address: u64, backing: Backing) {
        assert!(pages.count > 0, "an empty mapping");
        assert_eq!(address % 512, u64::from(pages.first.slot()), "place within the superpage");
        for number in 0..pages.count {
            let (page, address) = (pages.first.0 + number, address + u64::from(number));
            assert!(page < Access::WRITE);
            let mapped = Mapped { owner, backing: Some(backing), address, writable: true };
            assert!(self.pages.insert(page, mapped).is_none(), "page {page} is in use");
            assert!(self.addresses.insert((owner, address)), "address {address} is in use");
            self.found.regions = self.found.regions.max((page >> 9) + 1);
        }
    }

    fn forget(&mut self, page: u32) {
        let mapped = self.pages.remove(&page).unwrap_or_else(|| panic!("{page} is not mapped"));
        assert_eq!(Some(mapped.owner), self.running, "unmaps a page of another process");
        self.addresses.remove(&(mapped.owner, mapped.address));
        self.untouch(page);
    }

    fn untouch(&mut self, page: u32) {
        if self.touched.remove(&page) {
            let left = self.regions.get_mut(&(page >> 9)).unwrap();
            *left -= 1;
            if *left == 0 {
                self.regions.remove(&(page >> 9));
            }
        }
    }

    fn event(&mut self, event: &Event) {
        let range = |pages: &Pages| pages.first.0..pages.first.0 + pages.count;
        match event {
            Event::Spawn(Process(id)) => {
                assert!(self.processes.insert(*id), "process {id} is spawned twice");
                self.running = Some(*id);
                self.found.processes += 1;
            }
            Event::Run(Process(id)) => {
                assert!(self.processes.contains(id) && !self.ended.contains(id));
                self.running = Some(*id);
            }
            Event::Map { pages, address, backing } => {
                let owner = self.running.expect("a process runs");
                self.map(owner, *pages, *address, *backing);
            }
            Event::Grow { pages } => {
                let owner = self.running.expect("a process runs");
                let before = pages.first.0.checked_sub(1).expect("something before");
                let end = self.pages.get(&before).expect("a mapping ends where it grows");
                assert_eq!((end.owner, end.backing), (owner, Some(Backing::Heap)));
                let address = end.address + 1;
                self.map(owner, *pages, address, Backing::Heap);
            }
            Event::Unmap(pages) => range(pages).for_each(|page| self.forget(page)),
            Event::Advise(pages, advice) => {
                assert!(range(pages).all(|page| self.pages.contains_key(&page)));
                if matches!(advice, trace::Advice::DontNeed) {
                    range(pages).for_each(|page| self.untouch(page));
                }
            }
            Event::Protect(pages, read_only) => {
                for page in range(pages) {
                    self.pages.get_mut(&page).expect("is mapped").writable = !*read_only;
                }
            }
            Event::Fork { child, offset } => {
                assert!(offset.is_multiple_of(512), "offset {offset}");
                assert!(self.processes.insert(child.0), "process {child:?} is spawned twice");
                self.found.processes += 1;
                let parent = self.running.expect("a process runs");
                let own = self.pages.iter().filter(|(_, mapped)| mapped.owner == parent);
                let own = own.map(|(&page, mapped)| {
                    let address = mapped.address;
                    (
                        page,
                        Mapped {
                            owner: child.0,
                            backing: mapped.backing,
                            address,
                            writable: mapped.writable,
                        },
                    )
                });
                for (page, mapped) in own.collect::<Vec<_>>() {
                    self.addresses.insert((child.0, mapped.address));
                    assert!(self.pages.insert(page + offset, mapped).is_none(), "child's page");
                    self.found.regions = self.found.regions.max(((page + offset) >> 9) + 1);
                    if self.touched.contains(&page) && self.touched.insert(page + offset) {
                        *self.regions.entry((page + offset) >> 9).or_default() += 1;
                    }
                }
            }
            Event::Exit(Process(id)) => {
                assert!(self.processes.contains(id) && self.ended.insert(*id), "exits twice");
                let own = self.pages.iter().filter(|(_, mapped)| mapped.owner == *id);
                let own = own.map(|(&page, _)| page).collect::<Vec<_>>();
                for page in own {
                    let mapped = self.pages.remove(&page).unwrap();
                    self.addresses.remove(&(*id, mapped.address));
                    self.untouch(page);
                }
                if self.running == Some(*id) {
                    self.running = None;
                }
            }
            Event::Pace(pace) => {
                assert!(pace.weight > 0 && pace.threads > 0 && pace.exposed_permille <= 1000);
                self.weight = pace.weight.into();
            }
            Event::Wait(_) => {}
            Event::Phase(name) => self.found.phases.push(name.clone()),
            Event::RequestBegin => assert!(!std::mem::replace(&mut self.in_request, true)),
            Event::RequestEnd => {
                assert!(std::mem::replace(&mut self.in_request, false));
                self.found.requests += 1;
            }
        }
    }
}

/// Reads and checks a whole stream.
pub(crate) fn check<S: Source<Error = std::convert::Infallible> + ?Sized>(source: &mut S) -> Found {
    let (mut checker, mut block) = (Checker::new(), Block::default());
    while source.next(&mut block).unwrap_or_else(|never| match never {}) {
        checker.block(&block);
    }
    assert!(block == Block::default() || block.accesses.is_empty(), "empty at the end");
    assert!(!checker.in_request);
    checker.found
}
