//! What is observed of a run beside its counters: moments in time, phases, latencies, and whether memory is at its peak.

use super::clock::Clock;
use crate::{CycleCounts, Moment, Phase};

/// What was observed so far.
#[derive(Debug)]
pub(crate) struct Observed {
    /// When the program began.
    began: u64,
    noted: Observations,
    /// Time between two moments of the time line, and the next one's; none before the program begins.
    interval: u64,
    next_moment: u64,
    /// Memory was at its peak in the block that is being carried out.
    peaked: bool,
    /// When the request under way began.
    request: Option<u64>,
    /// The phase under way: name, time, ledger and accesses at its beginning.
    phase: Option<(String, u64, CycleCounts, u64)>,
}

/// All of it, at the end.
#[derive(Debug, Default)]
pub struct Observations {
    /// Cycles from the program's beginning to its end.
    pub wall_cycles: u64,
    /// How memory looked over time.
    pub timeline: Vec<Moment>,
    /// The program's phases, in order.
    pub phases: Vec<Phase>,
    /// Of requests, in cycles.
    pub latencies: Vec<u64>,
}

/// Moments of a time line at most; beyond, every second one is dropped and the interval doubled.
const MOMENTS: usize = 512;
/// The first interval between moments.
const INITIAL_INTERVAL_MICROSECONDS: u64 = 1000;

impl Observed {
    /// Nothing yet.
    pub(crate) fn new(clock: &Clock) -> Self {
        Self {
            began: 0,
            noted: Observations::default(),
            interval: clock.of_microseconds(INITIAL_INTERVAL_MICROSECONDS),
            next_moment: u64::MAX,
            peaked: false,
            request: None,
            phase: None,
        }
    }

    /// The program begins.
    pub(crate) fn begin(&mut self, now: u64) {
        (self.began, self.next_moment) = (now, now);
    }

    /// When it did.
    pub(crate) fn began(&self) -> u64 {
        self.began
    }

    /// Whether a moment is due.
    #[inline]
    pub(crate) fn is_due(&self, now: u64) -> bool {
        now >= self.next_moment
    }

    /// A moment.
    pub(crate) fn note(&mut self, moment: Moment, now: u64) {
        self.noted.timeline.push(moment);
        if self.noted.timeline.len() >= MOMENTS {
            let mut at = 0;
            self.noted.timeline.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.interval *= 2;
        }
        self.next_moment = now + self.interval;
    }

    /// Memory is at its peak.
    #[inline]
    pub(crate) fn peak(&mut self) {
        self.peaked = true;
    }

    /// Whether it was since this was last asked.
    pub(crate) fn take_peak(&mut self) -> bool {
        std::mem::take(&mut self.peaked)
    }

    /// A request begins.
    pub(crate) fn begin_request(&mut self, now: u64) {
        self.request = Some(now);
    }

    /// The request under way ends.
    pub(crate) fn end_request(&mut self, now: u64) {
        if let Some(began) = self.request.take() {
            self.noted.latencies.push(now - began);
        }
    }

    /// A phase begins; the one before ends.
    pub(crate) fn begin_phase(&mut self, name: &str, clock: &Clock, accesses: u64) {
        self.end_phase(clock, accesses);
        self.phase = Some((name.to_string(), clock.now(), *clock.ledger(), accesses));
    }

    /// The last one ends.
    pub(crate) fn end_phase(&mut self, clock: &Clock, accesses: u64) {
        let Some((name, began, ledger, before)) = self.phase.take() else { return };
        self.noted.phases.push(Phase {
            name,
            wall_cycles: clock.now() - began,
            ledger: clock.ledger().since(&ledger),
            accesses: accesses - before,
        });
    }

    /// What there was, at the end.
    pub(crate) fn take(&mut self, now: u64) -> Observations {
        Observations { wall_cycles: now - self.began, ..std::mem::take(&mut self.noted) }
    }
}
