//! Where extents one after the other came to have the pages that the design asks for, the next ones are made superpages before
//! their first touch: nothing is copied, and the program takes no fault in them. See docs/decisions/live.md#14.
//!
//! MADV_COLLAPSE makes no superpage where there is no page table, so a byte of each is read first, which maps the shared zeros.
//!
//! The program takes no faults in them, so that no fault tells how far it is: pages of one are read for that, and the next
//! superpages are made while the program fills these.

use std::time::Instant;

use host::waste;
use sys::peek::Memory;
use units::Pid;

use crate::account::Cause;
use crate::ask::{self, Wanted};
use crate::extent::{BYTES, Extent, PAGES, SCALE};
use crate::make::{self, MAX_RUN};
use crate::turn::{Executor, now_since};

/// Adjacent extents with the pages that the design asks for, from which a program counts as filling memory in order.
const BELOW: usize = 10;
/// Fewer superpages are not worth a call.
pub(crate) const MIN_AHEAD: usize = 4;
/// Pages of an extent from which the program may reach the next but one during the call, and how many are left to it then: where
/// the program has a page that is younger than the call, the kernel makes nothing.
const NEAR: u16 = PAGES / 2;
const OVERTAKEN: usize = 2;
/// The next superpages are made once the program has used so many of those that were made last: a quarter.
const REACHED: usize = 4;
/// Pages of it that are read.
const PROBES: u64 = 4;
/// Ticks between reads, and after which a program is no longer waited for.
const PURSUE_EVERY: u64 = 300;
const PURSUE_FOR: u64 = 50_000;

/// Superpages that were made before their first touch, the last of a program's that fills memory in order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Front {
    pid: Pid,
    /// The next ones are made once this one is used.
    probe: u64,
    last: u64,
    until: u64,
}

impl Executor {
    /// Makes the next superpages where a program uses those that were made ahead last.
    pub(crate) fn pursue(&mut self) {
        let now = self.now();
        for front in std::mem::take(&mut self.fronts) {
            let process = self.processes.get(&front.pid).filter(|_| now < front.until);
            let next = front.last + BYTES;
            if !process.is_some_and(|process| process.is_untouched(next)) {
                continue;
            }
            let before = self.fronts.len();
            if is_used(front.pid, front.probe) && !self.filled.is_exhausted(now) {
                let skipped = if is_used(front.pid, front.last) { OVERTAKEN } else { 0 };
                self.go_ahead_of(front.pid, front.last, skipped);
            }
            if self.fronts.len() == before {
                self.fronts.push(front);
            }
        }
    }

    /// When it is next seen how far programs are, in ticks.
    pub(crate) fn next_pursuit(&self) -> Option<u64> {
        (!self.fronts.is_empty()).then(|| self.now() + PURSUE_EVERY)
    }

    /// Extents have more pages: makes the ones above them that the program is coming to.
    pub(crate) fn go_ahead(&mut self, pid: Pid, grown: &[u64]) {
        if !self.goes_ahead || self.filled.is_exhausted(self.now()) {
            return;
        }
        for &start in grown {
            let process = self.processes.get(&pid);
            let extent = process.and_then(|process| process.extents.get(&start));
            let is_near = extent.is_some_and(|extent| extent.populated > NEAR);
            self.go_ahead_of(pid, start, if is_near { OVERTAKEN } else { 1 });
        }
    }

    /// Makes some above `start`, the first of them left out: the program comes to these during the call.
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
            let now = now_since(self.began);
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

    /// Where the program is followed from now on, if these were made.
    fn front_of(&self, pid: Pid, run: &[u64]) -> Option<Front> {
        let process = self.processes.get(&pid)?;
        let is_made = |at: &u64| process.extents.get(at).is_some_and(|extent| extent.is_huge);
        let last = *run.last().filter(|last| is_made(last))?;
        let probe = *run.iter().skip(run.len() / REACHED).find(|at| is_made(at))?;
        Some(Front { pid, probe, last, until: self.now() + PURSUE_FOR })
    }

    /// Makes these, and forgets those that could not be made: a program that comes to them has them made as ever.
    fn make_ahead(&mut self, pid: Pid, run: &[u64]) -> u64 {
        let (before, began) = (self.tally.report.made, Instant::now());
        self.make(pid, run);
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

    /// Untouched extents above one that the policy would want once they had the pages that it asks for, if those below have been
    /// filled.
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
        // Its handler would be told of a touch that the program did not make.
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

/// Whether the program has written to it, as far as some of its pages tell.
fn is_used(pid: Pid, superpage: u64) -> bool {
    let every = u64::from(PAGES) / PROBES * SCALE.base_page;
    let addresses: Vec<u64> = (0..PROBES).map(|at| superpage + at * every).collect();
    let (read, zero) = waste::zero_pages(pid, &addresses, SCALE.base_page);
    zero < read
}
