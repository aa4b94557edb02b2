//! The fork lock: while a thread forks, no thread maps private pages of the pool, because the fork has already looked
//! for such pages. No thread waits for the lock: a thread that finds it held falls back to other pages.
//!
//! # Safety
//! One atomic counter.

use std::sync::atomic::{AtomicU32, Ordering};

/// Number of threads that are forking.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Whether any thread is forking or about to fork.
pub fn is_held() -> bool {
    FORKS.load(Ordering::SeqCst) != 0
}

/// Call before this thread forks.
pub fn take() {
    FORKS.fetch_add(1, Ordering::SeqCst);
}

/// Call after the fork, or after it failed. The counter may be 0 already in a child of `daemon(3)`.
pub fn release() {
    let less = |forks: u32| forks.checked_sub(1);
    let _ = FORKS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
}

/// In a forked child: sets the count. The child's only thread may run in a signal handler that interrupted `forks`
/// forks.
pub fn after_fork(forks: u32) {
    FORKS.store(forks, Ordering::SeqCst);
}
