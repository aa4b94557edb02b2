//! Memory before it is needed: how much of it to prepare, where, and when to stop.
//!
//! Rules only: facts go in, a decision comes out. No clock, no I/O, no allocation. A *unit* is
//! whatever the user prepares at once.

// Anticipatory prefault (Lameter's patches of 2004 and 2005): who touches memory in order gets more
// and more of it at once. Used by whoever serves touches: a fault handler.

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

// Keeping a stock of zeroed memory (prezeroing): when to zero, when to stop, when to give back. Used by
// whoever keeps the stock: the laboratory's scrubd.

/// The rules of one stock. Amounts are in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    /// Zeroing starts when there are fewer.
    pub start: u64,
    /// It stops at this many.
    pub stop: u64,
    /// It rests while as many others run, or more. (scrubd's `scrub_load`; number of CPUs: only where
    /// one is idle.)
    pub load: u64,
    /// A stock that nobody asked of for so long is halved, again and again.
    pub patience_ms: u64,
}

/// What the rules look at. `None`: could not be learned, and then holds nothing back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Units zeroed and waiting.
    pub ready: u64,
    /// Whether zeroing is under way, between `start` and `stop`.
    pub is_filling: bool,
    /// Tasks that run or wait for a CPU, besides the one that zeroes.
    pub running: Option<u64>,
    /// Thousandths of a CPU that nobody but the one who zeroes had a use for, over the last period.
    pub spare: Option<u64>,
    /// Units that may be taken before memory runs short, for the machine or for whatever limits us.
    pub headroom: Option<u64>,
    /// Whether somebody waits for memory just now.
    pub is_pressed: bool,
    /// Since somebody last asked the stock for something, or it was last halved.
    pub idle_ms: u64,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Zero up to this many, one after the other, and ask again.
    Fill(u64),
    /// Nothing.
    Rest,
    /// Give this many back.
    Shrink(u64),
}

impl Refill {
    /// Thousandths of a CPU that must have been to spare. How many run at one moment does not say it: a
    /// server and its client that keep two CPUs busy run both in half of all looks (measured, redis).
    pub const SPARE: u64 = 500;

    /// A stock of at most `stop` units that is filled up again when a quarter is gone.
    pub const fn new(stop: u64, load: u64, patience_ms: u64) -> Self {
        Self { start: stop - stop / 4, stop, load, patience_ms }
    }

    /// Whether there is a CPU to work on that nobody else needs.
    pub fn has_cpu(&self, facts: &Facts) -> bool {
        facts.running.is_none_or(|running| running < self.load)
            && facts.spare.is_none_or(|spare| spare >= Self::SPARE)
    }

    /// Decides. Giving way comes before everything else: to memory, then to time, then to other work.
    pub fn decide(&self, facts: &Facts) -> Decision {
        let half = facts.ready.div_ceil(2);
        if facts.is_pressed {
            return if half > 0 { Decision::Shrink(half) } else { Decision::Rest };
        }
        if facts.ready > self.stop {
            return Decision::Shrink(facts.ready - self.stop);
        }
        if facts.idle_ms >= self.patience_ms {
            return if half > 0 { Decision::Shrink(half) } else { Decision::Rest };
        }
        let is_low = facts.ready < self.start || facts.is_filling;
        // No room to grow is no reason to shrink: what was given back would be taken again.
        let is_full = facts.ready >= self.stop || facts.headroom == Some(0);
        if !self.has_cpu(facts) || !is_low || is_full {
            return Decision::Rest;
        }
        let wanted = self.stop - facts.ready;
        Decision::Fill(facts.headroom.map_or(wanted, |headroom| wanted.min(headroom)))
    }

    /// How many pages a stock is to have that had `now` and has just failed a request for `asked`: twice as
    /// many, or as many as were asked for, and never more than `limit`. So a process that asks for little
    /// has little zeroed for it. Any one unit will do.
    pub fn grown(now: u64, asked: u64, limit: u64) -> u64 {
        now.saturating_mul(2).max(asked).min(limit)
    }

    /// Per mille of a CPU to spare over `period`, rounded down: what was idle on all CPUs, and what the one who
    /// zeroes took, less what it waited: then it had what others needed. All in the same unit of time.
    pub fn spare(period: u64, idle: u64, own: u64, waited: u64) -> u64 {
        let to_spare = idle.saturating_add(own).saturating_sub(waited);
        to_spare.saturating_mul(1000) / period.max(1)
    }
}
