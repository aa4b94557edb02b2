//! Questions about the heap, and wishes that only glibc's own could grant.
//!
//! # Safety
//! As the functions of the same names. glibc's own are looked up once by name, in glibc itself: the next in
//! the loader's order may be another allocator's that the program is linked with, and knows nothing of glibc's
//! memory (redis-server with jemalloc ended there).

use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{FILE, size_t};
use libmimalloc_sys as mi;

use super::is_ours;
use crate::raw;

/// glibc's function of this name.
fn glibc(name: &CStr, known: &AtomicPtr<c_void>) -> *mut c_void {
    let found = known.load(Ordering::Acquire);
    if !found.is_null() {
        return found;
    }
    // SAFETY: names, and a handle that is never closed. Its own allocations, if any, go to glibc's malloc:
    // this is only called when the heap is glibc's.
    let found = unsafe {
        let glibc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        let place = if glibc.is_null() { libc::RTLD_NEXT } else { glibc };
        libc::dlsym(place, name.as_ptr())
    };
    known.store(found, Ordering::Release);
    found
}

/// Calls glibc's function, or returns `$otherwise` if this libc has none.
macro_rules! pass_on {
    ($name:literal, fn($($type:ty),*) -> $result:ty, ($($argument:expr),*), $otherwise:expr) => {{
        static KNOWN: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
        let function = glibc($name, &KNOWN);
        if function.is_null() {
            $otherwise
        } else {
            // SAFETY: the C signature of that function, called under the caller's contract.
            unsafe {
                let function: unsafe extern "C" fn($($type),*) -> $result = transmute(function);
                function($($argument),*)
            }
        }
    }};
}

/// `size_t malloc_usable_size(void *ptr)`
///
/// # Safety
/// As in glibc: `memory` is null or came from malloc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(memory: *mut c_void) -> size_t {
    if is_ours() {
        // SAFETY: the caller's contract.
        return unsafe { mi::mi_usable_size(memory) };
    }
    pass_on!(c"malloc_usable_size", fn(*mut c_void) -> size_t, (memory), 0)
}

/// `int malloc_trim(size_t pad)`: gives back what is not in use.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_trim(keep: size_t) -> c_int {
    if is_ours() {
        // SAFETY: collects this thread's free pages and purges the arenas.
        unsafe { mi::mi_collect(true) };
        return 1;
    }
    pass_on!(c"malloc_trim", fn(size_t) -> c_int, (keep), 0)
}

/// `int mallopt(int param, int value)`: this heap has none of those; the wish is accepted, as
/// programs take a refusal for an error.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallopt(parameter: c_int, value: c_int) -> c_int {
    if is_ours() {
        return 1;
    }
    pass_on!(c"mallopt", fn(c_int, c_int) -> c_int, (parameter, value), 0)
}

/// What the heap holds, in bytes: taken from the kernel, and what of it malloc has handed out is
/// not known, so all of it counts as in use.
fn held() -> usize {
    let mut values = [0usize; 8];
    let [a, b, c, d, e, f, committed, g] = values.each_mut().map(|value| value as *mut usize);
    // SAFETY: eight variables of ours.
    unsafe { mi::mi_process_info(a, b, c, d, e, committed, f, g) };
    values[6]
}

/// `struct mallinfo2 mallinfo2(void)`
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallinfo2() -> libc::mallinfo2 {
    // SAFETY: numbers only.
    let mut information: libc::mallinfo2 = unsafe { std::mem::zeroed() };
    if !is_ours() {
        return pass_on!(c"mallinfo2", fn() -> libc::mallinfo2, (), information);
    }
    information.arena = held();
    information.uordblks = information.arena;
    information
}

/// `struct mallinfo mallinfo(void)`
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallinfo() -> libc::mallinfo {
    // SAFETY: numbers only.
    let mut information: libc::mallinfo = unsafe { std::mem::zeroed() };
    if !is_ours() {
        return pass_on!(c"mallinfo", fn() -> libc::mallinfo, (), information);
    }
    information.arena = c_int::try_from(held()).unwrap_or(c_int::MAX);
    information.uordblks = information.arena;
    information
}

/// `void malloc_stats(void)`: on standard error.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_stats() {
    if is_ours() {
        // SAFETY: null means standard error.
        unsafe { mi::mi_stats_print(std::ptr::null_mut()) };
        return;
    }
    pass_on!(c"malloc_stats", fn() -> (), (), ())
}

/// `int malloc_info(int options, FILE *stream)`
///
/// # Safety
/// As in glibc: the stream is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_info(options: c_int, stream: *mut FILE) -> c_int {
    if !is_ours() {
        return pass_on!(
            c"malloc_info",
            fn(c_int, *mut FILE) -> c_int,
            (options, stream),
            raw::fails_with(libc::ENOSYS)
        );
    }
    if options != 0 {
        return libc::EINVAL;
    }
    let text = c"<malloc version=\"1\">\n<system type=\"current\" size=\"%zu\"/>\n</malloc>\n";
    // SAFETY: the caller's stream; the format takes one size_t.
    let written = unsafe { libc::fprintf(stream, text.as_ptr(), held()) };
    if written < 0 { -1 } else { 0 }
}
