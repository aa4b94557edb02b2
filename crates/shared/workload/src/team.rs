//! Threads that start together: the timed region of every kernel. The caller is thread 0.
//!
//! Life cycle: `timed` starts the other threads, which wait at the gate. When all threads are ready, the clock starts
//! and the gate opens. The clock stops when the last thread is done. If a thread cannot be started, the gate is
//! cancelled, the waiting threads leave, and `timed` returns the error. (With a `std::sync::Barrier` the threads would
//! wait forever.)

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use crate::WorkloadError;
use crate::usage::Usage;

/// Duration and resource usage of a timed region.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Region {
    pub seconds: f64,
    pub usage: Option<Usage>,
    /// Usage of the process before the region.
    pub before: Option<Usage>,
}

impl Region {
    pub(crate) fn minor_faults(&self) -> Option<u64> {
        self.usage.map(|usage| usage.minor_faults)
    }

    pub(crate) fn cpu_seconds(&self) -> Option<f64> {
        self.usage.map(Usage::cpu_seconds)
    }

    pub(crate) fn cpu_seconds_before(&self) -> Option<f64> {
        self.before.map(Usage::cpu_seconds)
    }
}

/// Runs `work(thread, item)` on one thread per item, all started together, and times the work. Returns the results in
/// the order of the items.
pub(crate) fn timed<I: Send, R: Send>(
    items: Vec<I>,
    work: impl Fn(usize, I) -> R + Sync,
) -> Result<(Vec<R>, Region), WorkloadError> {
    let threads = items.len();
    let gate = Gate::default();
    let (gate, work) = (&gate, &work);
    thread::scope(|scope| {
        let mut items = items.into_iter().enumerate();
        let (_, first) = items.next().expect("a team has at least one member");
        let mut others = Vec::with_capacity(threads - 1);
        for (number, item) in items {
            let member = move || gate.pass().then(|| work(number, item));
            match thread::Builder::new().spawn_scoped(scope, member) {
                Ok(handle) => others.push(handle),
                Err(source) => {
                    gate.set(State::Cancelled);
                    return Err(WorkloadError::Thread { number: number + 1, threads, source });
                }
            }
        }
        gate.wait_for(others.len());
        let (before, start) = (Usage::now(), Instant::now());
        gate.set(State::Open);
        let mut results = vec![work(0, first)];
        for other in others {
            let result = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            results.push(result.expect("the gate was opened, not cancelled"));
        }
        let seconds = start.elapsed().as_secs_f64();
        let usage = before.and_then(|before| Some(Usage::now()?.since(before)));
        Ok((results, Region { seconds, usage, before }))
    })
}

/// Like `timed`, without items.
pub(crate) fn timed_numbers<R: Send>(
    threads: usize,
    work: impl Fn(usize) -> R + Sync,
) -> Result<(Vec<R>, Region), WorkloadError> {
    timed(vec![(); threads], |number, ()| work(number))
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Closed,
    Open,
    Cancelled,
}

/// The gate. `inside` holds the number of waiting threads and the state; `changed` is signalled when one of them
/// changes.
#[derive(Default)]
struct Gate {
    inside: Mutex<(usize, State)>,
    changed: Condvar,
}

impl Gate {
    /// Waits at the gate; returns whether the gate was opened.
    fn pass(&self) -> bool {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        inside.0 += 1;
        self.changed.notify_all();
        while inside.1 == State::Closed {
            inside = self.changed.wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
        inside.1 == State::Open
    }

    fn wait_for(&self, waiting: usize) {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        while inside.0 < waiting {
            inside = self.changed.wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn set(&self, state: State) {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner).1 = state;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_works_once_and_results_keep_their_order() {
        for threads in [1, 2, 7] {
            let (results, region) =
                timed((0..threads).collect(), |n, item: usize| (n, item)).expect("threads start");
            assert_eq!(results, (0..threads).map(|n| (n, n)).collect::<Vec<_>>());
            assert!(region.seconds >= 0.0 && region.usage.is_some());
        }
    }

    #[test]
    fn a_cancelled_gate_lets_nobody_work() {
        let gate = Gate::default();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.pass());
            gate.wait_for(1);
            gate.set(State::Cancelled);
            assert!(!waiting.join().unwrap());
        });
    }
}
