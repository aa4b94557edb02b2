//! Runs independent machines in parallel, one per thread.
//!
//! Work on a pool's thread (a cell of a sweep or of a table) is not split further. The cells already run in parallel,
//! and a thread that waits for a part of its cell would start another whole cell (work stealing).

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Mutex;

use rayon::prelude::*;

/// Starts the process's thread pool, once. If no thread can be started, the calling thread does all work.
pub fn start_threads() {
    if rayon::ThreadPoolBuilder::new().build_global().is_err() {
        // An existing pool is kept.
        let _ = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global();
    }
}

/// Returns whether the caller may use more threads.
pub(crate) fn is_wanted() -> bool {
    rayon::current_thread_index().is_none() && rayon::current_num_threads() > 1
}

/// Applies `of` to each item, and returns the results in order.
pub(crate) fn map<T: Send, R: Send>(each: Vec<T>, of: impl Fn(T) -> R + Sync + Send) -> Vec<R> {
    if is_wanted() {
        each.into_par_iter().with_max_len(1).map(of).collect()
    } else {
        each.into_iter().map(of).collect()
    }
}

/// Calls `work` with each item, in order, from all threads. After a break no further item is begun; calls in progress
/// complete.
pub(crate) fn queue<T: Send>(each: Vec<T>, work: impl Fn(T) -> ControlFlow<()> + Sync) {
    let left = Mutex::new(VecDeque::from(each));
    let next = || left.lock().expect("nothing in it panics").pop_front();
    rayon::broadcast(|_| {
        while let Some(one) = next() {
            if work(one).is_break() {
                left.lock().expect("nothing in it panics").clear();
            }
        }
    });
}

/// Calls `work` with each item on the pool, and `beside` on this thread at the same time.
pub(crate) fn with<T: Send, R>(
    each: &mut [T],
    work: impl Fn(&mut T) + Sync,
    beside: impl FnOnce() -> R,
) -> R {
    let work = &work;
    rayon::in_place_scope(|scope| {
        each.iter_mut().for_each(|one| scope.spawn(move |_| work(one)));
        beside()
    })
}
