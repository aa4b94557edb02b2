//! libc functions that set resource limits: afterwards there must be no stock, no memory that a fork would have to
//! copy, and no memory that the limit would not count.
//!
//! # Safety
//! The exported functions are the system calls of the same names, with the same contracts.

use std::ffi::c_int;

use libc::{pid_t, rlimit};

use super::demote;
use crate::{limits, prepare, raw, source};

/// Call before a limit is set.
fn expect(pid: pid_t, resource: c_int) {
    prepare::release_all();
    if limits::counts_memory(resource) && (pid == 0 || pid == raw::pid()) {
        source::note_rlimit_set();
        if source::has_private_hugetlb() {
            // Memory that cannot be demoted stays; a fork without space for its copy fails.
            let _ = demote::make_all_ordinary();
        }
    }
}

/// `int prlimit(pid_t pid, int resource, const struct rlimit *new, struct rlimit *old)`. While RLIMIT_AS or RLIMIT_DATA
/// is set, mappings that the program unmaps are not kept for reuse (`prepare`).
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
    // SAFETY: the caller keeps this function's contract.
    unsafe { raw::call!(SYS_prlimit64, pid, resource, new, old) as c_int }
}

/// As [`prlimit`], under its large-file name.
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
    // SAFETY: the called function has the same contract.
    unsafe { prlimit(pid, resource, new, old) }
}

/// `int setrlimit(int resource, const struct rlimit *)`.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit(resource: c_int, new: *const rlimit) -> c_int {
    expect(0, resource);
    // SAFETY: the caller keeps this function's contract. prlimit64 does all that the older system call does.
    unsafe { raw::call!(SYS_prlimit64, 0, resource, new, std::ptr::null_mut::<rlimit>()) as c_int }
}

/// As [`setrlimit`], under its large-file name.
///
/// # Safety
/// As the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit64(resource: c_int, new: *const rlimit) -> c_int {
    // SAFETY: the called function has the same contract.
    unsafe { setrlimit(resource, new) }
}
