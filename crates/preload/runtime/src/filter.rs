//! Whether a seccomp filter may be in place that this process set for itself.
//!
//! A filter may end the process for a call that malloc does not need, as opening a file is, and it
//! cannot be asked. But who sets one without privileges must give up gaining any beforehand
//! (seccomp(2)), by `prctl`; libseccomp does so for root as well. What is not seen: a privileged
//! process that makes the call without it and without `syscall`.
//!
//! # Safety
//! `prctl` is the system call, with the same contract. libc's takes its arguments as a variadic
//! function, in the same registers on every architecture that this library is built for.

use std::ffi::{c_int, c_ulong};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::{mapping, prepare, raw};

/// `include/uapi/linux/prctl.h` (6.4).
const PR_SET_MEMORY_MERGE: c_int = 67;

static MAY_BE: AtomicBool = AtomicBool::new(false);

/// Whether there may be one.
pub fn may_be_in_place() -> bool {
    MAY_BE.load(Relaxed)
}

/// The program is about to set one, or to become able to.
pub fn may_be_in_place_now() {
    MAY_BE.store(true, Relaxed);
    // Looking after what is kept takes calls that a filter may not know.
    prepare::give_way();
}

/// `int prctl(int option, ...)`.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(
    option: c_int,
    second: c_ulong,
    third: c_ulong,
    fourth: c_ulong,
    fifth: c_ulong,
) -> c_int {
    if matches!(option, libc::PR_SET_NO_NEW_PRIVS | libc::PR_SET_SECCOMP) {
        may_be_in_place_now();
    }
    if option == PR_SET_MEMORY_MERGE {
        mapping::merge(second != 0);
    }
    // SAFETY: the caller's contract.
    unsafe { raw::call!(SYS_prctl, option, second, third, fourth, fifth) as c_int }
}
