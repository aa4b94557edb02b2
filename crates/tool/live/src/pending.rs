//! Makes pending superpages, the one that qualified last first: the program is filling that one, and takes no more
//! faults in it afterwards. How many, and when: docs/decisions/live.md#8 and docs/decisions/live.md#12.

use std::time::{Duration, Instant};

use policy::Result as Ended;
use sys::param::thread_cpu_time;
use units::Pid;

use crate::backoff;
use crate::extent::PAGES;
use crate::limits::Fresh;
use crate::make::{self, MAX_RUN};
use crate::process::Process;
use crate::supervisor::Call;
use crate::turn::Executor;

/// Ticks from making one full extent to making the next while a program grows.
const REST_OF_FULL: u64 = 5_000;
/// If the kernel's faults make superpages: ticks without growth before base pages are collapsed.
const REST_OF_LEFT: u64 = 50_000;
/// Ticks per superpage above which a call counts as delayed; on idle CPUs a call takes 400 to 900.
const SLOW: u64 = 2_000;

impl Executor {
    /// Makes pending superpages that are due. While a program grows, makes only one superpage, so that the next
    /// extent to qualify need not wait; otherwise makes neighbours in one call. Returns whether any was tried.
    pub(crate) fn make_pending(&mut self) -> bool {
        let now = self.now();
        self.retry_at = None;
        let has_pending = !self.pending.is_empty() || !self.full.is_empty();
        if let Some(pause) = self.supervised_pause().filter(|_| has_pending) {
            self.retry_at = Some(now + pause);
            return false;
        }
        if self.waits_to_copy() {
            self.claim(now);
            if self.waits_to_copy() {
                self.retry_at = self.filled.next_claim();
                return false;
            }
        }
        let mut later = Vec::new();
        let mut next = None;
        while let Some((pid, start)) = self.pending.pop() {
            let Some(due) = self.due(pid, start) else { continue };
            if self.waits_for_rest(pid, start) {
                self.full.push((pid, start));
            } else if due <= now {
                next = Some((pid, start));
                break;
            } else {
                self.retry_at = Some(self.retry_at.map_or(due, |at| at.min(due)));
                later.push((pid, start));
            }
        }
        self.pending.extend(later.into_iter().rev());
        let next = next.or_else(|| self.next_full(now));
        let Some((pid, start)) = next else { return false };
        let run = self.neighbours(pid, start, now);
        let ended = self.collapse(pid, &run);
        self.has_made |= matches!(ended, Ended::Done { .. } | Ended::Unavailable);
        self.adapt(run.len(), now);
        if self.due(pid, start).is_some() {
            self.pending.push((pid, start));
        }
        ended != Ended::NoMemory
    }

    /// Returns the next full extent that may be made. Full extents save no fault and delay a growing program, so they
    /// wait until the program rests, unless credit is near its maximum. The list is not scanned, because it has
    /// thousands of entries while a large program grows.
    fn next_full(&mut self, now: u64) -> Option<(Pid, u64)> {
        if self.is_growing() && (now < self.full_at || !self.budget.is_plentiful()) {
            return None;
        }
        while let Some((pid, start)) = self.full.pop() {
            match self.due(pid, start) {
                None => {}
                Some(due) if due <= now => return Some((pid, start)),
                Some(due) => {
                    // The extent failed before: retry later.
                    self.retry_at = Some(self.retry_at.map_or(due, |at| at.min(due)));
                    self.pending.push((pid, start));
                }
            }
        }
        None
    }

    /// Returns whether a full extent waits until the program rests.
    fn waits_for_rest(&self, pid: Pid, start: u64) -> bool {
        let process = self.processes.get(&pid).filter(|it| !it.is_in_place(start));
        let extent = process.and_then(|it| it.extents.get(&start));
        self.is_growing() && extent.is_some_and(|it| it.populated == PAGES)
    }

    /// Returns an extent and its neighbours that are due, ascending. They stay in `pending`.
    fn neighbours(&self, pid: Pid, start: u64, now: u64) -> Vec<u64> {
        let most = match self.is_growing() {
            _ if self.supervisor.is_some() => 1,
            true => self.most,
            false => MAX_RUN,
        };
        let most = most.min(self.budget.affordable(pid)).max(1);
        let is_in_place = |at| self.processes.get(&pid).is_some_and(|it| it.is_in_place(at));
        let may = |&at: &u64| {
            let is_due = self.due(pid, at).is_some_and(|due| due <= now);
            is_due && is_in_place(at) == is_in_place(start)
        };
        let below = make::before(start).take_while(may).take(most - 1);
        let mut run: Vec<u64> = below.collect();
        run.reverse();
        run.push(start);
        let above = make::after(start).take_while(may).take(most - run.len());
        run.extend(above);
        run
    }

