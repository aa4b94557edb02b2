//! Stacks of a fixed size on superpages: the main thread's (`initial`) and those of the threads it
//! makes (`threads`, `slots`).
//!
//! On THP a stack is advised memory, aligned so that all of it can lie on superpages; the main
//! thread's only below the superpage its top lies in, because the kernel puts it anywhere.
//!
//! On hugetlb the body of a stack is reserved pages of the pool, and its top, where the frames of
//! the first functions and (but for the main thread) thread-local storage lie, is ordinary memory:
//! libc writes there in the midst of a fork, when a page of the pool could not be copied.
//!
//! # Safety
//! A stack in use is never unmapped and never given to another thread. What replaces pages under a
//! thread runs on another stack (`alternate`).
//! See docs/decisions/stacks.md#1.

mod alternate;
mod initial;
mod slots;
mod threads;

pub use alternate::{on_alternate, on_alternate_if_within};
pub use slots::after_fork;

use crate::settings::Settings;

/// At start-up: the main thread's stack.
pub fn provide(settings: &Settings) {
    if settings.memory.stack > 0 {
        initial::provide(settings.memory.stack);
    }
}

/// The function of this name that would be called without this library; searched for once.
macro_rules! next_function {
    ($name:literal, $type:ty) => {{
        static KNOWN: std::sync::atomic::AtomicPtr<std::ffi::c_void> =
            std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
        let mut found = KNOWN.load(std::sync::atomic::Ordering::Acquire);
        if found.is_null() {
            // SAFETY: a name.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, $name.as_ptr()) };
            KNOWN.store(found, std::sync::atomic::Ordering::Release);
        }
        // SAFETY: libc's function of that name has that signature; null is none.
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, Option<$type>>(found) }
    }};
}
use next_function;
