//! Programs that exercise one mechanism each; none of their values is measured or fitted.

use trace::{Access, BLOCK, Backing, Block, Event, SLOTS};
use workload::rng::{SplitMix64, below};

use super::mix::Growing;
use crate::program::{Built, Program};
use crate::space::{Extent, MAX_PAGES, PAGE, Space};
use crate::{Emit, Figure, Setup, Tables, WorkloadError};

/// Default memory size in bytes.
pub(super) const SIZE: u64 = 1 << 30;
/// Step of heap growth in bytes: M_TOP_PAD of glibc.
pub(super) const STEP: u64 = 128 << 10;
/// Number of reads of `sparse`.
pub(super) const READS: u64 = 1 << 22;
/// Total number of pages that `alloc-free` maps.
pub(super) const PAGES: u64 = 1 << 24;

/// A heap that grows like glibc's. M_TOP_PAD is 128 KiB, so no growth step contains a superpage, and a design that
/// decides only at first touch never makes one (docs/sources/policies.md 3.1, "Fault path").
pub(crate) fn growing_heap(setup: &Setup, tables: &Tables) -> Built {
    let step = setup.step.map_or(STEP, |step| step.bytes());
    if step < PAGE {
        return Err(setup.refuse("step", step, "must be a page, 4096, or more"));
    }
    let steps = setup.size_or(SIZE)?.div_ceil(step).max(1);
    let pages = steps.saturating_mul(step.div_ceil(PAGE));
    if pages > MAX_PAGES / 4 {
        return Err(WorkloadError::TooLarge { workload: setup.name(), pages });
    }
    let step = step.div_ceil(PAGE) as u32;
    let heap = Space::of(setup).area(pages * PAGE, Backing::Heap);

    let mut program = Program::new(setup);
    program
        .phase("run")
        .pace(setup.pace(tables.mechanisms.setup, 1))
        .step(Growing::new(heap, step * 4));
    program.exit(setup, 1, Figure::RunTime, Extent::new(&[heap]))
}

/// The worst case for superpages made at first touch: the program uses 1 page of 512.
pub(crate) fn sparse(setup: &Setup, tables: &Tables) -> Built {
    let area = Space::of(setup).anonymous(setup.size_or(SIZE)?);
    let regions = area.regions();
    let seed = setup.seed;
    // The touched page of each region is random but fixed.
    let page = move |number: u64| {
        let pages = (u64::from(area.pages) - number * u64::from(SLOTS)).min(u64::from(SLOTS));
        let slot = below(SplitMix64::stream(seed, number).draw(), pages);
        area.page(number * u64::from(SLOTS) + slot)
    };
    let weight = setup.weight.unwrap_or(1);
    let operations = setup.operations.unwrap_or(READS);
    let mut left = (operations / u64::from(weight)).max(1);
    let mut rng = SplitMix64::new(seed);
    let mut touched = 0;

    let mut program = Program::new(setup);
    program
        .map(area)
        .phase("setup")
        .pace(setup.pace(tables.mechanisms.setup, 1))
        .counted(regions, move |block: &mut Block| {
            while !block.is_full() && touched < regions {
                block.access(Access::write(page(touched)));
                touched += 1;
            }
            touched < regions
        })
        .phase("run")
        .pace(setup.sampled(tables.mechanisms.run, 1, weight))
        .counted(left, move |block: &mut Block| {
            let most = BLOCK.saturating_sub(block.accesses.len()) as u64;
            for _ in 0..most.min(left) {
                block.access(Access::read(page(below(rng.draw(), regions))));
            }
            left -= most.min(left);
            left > 0
        });
    let figure = Figure::Rate { unit: "reads/s", operations };
    program.exit(setup, 1, figure, Extent { pages: regions, ..Extent::new(&[area]) })
}

/// Number of pages in a piece of `alloc-free`.
const PIECE: u32 = 64;

/// A program that only faults and frees. Half of the pieces are mapped at any time.
pub(crate) fn alloc_free(setup: &Setup, tables: &Tables) -> Built {
    let pieces = (setup.size_or(SIZE)? / PAGE / u64::from(PIECE)).max(1) as u32;
    let area = Space::of(setup).anonymous(u64::from(pieces * PIECE) * PAGE);
    let operations = setup.operations.unwrap_or(PAGES);
    let mut left = operations.div_ceil(PIECE.into());
    let mut rng = SplitMix64::new(setup.seed);
    let mut mapped = vec![false; pieces as usize];
    // Repeats the draws without the stream to find the peak.
    let (pages, superpages) = {
        let (mut rng, mut mapped) = (rng.clone(), mapped.clone());
        let (mut there, mut regions, mut left) = (0u64, vec![0u32; area.regions() as usize], left);
        let (mut most, mut in_use, mut most_regions) = (0, 0u64, 0);
        while left > 0 {
            let piece = below(rng.draw(), pieces.into()) as u32;
            let is = &mut mapped[piece as usize];
            *is = !*is;
            let region = &mut regions[(piece * PIECE / SLOTS) as usize];
            if *is {
                left -= 1;
                there += 1;
                in_use += u64::from(*region == 0);
                *region += 1;
            } else {
                there -= 1;
                *region -= 1;
                in_use -= u64::from(*region == 0);
            }
            (most, most_regions) = (most.max(there), most_regions.max(in_use));
        }
        (most * u64::from(PIECE), most_regions)
    };

    let mut program = Program::new(setup);
    program.phase("run").pace(setup.pace(tables.mechanisms.run, 1)).counted(
        left * u64::from(PIECE),
        move |block: &mut Block| {
            while !block.is_full() && left > 0 {
                let piece = below(rng.draw(), pieces.into()) as u32;
                let is = &mut mapped[piece as usize];
                *is = !*is;
                if !*is {
                    block.event(Event::Unmap(area.part(piece * PIECE, PIECE)));
                    continue;
                }
                left -= 1;
                block.event(area.map_part(piece * PIECE, PIECE));
                for page in 0..PIECE {
                    block.access(Access::write(area.page((piece * PIECE + page).into())));
                }
            }
            left > 0
        },
    );
    let figure = Figure::Rate { unit: "pages/s", operations };
    program.exit(setup, 1, figure, Extent { pages, superpages, ..Extent::new(&[area]) })
}
