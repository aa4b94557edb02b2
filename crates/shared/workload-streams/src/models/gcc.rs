//! `gcc`: 602.gcc_s. A heap that grows by brk in small steps, garbage collections that free pieces of it, and new
//! objects that refill them.

use trace::{Access, Backing, Block, Event, Pages, Process};
use workload::rng::SplitMix64;

use super::mix::skewed;
use super::tables::Gcc;
use crate::emit::access;
use crate::program::{Built, Program, Step};
use crate::space::{Area, Extent, Space};
use crate::{Emit, Figure, Setup, Tables};

/// Number of pages in a piece: 1 MiB, the unit in which GCC's ggc-page allocates and frees mapped memory
/// (GGC_QUIRE_SIZE of gcc/ggc-page.c, 256 pages).
const PIECE: u32 = 256;
/// Number of words per page.
const WORDS: u32 = 512;

pub(crate) fn build(setup: &Setup, tables: &Tables) -> Built {
    let table = &tables.gcc;
    let size = setup.size_or(size(table))?;
    let heap = Space::of(setup).area(size, Backing::Heap);

    let mut program = Program::default();
    program.phase("run");
    for number in 0..table.invocations {
        let process = Process(setup.first_process + number);
        program
            .events([Event::Spawn(process)])
            .step(Compilation::new(setup, table, heap, number))
            .events([Event::Exit(process)]);
    }
    program.describe(setup, 1, Figure::Time, Extent::new(&[heap]))
}

/// Default heap size in bytes.
pub(super) fn size(table: &Gcc) -> u64 {
    (table.peak_mib * f64::from(1 << 20)) as u64
}

/// One process of the compiler.
struct Compilation {
    table: Gcc,
    heap: Area,
    rng: SplitMix64,
    /// Current heap size in pages.
    grown: u32,
    /// Heap size in pages at the last collection.
    collected: u32,
    /// Unmapped pieces, most recently unmapped last.
    free: Vec<u32>,
    /// Whether each piece is mapped.
    live: Vec<bool>,
    pace: [Event; 2],
}

impl Compilation {
    fn new(setup: &Setup, table: &Gcc, heap: Area, number: u32) -> Self {
        Self {
            table: table.clone(),
            heap,
            rng: SplitMix64::stream(setup.seed, number.into()),
            grown: 0,
            collected: 0,
            free: Vec::new(),
            live: Vec::new(),
            pace: [table.setup, table.run].map(|cost| Event::Pace(setup.pace(cost, 1))),
        }
    }

    /// Writes new pages, then makes the visits that belong to them.
    fn use_pages(&mut self, pages: Pages, block: &mut Block) {
        block.event(self.pace[0].clone());
        for page in pages.iter() {
            block.run(Access::write(page), WORDS);
        }
        block.event(self.pace[1].clone());
        for _ in 0..pages.count * self.table.visits_per_page {
            let draw = self.rng.draw();
            // Visits favour the newest pages.
            let back = skewed((draw >> 32) as u32, self.table.skew, self.grown.into());
            let page = self.grown - 1 - back as u32;
            if self.live[(page / PIECE) as usize] {
                block.run(access(self.heap.page(page.into()), draw & 3 == 0), 8);
            }
        }
    }

    /// Marks the whole heap, then unmaps garbage.
    fn collect(&mut self, block: &mut Block) {
        for page in 0..self.grown {
            if self.live[(page / PIECE) as usize] {
                block.run(Access::read(self.heap.page(page.into())), 64);
            }
        }
        let garbage = (self.table.garbage * 4_294_967_296.0) as u64;
        // Keep the last piece, because the heap grows there.
        for piece in 0..self.grown.saturating_sub(1) / PIECE {
            if self.live[piece as usize] && self.rng.draw() >> 32 < garbage {
                self.live[piece as usize] = false;
                self.free.push(piece);
                block.event(Event::Unmap(self.heap.part(piece * PIECE, PIECE)));
            }
        }
        self.collected = self.grown;
    }
}

impl Step for Compilation {
    fn fill(&mut self, block: &mut Block) -> bool {
        while !block.is_full() {
            let limit = f64::from(self.collected.max(16 * PIECE)) * (1.0 + self.table.expand);
            if let Some(piece) = self.free.pop() {
                self.live[piece as usize] = true;
                let pages = self.heap.part(piece * PIECE, PIECE);
                let anonymous = Area { backing: Backing::Anonymous, ..self.heap };
                block.event(anonymous.map_part(piece * PIECE, PIECE));
                self.use_pages(pages, block);
            } else if self.grown >= self.heap.pages {
                return false;
            } else if f64::from(self.grown) > limit {
                self.collect(block);
            } else {
                let step = (self.table.step_kib / 4).clamp(1, self.heap.pages - self.grown);
                let pages = self.heap.part(self.grown, step);
                block.event(self.heap.grow(self.grown, step));
                self.grown += step;
                self.live.resize(self.grown.div_ceil(PIECE) as usize, true);
                self.use_pages(pages, block);
            }
        }
        true
    }
}
