//! What mappings and the heap ask of the area: memory, address space, and taking it back. Used by `mapping`,
//! `heap` and, for [`begin`], by `start`.
//!
//! # Safety
//! As `area`: states change under its lock, and what is given back is nobody's afterwards.

use super::area::{may_hold, with};
use super::chunk::State;
use super::{is_on, superpages, thread};
use crate::ledger::Kind;
use crate::raw::{self, Errno};
use crate::settings;
use crate::source::superpage;

/// At the start of the process: what is to be ready before the program asks is begun.
pub fn begin() {
    let start = settings::get().start;
    if start == 0 || !is_on() {
        return;
    }
    let is_there = with(|area| {
        area.set_up()?;
        area.target = superpages(start);
        // The time without a request is counted from here.
        area.was_used = true;
        Some(())
    });
    if is_there.is_some() {
        thread::wake();
    }
}

/// Fresh zeroed memory of `length` bytes on superpages, as many of them ready as there are; `None`
/// where the plain path serves better.
pub fn take(kind: Kind, length: usize) -> Option<usize> {
    if !is_on() {
        return None;
    }
    let rounded = length.checked_next_multiple_of(superpage())?;
    if length < superpage() || rounded - length > length / 8 {
        return None;
    }
    let start = with(|area| {
        area.set_up()?;
        let start = area.hand_out(kind, rounded / superpage())?;
        let last = area.at(start + rounded - superpage());
        area.row(last).unasked = ((rounded - length) / raw::base_page()) as u16;
        Some(start)
    })?;
    thread::wake();
    Some(start)
}

/// Address space for an arena, in the area. Never given back.
pub fn reserve_for_heap(length: usize) -> Option<usize> {
    if !is_on() {
        return None;
    }
    with(|area| {
        area.set_up()?;
        let count = length.div_ceil(superpage());
        // Half of it is the mappings', whatever the heap needs.
        let heap = area.heap.checked_sub(count).filter(|heap| *heap >= area.count / 2)?;
        area.heap = heap;
        Some(area.address(heap))
    })
}

/// Takes `[start, start + length)` of an arena as bare address space, if nothing is in it: memory that
/// the heap wants on base pages.
pub fn occupy(start: usize, length: usize) -> bool {
    with(|area| {
        let (from, to) = (area.at(start), area.at(start + length));
        let is_bare = (from..to).all(|at| area.row(at).state == State::Empty);
        if is_bare {
            (from..to).for_each(|at| area.row(at).state = State::Given);
        }
        is_bare
    })
}

/// What a superpage was when it was taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// All zero.
    Zero,
    /// What it held when it was given back.
    Dirty,
}

/// Makes `[start, start + length)` of an arena usable, and says what each superpage of it holds.
pub fn take_at(start: usize, length: usize, mut tell: impl FnMut(usize, Taken)) -> Option<()> {
    loop {
        // What the thread zeroes will be ready in a moment.
        let done = with(|area| {
            let (from, to) = (area.at(start), area.at(start + length));
            if (from..to).any(|at| area.row(at).state == State::Zeroing) && thread::is_here() {
                return None;
            }
            Some(area.use_heap(from, to, &mut tell))
        });
        match done {
            Some(done) => {
                thread::wake();
                return done;
            }
            None => raw::pause(),
        }
    }
}

/// `munmap(2)` of a range that touches the area; also for the heap's granules.
///
/// # Safety
/// Nobody uses the range afterwards.
pub unsafe fn give_back(start: usize, end: usize) -> Result<(), Errno> {
    with(|area| {
        let (low, high) = (area.start, area.address(area.count));
        for (from, to) in [(start, end.min(low)), (start.max(high), end)] {
            if from < to {
                // SAFETY: the contract; outside the area it is the kernel's to say what is there.
                unsafe { raw::munmap(from, to - from) }?;
            }
        }
        // SAFETY: the contract.
        unsafe { area.take_back(start.max(low), end.min(high)) }
    })?;
    thread::wake();
    Ok(())
}

/// The program does something to `[start, end)` that leaves it not as it was handed out.
pub fn changed(start: usize, end: usize) {
    if !may_hold(start, end) {
        return;
    }
    with(|area| {
        let (from, to) = (area.at(start), area.at(end.saturating_add(superpage() - 1)));
        area.watch.forget(from, to);
        for at in from..to.min(area.count) {
            if area.row(at).state == State::Given {
                area.row(at).state = State::Broken;
            }
        }
    });
}
