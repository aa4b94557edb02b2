//! Machines that know nothing of each other, each on a thread of its own.
//!
//! What is done on a pool's thread already (a cell of a sweep or of a table) is not split further: there the cells
//! are side by side, and a thread that waited for a part of one would begin another cell meanwhile.

use rayon::prelude::*;

/// Whether what is done now may use more threads.
pub(crate) fn is_wanted() -> bool {
    rayon::current_thread_index().is_none() && rayon::current_num_threads() > 1
}

/// What comes of each, in their order.
pub(crate) fn map<T: Send, R: Send>(each: Vec<T>, of: impl Fn(T) -> R + Sync + Send) -> Vec<R> {
    if is_wanted() { cells(each, of) } else { each.into_iter().map(of).collect() }
}

/// The same of pieces of work that are each long.
pub(crate) fn cells<T: Send, R: Send>(each: Vec<T>, of: impl Fn(T) -> R + Sync + Send) -> Vec<R> {
    each.into_par_iter().with_max_len(1).map(of).collect()
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
