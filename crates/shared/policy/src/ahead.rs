//! Memory prepared before it is needed: how much, where, and when to stop.
//!
//! Rules only: facts in, decisions out. No clock, no I/O, no allocation. A *unit* is the amount that a user prepares
//! at once.

// Anticipatory prefault (Lameter's patches of 2004 and 2005): sequential touches get batches of growing size. Used by
// a fault handler.

/// State of one sequence of touches: of a task, or of one place in a mapping.
///
/// ```text
/// first touch: 1 unit --expected--> 2 --expected--> 4 ... 2^limit --surprise--> 1
/// ```
///
/// A touch is expected at the end of the last batch. Untouched prepared units are at most one batch of `2^limit`
/// units, and no more than the units touched sequentially before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefault {
    /// Unit at which the next touch is expected.
    predicted: u64,
    /// Order of the last batch.
    order: u32,
    /// Maximum order.
    limit: u32,
}

impl Prefault {
    /// Maximum order of a batch that a u64 can count.
    const MAX_ORDER: u32 = 62;

    /// The state before the first touch. `limit`: batches grow to `2^limit` units; 0 prepares only the touched
    /// unit. (Lameter's `max_prealloc_order`: default 1, best 4 for programs with much memory.)
    pub const fn new(limit: u32) -> Self {
        let limit = if limit < Self::MAX_ORDER { limit } else { Self::MAX_ORDER };
        // No memory ends here, so no first touch is expected.
        Self { predicted: u64::MAX, order: 0, limit }
    }

    /// The limit in units instead of an order, rounded down; below two units there is no batch.
    pub const fn up_to(units: u64) -> Self {
        Self::new(if units == 0 { 0 } else { units.ilog2() })
    }

    /// A touch of `unit`, in memory that ends before `end`: returns the number of units to prepare, beginning
    /// with `unit`.
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
        // The touched unit is needed even if `end` lies before it.
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

    /// Expects the next touch at `unit`, without a batch: for a sequence that was seen to continue elsewhere.
    pub const fn expect(&mut self, unit: u64) {
        self.predicted = unit;
    }

    /// Number of the unit where the next touch is expected.
    pub const fn predicted(&self) -> u64 {
        self.predicted
    }

    /// The order of the last batch.
    pub const fn order(&self) -> u32 {
        self.order
    }
}

// Keeping a stock of zeroed memory (prezeroing): when to zero, when to stop, when to release. Used by the
// laboratory's scrubd.

/// The rules of one stock. Amounts are in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    /// Stock below which zeroing starts.
    pub start: u64,
    /// Stock at which zeroing stops.
    pub stop: u64,
    /// Zeroing rests while this many other tasks run, or more. (scrubd's `scrub_load`; with the number of CPUs,
    /// zeroing runs only where one is idle.)
    pub load: u64,
    /// A stock without requests for this long is halved, repeatedly.
    pub patience_ms: u64,
}

/// Facts for the decision. `None`: unknown, and no reason to hold back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Units that are zeroed and unused.
    pub ready: u64,
    /// Whether zeroing is in progress, between `start` and `stop`.
    pub is_filling: bool,
    /// Number of tasks that run or wait for a CPU, except the zeroing task.
    pub running: Option<u64>,
    /// CPU time that no other task needed over the last period, in thousandths of a CPU.
    pub spare: Option<u64>,
    /// Units that may be taken before memory runs short, by the limits of the machine or of this process.
    pub headroom: Option<u64>,
    /// Whether anyone waits for memory at this moment.
    pub is_pressed: bool,
    /// Time since the last request to the stock, or since it was last halved.
    pub idle_ms: u64,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Zero up to this many units, one after the other, and decide again.
    Fill(u64),
    /// Nothing.
    Rest,
    /// Release this many units.
    Shrink(u64),
}

impl Refill {
    /// Minimum spare CPU time, in thousandths of a CPU. The number of running tasks at one moment is not enough:
    /// a server and its client that keep two CPUs busy both run in only half of all samples (measured, redis).
    pub const SPARE: u64 = 500;

    /// A stock of at most `stop` units, refilled when a quarter is used.
    pub const fn new(stop: u64, load: u64, patience_ms: u64) -> Self {
        Self { start: stop - stop / 4, stop, load, patience_ms }
    }

    /// Whether a CPU is available that no other task needs.
    pub fn has_cpu(&self, facts: &Facts) -> bool {
        facts.running.is_none_or(|running| running < self.load)
            && facts.spare.is_none_or(|spare| spare >= Self::SPARE)
    }

    /// Decides. Memory pressure comes first, then the idle time, then other work.
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
        // No room to grow is no reason to shrink: released units would be taken again.
        let is_full = facts.ready >= self.stop || facts.headroom == Some(0);
        if !self.has_cpu(facts) || !is_low || is_full {
            return Decision::Rest;
        }
        let wanted = self.stop - facts.ready;
        Decision::Fill(facts.headroom.map_or(wanted, |headroom| wanted.min(headroom)))
    }

    /// Target size of a stock of `now` pages that just failed a request for `asked`: the larger of twice `now`
    /// and `asked`, at most `limit`. So a process with small requests gets a small stock. Works in any one unit.
    pub fn grown(now: u64, asked: u64, limit: u64) -> u64 {
        now.saturating_mul(2).max(asked).min(limit)
    }

    /// Spare CPU time over `period`, in thousandths of a CPU, rounded down: idle time of all CPUs plus the
    /// zeroing task's own time, less the time that it waited, when other tasks needed the CPU. All in the same
    /// unit of time.
    pub fn spare(period: u64, idle: u64, own: u64, waited: u64) -> u64 {
        let to_spare = idle.saturating_add(own).saturating_sub(waited);
        to_spare.saturating_mul(1000) / period.max(1)
    }
}
