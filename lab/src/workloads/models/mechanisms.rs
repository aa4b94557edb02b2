//! Programs that show one mechanism each; nothing about them is measured or fitted.

use trace::{Access, BLOCK, Backing, Block, Event, Process, SLOTS};
use workload::rng::{SplitMix64, below};

use crate::workloads::program::Program;
use crate::workloads::space::{PAGE, Space};
use crate::workloads::{Description, Emit, Figure, Setup, Stream, Tables, WorkloadError};

/// Words in a page: writes of a page that is filled.
const WORDS: u32 = 512;

/// A heap that grows as glibc's does: M_TOP_PAD is 128 KiB, so that no step holds a superpage and a
/// design that only looks at first touch never finds one (policies 3.1, fault path, item 1).
pub(crate) fn growing_heap(
    setup: &Setup,
    tables: &Tables,
) -> Result<(Description, Stream), WorkloadError> {
    let step = setup.step.map_or(128 << 10, |step| step.bytes());
    if step < PAGE {
        return Err(setup.refuse("step", step, "must be a page, 4096, or more"));
    }
    let steps = setup.size_or(1 << 30)?.div_ceil(step).max(1);
    let step = step.div_ceil(PAGE) as u32;
    if steps * u64::from(step) > super::super::space::MOST_PAGES / 2 {
        let pages = steps * u64::from(step);
        return Err(WorkloadError::TooLarge { workload: setup.name(), pages });
    }
    let heap = Space::new(setup.first_region).area(steps * u64::from(step) * PAGE, Backing::Heap);

    let mut program = Program::default();
    let mut grown = 0;
    program
        .events([Event::Spawn(Process(setup.first_process))])
        .phase("run")
        .events([Event::Pace(setup.pace(tables.mechanisms.setup, 1))])
        .step(move |block: &mut Block| {
            while !block.is_full() && grown < heap.pages {
                let pages = heap.part(grown, step);
                block.event(if grown == 0 { heap.map_first(step) } else { Event::Grow { pages } });
                for page in grown..grown + step {
                    block.run(Access::write(heap.page(page.into())), WORDS);
                }
                grown += step;
            }
            grown < heap.pages
        })
        .events([Event::Exit(Process(setup.first_process))]);
    let description = Description {
        name: setup.name(),
        summary: setup.entry().summary,
        footprint_pages: heap.pages.into(),
        superpages: heap.regions(),
        threads: 1,
        figure: Figure::RunTime,
        phases: vec!["run"],
        regions: heap.regions() as u32,
    };
    Ok((description, program.stream()))
}

/// The worst case of a superpage made at first touch: 1 page of 512 is used.
pub(crate) fn sparse(
    setup: &Setup,
    tables: &Tables,
) -> Result<(Description, Stream), WorkloadError> {
    let area = Space::new(setup.first_region).anonymous(setup.size_or(1 << 30)?);
    let regions = area.regions();
    let seed = setup.seed;
    // Which page of a region is touched: any, but always the same.
    let page = move |number: u64| {
        let pages = (u64::from(area.pages) - number * u64::from(SLOTS)).min(u64::from(SLOTS));
        let slot = below(SplitMix64::stream(seed, number).draw(), pages);
        area.page(number * u64::from(SLOTS) + slot)
    };
    let weight = setup.weight.unwrap_or(1);
    let operations = setup.operations.unwrap_or(1 << 22);
    let mut left = (operations / u64::from(weight)).max(1);
    let mut rng = SplitMix64::new(seed);
    let mut touched = 0;

    let mut program = Program::default();
    program
        .events([Event::Spawn(Process(setup.first_process)), area.map()])
        .phase("setup")
        .events([Event::Pace(setup.pace(tables.mechanisms.setup, 1))])
        .step(move |block: &mut Block| {
            while !block.is_full() && touched < regions {
                block.one(Access::write(page(touched)));
                touched += 1;
            }
            touched < regions
        })
        .phase("run")
        .events([Event::Pace(setup.sampled(tables.mechanisms.run, 1, weight))])
        .step(move |block: &mut Block| {
            let room = BLOCK.saturating_sub(block.accesses.len()) as u64;
            for _ in 0..room.min(left) {
                block.one(Access::read(page(below(rng.draw(), regions))));
            }
            left -= room.min(left);
            left > 0
        })
        .events([Event::Exit(Process(setup.first_process))]);
    let description = Description {
        name: setup.name(),
        summary: setup.entry().summary,
        footprint_pages: regions,
        superpages: regions,
        threads: 1,
        figure: Figure::Rate { unit: "reads/s", operations },
        phases: vec!["setup", "run"],
        regions: regions as u32,
    };
    Ok((description, program.stream()))
}