    /// Returns when a wanted extent may be tried, in ticks.
    fn due(&self, pid: Pid, start: u64) -> Option<u64> {
        let extent = self.processes.get(&pid)?.extents.get(&start)?;
        let rested = match self.fresh {
            Fresh::Superpages => extent.grew.1 + REST_OF_LEFT,
            Fresh::BasePages | Fresh::Frames => 0,
        };
        (extent.is_wanted && !extent.is_huge).then_some(extent.retry_at.max(rested))
    }

    /// Adapts the number of superpages per call to the duration of the last call: on a busy machine a call waits for a
    /// kernel thread on each CPU.
    fn adapt(&mut self, superpages: usize, began: u64) {
        let now = self.now();
        self.full_at = now + REST_OF_FULL;
        let is_slow = now - began > SLOW * superpages as u64;
        self.most = if is_slow { (self.most * 2).min(MAX_RUN) } else { (self.most / 2).max(1) };
    }

    /// Makes superpages of these extents (ascending), within all limits.
    pub(crate) fn collapse(&mut self, pid: Pid, starts: &[u64]) -> Ended {
        let now = self.now();
        // Extents that are already in a superpage's frame need no memory.
        let is_in_place =
            |process: &Process| starts.iter().all(|start| process.is_in_place(*start));
        if let Some(process) = self.processes.get_mut(&pid).filter(|it| is_in_place(it)) {
            let clock = self.clock;
            return make::superpages(process, starts, &mut self.tally, &|| clock.now());
        }
        if !self.backoff.may_ask(now, || backoff::free(&self.root)) {
            return Ended::NoMemory;
        }
        let permitted = self.permitted(pid, starts, now);
        self.tally.last_failure = None;
        let affordable = self.affordable(pid, &permitted);
        let starts: Vec<u64> = affordable.iter().map(|(start, _)| *start).collect();
        if starts.is_empty() {
            self.report_call(pid, &permitted, &[], (Duration::ZERO, Duration::ZERO));
            return Ended::Unavailable;
        }
        self.note_time(pid);
        let Some(process) = self.processes.get_mut(&pid) else { return Ended::Nothing };
        let (clock, called, cpu) = (self.clock, Instant::now(), thread_cpu_time());
        let ended = make::superpages(process, &starts, &mut self.tally, &|| clock.now());
        let took = called.elapsed();
        let cpu = thread_cpu_time().saturating_sub(cpu);
        self.report_call(pid, &permitted, &affordable, (took, cpu));
        // On a busy machine most of a call waits for other CPUs, before the kernel takes the program's lock. A program
        // that is growing waits for the call anyway.
        let held_up = if self.supervisor.is_some() { took.min(cpu) } else { took };
        let cpu = if self.takes_program_time() { cpu } else { Duration::ZERO };
        self.budget.made(pid, starts.len(), held_up, cpu);
        match ended {
            Ended::NoMemory => {
                self.backoff.refused(clock.now(), backoff::free(&self.root));
            }
            Ended::Done { .. } => self.backoff.had(),
            _ => {}
        }
        self.note_filled(pid, &affordable);
        ended
    }

    /// Returns the extents that the supervisor permits. The others wait.
    fn permitted(&mut self, pid: Pid, starts: &[u64], now: u64) -> Vec<u64> {
        let Some(supervisor) = &mut self.supervisor else { return starts.to_vec() };
        let permitted = supervisor.permit(pid, starts);
        let Some(process) = self.processes.get_mut(&pid) else { return permitted };
        for start in starts.iter().filter(|start| !permitted.contains(start)) {
            if let Some(extent) = process.extents.get_mut(start) {
                self.tally.failed(extent, Some(make::DENIED));
                make::failed(extent, Some(make::DENIED), false, now);
            }
        }
        permitted
    }

    /// Tells the supervisor about a call for `tried` of the extents that it permitted.
    fn report_call(
        &mut self,
        pid: Pid,
        permitted: &[u64],
        tried: &[(u64, u64)],
        (took, cpu): (Duration, Duration),
    ) {
        let Some(supervisor) = self.supervisor.as_mut().filter(|_| !permitted.is_empty()) else {
            return;
        };
        let process = self.processes.get(&pid);
        let is_made = |start: u64| {
            process.and_then(|it| it.extents.get(&start)).is_some_and(|extent| extent.is_huge)
        };
        let (made, filled): (Vec<u64>, Vec<u64>) =
            tried.iter().copied().filter(|(start, _)| is_made(*start)).unzip();
        let filled_pages = filled.into_iter().sum();
        let failure = self.tally.last_failure.filter(|_| made.len() < permitted.len());
        supervisor.called(&Call { pid, permitted, made: &made, failure, filled_pages, took, cpu });
    }
}
