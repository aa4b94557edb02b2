//! Functions of libc after which there must be no stock: those that lock what is mapped or limit it,
//! and those by which a program enters a sandbox, whose filter may know none of the calls that
//! looking after the stock takes.
//!
//! # Safety
//! The exported functions are the system calls of the same names, with the same contracts.

use std::ffi::{c_int, c_ulong};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{pid_t, rlimit};

use super::give_way;
use crate::raw;

static IS_SANDBOXED: AtomicBool = AtomicBool::new(false);

/// Whether the program has asked for a sandbox.
pub fn is_sandboxed() -> bool {
    IS_SANDBOXED.load(Ordering::Relaxed)
}

/// `int prctl(int op, ...)`. All of its forms take up to four numbers.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(
    operation: c_int,
    second: c_ulong,
    third: c_ulong,
    fourth: c_ulong,
    fifth: c_ulong,
) -> c_int {
    // Without the first an unprivileged program gets no filter.
    if matches!(operation, libc::PR_SET_NO_NEW_PRIVS | libc::PR_SET_SECCOMP) {
        IS_SANDBOXED.store(true, Ordering::Relaxed);
        give_way();
    }
    // SAFETY: the caller's contract.
    unsafe { raw::call!(SYS_prctl, operation, second, third, fourth, fifth) as c_int }
}

/// `int prlimit(pid_t pid, int resource, const struct rlimit *new, struct rlimit *old)`. Once there
/// is a limit nothing is kept any more (`bound`).
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit(
    pid: pid_t,
    resource: c_int,
    new: *const rlimit,
    old: *mut rlimit,
) -> c_int {
    if !new.is_null() {
        give_way();
    }
    // SAFETY: the caller's contract.
    unsafe { raw::call!(SYS_prlimit64, pid, resource, new, old) as c_int }
}

/// The same under its large-file name.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit64(
    pid: pid_t,
    resource: c_int,
    new: *const rlimit,
    old: *mut rlimit,
) -> c_int {
    // SAFETY: same contract.
    unsafe { prlimit(pid, resource, new, old) }
}

/// `int setrlimit(int resource, const struct rlimit *)`.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit(resource: c_int, new: *const rlimit) -> c_int {
    give_way();
    // SAFETY: the caller's contract. The older system call of this name is the newer one.
    unsafe { raw::call!(SYS_prlimit64, 0, resource, new, std::ptr::null_mut::<rlimit>()) as c_int }
}

/// The same under its large-file name.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit64(resource: c_int, new: *const rlimit) -> c_int {
    // SAFETY: same contract.
    unsafe { setrlimit(resource, new) }
}
