//! Keeping a stock of zeroed memory (prezeroing): when to zero, when to stop, when to give back. Used by
//! whoever keeps the stock: the laboratory's scrubd.

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
