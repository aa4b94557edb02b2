//! Prefault by somebody else than the one who touches: batches are ordered before the last one is used up.
//! Used by threads that watch a program's memory.

use core::ops::Range;

use crate::Prefault;

/// A sequence of touches that is seen from outside, and the batches prepared for it.
///
///     |  touched  |  batch before  |  last batch  |
///                 seen here: nothing            predicted
///                                  seen here: the next batch is ordered, twice as large
///
/// So at most two batches are prepared and untouched: with `limit` as [`Prefault`]'s, no more than
/// `2 * 2^limit` units are wasted when the program stops or goes elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    rule: Prefault,
    /// The first unit of the last batch.
    last: u64,
}

impl Sequence {
    /// A sequence that is expected to begin at `unit`; at most `units` will be prepared and untouched.
    pub const fn from(unit: u64, units: u64) -> Self {
        Self::after(unit, unit, units)
    }

    /// The same for one whose units from `first` up to `unit` are prepared already.
    pub const fn after(first: u64, unit: u64, units: u64) -> Self {
        let mut rule = Prefault::up_to(units / 2);
        rule.expect(unit);
        Self { rule, last: first }
    }

    /// The program was seen to be at `unit`, in memory that ends before `end`: what to prepare now.
    /// `unit` itself is being touched and not part of it.
    pub const fn seen(&mut self, unit: u64, end: u64) -> Range<u64> {
        let predicted = self.rule.predicted();
        if unit >= predicted {
            // Past all that was prepared: by one, as expected, or by more, a surprise.
            let count = self.rule.at(unit, end);
            self.last = unit;
            return unit + 1..unit + count;
        }
        if unit < self.last || predicted >= end {
            return predicted..predicted;
        }
        let count = self.rule.at(predicted, end);
        self.last = predicted;
        predicted..predicted + count
    }

    /// The program touched everything from where it was expected up to `unit`, before anybody looked.
    pub const fn followed(&mut self, unit: u64, end: u64) -> Range<u64> {
        self.rule.expect(unit);
        self.seen(unit, end)
    }

    /// The first unit of the last batch: who is seen there wants the next one.
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// Where what was prepared ends.
    pub const fn predicted(&self) -> u64 {
        self.rule.predicted()
    }
}
