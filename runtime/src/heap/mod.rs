//! malloc and its relatives: mimalloc over pages of this library's choosing.
//!
//! Whether the heap is ours is decided at the process's first allocation and never changes, so no
//! pointer of one allocator ever reaches the other. Where it is not, every call goes on to glibc.
//! What programs can tell apart is as glibc has it: `realloc(p, 0)` frees, `memalign` takes any
//! alignment, failure sets `errno`.
//!
//! | module | what it owns |
//! |---|---|
//! | `arena` | the heap's address space, and which superpages of it are in use |
//! | `system` | what mimalloc asks of the kernel itself: large objects, its own tables |
//! | `gate` | mimalloc's locks, held still while the process forks |
//! | `information` | mallinfo and other questions about the heap |
//!
//! # Safety
//! The exported functions have the C signatures and contracts of the functions they replace; the
//! pointers they are given came from them.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU8, Ordering};

use libc::size_t;
use libmimalloc_sys as mi;

use crate::raw;
use crate::settings::{self, Pages};

pub mod arena;
mod gate;
mod information;
mod system;

pub use gate::{lock, unlock};

// glibc's own, past whoever stands in for the plain names.
unsafe extern "C" {
    fn __libc_malloc(size: size_t) -> *mut c_void;
    fn __libc_free(memory: *mut c_void);
    fn __libc_calloc(count: size_t, size: size_t) -> *mut c_void;
    fn __libc_realloc(memory: *mut c_void, size: size_t) -> *mut c_void;
    fn __libc_memalign(alignment: size_t, size: size_t) -> *mut c_void;
}

static WHOSE: AtomicU8 = AtomicU8::new(0);
const GLIBC: u8 = 1;
const OURS: u8 = 2;

#[inline(always)]
fn is_ours() -> bool {
    match WHOSE.load(Ordering::Acquire) {
        0 => decide(),
        whose => whose == OURS,
    }
}

/// The first allocation of the process; no other thread exists yet.
#[cold]
fn decide() -> bool {
    let settings = settings::get();
    let ours = settings.memory.heap && settings.pages != Pages::Unasked;
    if ours {
        arena::set_up();
    }
    WHOSE.store(if ours { OURS } else { GLIBC }, Ordering::Release);
    ours
}

/// glibc aligns every object to 16, also those smaller than that, which mimalloc does not.
#[inline(always)]
fn aligned_size(size: usize) -> usize {
    size.max(16)
}

/// What C programs see of a failure.
#[inline(always)]
fn checked(memory: *mut c_void) -> *mut c_void {
    if memory.is_null() {
        raw::set_errno(libc::ENOMEM);
    }
    memory
}

/// `void *malloc(size_t size)`
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: size_t) -> *mut c_void {
    // SAFETY: any size is allowed.
    unsafe {
        if is_ours() { checked(mi::mi_malloc(aligned_size(size))) } else { __libc_malloc(size) }
    }
}

/// `void free(void *ptr)`
///
/// # Safety
/// As in C: `memory` is null or came from here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(memory: *mut c_void) {
    // SAFETY: the caller's contract; whose it is never changes.
    unsafe { if is_ours() { mi::mi_free(memory) } else { __libc_free(memory) } }
}

/// `void *calloc(size_t nmemb, size_t size)`
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: size_t, size: size_t) -> *mut c_void {
    // SAFETY: any sizes are allowed; both check the product.
    unsafe {
        if !is_ours() {
            return __libc_calloc(count, size);
        }
        match count.checked_mul(size) {
            Some(total) => checked(mi::mi_zalloc(aligned_size(total))),
            None => checked(std::ptr::null_mut()),
        }
    }
}

/// `void *realloc(void *ptr, size_t size)`
///
/// # Safety
/// As in C: `memory` is null or came from here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(memory: *mut c_void, size: size_t) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe {
        if !is_ours() {
            return __libc_realloc(memory, size);
        }
        if size == 0 && !memory.is_null() {
            mi::mi_free(memory);
            return std::ptr::null_mut();
        }
        checked(mi::mi_realloc(memory, aligned_size(size)))
    }
}

/// `void *reallocarray(void *ptr, size_t nmemb, size_t size)`
///
/// # Safety
/// As in C: `memory` is null or came from here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(
    memory: *mut c_void,
    count: size_t,
    size: size_t,
) -> *mut c_void {
    let Some(total) = count.checked_mul(size) else {
        raw::set_errno(libc::ENOMEM);
        return std::ptr::null_mut();
    };
    // SAFETY: the caller's contract.
    unsafe { realloc(memory, total) }
}

/// `int posix_memalign(void **memptr, size_t alignment, size_t size)`
///
/// # Safety
/// As in C: `result` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(
    result: *mut *mut c_void,
    alignment: size_t,
    size: size_t,
) -> c_int {
    if !alignment.is_power_of_two() || alignment < size_of::<*mut c_void>() {
        return libc::EINVAL;
    }
    // SAFETY: the caller's contract. errno is left alone, as POSIX has it.
    raw::keeping_errno(|| unsafe {
        let memory = aligned(alignment, size);
        if memory.is_null() {
            return libc::ENOMEM;
        }
        *result = memory;
        0
    })
}

/// `void *aligned_alloc(size_t alignment, size_t size)`
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(alignment: size_t, size: size_t) -> *mut c_void {
    // SAFETY: `aligned` takes any alignment.
    unsafe { memalign(alignment, size) }
}

/// `void *memalign(size_t alignment, size_t size)`: glibc takes the next power of two.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(alignment: size_t, size: size_t) -> *mut c_void {
    let Some(alignment) = alignment.max(1).checked_next_power_of_two() else {
        raw::set_errno(libc::EINVAL);
        return std::ptr::null_mut();
    };
    // SAFETY: a power of two.
    checked(unsafe { aligned(alignment, size) })
}

/// `void *valloc(size_t size)`: aligned to a base page.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn valloc(size: size_t) -> *mut c_void {
    // SAFETY: a power of two.
    checked(unsafe { aligned(raw::base_page(), size) })
}

/// `void *pvalloc(size_t size)`: whole base pages.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvalloc(size: size_t) -> *mut c_void {
    let page = raw::base_page();
    match size.max(1).checked_next_multiple_of(page) {
        // SAFETY: a power of two.
        Some(size) => checked(unsafe { aligned(page, size) }),
        None => checked(std::ptr::null_mut()),
    }
}

/// # Safety
/// `alignment` is a power of two.
unsafe fn aligned(alignment: usize, size: usize) -> *mut c_void {
    // SAFETY: the contract; any size is allowed.
    unsafe {
        if is_ours() {
            mi::mi_malloc_aligned(size, alignment)
        } else {
            __libc_memalign(alignment, size)
        }
    }
}
