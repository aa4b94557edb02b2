//! Populates the beginning of a new mapping, in the thread that maps it.
//!
//! # Safety
//! Populating changes no contents.
//! See docs/decisions/prepare.md#4.

use advisor::Event;
use advisor::{Action, Outcome};

use super::{budget, handed_out, is_on};
use crate::counters::{self, Prepared};
use crate::executor::{self, DONE};
use crate::raw;
use crate::sizes::superpage;

/// Records a new mapping of `length` bytes, which is advised for superpages. Populates as much of its beginning as the
/// advisor says.
pub fn populate(start: usize, length: usize) {
    if !is_on() {
        return;
    }
    handed_out::enter(start, length, ahead_of(start, length));
}

/// Populates the beginning of the mapping; returns the bytes from `start` to the end of the populated part.
fn ahead_of(start: usize, length: usize) -> usize {
    let first = start.next_multiple_of(superpage());
    let facts = &mut executor::facts(start, length, superpage());
    executor::run_advisor(Event::Ready, facts, |action, facts| {
        let Action::Populate { most } = action else { return budget::read(action, facts) };
        let portion = most as usize * raw::base_page();
        // SAFETY: changes no contents. Fails if there is no memory.
        let populated = unsafe { raw::populate(first + facts.prepared as usize, portion) };
        if populated.is_err() {
            return Some((Outcome::NoMemory, 0));
        }
        counters::prepared(Prepared::Ahead, portion);
        facts.prepared += portion as u64;
        Some((DONE, 0))
    });
    match facts.prepared {
        0 => 0,
        prepared => first + prepared as usize - start,
    }
}
