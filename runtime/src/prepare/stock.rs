//! What the thread does to the area, step by step: each step is chosen under the lock, carried out
//! without it, and entered under it. Used by `thread`.
//!
//! # Safety
//! Populating changes no contents, so it may meet whoever was given the memory meanwhile. Zeroing does:
//! it is done in `Zeroing` only, in which nobody is given the memory, and only to what the kernel says
//! is still one private superpage that may be written.

use std::ops::Range;

use ::ahead::{Decision, Facts, Refill};

use super::area::{self, Area, EMPTY};
use super::chunk::{Chunk, State};
use super::facts::Seen;
use super::superpages;
use super::zero::zero;
use crate::ledger::{self, Prepared};
use crate::pagemap;
use crate::source::{self, superpage};
use crate::{raw, settings};

/// What is to be done to a superpage.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Populate the row, which is the stock's or the heap's.
    Fill(usize),
    /// Populate the row, which is the program's.
    Ahead(usize),
    /// Zero the row again.
    Zero(usize),
    /// Something was given back.
    Shrunk,
    /// Nothing that could be done now.
    Rest {
        /// Whether a CPU is idle.
        has_cpu: bool,
        /// Whether there is something to do once the CPUs or memory allow it.
        has_more: bool,
    },
}

/// Nobody asked the stock for anything for so long: it is halved.
pub const PATIENCE_MS: u64 = 5_000;

/// Most superpages that are given back in one go: each takes the kernel some 7 us (measured).
const AT_ONCE: usize = 64;

/// Why the thread may have to wait.
pub struct Waits {
    /// The last step took longer than its work, for want of a CPU.
    pub for_cpu: bool,
    /// The process has just begun: it may end before it asks.
    pub for_request: bool,
}

/// Chooses.
pub fn choose(seen: &Seen, idle_ms: u64, waits: Waits) -> Step {
    area::with(|area| {
        // Who says a load wants nothing else looked at.
        let (load, spare) = match settings::get().load {
            0 => (seen.cpus, seen.spare),
            load => (load as u64, None),
        };
        let rule = Refill::of(area.target, load, PATIENCE_MS);
        let facts = Facts {
            ready: area.stock,
            is_filling: area.is_filling,
            running: if waits.for_cpu { Some(load) } else { seen.running },
            spare,
            headroom: seen.headroom,
            is_pressed: seen.is_pressed,
            idle_ms,
        };
        let has_cpu = rule.has_cpu(&facts);
        area.has_cpu = has_cpu;
        let has_room = !seen.is_pressed && seen.headroom != Some(0);
        if has_cpu
            && has_room
            && let Some(at) = area.next_ahead()
        {
            return area.begin_ahead(at);
        }
        let dirty = area.dirty();
        if has_cpu
            && let Some(at) = dirty
            && !seen.is_pressed
            && idle_ms < PATIENCE_MS
        {
            area.dirty -= 1;
            area.row(at).state = State::Zeroing;
            return Step::Zero(at);
        }
        match rule.decide(&facts) {
            // The target is another as soon as a request was not served in full.
            Decision::Fill(_)
                if waits.for_request && area.target == superpages(settings::get().start) =>
            {
                Step::Rest { has_cpu, has_more: true }
            }
            Decision::Fill(_) => match area.begin_fill() {
                Some(at) => Step::Fill(at),
                None => Step::Rest { has_cpu, has_more: false },
            },
            Decision::Shrink(count) => {
                area.shrink(usize::try_from(count).unwrap_or(AT_ONCE).min(AT_ONCE));
                Step::Shrunk
            }
            Decision::Rest => {
                area.is_filling &= area.stock < area.target;
                let is_low = area.stock < rule.start || area.is_filling;
                Step::Rest { has_cpu, has_more: is_low || dirty.is_some() }
            }
        }
    })
}

/// Does it, and enters it.
pub fn carry_out(step: Step, pagemap: i32) {
    match step {
        Step::Fill(at) => {
            let is_there = populate(area::with(|area| area.address(at)));
            area::with(|area| area.end_fill(at, is_there, Prepared::Filled));
        }
        Step::Ahead(at) => {
            let is_there = populate(area::with(|area| area.address(at)));
            area::with(|area| area.end_ahead(at, is_there));
        }
        Step::Zero(at) => {
            let address = area::with(|area| area.address(at));
            let is_fit = is_ours(address, pagemap);
            if is_fit {
                // SAFETY: nobody has it in this state, and it can be written.
                unsafe { zero(address, superpage()) };
            }
            area::with(|area| area.end_fill(at, is_fit, Prepared::Recycled));
        }
        Step::Shrunk | Step::Rest { .. } => {}
    }
}

/// One superpage a call: nobody who waits for the address space's lock waits for long.
fn populate(address: usize) -> bool {
    // SAFETY: changes no contents. What is no memory, or may not be written, is an error.
    unsafe { raw::madvise(address, superpage(), libc::MADV_POPULATE_WRITE) }.is_ok()
}

