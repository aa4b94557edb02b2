//! Where extents one after the other came to have the pages that the design asks for, the next ones are made superpages before
//! their first touch: nothing is copied, and the program takes no fault in them. See docs/decisions/live.md#14.
//!
//! MADV_COLLAPSE makes no superpage where there is no page table, so a byte of each is read first, which maps the shared zeros.

use std::time::Instant;

use sys::peek::Memory;
use units::Pid;

use crate::account::Cause;
use crate::ask::{self, Wanted};
use crate::extent::{Extent, PAGES};
use crate::make::{self, MAX_RUN};
use crate::turn::{Executor, now_since};

/// Adjacent extents with the pages that the design asks for, from which a program counts as filling memory in order.
const BELOW: usize = 10;
/// Fewer superpages are not worth a call.
const MIN_AHEAD: usize = 4;
/// Pages of an extent from which the program may reach the next one during the call.
const NEAR: u16 = PAGES / 2;

impl Executor {
    /// Extents have more pages: makes the ones above them that the program is coming to.
    pub(crate) fn go_ahead(&mut self, pid: Pid, grown: &[u64]) {
        if !self.goes_ahead || self.filled.is_exhausted(self.now()) {
            return;
        }
        for &start in grown {
            self.go_ahead_of(pid, start);
        }
    }

    fn go_ahead_of(&mut self, pid: Pid, start: u64) {
        if self.budget.waits() || self.backoff.waits(self.now()) {
            return;
        }
        let most = self.budget.affordable_ahead(pid).min(MAX_RUN);
        let starts = self.ahead_of(pid, start, most);
        if starts.is_empty() {
            return;
        }
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let Ok(memory) = Memory::open(pid) else { return };
        let mut run = Vec::new();
        for at in starts {
            let Some(mapping) = process.mapping_of(at) else { break };
            if memory.read(at, &mut [0]).is_err() {
                break;
            }
            let now = now_since(self.began);
            let (grew, cause) = ((now, now), Cause::Mapping);
            let extent = Extent { mapping, cause, grew, looked_at: now, ..Extent::default() };
            process.extents.insert(at, extent);
            run.push(at);
        }
        if !run.is_empty() {
            let made = self.make_ahead(pid, &run);
            self.tally.ahead(made);
        }
    }

    /// Makes these, and forgets those that could not be made: a program that comes to them has them made as ever.
    fn make_ahead(&mut self, pid: Pid, run: &[u64]) -> u64 {
        let (before, began) = (self.tally.report.made, Instant::now());
        self.make(pid, run);
        self.budget.made_ahead(pid, run.len(), began.elapsed());
        if let Some(process) = self.processes.get_mut(&pid) {
            for at in run {
                if process.extents.get(at).is_some_and(|extent| !extent.is_huge) {
                    process.extents.remove(at);
                }
            }
        }
        self.tally.report.made - before
    }

    /// Untouched extents above one that the policy would want once they had the pages that it asks for, if those below have been
    /// filled.
    fn ahead_of(&mut self, pid: Pid, start: u64, most: usize) -> Vec<u64> {
        let now = self.now();
        let least = self.least;
        let Some(process) = self.processes.get(&pid) else { return Vec::new() };
        let is_filled = |at: &u64| {
            process.extents.get(at).is_some_and(|it| it.is_huge || it.populated >= least)
        };
        let is_in_order = make::before(start).take(BELOW).filter(is_filled).count() == BELOW;
        if make::after(start).next().is_none_or(|at| !process.is_untouched(at)) || !is_in_order {
            return Vec::new();
        }
        let allowed = self.most_ahead(now);
        let Some(process) = self.processes.get_mut(&pid) else { return Vec::new() };
        // Its handler would be told of a touch that the program did not make.
        if allowed < MIN_AHEAD || process.has_userfaultfd(&self.root, now) {
            return Vec::new();
        }
        let process = &*process;
        let is_near = process.extents.get(&start).is_some_and(|it| it.populated > NEAR);
        let is_untouched = |at: &u64| process.is_untouched(*at);
        let above = make::after(start).take_while(is_untouched).skip(usize::from(is_near));
        let above: Vec<u64> = above.take(most.min(allowed)).collect();
        let (populated, policy) = (least, &mut self.policy);
        let wants = |at: &u64| {
            let mapping = process.mapping_of(*at).unwrap_or_default();
            let mut extent = Extent { mapping, populated, ..Extent::default() };
            ask::grew(policy, &mut extent, 0, || false) == Wanted::Superpage
        };
        above.into_iter().take_while(wants).collect()
    }
}
