//! mimalloc's locks, and how the process forks without one of them held.
//!
//! mimalloc does not know of fork: a child born while another thread holds one of its mutexes would
//! wait for it forever. So its calls of `pthread_mutex_lock` come here (the linker's `--wrap`): each
//! lock held is counted, and a fork waits until none is and lets none be taken until it is over.
//!
//! # Safety
//! The mutexes are mimalloc's own, locked and unlocked in pairs by one thread.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use super::arena;
use crate::raw::pause;

/// How many locks are held, and whether somebody forks.
static HELD: AtomicU32 = AtomicU32::new(0);
const FORKING: u32 = 1 << 31;

unsafe extern "C" {
    fn __real_pthread_mutex_lock(mutex: *mut libc::pthread_mutex_t) -> c_int;
    fn __real_pthread_mutex_trylock(mutex: *mut libc::pthread_mutex_t) -> c_int;
    fn __real_pthread_mutex_unlock(mutex: *mut libc::pthread_mutex_t) -> c_int;
}

fn enter() {
    let depth = DEPTH.get();
    DEPTH.set(depth + 1);
    if depth > 0 {
        HELD.fetch_add(1, Ordering::Acquire);
        return;
    }
    loop {
        let held = HELD.load(Ordering::Relaxed);
        if held & FORKING == 0 {
            let taken =
                HELD.compare_exchange_weak(held, held + 1, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                return;
            }
        } else {
            pause();
        }
    }
}

fn leave() {
    DEPTH.set(DEPTH.get().wrapping_sub(1));
    HELD.fetch_sub(1, Ordering::Release);
}

thread_local! {
    /// How many of them this thread holds. Without a destructor, so it can be used at any time.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// mimalloc's `pthread_mutex_lock`. A thread that already holds a lock may want a second one while a
/// fork waits for the first, so only the first waits at the gate.
///
/// # Safety
/// As the function wrapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __wrap_pthread_mutex_lock(mutex: *mut libc::pthread_mutex_t) -> c_int {
    enter();
    // SAFETY: the caller's contract.
    unsafe { __real_pthread_mutex_lock(mutex) }
}

/// # Safety
/// As the function wrapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __wrap_pthread_mutex_trylock(mutex: *mut libc::pthread_mutex_t) -> c_int {
    enter();
    // SAFETY: the caller's contract.
    let result = unsafe { __real_pthread_mutex_trylock(mutex) };
    if result != 0 {
        leave();
    }
    result
}

/// # Safety
/// As the function wrapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __wrap_pthread_mutex_unlock(mutex: *mut libc::pthread_mutex_t) -> c_int {
    // SAFETY: the caller's contract.
    let result = unsafe { __real_pthread_mutex_unlock(mutex) };
    leave();
    result
}

/// For `fork`: waits until no lock of the heap is held, and keeps it so.
pub fn lock() {
    while HELD.fetch_or(FORKING, Ordering::Acquire) & FORKING != 0 {
        pause();
    }
    while HELD.load(Ordering::Acquire) != FORKING {
        pause();
    }
    arena::lock();
}

/// For `fork`, in both processes.
pub fn unlock() {
    arena::unlock();
    HELD.fetch_and(!FORKING, Ordering::Release);
}
