//! `build`: `make -j9 buildkernel`, thousands of short processes with small address spaces.
//!
//! The numbers of regions that a process fills or barely touches are chosen so that Quicksilver's counts on slide 24
//! are possible; the table file derives them.

use trace::{Backing, Block, Event, Page, Pages, Process, Region, SLOTS};
use workload::rng::{SplitMix64, below};

use super::tables::Build;
use crate::emit::access;
use crate::program::{Built, Program, Step};
use crate::space::Extent;
use crate::{Emit, Figure, Setup, Tables};

/// Number of small mappings of a process.
const SMALL: u32 = 4;
/// Virtual page number of the programs' text.
const TEXT: u64 = 0x40_0000_0000 >> 12;
/// Virtual page number of the first small mapping.
const SMALLS: u64 = 0x7e00_0000_0000 >> 12;
/// Virtual page number of the memory that a process writes.
const MEMORY: u64 = 0x7f00_0000_0000 >> 12;

pub(crate) fn build(setup: &Setup, tables: &Tables) -> Built {
    let table = &tables.build;
    let processes = setup.operations.unwrap_or(table.processes.into());
    if processes > 1 << 24 {
        return Err(setup.refuse("operations", processes, "must be 2^24 processes or fewer"));
    }
    let shapes = (0..processes).map(|number| Shape::draw(table, setup.seed, number));
    // Successive processes of a job use the same region numbers.
    let most = shapes.clone().map(|shape| shape.regions()).max().unwrap_or(1);
    let regions = most * u32::from(table.jobs);
    let touched: u64 = shapes.clone().map(|shape| slices(&shape).iter().sum::<u64>()).sum();
    let (pages, superpages) = peak(table, shapes);

    let mut program = Program::default();
    let make = Make {
        table: table.clone(),
        seed: setup.seed,
        first_region: setup.first_region,
        first_process: setup.first_process,
        most,
        processes: processes as u32,
        begun: 0,
        jobs: (0..table.jobs).map(|_| None).collect(),
        turn: 0,
    };
    program
        .phase("run")
        .pace(setup.pace(table.run, table.threads))
        // Each page is accessed twice.
        .counted(touched * 2, make);
    let extent = Extent { pages, superpages, regions: regions.into() };
    program.describe(setup, table.threads, Figure::Time, extent)
}

/// Memory of a process: pages touched in each region.
#[derive(Clone)]
struct Shape {
    text: u32,
    small: u32,
    memory: Vec<u32>,
}

impl Shape {
    fn draw(table: &Build, seed: u64, number: u64) -> Self {
        let mut rng = SplitMix64::stream(seed, number);
        let mut count = |average: f64| {
            let fraction = (average.fract() * 4_294_967_296.0) as u64;
            average as u32 + u32::from(rng.draw() >> 32 < fraction)
        };
        let text = count(table.text_regions);
        let full = count(table.full_regions);
        let partial = count(table.partial_regions);
        let sparse = count(table.sparse_regions);
        let mut between = |[least, most]: [u32; 2]| {
            least + below(rng.draw(), u64::from(most.max(least) - least) + 1) as u32
        };
        let mut memory = vec![SLOTS; full as usize];
        memory.extend((0..partial).map(|_| between(table.partial_pages).min(SLOTS)));
        memory.extend((0..sparse).map(|_| between(table.sparse_pages).min(SLOTS)));
        Self { text, small: table.small_mappings_pages.div_ceil(SMALL), memory }
    }

    /// Number of regions: text, small mappings (one each), memory.
    fn regions(&self) -> u32 {
        self.text + SMALL + self.memory.len() as u32
    }
}

/// Returns the peak numbers of touched pages and regions. Runs the same loop as the stream, but only counts. Jobs
/// advance by one region per turn, so the next process of a job starts after as many turns as the previous process has
/// regions.
fn peak(table: &Build, shapes: impl Iterator<Item = Shape>) -> (u64, u64) {
    let mut shapes = shapes;
    let mut jobs = vec![None::<(Vec<u64>, usize)>; table.jobs.into()];
    let (mut pages, mut regions, mut most) = (0, 0, (0, 0));
    loop {
        let mut idle = true;
        for job in &mut jobs {
            if job.is_none() {
                *job = shapes.next().map(|shape| (slices(&shape), 0));
            }
            let Some((slices, at)) = job else { continue };
            idle = false;
            if *at < slices.len() {
                pages += slices[*at];
                regions += 1;
                *at += 1;
                most = (most.0.max(pages), most.1.max(regions));
            }
            if *at == slices.len() {
                pages -= slices.iter().sum::<u64>();
                regions -= slices.len() as u64;
                *job = None;
            }
        }
        if idle {
            return most;
        }
    }
}

