//! Whether this process may have installed a seccomp filter.
//!
//! A filter may kill the process for a call that malloc does not need, such as opening a file, and a process cannot
//! query its filters. An unprivileged process must first set no_new_privs by `prctl` (seccomp(2)); libseccomp does so
//! for root as well. A privileged process escapes detection if it calls neither that `prctl` nor libc's `syscall`.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static MAY_BE: AtomicBool = AtomicBool::new(false);
static IS_SET: AtomicBool = AtomicBool::new(false);

/// Whether the process may have installed a filter.
pub fn may_be_in_place() -> bool {
    MAY_BE.load(Relaxed)
}

/// Whether the program requested a filter. If so, mappings cannot be looked up, and moving memory may kill the process.
pub fn is_set() -> bool {
    IS_SET.load(Relaxed)
}

/// Call before the program installs a filter or sets no_new_privs.
pub fn expect() {
    MAY_BE.store(true, Relaxed);
}

/// Call before the program installs a filter, after all preparations. Call with `false` if the kernel refused the
/// filter.
pub fn set(is_set: bool) {
    IS_SET.store(is_set, Relaxed);
}
