//! Preparing memory before it is needed: how much, where, and when to stop.
//!
//! Pure functions from facts to decisions: no clock, no I/O, no allocation. A *unit* is the amount that the caller
//! prepares at once.

// Anticipatory prefault (Lameter's patches of 2004 and 2005): sequential touches get batches of growing size. For fault
// handlers.

/// State of one sequence of touches, by one task or at one place in a mapping.
///
/// ```text
/// first touch: 1 unit --expected--> 2 --expected--> 4 ... 2^limit --surprise--> 1
/// ```
///
/// The next touch is expected at the end of the last batch. So the number of prepared but untouched units is at most
/// one batch, `2^limit` units, and at most the number of units touched sequentially before this batch.
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

    /// Makes the state before the first touch. Batches grow up to `2^limit` units; 0 prepares only the touched unit.
    /// (Lameter's `max_prealloc_order`: default 1, best 4 for programs with much memory.)
    pub const fn new(limit: u32) -> Self {
        let limit = if limit < Self::MAX_ORDER { limit } else { Self::MAX_ORDER };
        // No unit has this number, so the first touch is never expected.
        Self { predicted: u64::MAX, order: 0, limit }
    }

    /// Like [`Self::new`], with the limit in units, rounded down to a power of two. Below two units
    /// there are no batches.
    pub const fn up_to(units: u64) -> Self {
        Self::new(if units == 0 { 0 } else { units.ilog2() })
    }

    /// Handles a touch of `unit` in memory that ends before `end`. Returns the number of units to prepare, starting
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
        // Prepare the touched unit even if `end` lies before it.
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

    /// Expects the next touch at `unit`, and prepares nothing. For a sequence that continues at another place.
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

// Prezeroing: keeping a stock of zeroed memory. Decides when to zero, when to stop, and when to release. Used by the
// laboratory's scrubd.

/// The rules of one stock. Amounts are in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    /// Stock below which zeroing starts.
    pub start: u64,
    /// Stock at which zeroing stops.
    pub stop: u64,
    /// Zeroing rests while at least this many other tasks run. (scrubd's `scrub_load`; set to the number of CPUs,
    /// zeroing runs only if a CPU is idle.)
    pub load: u64,
    /// If the stock gets no request for this many milliseconds, it is halved; and again after each
    /// further such time.
    pub patience_ms: u64,
}

/// Facts for the decision. An unknown fact is `None`, and does not prevent zeroing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Number of units that are zeroed and unused.
    pub ready: u64,
    /// Whether a refill has started and not yet reached `stop`.
    pub is_filling: bool,
    /// Number of tasks that run or wait for a CPU, except the zeroing task.
    pub running: Option<u64>,
    /// CPU time that no other task needed over the last period, in thousandths of a CPU.
    pub spare: Option<u64>,
    /// Number of units that can be taken before the machine's memory runs short or this process reaches its limit.
    pub headroom: Option<u64>,
    /// Whether some task is stalled for lack of memory.
    pub is_pressed: bool,
    /// Milliseconds since the last request to the stock, or since the stock was last halved.
    pub idle_ms: u64,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Zero up to this many units one by one, then decide again.
    Fill(u64),
    /// Do nothing.
    Rest,
    /// Release this many units.
    Shrink(u64),
}

impl Refill {
    /// Minimum spare CPU time, in thousandths of a CPU. The number of running tasks alone is misleading: a server and
    /// its client that keep two CPUs busy both run in only half of all samples (measured, redis).
    pub const SPARE: u64 = 500;

    /// Rules for a stock of at most `stop` units that is refilled once a quarter is used.
    pub const fn new(stop: u64, load: u64, patience_ms: u64) -> Self {
        Self { start: stop - stop / 4, stop, load, patience_ms }
    }

    /// Whether there is a CPU that no other task needs.
    pub fn has_cpu(&self, facts: &Facts) -> bool {
        facts.running.is_none_or(|running| running < self.load)
            && facts.spare.is_none_or(|spare| spare >= Self::SPARE)
    }

    /// Returns the next step. Memory pressure takes precedence, then the idle time, then the need
    /// for zeroing.
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
        // Without headroom, do not grow, but do not shrink either: the released units would be
        // taken again.
        let is_full = facts.ready >= self.stop || facts.headroom == Some(0);
        if !self.has_cpu(facts) || !is_low || is_full {
            return Decision::Rest;
        }
        let wanted = self.stop - facts.ready;
        Decision::Fill(facts.headroom.map_or(wanted, |headroom| wanted.min(headroom)))
    }

    /// New target size of a stock of `now` units that was too small for a request of `asked` units: the larger of twice
    /// `now` and `asked`, at most `limit`. Processes with small requests so get small stocks.
    pub fn grown(now: u64, asked: u64, limit: u64) -> u64 {
        now.saturating_mul(2).max(asked).min(limit)
    }

    /// Spare CPU time over `period`, in thousandths of a CPU, rounded down. It is the `idle` time of all CPUs plus the
    /// zeroing task's `own` time, minus the time it `waited` for a CPU that other tasks used. All times must be in the
    /// same unit.
    pub fn spare(period: u64, idle: u64, own: u64, waited: u64) -> u64 {
        let to_spare = idle.saturating_add(own).saturating_sub(waited);
        to_spare.saturating_mul(1000) / period.max(1)
    }
}
