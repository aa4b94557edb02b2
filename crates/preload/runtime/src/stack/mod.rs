//! Stacks of a fixed size on superpages: the main thread's (`initial`) and those of the threads it
//! makes (`threads`, `slots`).
//!
//! On THP a stack is advised memory, aligned so that all of it can lie on superpages. The kernel places the main
//! thread's stack at any address, so only the part below the superpage with its top can lie on superpages.
//!
//! On hugetlb the body of a stack is reserved pages of the pool. Its top, with the frames of the first functions and
//! (except for the main thread) thread-local storage, is ordinary memory: libc writes there during a fork, when a page
//! of the pool could not be copied.
//!
//! # Safety
//! A stack in use is never unmapped and never given to another thread. Code that replaces pages under a thread runs on
//! another stack (`alternate`).
//! See docs/decisions/stacks.md#1.

mod alternate;
mod initial;
mod slots;
mod threads;

pub use alternate::{on_alternate, on_alternate_if_within};
pub use slots::after_fork;

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::settings::Settings;
use crate::symbols;

/// At start-up: gives the main thread its stack.
pub fn provide(settings: &Settings) {
    if settings.memory.stack > 0 {
        initial::provide(settings.memory.stack);
    }
}

/// The next definition of a function after this library's (RTLD_NEXT), looked up once.
pub(crate) struct Next {
    name: &'static [u8],
    found: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static [u8]) -> Self {
        Self { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The address; null if there is none.
    pub(crate) fn address(&self) -> *mut c_void {
        let mut found = self.found.load(Ordering::Acquire);
        if found.is_null() {
            found = symbols::next(self.name).map_or(std::ptr::null_mut(), |(found, _)| found);
            self.found.store(found, Ordering::Release);
        }
        found
    }
}

macro_rules! next_functions {
    ($($name:ident = $text:literal,)*) => {
        $(pub(crate) static $name: Next = Next::new($text);)*

        /// At start-up: looks up the functions. Later the loader may hold its lock and wait for the thread that looks
        /// them up (a plugin whose constructor waits for its thread).
        pub fn find() {
            $($name.address();)*
        }
    };
}

next_functions! {
    CREATE = b"pthread_create",
    JOIN = b"pthread_join",
    TRYJOIN = b"pthread_tryjoin_np",
    TIMEDJOIN = b"pthread_timedjoin_np",
    CLOCKJOIN = b"pthread_clockjoin_np",
    DETACH = b"pthread_detach",
    THRD_JOIN = b"thrd_join",
    THRD_DETACH = b"thrd_detach",
    GETATTR = b"pthread_getattr_np",
    DAEMON = b"daemon",
    FORKPTY = b"forkpty",
}

/// The next definition as a value that can be called, if there is one.
macro_rules! next_function {
    ($next:expr, $type:ty) => {
        // SAFETY: libc's function of that name has that signature; null is none.
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, Option<$type>>($next.address()) }
    };
}
pub(crate) use next_function;
