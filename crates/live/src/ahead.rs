//! Where extents one after the other came to have the pages that the design asks for, the next ones are made superpages before
//! their first touch: nothing is copied, and the program takes no fault in them. See docs/decisions/live.md#14.
//!
//! MADV_COLLAPSE makes no superpage where there is no page table, so a byte of each is read first, which maps the shared zeros.

use sys::peek::Memory;
use units::Pid;

use crate::account::Cause;
use crate::ask::{self, Wanted};
use crate::extent::Extent;
use crate::make::{self, MAX_RUN};
use crate::turn::{Executor, now_since};

/// Extents below that are superpages of ours for each that is made ahead: where a program stops, a tenth more than it used was
/// made at most.
const BELOW_FOR_EACH: usize = 10;

impl Executor {
    /// An extent was made a superpage before it was full: makes the ones above it that the program is coming to.
    pub(crate) fn go_ahead(&mut self, pid: Pid, start: u64) {
        if self.budget.waits() || self.backoff.waits(self.now()) {
            return;
        }
        let most = self.budget.affordable(pid).min(MAX_RUN);
        let starts = self.ahead_of(pid, start, most);
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
        let before = self.tally.report.made;
        self.make(pid, run);
        if let Some(process) = self.processes.get_mut(&pid) {
            for at in run {
                if process.extents.get(at).is_some_and(|extent| !extent.is_huge) {
                    process.extents.remove(at);
                }
            }
        }
        self.tally.report.made - before
    }

    /// Untouched extents above one, as many as the run of superpages below allows, that the policy would want once they had
    /// the pages that it asks for.
    fn ahead_of(&mut self, pid: Pid, start: u64, most: usize) -> Vec<u64> {
        let now = self.now();
        let Some(process) = self.processes.get_mut(&pid) else { return Vec::new() };
        // Its handler would be told of a touch that the program did not make.
        if process.has_userfaultfd(&self.root, now) {
            return Vec::new();
        }
        let process = &*process;
        let is_made = |at: &u64| process.extents.get(at).is_some_and(|it| it.is_ours && it.is_huge);
        let below = make::before(start).take(BELOW_FOR_EACH * MAX_RUN).take_while(is_made).count();
        let is_untouched = |at: &u64| {
            process.mapping_of(*at).is_some()
                && !process.is_in_place(*at)
                && process.extents.get(at).is_none_or(|it| it.populated + it.swapped == 0)
        };
        let count = most.min(below / BELOW_FOR_EACH);
        let above: Vec<u64> = make::after(start).take_while(is_untouched).take(count).collect();
        let (populated, policy) = (self.least, &mut self.policy);
        let wants = |at: &u64| {
            let mapping = process.mapping_of(*at).unwrap_or_default();
            let mut extent = Extent { mapping, populated, ..Extent::default() };
            ask::grew(policy, &mut extent, 0, || false) == Wanted::Superpage
        };
        above.into_iter().take_while(wants).collect()
    }
}
