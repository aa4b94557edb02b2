//! The fork lock: while any thread forks, nobody maps private pages of the pool. Whether there are any, and how many,
//! was looked up already. It is not waited for: who finds it held does without such pages.
//!
//! # Safety
//! A number.

use std::sync::atomic::{AtomicU32, Ordering};

/// How many threads are forking.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Whether any thread is about to fork, or forks.
pub fn is_held() -> bool {
    FORKS.load(Ordering::SeqCst) != 0
}

/// This thread is about to fork.
pub fn take() {
    FORKS.fetch_add(1, Ordering::SeqCst);
}

/// It has, or could not. In a child of `daemon(3)` none is counted any more.
pub fn release() {
    let less = |forks: u32| forks.checked_sub(1);
    let _ = FORKS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
}

/// In a forked child: its one thread may have interrupted so many forks of its own.
pub fn after_fork(forks: u32) {
    FORKS.store(forks, Ordering::SeqCst);
}
