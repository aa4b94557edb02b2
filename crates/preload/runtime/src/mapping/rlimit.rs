//! Functions of libc that limit what is mapped: after them there must be no stock, no memory of which a fork makes a copy, and
//! none that the limit would not count.
//!
//! # Safety
//! The exported functions are the system calls of the same names, with the same contracts.

use std::ffi::c_int;

use libc::{pid_t, rlimit};

use super::demote;
use crate::{limits, prepare, raw, source};

/// A limit of this process is about to be set.
fn expect(pid: pid_t, resource: c_int) {
    prepare::give_way();
    if limits::counts_memory(resource) && (pid == 0 || pid == raw::pid()) {
        source::limited();
        if source::has_private_hugetlb() {
            // What cannot be moved stays; a fork that has no room for its copy fails.
            let _ = demote::make_all_ordinary();
        }
    }
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
        expect(pid, resource);
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
    expect(0, resource);
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
