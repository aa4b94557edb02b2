//! `Demand`: a program's accesses, counted by what they ask of the memory hierarchy.
//!
//! Filled by [`crate::Watch`], read by [`crate::predict`]. All counts are weighted: a sampled phase of a
//! stream counts as what it stands for.

use serde::{Deserialize, Serialize};

use crate::OCTAVES;

/// Uses of pages again after a distance.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Cell {
    /// Reads.
    pub reads: f64,
    /// Writes.
    pub writes: f64,
}

impl Cell {
    /// Both.
    pub fn total(&self) -> f64 {
        self.reads + self.writes
    }
}

/// Pages touched for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Touches {
    /// Anonymous base pages that a superpage could hold.
    pub eligible: f64,
    /// The superpages that could hold them.
    pub superpages: f64,
    /// Other pages: parts of a superpage at a mapping's ends, files, shared memory.
    pub others: f64,
}

/// A program's accesses, or one phase's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// All accesses, filtered ones and those of a page used just before among them.
    pub accesses: f64,
    /// Random uses by the octaves of distance in pages and in regions, `pages * OCTAVES + regions`: of
    /// memory that superpages could back.
    random: Vec<Cell>,
    /// Random uses of other memory, by octave of distance in pages.
    others: Vec<Cell>,
    /// Sequential uses of memory that superpages could back.
    pub sequential: Cell,
    /// First touches.
    pub touches: Touches,
    /// Cache lines that a random use of a page needs, if more than one. No trace of pages tells; who knows the
    /// program may.
    pub lines_per_use: f64,
    /// Uses of memory again by octave of distance in pages, in order or not.
    again: Vec<f64>,
}

/// One use in so many may be farther than a program reaches: sampled distances are now and then a little too
/// long, and a few pages beyond a power of two are no memory twice as large.
/// See docs/decisions/prediction.md#4.
const FEW: f64 = 50.0;

impl Default for Demand {
    fn default() -> Self {
        Self {
            accesses: 0.0,
            random: vec![Cell::default(); OCTAVES * OCTAVES],
            others: vec![Cell::default(); OCTAVES],
            sequential: Cell::default(),
            touches: Touches::default(),
            lines_per_use: 1.0,
            again: vec![0.0; OCTAVES],
        }
    }
}

impl Demand {
    /// Random uses of memory that superpages could back: octave in pages, in regions, how many.
    pub fn random(&self) -> impl Iterator<Item = (usize, usize, Cell)> {
        let cells = self.random.iter().enumerate().filter(|(_, cell)| cell.total() > 0.0);
        cells.map(|(i, &cell)| (i / OCTAVES, i % OCTAVES, cell))
    }

    /// Random uses of other memory: octave in pages, how many.
    pub fn others(&self) -> impl Iterator<Item = (usize, Cell)> {
        self.others.iter().copied().enumerate().filter(|(_, cell)| cell.total() > 0.0)
    }

    /// The octave of distances in pages that nearly all memory is used again within.
    pub fn reach(&self) -> usize {
        let few = self.again.iter().sum::<f64>() / FEW;
        let mut beyond = 0.0;
        let is_reached = |&octave: &usize| {
            beyond += self.again[octave];
            beyond > few
        };
        (0..OCTAVES).rev().find(is_reached).unwrap_or(0)
    }

    /// Counts a use again.
    pub(crate) fn add_again(&mut self, pages: usize, count: f64) {
        self.again[pages] += count;
    }

    /// Counts a random use; `regions` is the octave in regions where a superpage could hold the page.
    pub(crate) fn add_random(
        &mut self,
        pages: usize,
        regions: Option<usize>,
        writes: bool,
        count: f64,
    ) {
        let cell = match regions {
            Some(regions) => &mut self.random[pages * OCTAVES + regions],
            None => &mut self.others[pages],
        };
        add(cell, writes, count);
    }

    /// Counts a sequential use.
    pub(crate) fn add_sequential(&mut self, writes: bool, count: f64) {
        add(&mut self.sequential, writes, count);
    }

    /// Multiplies all counts: a program that does the same so many times.
    pub fn scale(&mut self, by: f64) {
        let cells = self.random.iter_mut().chain(&mut self.others);
        for cell in cells.chain(std::iter::once(&mut self.sequential)) {
            cell.reads *= by;
            cell.writes *= by;
        }
        self.again.iter_mut().for_each(|count| *count *= by);
        self.accesses *= by;
        let touches = &mut self.touches;
        for count in [&mut touches.eligible, &mut touches.superpages, &mut touches.others] {
            *count *= by;
        }
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &Self) {
        fn cells(mine: &mut [Cell], others: &[Cell]) {
            for (mine, other) in mine.iter_mut().zip(others) {
                mine.reads += other.reads;
                mine.writes += other.writes;
            }
        }
        self.accesses += other.accesses;
        cells(&mut self.random, &other.random);
        cells(&mut self.others, &other.others);
        cells(std::slice::from_mut(&mut self.sequential), &[other.sequential]);
        self.touches.eligible += other.touches.eligible;
        self.touches.superpages += other.touches.superpages;
        self.touches.others += other.touches.others;
        self.again.iter_mut().zip(&other.again).for_each(|(mine, other)| *mine += other);
    }
}

fn add(cell: &mut Cell, writes: bool, count: f64) {
    if writes {
        cell.writes += count;
    } else {
        cell.reads += count;
    }
}
