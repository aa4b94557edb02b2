//! `Demand`: a program's accesses, counted by what they require of the memory hierarchy.
//!
//! [`crate::Watch`] fills it, [`crate::predict`] reads it. All counts are weighted: if a phase of a stream was sampled,
//! its counts stand for the whole phase.

use serde::{Deserialize, Serialize};

use crate::OCTAVES;

/// Number of uses of pages at one distance.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Cell {
    /// Number of reads.
    pub reads: f64,
    /// Number of writes.
    pub writes: f64,
}

impl Cell {
    /// Returns the number of reads and writes.
    pub fn total(&self) -> f64 {
        self.reads + self.writes
    }
}

/// Number of pages touched for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Touches {
    /// Number of anonymous base pages that superpages could hold.
    pub eligible: f64,
    /// Number of superpages that could hold these pages.
    pub superpages: f64,
    /// Number of other pages: pages of files and of shared memory, and pages at a mapping's ends
    /// outside whole superpages.
    pub others: f64,
}

/// Accesses of a program, or of one phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// Number of accesses, including filtered ones and repeated accesses to a page.
    pub accesses: f64,
    /// Random uses of memory that superpages could back, by octaves of the reuse distance in pages and in regions. The
    /// index is `pages * OCTAVES + regions`.
    random: Vec<Cell>,
    /// Random uses of other memory, by octave of the distance in pages.
    others: Vec<Cell>,
    /// Sequential uses of memory that superpages could back.
    pub sequential: Cell,
    /// Numbers of first touches.
    pub touches: Touches,
    /// Number of cache lines that a random use of a page needs, if more than one. Page traces do not contain it; a
    /// caller that knows the program may set it.
    pub lines_per_use: f64,
    /// Number of reuses by octave of the distance in pages, sequential or not.
    again: Vec<f64>,
}

/// One reuse in this many may be beyond the reach. Sampled distances are sometimes slightly too long, and a few pages
/// beyond a power of two do not double the footprint.
/// See docs/decisions/prediction.md#4.
const REACH_DIVISOR: f64 = 50.0;

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
    /// Returns the random uses of memory that superpages could back: octave in pages, octave in regions, number of
    /// uses.
    pub fn random(&self) -> impl Iterator<Item = (usize, usize, Cell)> {
        let cells = self.random.iter().enumerate().filter(|(_, cell)| cell.total() > 0.0);
        cells.map(|(i, &cell)| (i / OCTAVES, i % OCTAVES, cell))
    }

    /// Returns the random uses of other memory: octave in pages, number of uses.
    pub fn others(&self) -> impl Iterator<Item = (usize, Cell)> {
        self.others.iter().copied().enumerate().filter(|(_, cell)| cell.total() > 0.0)
    }

    /// Returns the octave of the distance in pages within which nearly all reuses lie.
    pub fn reach(&self) -> usize {
        let few = self.again.iter().sum::<f64>() / REACH_DIVISOR;
        let mut beyond = 0.0;
        let is_reached = |&octave: &usize| {
            beyond += self.again[octave];
            beyond > few
        };
        (0..OCTAVES).rev().find(is_reached).unwrap_or(0)
    }

    pub(crate) fn add_again(&mut self, pages: usize, count: f64) {
        self.again[pages] += count;
    }

    /// Counts a random use. `regions` is the octave in regions, if a superpage could hold the page.
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

    pub(crate) fn add_sequential(&mut self, writes: bool, count: f64) {
        add(&mut self.sequential, writes, count);
    }

    /// Multiplies all counts by `by`, for a program that repeats the same accesses.
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

    /// Adds the counts of another demand.
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
