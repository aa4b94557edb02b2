//! `pthread_create`, and the calls after which a thread's stack is no longer needed.
//!
//! A thread whose creator provides no stack gets one of the fixed size. The requested size applies if it is larger and
//! not just the process's default. libc treats the stack as provided by the program: thread-local storage and libc's
//! record of the thread lie at its top. The caller's attributes are copied, not changed. If libc refuses such a stack
//! (thread-local variables larger than it), the thread is created as requested.
//!
//! # Safety
//! The exported functions are those of libc, with the same contracts. No frame here has anything to drop, so a thread
//! may unwind through it.
//! See docs/decisions/stacks.md#3.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use libc::{clockid_t, pthread_attr_t, pthread_t, timespec};

use super::slots::{self, Routine, Slot};
use super::{initial, next_function};
use crate::settings::{self, Fallback};
use crate::{executor, filter, sizes};

unsafe extern "C" {
    fn pthread_attr_getdetachstate(attributes: *const pthread_attr_t, into: *mut c_int) -> c_int;
    fn pthread_getattr_default_np(into: *mut pthread_attr_t) -> c_int;
}

/// `int pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *)`
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    routine: Routine,
    argument: *mut c_void,
) -> c_int {
    type Function =
        unsafe extern "C" fn(*mut pthread_t, *const pthread_attr_t, Routine, *mut c_void) -> c_int;
    let Some(create) = next_function!(super::CREATE, Function) else { return libc::EAGAIN };
    let settings = settings::get();
    // SAFETY: the caller keeps this function's contract throughout.
    unsafe {
        if settings.memory.stack == 0 || initial::is_executable() || filter::may_be_in_place() {
            return create(thread, attributes, routine, argument);
        }
        let mut copy = MaybeUninit::<pthread_attr_t>::uninit();
        if pthread_getattr_default_np(copy.as_mut_ptr()) != 0 {
            return create(thread, attributes, routine, argument);
        }
        let wanted = Wanted::read(attributes, copy.as_ptr());
        let slot = wanted.as_ref().and_then(|it| slots::take(it.size, it.guard, it.detached));
        let result = match slot {
            Some(slot) => {
                (*slot).work = Some((routine, argument));
                // A bitwise copy of the caller's attributes, whose pointees are only read.
                let mut own =
                    if attributes.is_null() { copy.assume_init() } else { attributes.read() };
                let (start, size) = ((*slot).start, (*slot).end - (*slot).start);
                libc::pthread_attr_setstack(&raw mut own, start as *mut c_void, size);
                let result = create(thread, &raw const own, begin, slot.cast());
                if result != 0 {
                    slots::give_back(slot);
                    create(thread, attributes, routine, argument)
                } else {
                    0
                }
            }
            None if wanted.is_some_and(|it| {
                executor::fall_back(settings.fallback, it.size) == Fallback::Error
            }) =>
            {
                libc::EAGAIN
            }
            None => create(thread, attributes, routine, argument),
        };
        libc::pthread_attr_destroy(copy.as_mut_ptr());
        result
    }
}

/// Properties of a stack that the caller does not provide.
struct Wanted {
    size: usize,
    guard: usize,
    detached: bool,
}

impl Wanted {
    /// `None`: the caller provides a stack.
    unsafe fn read(given: *const pthread_attr_t, usual: *const pthread_attr_t) -> Option<Self> {
        let page = sizes::superpage();
        let fixed = settings::get().memory.stack.checked_next_multiple_of(page)?;
        let (mut start, mut size, mut guard) = (std::ptr::null_mut(), 0, 0);
        let (mut usual_size, mut detached) = (0, 0);
        // SAFETY: attributes that libc or the caller has initialised; locals that are written.
        unsafe {
            let used = if given.is_null() { usual } else { given };
            libc::pthread_attr_getstacksize(usual, &raw mut usual_size);
            libc::pthread_attr_getstack(used, &raw mut start, &raw mut size);
            libc::pthread_attr_getguardsize(used, &raw mut guard);
            pthread_attr_getdetachstate(used, &raw mut detached);
            // Without a provided stack, libc's recorded end is 0, and the start wraps around.
            let recorded = start as usize;
            if recorded.wrapping_add(size) != 0 {
                return None;
            }
            // An unset size reads as 0 above, and as the default here.
            libc::pthread_attr_getstacksize(used, &raw mut size);
        }
        let size = if size == usual_size { fixed } else { size.checked_next_multiple_of(page)? };
        let detached = detached == libc::PTHREAD_CREATE_DETACHED;
        Some(Self { size: size.max(fixed), guard, detached })
    }
}

