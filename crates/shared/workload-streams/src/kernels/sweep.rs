//! `Sweep`: threads that access their byte ranges in ascending order, as first touches do.

use std::collections::VecDeque;
use std::ops::Range;

use trace::{BLOCK, Block};

use crate::Emit;
use crate::program::Step;
use crate::space::{Area, PAGE};

/// Converts a range of elements of `size` bytes to a byte range.
pub(crate) fn bytes(elements: Range<usize>, size: u64) -> Range<u64> {
    elements.start as u64 * size..elements.end as u64 * size
}

/// Threads that advance together, page by page.
pub(crate) struct Sweep {
    area: Area,
    /// Remaining ranges of each thread.
    threads: Vec<VecDeque<Range<u64>>>,
    /// Bytes per access.
    unit: u64,
    writes: bool,
}

impl Sweep {
    /// Writes or reads every `unit` bytes of each thread's byte ranges.
    pub fn new<R: IntoIterator<Item = Range<u64>>>(
        area: Area,
        threads: impl IntoIterator<Item = R>,
        unit: u64,
        writes: bool,
    ) -> Self {
        let own = |ranges: R| ranges.into_iter().filter(|range| !range.is_empty()).collect();
        Self { area, threads: threads.into_iter().map(own).collect(), unit, writes }
    }

    /// Writes every `unit` bytes of the ranges.
    pub fn write<R: IntoIterator<Item = Range<u64>>>(
        area: Area,
        threads: impl IntoIterator<Item = R>,
        unit: u64,
    ) -> Self {
        Self::new(area, threads, unit, true)
    }

    /// Writes every `unit` bytes of the first `bytes` of an area, with one thread.
    pub fn first(area: Area, bytes: u64, unit: u64) -> Self {
        Self::write(area, std::iter::once(Some(0..bytes)), unit)
    }
}

impl Step for Sweep {
    fn fill(&mut self, block: &mut Block) -> bool {
        while !block.is_full() {
            self.threads.retain(|ranges| !ranges.is_empty());
            // A single thread need not take turns.
            let pages = match self.threads.len() {
                0 => return false,
                1 => BLOCK.saturating_sub(block.accesses.len()).max(1) as u64,
                _ => 1,
            };
            for ranges in &mut self.threads {
                let Some(range) = ranges.front_mut() else { continue };
                let end = ((range.start / PAGE + pages) * PAGE).min(range.end);
                block.bytes(self.area, range.start..end, self.unit, self.writes);
                range.start = end;
                if range.is_empty() {
                    ranges.pop_front();
                }
            }
        }
        true
    }

    fn records(&self) -> Option<u64> {
        let pages = |range: &Range<u64>| range.end.div_ceil(PAGE) - range.start / PAGE;
        Some(self.threads.iter().flatten().map(pages).sum())
    }
}
