//! Anticipatory prefault (Lameter's patches of 2004 and 2005): who touches memory in order gets more
//! and more of it at once. Used by whoever serves touches: a fault handler.

/// The state of one sequence of touches: one task's, or one place in one mapping.
///
/// ```text
/// first touch: 1 unit --expected--> 2 --expected--> 4 ... 2^limit --surprise--> 1
/// ```
///
/// A touch is expected where the last batch ended. Units that were prepared and never touched are at
/// most one batch, of `2^limit` units, and no more than were touched in order before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefault {
    /// Where the next touch is expected.
    predicted: u64,
    /// Two to the power of it were prepared last.
    order: u32,
    /// The largest order.
    limit: u32,
}

impl Prefault {
    /// The largest batch is a number of units that a u64 can count.
    const MAX_ORDER: u32 = 62;

    /// Nothing was touched yet. `limit`: batches grow to `2^limit` units; 0 prepares only what is
    /// touched. (Lameter's `max_prealloc_order`: default 1, best 4 for programs with much memory.)
    pub const fn new(limit: u32) -> Self {
        let limit = if limit < Self::MAX_ORDER { limit } else { Self::MAX_ORDER };
        // No memory ends there, so no first touch is an expected one.
        Self { predicted: u64::MAX, order: 0, limit }
    }

    /// The limit in units instead of as an order, rounded down; below two units there is no batch.
    pub const fn up_to(units: u64) -> Self {
        Self::new(if units == 0 { 0 } else { units.ilog2() })
    }

    /// A touch of `unit`, in memory that ends before `end`: how many units to prepare, `unit` the
    /// first of them.
    pub const fn at(&mut self, unit: u64, end: u64) -> u64 {
        self.order = if unit != self.predicted {
            0
        } else if self.order < self.limit {
            self.order + 1
        } else {
            self.limit
        };
        let left = end.saturating_sub(unit);
        let batch = 1 << self.order;
        // The touched unit itself is needed wherever the memory is said to end.
        let count = if left < 1 {
            1
        } else if left < batch {
            left
        } else {
            batch
        };
        self.predicted = unit.saturating_add(count);
        count
    }

    /// The same for a unit that somebody is told to expect from now on, without a batch: a sequence
    /// that was seen to go on elsewhere.
    pub const fn expect(&mut self, unit: u64) {
        self.predicted = unit;
    }

    /// Where the next touch is expected: the number of a unit.
    pub const fn predicted(&self) -> u64 {
        self.predicted
    }

    /// The order of the last batch.
    pub const fn order(&self) -> u32 {
        self.order
    }
}
