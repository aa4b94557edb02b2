//! Does the work of the design's daemons in pieces, as the policy says.

use std::time::Duration;

use policy::{
    Action, Candidates, Daemon, DaemonAction, Event, Facts, Result as Ended, ScanAction,
    UpkeepAction, Wait,
};
use sys::param::thread_cpu_time;
use units::Pid;

use crate::account::Cause;
use crate::ask;
use crate::daemons::PIECE;
use crate::extent::{BYTES, PAGES};
use crate::turn::Executor;

impl Executor {
    /// Lets each daemon that is due do a piece of work.
    pub(crate) fn work(&mut self) {
        if self.budget.waits() || self.supervised_pause().is_some() {
            return; // daemons keep their candidates
        }
        for _ in 0..self.daemons.list.len() {
            let began = self.now();
            let Some(at) = self.daemons.due(began) else { return };
            let cpu = thread_cpu_time();
            let next = self.piece(at, cpu);
            let spent = thread_cpu_time().saturating_sub(cpu).as_micros() as u64;
            self.daemons.has_worked(at, began, self.now(), spent, next);
        }
    }

    /// Does one piece of a daemon's work: performs actions until the policy waits.
    fn piece(&mut self, at: usize, began: Duration) -> Wait {
        let (task, spent) = (self.daemons.list[at].task, self.daemons.list[at].spent);
        let mut partial = self.partial();
        let mut done = None;
        loop {
            let in_piece = thread_cpu_time().saturating_sub(began).as_micros() as u64;
            let is_paused = self.supervised_pause().is_some();
            let mut facts = Facts::default();
            facts.machine.spent = spent + in_piece;
            facts.machine.spent_in_piece = in_piece;
            facts.machine.is_piece_done =
                in_piece >= PIECE || self.is_stopped() || self.budget.waits() || is_paused;
            facts.machine.waiting = match task {
                Daemon::Fill => partial.len() as u32,
                _ => self.daemons.candidates.len() as u32,
            };
            let action = match done.take() {
                None => self.policy.tick(task, &facts),
                Some((action, result, cost)) => self.policy.worked(action, result, cost, &facts),
            };
            let (result, cost) = match action {
                DaemonAction::Wait(wait) => return wait,
                DaemonAction::Scan(ScanAction::Rewind) => {
                    self.daemons.cursor = (Pid(0), 0);
                    (Ended::Done { pages: 0 }, 0)
                }
                DaemonAction::Scan(ScanAction::Visit(from)) => {
                    let listed = match from {
                        Candidates::Listed => self.daemons.candidates.pop_front(),
                        Candidates::Next | Candidates::Best => None,
                    };
                    self.daemons.cursor = listed.unwrap_or(self.daemons.cursor);
                    self.visit()
                }
                DaemonAction::Upkeep(UpkeepAction::Fill { at }) => (self.fill(&mut partial, at), 0),
                // Unreachable: `check_design` rejects designs with other daemons.
                DaemonAction::Scan(_) | DaemonAction::Upkeep(_) | DaemonAction::Watch(_) => {
                    (Ended::Nothing, 0)
                }
            };
            done = Some((action, result, cost));
        }
    }

    /// Returns the reservations that are neither full nor wanted; the one that changed last is at the end.
    fn partial(&self) -> Vec<(u64, Pid, u64)> {
        let mut partial = Vec::new();
        for process in self.processes.values() {
            let open = process.extents.iter().filter(|(_, extent)| {
                let is_open = extent.is_reserved && !extent.is_huge && !extent.is_wanted;
                is_open && !extent.is_bad && extent.populated < PAGES
            });
            partial.extend(open.map(|(start, extent)| (extent.grew.1, process.pid, *start)));
        }
        partial.sort_unstable();
        partial
    }

    /// Fills one reservation: of those with at least `at` pages, the one that changed last.
    fn fill(&mut self, partial: &mut Vec<(u64, Pid, u64)>, at: u16) -> Ended {
        while let Some((_, pid, start)) = partial.pop().filter(|_| !self.budget.waits()) {
            let shares = self.processes.len() > 1;
            let Some(process) = self.processes.get_mut(&pid) else { continue };
            let is_shared = shares && process.is_shared(start);
            let Some(extent) = process.extents.get_mut(&start) else { continue };
            if extent.populated < at {
                continue;
            }
            let facts = extent.facts(&self.policy, is_shared);
            let Action::Populate = self.policy.on(Event::Candidate, &facts) else {
                extent.is_bad = true;
                return Ended::Unfit;
            };
            if !ask::is_mapped_once_filled(&mut self.policy, extent, is_shared) {
                extent.is_bad = true;
                return Ended::Unfit;
            }
            self.tally.wants(extent, Cause::Filling);
            let ended = self.collapse(pid, &[start]);
            self.keep_trying(pid, start, ended);
            return ended;
        }
        Ended::Nothing
    }

    /// Makes the next extent in address order a candidate.
    fn visit(&mut self) -> (Ended, u32) {
        let mut passed = 0;
        let Some((pid, start)) = self.next_region(&mut passed) else {
            return (Ended::Nothing, passed);
        };
        self.daemons.cursor = (pid, start + BYTES);
        let shares = self.processes.len() > 1;
        let Some(process) = self.processes.get_mut(&pid) else { return (Ended::Unfit, passed) };
        let is_shared = shares && process.is_shared(start);
        let Some(extent) = process.extents.get_mut(&start) else { return (Ended::Unfit, passed) };
        let facts = extent.facts(&self.policy, is_shared);
        if self.policy.on(Event::Candidate, &facts) != Action::Inspect {
            return (Ended::Unfit, passed);
        }
        let inspected = Event::Inspected { requested: false };
        if !matches!(self.policy.on(inspected, &facts), Action::MakeSuperpage { .. }) {
            return (Ended::Unfit, passed);
        }
        self.tally.wants(extent, Cause::Scan);
        (self.collapse(pid, &[start]), passed)
    }

    fn keep_trying(&mut self, pid: Pid, start: u64, ended: Ended) {
        if !matches!(ended, Ended::Done { .. }) {
            self.pending.push((pid, start));
        }
    }

    /// Returns the next whole extent at or after the scan's cursor, in mappings that the design serves. Counts the
    /// skipped mappings in `passed`.
    fn next_region(&self, passed: &mut u32) -> Option<(Pid, u64)> {
        let (first, address) = self.daemons.cursor;
        for (pid, process) in self.processes.range(first..) {
            let from = if *pid == first { address } else { 0 };
            for span in process.spans.iter().filter(|span| span.end > from) {
                if self.policy.is_eligible(&span.mapping) {
                    return Some((*pid, span.start.max(from)));
                }
                *passed += 1;
            }
        }
        None
    }
}