/// Whether what lies there is one superpage of private memory that may be written.
fn is_ours(address: usize, fd: i32) -> bool {
    let end = address + superpage();
    pagemap::is_all(fd, address, end, pagemap::PAGE_IS_HUGE)
        && !pagemap::has_any(fd, address, end, pagemap::PAGE_IS_FILE)
        && populate(address)
}

impl Area {
    /// A row that is to be zeroed again.
    fn dirty(&mut self) -> Option<usize> {
        if self.dirty == 0 {
            return None;
        }
        self.busy_rows().find(|at| self.row(*at).state == State::Dirty)
    }

    /// The row that fills up the best run there is.
    fn begin_fill(&mut self) -> Option<usize> {
        let wanted = usize::try_from(self.target).ok()?;
        let (_, first) = self.best_run(wanted).or_else(|| self.best_run(1))?;
        let end = (first + wanted).min(self.heap);
        let at = (first..end).find(|at| self.row(*at).state == State::Empty)?;
        self.is_filling = true;
        self.used = self.used.max(at + 1);
        self.map(at)
    }

    fn begin_ahead(&mut self, at: usize) -> Step {
        match self.row(at).state {
            State::Given => Step::Ahead(at),
            _ => self.map(at).map_or(Step::Shrunk, Step::Fill),
        }
    }

    /// Puts fresh memory at an empty row, for the stock.
    fn map(&mut self, at: usize) -> Option<usize> {
        let start = self.address(at);
        // SAFETY: address space of ours, in which nothing is.
        unsafe { source::map_ordinary(start, superpage(), raw::READ_WRITE, true) }.ok()?;
        self.row(at).state = State::Filling;
        self.stock += 1;
        ledger::prepared(Prepared::Stock, superpage());
        ledger::prepared_most(self.stock * superpage() as u64);
        Some(at)
    }

    /// It is populated, or zero again, or it is not to be had.
    fn end_fill(&mut self, at: usize, is_there: bool, what: Prepared) {
        let state = self.row(at).state;
        if state != State::Filling && state != State::Zeroing {
            // Somebody was given it meanwhile.
            self.row(at).is_prefaulted |= state == State::Given;
            return;
        }
        let address = self.address(at);
        // Locked memory cannot give way: then there is to be no stock.
        // SAFETY: nobody has it, and it is zero.
        if is_there && unsafe { raw::madvise(address, superpage(), libc::MADV_FREE) }.is_ok() {
            self.row(at).state = State::Ready;
            ledger::prepared(what, superpage());
            return;
        }
        if what == Prepared::Filled {
            self.target = 0;
        }
        self.drop_stock(at, at + 1);
    }

    fn end_ahead(&mut self, at: usize, is_there: bool) {
        if is_there && self.row(at).state == State::Given {
            self.row(at).is_prefaulted = true;
            ledger::prepared(Prepared::Ahead, superpage());
        }
    }

    /// Gives back `count` of the stock: first what is not even zero, then the last.
    fn shrink(&mut self, count: usize) {
        let mut left = count;
        for wanted in [State::Dirty, State::Ready] {
            // Between the mappings' part and the heap's nothing was ever used.
            for rows in [self.heap..self.count, 0..self.used] {
                left -= self.drop_last(rows, left, |state| state == wanted);
            }
        }
        // Not to be filled up again until somebody asks in vain.
        self.target = self.target.min(self.stock);
        self.is_filling = false;
    }

    /// The kernel gets the last `count` of the stock in `rows` that are in a state that is meant: how many.
    pub fn drop_last(
        &mut self,
        rows: Range<usize>,
        count: usize,
        is_meant: impl Fn(State) -> bool,
    ) -> usize {
        let (mut left, mut end) = (count, rows.end);
        while left > 0 {
            let mut below = (rows.start..end).rev();
            let Some(last) = below.find(|at| is_meant(self.row(*at).state)) else { break };
            let more = below.take(left - 1).take_while(|at| is_meant(self.row(*at).state));
            end = more.last().unwrap_or(last);
            self.drop_stock(end, last + 1);
            left -= last + 1 - end;
        }
        count - left
    }

    /// The kernel gets superpages of the stock.
    fn drop_stock(&mut self, from: usize, to: usize) {
        let is_dirty = |at: &usize| self.row(*at).state == State::Dirty;
        self.dirty -= (from..to).filter(is_dirty).count() as u64;
        // SAFETY: nobody has them. What cannot be unmapped is never used again.
        if unsafe { self.empty(from, to) }.is_err() {
            let broken = Chunk { state: State::Broken, ..EMPTY };
            (from..to).for_each(|at| *self.row(at) = broken);
        }
        self.stock -= (to - from) as u64;
        ledger::prepared_less(Prepared::Stock, (to - from) * superpage());
    }
}
