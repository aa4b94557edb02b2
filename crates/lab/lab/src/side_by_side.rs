//! Independent machines, each on its own thread.
//!
//! What is done on a pool's thread already (a cell of a sweep or of a table) is not split further: there the cells
//! are side by side, and a thread that waited for a part of one would begin another cell meanwhile.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Mutex;

use rayon::prelude::*;

/// Starts the threads among which work is divided, once for a process. Where none can be started this one does all of it.
pub fn start_threads() {
    if rayon::ThreadPoolBuilder::new().build_global().is_err() {
        // Had they been started before, they stay.
        let _ = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global();
    }
}

/// Whether what is done now may use more threads.
pub(crate) fn is_wanted() -> bool {
    rayon::current_thread_index().is_none() && rayon::current_num_threads() > 1
}

/// The results in order.
pub(crate) fn map<T: Send, R: Send>(each: Vec<T>, of: impl Fn(T) -> R + Sync + Send) -> Vec<R> {
    if is_wanted() {
        each.into_par_iter().with_max_len(1).map(of).collect()
    } else {
        each.into_iter().map(of).collect()
    }
}

/// Does `work` with each, begun in their order: a thread that is done takes the next, until one breaks. Those under way
/// are finished.
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

/// Does `work` on each of these, and `beside` on this thread meanwhile.
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
