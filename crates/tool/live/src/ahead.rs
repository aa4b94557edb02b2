//! Makes superpages before their first touch, where a program fills memory in address order. Nothing is copied, and the
//! program takes no fault there. See docs/decisions/live.md#14.
//!
//! MADV_COLLAPSE fails where there is no page table. So one byte of each extent is read first, which maps the zero
//! page.
//!
//! Because the program takes no fault in such superpages, samples of faults do not show its progress. Instead, the
//! executor reads pages of the last superpages that it made, and makes the next ones while the program fills these (a
//! [`Front`]).

use std::time::Instant;

use sys::peek::Memory;
use units::Pid;

use crate::account::Cause;
use crate::ask::{self, Wanted};
use crate::extent::{BYTES, Extent, PAGES};
use crate::make::{self, MAX_RUN};
use crate::turn::Executor;

/// Number of adjacent filled extents from which a program counts as filling memory in order.
const BELOW: usize = 10;
/// Minimum number of superpages in one call.
pub(crate) const MIN_AHEAD: usize = 4;
/// One extent is left to the program, or [`OVERTAKEN`] if the extent that the program is in has more pages than this.
/// The program reaches these extents during the call, and the kernel refuses (EAGAIN) an extent with a page younger
/// than the call.
const SECOND_HALF: u16 = PAGES / 2;
const OVERTAKEN: usize = 2;
/// The next call is made when the program has used 1/TRIGGER_DIVISOR of the last superpages.
const TRIGGER_DIVISOR: usize = 4;
/// Number of pages read to see whether a superpage is used.
const PROBES: u64 = 4;
/// Ticks between two such reads.
const PURSUE_EVERY: u64 = 300;
/// Ticks after which a front is dropped if its superpages are not used.
const PURSUE_FOR: u64 = 50_000;

/// The superpages last made ahead of one program that fills memory in order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Front {
    pid: Pid,
    /// Address of the superpage whose use triggers the next call.
    probe: u64,
    last: u64,
    until: u64,
}

impl Executor {
    /// Makes the next superpages of each front that the program has reached.
    pub(crate) fn pursue(&mut self) {
        let now = self.now();
        for front in std::mem::take(&mut self.fronts) {
            let process = self.processes.get(&front.pid).filter(|_| now < front.until);
            let next = front.last + BYTES;
            if !process.is_some_and(|process| process.is_untouched(next)) {
                continue;
            }
            let before = self.fronts.len();
            let Some(is_reached) = self.is_used(front.pid, front.probe) else { continue };
            if is_reached && !self.filled.is_exhausted(now) {
                let Some(is_at_end) = self.is_used(front.pid, front.last) else { continue };
                let skipped = if is_at_end { OVERTAKEN } else { 0 };
                self.go_ahead_of(front.pid, front.last, skipped);
            }
            if self.fronts.len() == before {
                self.fronts.push(front);
            }
        }
    }

    /// Returns whether a sample of a superpage's pages shows that the program has written to it; `None`: it is no
    /// longer a superpage.
    fn is_used(&self, pid: Pid, superpage: u64) -> Option<bool> {
        let every = u64::from(PAGES) / PROBES;
        let (read, zero) = self.zeros_of(pid, superpage, (0..PROBES).map(|at| at * every))?;
        Some(zero < read)
    }

    pub(crate) fn next_pursuit(&self) -> Option<u64> {
        (!self.fronts.is_empty()).then(|| self.now() + PURSUE_EVERY)
    }

    /// Makes superpages above extents that gained pages.
    pub(crate) fn go_ahead(&mut self, pid: Pid, grown: &[u64]) {
        if !self.goes_ahead || self.filled.is_exhausted(self.now()) {
            return;
        }
        for &start in grown {
            let process = self.processes.get(&pid);
            let extent = process.and_then(|process| process.extents.get(&start));
            let is_near = extent.is_some_and(|extent| extent.populated > SECOND_HALF);
            self.go_ahead_of(pid, start, if is_near { OVERTAKEN } else { 1 });
        }
    }

    /// Makes superpages above `start`, except the first `skipped`, which the program reaches during the call.
    fn go_ahead_of(&mut self, pid: Pid, start: u64, skipped: usize) {
        if self.budget.waits() || self.backoff.waits(self.now()) {
            return;
        }
        let most = self.budget.affordable_ahead(pid).min(MAX_RUN);
        let starts = self.ahead_of(pid, start, skipped, most);
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
            let now = self.clock.now();
            let (grew, cause) = ((now, now), Cause::Mapping);
            let extent = Extent { mapping, cause, grew, looked_at: now, ..Extent::default() };
            process.extents.insert(at, extent);
            run.push(at);
        }
        if !run.is_empty() {
            let made = self.make_ahead(pid, &run);
            self.tally.ahead(made);
            self.fronts.extend(self.front_of(pid, &run));
        }
    }

    /// Returns the front of these superpages, if the last one was made.
    fn front_of(&self, pid: Pid, run: &[u64]) -> Option<Front> {
        let process = self.processes.get(&pid)?;
        let is_made = |at: &u64| process.extents.get(at).is_some_and(|extent| extent.is_huge);
        let last = *run.last().filter(|last| is_made(last))?;
        let probe = *run.iter().skip(run.len() / TRIGGER_DIVISOR).find(|at| is_made(at))?;
        Some(Front { pid, probe, last, until: self.now() + PURSUE_FOR })
    }

    /// Makes superpages of `run`. Returns the number made. Extents that failed are forgotten: once they have pages,
    /// they are treated like any other.
    fn make_ahead(&mut self, pid: Pid, run: &[u64]) -> u64 {
        let (before, began) = (self.tally.report.made, Instant::now());
        self.collapse(pid, run);
        let made = self.tally.report.made - before;
        self.budget.made_ahead(pid, run.len(), made as usize, began.elapsed());
        if let Some(process) = self.processes.get_mut(&pid) {
            for at in run {
                if process.extents.get(at).is_some_and(|extent| !extent.is_huge) {
                    process.extents.remove(at);
                }
            }
        }
        made
    }

    /// Returns the untouched extents above `start` that the policy would want at its threshold. Empty unless the
    /// extents below `start` are filled.
    fn ahead_of(&mut self, pid: Pid, start: u64, skipped: usize, most: usize) -> Vec<u64> {
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
        // A userfaultfd handler would be notified of a touch that the program did not make.
        if allowed < MIN_AHEAD || process.has_userfaultfd(&self.root, now) {
            return Vec::new();
        }
        let process = &*process;
        let is_untouched = |at: &u64| process.is_untouched(*at);
        let above = make::after(start).take_while(is_untouched).skip(skipped);
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
