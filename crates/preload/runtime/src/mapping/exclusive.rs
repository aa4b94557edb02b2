//! One thread at a time makes a superpage ordinary; others go on with other superpages meanwhile.
//!
//! A demotion takes longer than a lock should be held: a thread of a real-time priority would wait until every
//! ordinary thread of its CPU has had its turn. So the lock is held to enter and to leave a range, and who
//! waits does so for a superpage that it names itself.
//!
//! No circle: a thread that works on a range never waits for another, also not in a signal handler. Who works
//! on a range holds up those that write to it, and must write to its own stack; so a thread whose stack lies
//! on the pool works alone.
//!
//! # Safety
//! Nothing here is unsafe: addresses are compared.
//! See docs/decisions/pool.md#10.

use std::sync::atomic::{AtomicU32, Ordering};

use super::table;
use crate::lock::{Level, Lock};
use crate::raw;

/// A range and the thread (its errno's address) that works on it; 0: none.
#[derive(Clone, Copy)]
struct Work {
    owner: usize,
    from: usize,
    to: usize,
    /// What [`FORKS`] was.
    born: u32,
}

/// Further threads wait.
const MOST: usize = 64;
static WORKS: Lock<[Work; MOST]> =
    Lock::new(Level::Demotion, [Work { owner: 0, from: 0, to: 0, born: 0 }; MOST]);
/// Changes when somebody leaves a range.
static LEFT: AtomicU32 = AtomicU32::new(0);
/// How many forks this process is away from the first: threads of before are not there.
static FORKS: AtomicU32 = AtomicU32::new(0);

enum Entry {
    Entered,
    /// This thread works on a range already: what it interrupted, or does on the way.
    Nested,
    /// Somebody else is there; what [`LEFT`] was.
    Occupied(u32),
}

/// Runs `work` while nobody else works on `[from, to)`.
pub fn within<R>(from: usize, to: usize, work: impl FnOnce() -> R) -> R {
    let me = raw::errno_address();
    let here = 0u8;
    let is_on_pool = |address: usize| table::first(address, address + 1).is_some();
    let is_alone = is_on_pool(&raw const here as usize) || is_on_pool(me);
    let (from, to) = if is_alone { (0, usize::MAX) } else { (from, to) };
    // A thread that is cancelled where it stands would never leave.
    raw::not_cancelled(|| {
        let is_entered = loop {
            match WORKS.with_or(|works| enter(works, me, from, to), || Entry::Nested) {
                Entry::Entered => break true,
                Entry::Nested => break false,
                Entry::Occupied(seen) => raw::futex_wait(LEFT.as_ptr(), seen),
            }
        };
        let result = work();
        if is_entered {
            WORKS.with(|works| leave(works, me));
            raw::futex_wake(LEFT.as_ptr(), i32::MAX);
        }
        result
    })
}

fn enter(works: &mut [Work; MOST], me: usize, from: usize, to: usize) -> Entry {
    if works.iter().any(|work| work.owner == me) {
        return Entry::Nested;
    }
    let born = FORKS.load(Ordering::Relaxed);
    works.iter_mut().filter(|work| work.born != born).for_each(|work| work.owner = 0);
    let overlaps = |work: &Work| work.owner != 0 && work.from < to && from < work.to;
    let is_occupied = works.iter().any(overlaps);
    match works.iter_mut().find(|work| work.owner == 0) {
        Some(free) if !is_occupied => {
            *free = Work { owner: me, from, to, born };
            Entry::Entered
        }
        _ => Entry::Occupied(LEFT.load(Ordering::Relaxed)),
    }
}

fn leave(works: &mut [Work; MOST], me: usize) {
    works.iter_mut().filter(|work| work.owner == me).for_each(|work| work.owner = 0);
    LEFT.fetch_add(1, Ordering::Relaxed);
}

/// In a forked child: the other threads are not there.
pub fn after_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    WORKS.after_fork(|_, _| {});
}
