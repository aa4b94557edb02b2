//! The library's locks, compiled into this program: waiting threads get the lock, a thread that already holds it is
//! told so, and a forked child is not blocked by locks that its parent's threads held.

#![allow(dead_code, missing_docs, reason = "modules of the library, of which a part is used")]

#[path = "../src/filter.rs"]
mod filter;
#[path = "../src/lock.rs"]
mod lock;
#[path = "../src/message.rs"]
mod message;
#[path = "../src/raw.rs"]
mod raw;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use lock::{Lock, Rank};

static FIRST: Lock<u64> = Lock::new(Rank::Stacks, 0);
static LAST: Lock<u64> = Lock::new(Rank::Table, 0);

/// Serializes the tests: there is one lock of each level, and each test needs it exclusively.
fn alone() -> MutexGuard<'static, ()> {
    static TESTS: Mutex<()> = Mutex::new(());
    TESTS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn threads_exclude_each_other() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 20_000;
    let _alone = alone();
    FIRST.with(|value| *value = 0);
    LAST.with(|value| *value = 0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let both = FIRST.with(|first| {
                        *first += 1;
                        LAST.with(|last| *last += 1)
                    });
                    assert_eq!(both, Some(Some(())));
                }
            });
        }
    });
    assert_eq!(FIRST.with(|value| *value), Some(THREADS * ROUNDS));
    assert_eq!(LAST.with(|value| *value), Some(THREADS * ROUNDS));
}

/// Holds [`LAST`] in another thread while `work` runs.
fn while_held(work: impl FnOnce(&AtomicBool)) {
    let (is_held, may_go) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            LAST.with(|value| {
                *value = 7;
                is_held.store(true, Ordering::Release);
                while !may_go.load(Ordering::Acquire) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                *value = 8;
            })
        });
        while !is_held.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        work(&may_go);
        may_go.store(true, Ordering::Release);
    });
}

#[test]
fn who_sleeps_is_woken() {
    let _alone = alone();
    while_held(|may_go| {
        std::thread::scope(|scope| {
            let sleepers: Vec<_> =
                (0..4).map(|_| scope.spawn(|| LAST.with(|value| *value))).collect();
            std::thread::sleep(Duration::from_millis(50));
            may_go.store(true, Ordering::Release);
            for sleeper in sleepers {
                assert_eq!(sleeper.join().expect("no panic"), Some(8));
            }
        });
    });
}

#[test]
fn who_only_tries_does_not_wait() {
    let _alone = alone();
    while_held(|_| assert_eq!(LAST.try_with(|value| *value), None));
    assert_eq!(LAST.try_with(|value| *value), Some(8));
}

#[test]
fn who_comes_back_is_told() {
    let _alone = alone();
    let inner =
        LAST.with(|_| (LAST.with(|_| ()), LAST.with_or(|_| 1, || 2), LAST.try_with(|_| ())));
    assert_eq!(inner, Some((None, 2, None)));
    assert_eq!(LAST.with(|_| ()), Some(()), "it is free again");
}

#[test]
fn a_handler_that_takes_an_earlier_lock_is_told() {
    let _alone = alone();
    // The lock recognizes a handler by the signal that is blocked while it runs.
    let before = raw::set_signals(1 << (libc::SIGUSR1 - 1));
    let inner = LAST.with(|_| FIRST.with(|_| ()));
    raw::set_signals(before);
    assert_eq!(inner, Some(None));
}

/// Runs `work` in a forked child; returns its status.
fn in_child(work: impl FnOnce() -> bool) -> i32 {
    // SAFETY: the child runs `work` and ends.
    match unsafe { libc::fork() } {
        0 => {
            let code = i32::from(!work());
            // SAFETY: the call ends the child.
            unsafe { libc::_exit(code) }
        }
        pid => {
            let mut status = -1;
            // SAFETY: the pointer is to a live local variable.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            status
        }
    }
}

#[test]
#[cfg(debug_assertions)]
fn locks_taken_out_of_order_end_a_debug_build() {
    let _alone = alone();
    let status = in_child(|| {
        raw::set_signals(0);
        LAST.with(|_| FIRST.with(|_| ()));
        true
    });
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT, "{status:x}");
}

#[test]
fn a_child_is_not_stopped_by_its_parents_threads() {
    let _alone = alone();
    while_held(|_| {
        let status = in_child(|| {
            // SAFETY: alarm takes a number.
            unsafe { libc::alarm(90) };
            let mut found = None;
            LAST.after_fork(|value, was_held| found = Some((*value, was_held)));
            found == Some((7, true)) && LAST.with(|value| *value) == Some(7)
        });
        assert_eq!(status, 0);
    });
}

#[test]
fn what_a_forking_handler_interrupted_goes_on_in_the_child() {
    let _alone = alone();
    let status = LAST.with(|_| {
        in_child(|| {
            let mut is_renewed = false;
            LAST.after_fork(|_, _| is_renewed = true);
            !is_renewed && LAST.with(|_| ()).is_none()
        })
    });
    assert_eq!(status, Some(0));
}