/// Number of pages touched in each turn of a process.
fn slices(shape: &Shape) -> Vec<u64> {
    let text = std::iter::repeat_n(SLOTS, shape.text as usize);
    let small = std::iter::repeat_n(shape.small, SMALL as usize);
    let all = text.chain(small).chain(shape.memory.iter().copied());
    all.filter(|&pages| pages > 0).map(u64::from).collect()
}

/// `make` with its jobs, which take turns of one region.
struct Make {
    table: Build,
    seed: u64,
    first_region: u32,
    first_process: u32,
    most: u32,
    processes: u32,
    begun: u32,
    jobs: Vec<Option<Job>>,
    turn: usize,
}

struct Job {
    process: Process,
    /// For each turn: first page, number of pages, and whether they are written.
    turns: Vec<(u32, u32, bool)>,
    at: usize,
}

impl Make {
    /// Starts the next process of a job: fork and exec are one event, with an empty address space.
    fn begin(&mut self, job: usize, block: &mut Block) -> Option<Job> {
        if self.begun == self.processes {
            return None;
        }
        let process = Process(self.first_process + self.begun);
        let shape = Shape::draw(&self.table, self.seed, self.begun.into());
        self.begun += 1;
        block.event(Event::Spawn(process));
        let mut region = self.first_region + job as u32 * self.most;
        let mut turns = Vec::new();
        let mut map = |regions: u32, count: u32, address: u64, backing, block: &mut Block| {
            let first = Region(region).first();
            region += regions;
            if count > 0 {
                block.event(Event::Map { pages: Pages { first, count }, address, backing });
            }
            first.0
        };
        let file = Backing::File { file: 1, cached: true };
        let text = map(shape.text, shape.text * SLOTS, TEXT, file, block);
        turns.extend((0..shape.text).map(|n| (text + n * SLOTS, SLOTS, false)));
        for number in 0..SMALL {
            let address = SMALLS + u64::from(number * SLOTS);
            let first = map(1, shape.small, address, Backing::Anonymous, block);
            turns.push((first, shape.small, true));
        }
        let regions = shape.memory.len() as u32;
        let memory = map(regions, regions * SLOTS, MEMORY, Backing::Anonymous, block);
        let used = shape.memory.iter().zip(0..);
        turns.extend(used.map(|(&pages, number)| (memory + number * SLOTS, pages, true)));
        turns.retain(|&(_, pages, _)| pages > 0);
        Some(Job { process, turns, at: 0 })
    }

    /// Makes one turn: accesses the region's pages in order, twice.
    fn advance(&self, job: &mut Job, block: &mut Block) {
        if let Some(&(first, pages, writes)) = job.turns.get(job.at) {
            block.event(Event::Run(job.process));
            for _ in 0..2 {
                for page in first..first + pages {
                    block.run(access(Page(page), writes), self.table.accesses_per_page.max(1));
                }
            }
            job.at += 1;
        }
    }
}

impl Step for Make {
    fn fill(&mut self, block: &mut Block) -> bool {
        while !block.is_full() {
            let number = self.turn;
            self.turn = (number + 1) % self.jobs.len();
            let job = self.jobs[number].take();
            if let Some(mut job) = job.or_else(|| self.begin(number, block)) {
                self.advance(&mut job, block);
                if job.at == job.turns.len() {
                    block.event(Event::Exit(job.process));
                } else {
                    self.jobs[number] = Some(job);
                }
            } else if self.begun == self.processes && self.jobs.iter().all(Option::is_none) {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Derives slide 24 from the table alone: the counts of Sync-1 and Sync-64 if each follows its rule exactly.
    /// FreeBSD's counts serve as a check.
    #[test]
    fn the_counts_of_slide_24_can_come_out() {
        let table = &Tables::embedded().build;
        let (mut sync_1, mut sync_64, mut faults) = (0u64, 0u64, [0u64; 2]);
        for number in 0..table.processes.into() {
            let shape = Shape::draw(table, 1, number);
            let text = u64::from(shape.text);
            let other = u64::from(shape.small * SMALL) + text;
            faults.iter_mut().for_each(|count| *count += other);
            (sync_1, sync_64) = (sync_1 + text, sync_64 + text);
            for &pages in &shape.memory {
                sync_1 += 1;
                sync_64 += u64::from(pages >= 64);
                faults[0] += 1;
                faults[1] += u64::from(pages.min(64));
            }
        }
        let close = |value: u64, published: f64| (value as f64 / published - 1.0).abs() < 0.03;
        assert!(close(sync_1, 200_500.0), "{sync_1}");
        assert!(close(sync_64, 99_600.0), "{sync_64}");
        let published = [5_300_000.0, 10_300_000.0];
        for (count, published) in faults.into_iter().zip(published) {
            assert!(close(count, published), "{count}, not {published}");
        }
    }
}
