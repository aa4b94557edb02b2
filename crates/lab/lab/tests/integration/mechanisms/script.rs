//! Hand-written streams, and the report of a design on them.

use std::convert::Infallible;

use mm_sim::fragment::Fragmentation;
use superpage_lab::{Experiment, Report, run_stream};
use trace::{Access, Backing, Block, Event, Page, Pages, Process, Source};
use units::ByteSize;

/// A hand-written program: events and accesses.
#[derive(Default)]
pub struct Script {
    block: Block,
    first_region: u32,
}

impl Script {
    /// Creates a process without mappings. The engine runs the process after the fragmenter.
    pub fn new(first_region: u32, first_process: u32) -> Self {
        let mut script = Self { block: Block::default(), first_region };
        script.block.event(Event::Spawn(Process(first_process)));
        script
    }
    /// Returns `count` pages from `first`, in the script's own numbering.
    pub fn pages(&self, first: u32, count: u32) -> Pages {
        Pages { first: Page(first + (self.first_region << 9)), count }
    }
    pub fn map(&mut self, first: u32, count: u32, backing: Backing) -> &mut Self {
        let pages = self.pages(first, count);
        self.event(Event::Map { pages, address: u64::from(first), backing })
    }
    pub fn event(&mut self, event: Event) -> &mut Self {
        self.block.event(event);
        self
    }
    pub fn write(&mut self, pages: impl IntoIterator<Item = u32>) -> &mut Self {
        let base = self.first_region << 9;
        self.block.accesses.extend(pages.into_iter().map(|page| Access::write(Page(base + page))));
        self
    }
    pub fn read(&mut self, pages: impl IntoIterator<Item = u32>) -> &mut Self {
        let base = self.first_region << 9;
        self.block.accesses.extend(pages.into_iter().map(|page| Access::read(Page(base + page))));
        self
    }
    pub fn wait(&mut self, seconds: u64) -> &mut Self {
        self.event(Event::Wait(seconds * 1_000_000))
    }
}

impl Source for Script {
    type Error = Infallible;
    fn next(&mut self, block: &mut Block) -> Result<bool, Infallible> {
        *block = std::mem::take(&mut self.block);
        Ok(!block.accesses.is_empty() || !block.events.is_empty())
    }
}

/// An experiment on the ATC'20 machine.
pub fn experiment(memory: ByteSize, fragmentation: &str) -> Experiment {
    Experiment {
        machine: machine::preset("e3-1245v6").unwrap(),
        memory,
        fragmentation: fragmentation.parse::<Fragmentation>().unwrap(),
        fragmentation_name: fragmentation.to_string(),
        workload: "gups:size=2M".parse().unwrap(),
        workload_name: "a script".to_string(),
        seed: 1,
        swap: ByteSize(0),
        layout: mm_sim::Layout::default(),
        utilisation: true,
    }
}

/// Returns the report of `design` on a script, on this much memory.
pub fn report(design: &str, memory: ByteSize, write: impl Fn(&mut Script)) -> Report {
    let design = design::designs::find(design).unwrap();
    let reports = run_stream(&experiment(memory, "none"), &[design], 0, |region, process| {
        let mut script = Script::new(region, process);
        write(&mut script);
        Ok(script)
    });
    reports.unwrap().remove(0)
}

/// Maps a heap that grows by 32 pages at a time and is written as it grows, up to `pages`.
pub fn grow_heap(script: &mut Script, first: u32, pages: u32) {
    script.map(first, 32, Backing::Heap).write(first..first + 32);
    for at in (first + 32..first + pages).step_by(32) {
        let pages = script.pages(at, 32);
        script.event(Event::Grow { pages }).write(at..at + 32);
    }
}
