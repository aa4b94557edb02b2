//! Interposed libc functions that fork.
//!
//! # Safety
//! They call libc's functions, with the same contracts.
//! See docs/decisions/fork.md#6.

use std::ffi::{c_char, c_int, c_void};

use libc::pid_t;

use super::copy;
use crate::settings::{self, Children};
use crate::stack::{self, next_function};
use crate::{fork_lock, raw};

/// Forks, from an alternate stack if necessary; -1 with ENOMEM if the child could not get copies of its memory.
fn for_fork(make: impl FnOnce() -> c_int) -> c_int {
    fork_lock::take();
    let result = if !copy::is_possible() {
        raw::fails_with(libc::ENOMEM)
    } else if settings::get().children == Children::Same {
        make()
    } else {
        stack::on_alternate_if_within(0, usize::MAX, make)
    };
    // The child has set its own count.
    if result != 0 {
        fork_lock::release();
    }
    result
}

unsafe extern "C" {
    /// glibc's own name for `fork`, linked directly: a signal handler must not search for symbols.
    fn __fork() -> pid_t;
}

/// `pid_t fork(void)`
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> pid_t {
    // SAFETY: the caller keeps this function's contract.
    for_fork(|| unsafe { __fork() })
}

/// `int daemon(int nochdir, int noclose)`, which forks inside libc.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daemon(no_chdir: c_int, no_close: c_int) -> c_int {
    type Function = unsafe extern "C" fn(c_int, c_int) -> c_int;
    let real = next_function!(stack::DAEMON, Function);
    for_fork(|| match real {
        // SAFETY: the caller keeps this function's contract.
        Some(real) => unsafe { real(no_chdir, no_close) },
        None => -1,
    })
}

/// `int forkpty(int *amaster, char *name, const struct termios *, const struct winsize *)`, which forks inside libc.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forkpty(
    master: *mut c_int,
    name: *mut c_char,
    terminal: *const c_void,
    window: *const c_void,
) -> pid_t {
    type Function =
        unsafe extern "C" fn(*mut c_int, *mut c_char, *const c_void, *const c_void) -> pid_t;
    let real = next_function!(stack::FORKPTY, Function);
    for_fork(|| match real {
        // SAFETY: the caller keeps this function's contract.
        Some(real) => unsafe { real(master, name, terminal, window) },
        None => -1,
    })
}
