//! One thread at a time demotes a superpage; other threads work on other superpages meanwhile. Calls that unmap,
//! protect or advise such memory enter a range, too (`without_demotion`), because a fork demotes memory that other
//! threads use.
//!
//! A demotion takes longer than a lock should be held: a thread of a real-time priority would wait until every ordinary
//! thread of its CPU has had its turn. So the lock is held only to enter and to leave a range, and a thread waits only
//! for a superpage that it names itself.
//!
//! No deadlock: a thread that works on a range never waits for another thread, and runs no signal handler. Writers to
//! the range are blocked, and the thread must write to its own stack. A thread whose stack lies on the pool therefore
//! works alone.
//!
//! # Safety
//! Nothing here is unsafe: addresses are only compared.
//! See docs/decisions/pool.md#10.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::lock::{Lock, Rank};
use crate::table;
use crate::{filter, raw};

/// A range and the thread (address of its errno) that works on it; 0: none. (d): guarded by the lock `WORKERS`.
#[derive(Clone, Copy)]
struct Worker {
    owner: usize,
    from: usize,
    to: usize,
    /// [`FORK_GENERATION`] when the thread entered.
    generation: u32,
}

/// Maximum number of threads that work at a time; further threads wait.
const MAX_WORKERS: usize = 64;
static WORKERS: Lock<[Worker; MAX_WORKERS]> =
    Lock::new(Rank::Demotion, [Worker { owner: 0, from: 0, to: 0, generation: 0 }; MAX_WORKERS]);
/// (a) Changes when a thread leaves a range.
static LEAVE_COUNT: AtomicU32 = AtomicU32::new(0);
/// (a) Number of forks between the first process and this one: threads that entered at an earlier number do not exist
/// here.
static FORK_GENERATION: AtomicU32 = AtomicU32::new(0);

enum Attempt {
    Entered,
    /// This thread works on a range already, and made this call during that work.
    Nested,
    /// Another thread works there; the value of [`LEAVE_COUNT`].
    Occupied(u32),
}

/// Runs `work` while no other thread works on `[from, to)`. Signals are blocked meanwhile: a handler that forked would
/// work on the same range, and a handler that stopped this thread would make others wait for it.
pub fn within<R>(from: usize, to: usize, work: impl FnOnce() -> R) -> R {
    let me = raw::errno_address();
    let here = 0u8;
    let is_on_pool = |address: usize| table::first(address, address + 1).is_some();
    let is_alone = is_on_pool(&raw const here as usize) || is_on_pool(me);
    let (from, to) = if is_alone { (0, usize::MAX) } else { (from, to) };
    // A thread that is cancelled here would never leave.
    raw::not_cancelled(|| {
        // A filter may kill the process for blocking signals; nothing is demoted then.
        let signals = (!filter::may_be_in_place()).then(|| raw::set_signals(u64::MAX));
        let is_entered = loop {
            match WORKERS.with_or(|workers| enter(workers, me, from, to), || Attempt::Nested) {
                Attempt::Entered => break true,
                Attempt::Nested => break false,
                Attempt::Occupied(seen) => raw::futex_wait(LEAVE_COUNT.as_ptr(), seen),
            }
        };
        let result = work();
        if is_entered {
            WORKERS.with(|workers| leave(workers, me));
            raw::futex_wake(LEAVE_COUNT.as_ptr(), i32::MAX);
        }
        signals.map(raw::set_signals);
        result
    })
}

fn enter(workers: &mut [Worker; MAX_WORKERS], me: usize, from: usize, to: usize) -> Attempt {
    if workers.iter().any(|worker| worker.owner == me) {
        return Attempt::Nested;
    }
    let generation = FORK_GENERATION.load(Ordering::Relaxed);
    workers
        .iter_mut()
        .filter(|worker| worker.generation != generation)
        .for_each(|worker| worker.owner = 0);
    let overlaps = |it: &Worker| it.owner != 0 && it.from < to && from < it.to;
    let is_occupied = workers.iter().any(overlaps);
    match workers.iter_mut().find(|worker| worker.owner == 0) {
        Some(free) if !is_occupied => {
            *free = Worker { owner: me, from, to, generation };
            Attempt::Entered
        }
        _ => Attempt::Occupied(LEAVE_COUNT.load(Ordering::Relaxed)),
    }
}

fn leave(workers: &mut [Worker; MAX_WORKERS], me: usize) {
    workers.iter_mut().filter(|worker| worker.owner == me).for_each(|worker| worker.owner = 0);
    LEAVE_COUNT.fetch_add(1, Ordering::Relaxed);
}

/// In a forked child: invalidates the entries of threads that do not exist here.
pub fn after_fork() {
    FORK_GENERATION.fetch_add(1, Ordering::Relaxed);
    WORKERS.after_fork(|_, _| {});
}
