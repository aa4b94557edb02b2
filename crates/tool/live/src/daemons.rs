//! Schedules a design's daemons that make superpages in real time, and keeps the position of each.
//!
//! Daemons work in pieces, between looks. The kernel runs the daemons that maintain memory (zeroing, compaction,
//! reclaim).

use std::collections::VecDeque;

use policy::{Daemon as Task, Policy, Wait};
use units::Pid;

/// Length of a piece of work, in ticks.
pub(crate) const PIECE: u64 = 10_000;

pub(crate) fn is_ours(task: Task) -> bool {
    matches!(task, Task::Scan | Task::Fill)
}

#[derive(Debug)]
pub(crate) struct Daemon {
    pub task: Task,
    due: u64,
    period: u64,
    /// Start of the current pass in ticks; `None`: the daemon sleeps.
    began: Option<u64>,
    /// CPU time of earlier pieces of the pass, in ticks.
    pub spent: u64,
}

/// All daemons of a design. Times are in ticks.
#[derive(Debug)]
pub(crate) struct Daemons {
    pub list: Vec<Daemon>,
    /// Extents whose population crossed the policy's threshold, oldest first.
    pub candidates: VecDeque<(Pid, u64)>,
    /// After a failure, the scan sleeps until it has more candidates than this.
    naps_with: Option<usize>,
    /// Process and address at which the scan continues.
    pub cursor: (Pid, u64),
}

impl Daemons {
    /// Creates the daemons. Their first pass begins in the middle of a period, the mean of programs' starts, as in the
    /// laboratory. See docs/decisions/lab-model.md#1.
    pub(crate) fn new(policy: &Policy) -> Self {
        let ours = policy.daemons().filter(|(task, _)| is_ours(*task));
        let daemon =
            |(task, period)| Daemon { task, due: period / 2, period, began: None, spent: 0 };
        Self {
            list: ours.map(daemon).collect(),
            candidates: VecDeque::new(),
            naps_with: None,
            cursor: (Pid(0), 0),
        }
    }

    pub(crate) fn next_due(&self) -> Option<u64> {
        self.list.iter().map(|daemon| daemon.due).min()
    }

    /// Returns the index of a daemon that is due.
    pub(crate) fn due(&mut self, now: u64) -> Option<usize> {
        if self.naps_with.is_some_and(|most| self.candidates.len() > most) {
            self.naps_with = None;
            for daemon in self.list.iter_mut().filter(|daemon| daemon.task == Task::Scan) {
                daemon.due = daemon.due.min(now);
            }
        }
        let due = self.list.iter().enumerate().filter(|(_, daemon)| daemon.due <= now);
        due.min_by_key(|(_, daemon)| daemon.due).map(|(at, _)| at)
    }

    pub(crate) fn has_worked(&mut self, at: usize, began: u64, now: u64, spent: u64, next: Wait) {
        let daemon = &mut self.list[at];
        let began = *daemon.began.get_or_insert(daemon.due.min(began));
        daemon.spent += spent;
        let goes_on = matches!(next, Wait::More | Wait::Pause(_));
        if daemon.task == Task::Scan {
            self.naps_with = matches!(next, Wait::Pause(_)).then_some(self.candidates.len());
        }
        daemon.due = match next {
            Wait::Period => (began + daemon.period).max(now),
            Wait::After(rest) | Wait::Pause(rest) => now + rest,
            Wait::More => now,
        };
        if !goes_on {
            (daemon.began, daemon.spent) = (None, 0);
        }
    }
}
