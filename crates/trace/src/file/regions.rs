//! Which addresses a stream's regions have: kept by the writer as mappings are made, because the sets of
//! a TLB are chosen by addresses and not by a stream's dense numbers.

use std::collections::BTreeMap;

use super::foot::RegionRun;
use crate::{Event, Pages, Process, Region, SLOTS};

/// The regions that were mapped so far.
pub struct Regions {
    /// By region: its address over 1 MiB or so (page number / 512), plus one; 0 while unknown.
    address: Vec<u64>,
    /// Neighbours in one line, in the order of their mapping.
    pub runs: Vec<RegionRun>,
    /// The runs of each process, for its children.
    of: BTreeMap<Process, Vec<usize>>,
    running: Process,
}

impl Regions {
    /// None yet, and process 0 runs.
    pub fn new() -> Self {
        Self { address: Vec::new(), runs: Vec::new(), of: BTreeMap::new(), running: Process(0) }
    }

    /// The number of `region` in its address space; its number in the stream while that is unknown.
    pub fn address(&self, region: Region) -> u64 {
        match self.address.get(region.0 as usize) {
            None | Some(0) => region.0.into(),
            Some(above) => above - 1,
        }
    }

    /// One more than the highest region that was mapped.
    pub fn count(&self) -> u32 {
        self.address.len() as u32
    }

    /// The process whose accesses come next.
    pub fn running(&self) -> Process {
        self.running
    }

    /// Takes notice of an event.
    pub fn see(&mut self, event: &Event) {
        match *event {
            Event::Spawn(process) | Event::Run(process) => self.running = process,
            Event::Map { pages, address, .. } => self.map(pages, address / u64::from(SLOTS)),
            Event::Grow { pages } if pages.first.slot() == 0 && pages.first.0 > 0 => {
                let before = Region(pages.first.region().0 - 1);
                self.map(pages, self.address(before) + 1);
            }
            Event::Grow { pages } => self.map(pages, self.address(pages.first.region())),
            Event::Fork { child, offset } => self.fork(child, offset),
            _ => {}
        }
    }

    fn map(&mut self, pages: Pages, address: u64) {
        let first = pages.first.region();
        let last = (pages.first.0 + (pages.count - 1)) >> 9;
        self.add(RegionRun { first, count: last - first.0 + 1, process: self.running, address });
    }

    fn fork(&mut self, child: Process, offset: u32) {
        let mine = self.of.get(&self.running).cloned().unwrap_or_default();
        for index in mine {
            let mut run = self.runs[index];
            run.first.0 = run.first.0.saturating_add(offset / SLOTS);
            self.add(RegionRun { process: child, ..run });
        }
    }

    /// Adds what is new of a run. Small mappings share regions, and a neighbour lengthens the last run.
    fn add(&mut self, run: RegionRun) {
        // Page numbers have 31 bits, so there are 2^22 regions.
        let end = (run.first.0.saturating_add(run.count)).min(1 << 22);
        if self.address.len() < end as usize {
            self.address.resize(end as usize, 0);
        }
        for region in run.first.0..end {
            let address = run.address + u64::from(region - run.first.0);
            if self.address[region as usize] == address + 1 {
                continue;
            }
            self.address[region as usize] = address + 1;
            self.list(RegionRun { first: Region(region), count: 1, process: run.process, address });
        }
    }

    fn list(&mut self, one: RegionRun) {
        if let Some(last) = self.runs.last_mut()
            && last.process == one.process
            && last.first.0 + last.count == one.first.0
            && last.address + u64::from(last.count) == one.address
        {
            last.count += 1;
            return;
        }
        self.of.entry(one.process).or_default().push(self.runs.len());
        self.runs.push(one);
    }
}
