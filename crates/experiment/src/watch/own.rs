//! What the program's processes recorded: looks at their own memory, and their ends.
//!
//! A look of one process is one of the run where all others held next to nothing at the last tick; else it is
//! only a lower bound of what was held.
//! See docs/decisions/watch.md#5.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use abi::looks::Why;

use host::coverage::Coverage;
use host::{MemInfo, Root, Thp};
use units::Pid;

use super::bounds::{Ends, Life};
use super::{Looked, Moment, Watcher};
use crate::counters::CounterFile;
use crate::looks::{OwnLook, OwnLooks};

/// Processes whose lives are remembered, at most.
const MAX_LIVES: usize = 1024;
/// For so long after they ended.
const REMEMBERED: Duration = Duration::from_millis(200);
/// Of what a process held, the part that all others may hold beside it.
const OTHERS: u64 = 8;

pub(super) struct Own {
    looks: OwnLooks,
    /// When the program was started, by the clock of the records.
    started: Duration,
    /// Processes that ended since that was last asked, and the most that each held.
    ended: Vec<(Pid, u64)>,
    /// When processes began and ended, as far as they told.
    lives: BTreeMap<Pid, Life>,
    /// Of those told of so far, how many were never seen by a tick and not yet counted among the unseen.
    never_seen: u64,
}

impl Own {
    /// `None`: the counters cannot be read.
    pub(super) fn new(counters: &CounterFile, root: &Root, since: Instant) -> Option<Self> {
        let pool = MemInfo::read(root).ok().and_then(|info| info.default_hugepage);
        let pool = pool.or_else(|| Thp::pmd_size_of(root).ok())?;
        let looks = OwnLooks::new(counters.words().ok()?, pool);
        let started = clock_of(since);
        Some(Self { looks, started, ended: Vec::new(), lives: BTreeMap::new(), never_seen: 0 })
    }

    pub(super) fn ask(&self) {
        self.looks.ask();
    }
}

/// An instant by the clock of the records. On a busy machine this thread may lose its CPU between two readings: the closest
/// of a few are taken.
fn clock_of(since: Instant) -> Duration {
    let read = || {
        let before = sys::param::monotonic_time();
        let passed = since.elapsed();
        let after = sys::param::monotonic_time();
        (after.saturating_sub(before), after.saturating_sub(passed))
    };
    let closest = (0..4).map(|_| read()).min_by_key(|(apart, _)| *apart);
    closest.map_or(Duration::ZERO, |(_, started)| started)
}

impl Watcher {
    /// Takes in what processes told since it was last asked.
    pub(super) fn read_own_looks(&mut self, is_last: bool) {
        let Some(mut own) = self.own.take() else { return };
        for OwnLook { pid, at, why, high_water, coverage } in own.looks.take(is_last) {
            let is_end = why == Some(Why::Ends);
            if own.lives.len() < MAX_LIVES && self.members.may_be(pid) {
                let life = own.lives.entry(pid).or_default();
                match why {
                    Some(Why::Begins) if life.ended < Duration::MAX => {
                        *life = Life { began: at, ..Life::default() };
                    }
                    Some(Why::Begins) if life.began.is_zero() => life.began = at,
                    Some(Why::Ends) => life.ended = at,
                    _ => {}
                }
            }
            if let Some(most) = high_water {
                self.bounds.saw(most);
            }
            if let Some(most) = high_water.filter(|_| is_end && self.members.may_be(pid)) {
                own.ended.push((pid, most));
                own.never_seen += u64::from(!self.members.was_seen(pid));
            }
            if let Some(coverage) = coverage {
                self.take_over(at.saturating_sub(own.started), pid, coverage);
            }
        }
        self.own = Some(own);
    }

    fn take_over(&mut self, at: Duration, pid: Pid, coverage: Coverage) {
        let held = coverage.resident().bytes();
        let superpages = coverage.superpage_bytes().bytes();
        self.seen.looks += 1;
        self.bounds.saw(held);
        if self.bounds.held_by_others(pid) > held / OTHERS {
            return;
        }
        let at = at.min(self.since.elapsed());
        self.seen.note(Moment {
            seconds: at.as_secs_f64(),
            resident_bytes: held,
            superpage_bytes: Some(superpages),
        });
        if self.looked.as_ref().is_none_or(|last| last.at < at) {
            self.looked = Some(Looked { at, held, base_bytes: held - superpages });
        }
        if self.is_at_most(at, held) {
            self.cover(at, coverage);
            self.seen.counts_shared_again = false;
        }
    }

    /// What is known of the processes that ended since the last tick: by the kernel, or by themselves.
    pub(super) fn ends(&mut self, unseen: u64) -> Ends {
        let mut ends = self.members.ends(unseen, self.is_long());
        let hears_kernel = self.members.hears_ends();
        if let Some(own) = &mut self.own {
            ends.lives.clone_from(&own.lives);
            // Their numbers are given again some time.
            let now = sys::param::monotonic_time();
            own.lives.retain(|_, life| life.ended.saturating_add(REMEMBERED) > now);
            let told = std::mem::take(&mut own.ended);
            if !hears_kernel {
                ends.known.extend(told);
                let known = own.never_seen.min(ends.unseen);
                ends.unseen -= known;
                own.never_seen -= known;
            }
        }
        ends
    }
}
