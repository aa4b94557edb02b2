//! Whether this process may have installed a seccomp filter.
//!
//! A filter may kill the process for a call that malloc does not need, such as opening a file, and a process cannot
//! query its filters. An unprivileged process must first give up gaining privileges by `prctl` (seccomp(2)); libseccomp
//! does so for root as well. Not detected: a privileged process that makes the system call without that `prctl` and
//! without libc's `syscall`.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static MAY_BE: AtomicBool = AtomicBool::new(false);
static IS_SET: AtomicBool = AtomicBool::new(false);

/// Whether the process may have installed a filter.
pub fn may_be_in_place() -> bool {
    MAY_BE.load(Relaxed)
}

/// Whether the program requested a filter: mappings cannot be looked up, and moving memory may kill the process.
pub fn is_set() -> bool {
    IS_SET.load(Relaxed)
}

/// Call before the program installs a filter, or gives up gaining privileges.
pub fn expect() {
    MAY_BE.store(true, Relaxed);
}

/// Call before the program installs a filter, when all preparations are done; with `false` if the kernel refused.
pub fn set(is_set: bool) {
    IS_SET.store(is_set, Relaxed);
}