/// Start routine of a thread on a stack of this library.
extern "C-unwind" fn begin(slot: *mut c_void) -> *mut c_void {
    let slot = slot.cast::<Slot>();
    // SAFETY: the record that `pthread_create` filled in for this thread.
    let work = unsafe {
        (*slot).tid.store(slots::this_thread(), Ordering::Release);
        (*slot).work
    };
    match work {
        Some((routine, argument)) => routine(argument),
        None => std::ptr::null_mut(),
    }
}

/// Defines a libc function after whose success the program no longer uses a thread.
macro_rules! releasing {
    ($(#[$doc:meta])* $name:ident, $next:ident, ($($argument:ident: $type:ty),*)) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As in libc.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(thread: pthread_t, $($argument: $type),*) -> c_int {
            type Function = unsafe extern "C-unwind" fn(pthread_t, $($type),*) -> c_int;
            let Some(real) = next_function!(super::$next, Function) else { return libc::ENOSYS };
            // SAFETY: the caller keeps this function's contract.
            let result = unsafe { real(thread, $($argument),*) };
            if result == 0 {
                slots::release(thread as usize);
            }
            result
        }
    };
}

releasing!(
    /// `int pthread_join(pthread_t, void **)`
    pthread_join, JOIN, (result: *mut *mut c_void)
);
releasing!(
    /// `int pthread_tryjoin_np(pthread_t, void **)`
    pthread_tryjoin_np, TRYJOIN, (result: *mut *mut c_void)
);
releasing!(
    /// `int pthread_timedjoin_np(pthread_t, void **, const struct timespec *)`
    pthread_timedjoin_np, TIMEDJOIN, (result: *mut *mut c_void, until: *const timespec)
);
releasing!(
    /// `int pthread_clockjoin_np(pthread_t, void **, clockid_t, const struct timespec *)`
    pthread_clockjoin_np,
    CLOCKJOIN,
    (result: *mut *mut c_void, clock: clockid_t, until: *const timespec)
);
releasing!(
    /// `int pthread_detach(pthread_t)`
    pthread_detach, DETACH, ()
);
releasing!(
    /// `int thrd_join(thrd_t, int *)`
    thrd_join, THRD_JOIN, (result: *mut c_int)
);
releasing!(
    /// `int thrd_detach(thrd_t)`
    thrd_detach, THRD_DETACH, ()
);

/// `int thrd_create(thrd_t *, int (*)(void *), void *)`: libc's own does not call the exported `pthread_create`.
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_create(
    thread: *mut pthread_t,
    routine: extern "C-unwind" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
) -> c_int {
    const THRD_SUCCESS: c_int = 0;
    const THRD_ERROR: c_int = 2;
    const THRD_NOMEM: c_int = 3;
    // `routine` returns an int where a pointer is expected, as in libc itself: both use the same register, of which
    // `thrd_join` reads an int.
    // SAFETY: both functions take a pointer, and return in that register.
    let routine = unsafe {
        std::mem::transmute::<extern "C-unwind" fn(*mut c_void) -> c_int, Routine>(routine)
    };
    // SAFETY: the caller keeps this function's contract.
    match unsafe { pthread_create(thread, std::ptr::null(), routine, argument) } {
        0 => THRD_SUCCESS,
        libc::ENOMEM => THRD_NOMEM,
        _ => THRD_ERROR,
    }
}

/// `int pthread_getattr_np(pthread_t, pthread_attr_t *)`, with two corrections: libc takes pool pages below the
/// kernel's mapping of the main stack for another mapping, and reports no guard for a provided stack (Rust's threads
/// would not start without one).
///
/// # Safety
/// As in libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_getattr_np(of: pthread_t, into: *mut pthread_attr_t) -> c_int {
    type Function = unsafe extern "C" fn(pthread_t, *mut pthread_attr_t) -> c_int;
    let Some(real) = next_function!(super::GETATTR, Function) else { return libc::ENOSYS };
    // SAFETY: the caller keeps this function's contract; then attributes that libc has just filled in.
    unsafe {
        let result = real(of, into);
        if result != 0 || settings::get().memory.stack == 0 {
            return result;
        }
        if let Some(lowest) = initial::lowest(of as usize) {
            let (mut start, mut size) = (std::ptr::null_mut(), 0);
            if libc::pthread_attr_getstack(into, &raw mut start, &raw mut size) == 0 {
                let end = start as usize + size;
                libc::pthread_attr_setstack(into, lowest as *mut _, end - lowest);
            }
        } else if let Some(guard) = slots::guard_asked(of as usize) {
            libc::pthread_attr_setguardsize(into, guard);
        }
        result
    }
}
