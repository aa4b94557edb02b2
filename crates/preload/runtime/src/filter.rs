//! Whether a seccomp filter may be in place that this process set for itself.
//!
//! A filter may end the process for a call that malloc does not need, as opening a file is, and it
//! cannot be asked. But who sets one without privileges must give up gaining any beforehand
//! (seccomp(2)), by `prctl`; libseccomp does so for root as well. What is not seen: a privileged
//! process that makes the call without it and without `syscall`.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static MAY_BE: AtomicBool = AtomicBool::new(false);
static IS_SET: AtomicBool = AtomicBool::new(false);

/// Whether there may be one.
pub fn may_be_in_place() -> bool {
    MAY_BE.load(Relaxed)
}

/// Whether the program has called for one: what memory is on cannot be looked up, and moving it may end the process.
pub fn is_set() -> bool {
    IS_SET.load(Relaxed)
}

/// The program is about to set one, or to become able to.
pub fn expect() {
    MAY_BE.store(true, Relaxed);
}

/// It is about to set one, and all is ready; or that was refused.
pub fn set(is_set: bool) {
    IS_SET.store(is_set, Relaxed);
}
