//! One thread at a time makes a superpage ordinary; others go on with other superpages meanwhile. Calls that unmap, protect or
//! advise such memory enter too (`undisturbed`): a fork makes it ordinary while other threads use it.
//!
//! A demotion takes longer than a lock should be held: a thread of a real-time priority would wait until every
//! ordinary thread of its CPU has had its turn. So the lock is held to enter and to leave a range, and who
//! waits does so for a superpage that it names itself.
//!
//! No circle: a thread that works on a range never waits for another, and runs no signal handler. Who works
//! on a range holds up those that write to it, and must write to its own stack; so a thread whose stack lies
//! on the pool works alone.
//!
//! # Safety
//! Nothing here is unsafe: addresses are compared.
//! See docs/decisions/pool.md#10.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::lock::{Lock, Rank};
use crate::table;
use crate::{filter, raw};

/// (d) A range and the thread (its errno's address) that works on it; 0: none.
#[derive(Clone, Copy)]
struct Worker {
    owner: usize,
    from: usize,
    to: usize,
    /// What [`FORKS`] was.
    born: u32,
}

/// Further threads wait.
const MAX_WORKERS: usize = 64;
static WORKERS: Lock<[Worker; MAX_WORKERS]> =
    Lock::new(Rank::Demotion, [Worker { owner: 0, from: 0, to: 0, born: 0 }; MAX_WORKERS]);
/// (a) Changes when somebody leaves a range.
static LEFT: AtomicU32 = AtomicU32::new(0);
/// (a) How many forks this process is away from the first: threads of before are not there.
static FORKS: AtomicU32 = AtomicU32::new(0);

enum Attempt {
    Entered,
    /// This thread works on a range already, and does this on the way.
    Nested,
    /// Somebody else is there; what [`LEFT`] was.
    Occupied(u32),
}

/// Runs `work` while nobody else works on `[from, to)`. No signal handler runs meanwhile: one that forked would work on what this
/// thread works on, and one that stopped this thread would have others wait for it.
pub fn within<R>(from: usize, to: usize, work: impl FnOnce() -> R) -> R {
    let me = raw::errno_address();
    let here = 0u8;
    let is_on_pool = |address: usize| table::first(address, address + 1).is_some();
    let is_alone = is_on_pool(&raw const here as usize) || is_on_pool(me);
    let (from, to) = if is_alone { (0, usize::MAX) } else { (from, to) };
    // A thread that is cancelled where it stands would never leave.
    raw::not_cancelled(|| {
        // A filter may end us for that; nothing is made ordinary then.
        let signals = (!filter::may_be_in_place()).then(|| raw::set_signals(u64::MAX));
        let is_entered = loop {
            match WORKERS.with_or(|workers| enter(workers, me, from, to), || Attempt::Nested) {
                Attempt::Entered => break true,
                Attempt::Nested => break false,
                Attempt::Occupied(seen) => raw::futex_wait(LEFT.as_ptr(), seen),
            }
        };
        let result = work();
        if is_entered {
            WORKERS.with(|workers| leave(workers, me));
            raw::futex_wake(LEFT.as_ptr(), i32::MAX);
        }
        signals.map(raw::set_signals);
        result
    })
}

fn enter(workers: &mut [Worker; MAX_WORKERS], me: usize, from: usize, to: usize) -> Attempt {
    if workers.iter().any(|worker| worker.owner == me) {
        return Attempt::Nested;
    }
    let born = FORKS.load(Ordering::Relaxed);
    workers.iter_mut().filter(|worker| worker.born != born).for_each(|worker| worker.owner = 0);
    let overlaps = |it: &Worker| it.owner != 0 && it.from < to && from < it.to;
    let is_occupied = workers.iter().any(overlaps);
    match workers.iter_mut().find(|worker| worker.owner == 0) {
        Some(free) if !is_occupied => {
            *free = Worker { owner: me, from, to, born };
            Attempt::Entered
        }
        _ => Attempt::Occupied(LEFT.load(Ordering::Relaxed)),
    }
}

fn leave(workers: &mut [Worker; MAX_WORKERS], me: usize) {
    workers.iter_mut().filter(|worker| worker.owner == me).for_each(|worker| worker.owner = 0);
    LEFT.fetch_add(1, Ordering::Relaxed);
}

/// In a forked child: the other threads are not there.
pub fn after_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    WORKERS.after_fork(|_, _| {});
}
