//! `Sweep`: threads that go through bytes in order, each through its own. First touches are such.

use std::collections::VecDeque;
use std::ops::Range;

use trace::{Access, BLOCK, Block};

use crate::workloads::Emit;
use crate::workloads::program::Step;
use crate::workloads::space::{Area, PAGE};

/// What one thread goes through, range after range.
pub(crate) struct Lane(VecDeque<Range<u64>>);

impl Lane {
    /// A lane of ranges of bytes.
    pub fn of(ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        Self(ranges.into_iter().filter(|range| !range.is_empty()).collect())
    }

    /// A lane of one range.
    pub fn new(range: Range<u64>) -> Self {
        Self::of(std::iter::once(range))
    }
}

/// Lanes that advance together, a page at a time.
pub(crate) struct Sweep {
    area: Area,
    lanes: Vec<Lane>,
    /// Bytes that one access covers.
    unit: u64,
    writes: bool,
}

impl Sweep {
    /// Writes, or reads, every `unit` bytes of every lane.
    pub fn new(area: Area, lanes: Vec<Lane>, unit: u64, writes: bool) -> Self {
        Self { area, lanes, unit, writes }
    }

    /// Writes every `unit` bytes of every lane.
    pub fn write(area: Area, lanes: Vec<Lane>, unit: u64) -> Self {
        Self::new(area, lanes, unit, true)
    }

    /// Writes all of an area by one thread, `per_page` accesses to a page.
    pub fn all(area: Area, per_page: u64) -> Self {
        let lane = Lane::new(0..u64::from(area.pages) * PAGE);
        Self::write(area, vec![lane], PAGE / per_page)
    }
}

impl Step for Sweep {
    fn fill(&mut self, block: &mut Block) -> bool {
        while !block.is_full() {
            self.lanes.retain(|lane| !lane.0.is_empty());
            // One thread alone need not wait for its turn.
            let pages = match self.lanes.len() {
                0 => return false,
                1 => BLOCK.saturating_sub(block.accesses.len()).max(1),
                _ => 1,
            };
            for lane in &mut self.lanes {
                let Some(range) = lane.0.front_mut() else { continue };
                for _ in 0..pages {
                    let end = ((range.start / PAGE + 1) * PAGE).min(range.end);
                    let page = self.area.page(range.start / PAGE);
                    let access = if self.writes { Access::write(page) } else { Access::read(page) };
                    block.run(access, (end - range.start).div_ceil(self.unit) as u32);
                    range.start = end;
                    if range.is_empty() {
                        lane.0.pop_front();
                        break;
                    }
                }
            }
        }
        true
    }

    fn records(&self) -> Option<u64> {
        let pages = |range: &Range<u64>| range.end.div_ceil(PAGE) - range.start / PAGE;
        Some(self.lanes.iter().flat_map(|lane| &lane.0).map(pages).sum())
    }
}
