//! malloc and its relatives: glibc's own, on superpages (why: docs/decisions/heap.md).
//!
//! The allocator stays the one that the program would have had, so that everything a program can
//! tell about it stays as well: the order of its locks at a fork, what it notices of a double free,
//! what `mallinfo2` and `mallopt` say, which system calls it makes, how a limit meets it. Each
//! function here calls it, and then looks where the memory came to lie:
//!
//! | memory | gets its superpages |
//! |---|---|
//! | an object with a mapping of its own (`large`) | before anybody touches it |
//! | an arena: the main one's brk area, a thread's 64 MiB (`arenas`) | a piece ahead of what is handed out, once the heap is large |
//!
//! A program that brings an allocator of its own (jemalloc, tcmalloc) keeps that: every call goes on
//! to it, and its mappings get superpages as any other.
//!
//! # Safety
//! The exported functions have the C signatures and contracts of the functions they stand in for,
//! and call those. What is read of a chunk is its header, whose layout programs have relied on since
//! glibc 2.0 (`chunk`).
//! See docs/decisions/heap.md#1.

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use libc::size_t;

use crate::counters::{self, Reason};
use crate::settings::{self, Pages};
use crate::{raw, symbols};

/// The functions this module stands in for.
#[derive(Clone, Copy)]
#[repr(usize)]
enum Function {
    Malloc,
    Free,
    Calloc,
    Realloc,
    ReallocArray,
    PosixMemalign,
    AlignedAlloc,
    Memalign,
    Valloc,
    Pvalloc,
    Mallopt,
    MallocTrim,
}

const NAMES: [&[u8]; 12] = [
    b"malloc",
    b"free",
    b"calloc",
    b"realloc",
    b"reallocarray",
    b"posix_memalign",
    b"aligned_alloc",
    b"memalign",
    b"valloc",
    b"pvalloc",
    b"mallopt",
    b"malloc_trim",
];

/// Where they would have been found without this library.
static NEXT: [AtomicPtr<c_void>; NAMES.len()] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; NAMES.len()];

/// Calls the function that is stood in for; `$otherwise` if there is none.
macro_rules! next {
    ($function:ident, fn($($type:ty),*) -> $result:ty, ($($argument:expr),*), $otherwise:expr) => {{
        let function = NEXT[Function::$function as usize].load(Ordering::Relaxed);
        if function.is_null() {
            $otherwise
        } else {
            let function = transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $result>(function);
            function($($argument),*)
        }
    }};
}

mod arenas;
mod chunk;
mod growth;
mod large;
mod thresholds;

pub use arenas::is_locked;
use chunk::Chunk;

static STATE: AtomicU8 = AtomicU8::new(UNDECIDED);
const UNDECIDED: u8 = 0;
/// Calls are passed on, and that is all.
const PASSED_ON: u8 = 1;
/// The memory is glibc's, and is to be on superpages.
const WATCHED: u8 = 2;

/// Whether glibc's heap is to be on superpages.
#[inline(always)]
fn is_watched() -> bool {
    match STATE.load(Ordering::Acquire) {
        UNDECIDED => decide(),
        state => state == WATCHED,
    }
}

/// At the first call, before a second thread exists.
#[cold]
fn decide() -> bool {
    let mut is_glibc = false;
    for (name, place) in NAMES.iter().zip(&NEXT) {
        let (function, is_libc) = symbols::next(name).unwrap_or((std::ptr::null_mut(), false));
        if *name == NAMES[0] {
            is_glibc = is_libc;
        }
        place.store(function, Ordering::Relaxed);
    }
    let settings = settings::get();
    let is_asked = settings.memory.heap && settings.pages != Pages::Unasked;
    if is_asked && !is_glibc {
        counters::because(Reason::OwnAllocator);
    }
    let is_watched = is_asked && is_glibc;
    STATE.store(if is_watched { WATCHED } else { PASSED_ON }, Ordering::Release);
    if is_watched {
        thresholds::begin();
        arenas::begin();
    }
    is_watched
}

/// In a forked child: who was growing an arena is not there any more.
pub fn after_fork() {
    arenas::after_fork();
}

/// What a program gets of memory that malloc returned: the same, unless superpages are to be had or
/// nothing, and there are none.
#[inline(always)]
unsafe fn backed(memory: *mut c_void) -> *mut c_void {
    if memory.is_null() {
        return memory;
    }
    // SAFETY: memory that glibc's malloc has just returned.
    let is_backed = unsafe {
        let chunk = Chunk::from_memory(memory);
        if chunk.is_mapped() { large::back(chunk) } else { arenas::reach(chunk) }
    };
    if is_backed { memory } else { refused(memory) }
}

#[cold]
fn refused(memory: *mut c_void) -> *mut c_void {
    // SAFETY: memory that nobody has seen yet.
    unsafe { next!(Free, fn(*mut c_void) -> (), (memory), ()) };
    raw::set_errno(libc::ENOMEM);
    std::ptr::null_mut()
}

/// Runs one of malloc's relatives, and sees to what it returned. Memory that is not to be had may be
/// had with less ahead of it: the heap is grown no further than it must be, and asked again.
macro_rules! allocate {
    ($call:expr) => {{
        if !is_watched() {
            return $call;
        }
        let memory: *mut c_void = $call;
        if memory.is_null() && arenas::stop_growing_ahead() { $call } else { backed(memory) }
    }};
}

/// `void *malloc(size_t size)`
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: size_t) -> *mut c_void {
    // SAFETY: the function of that name.
    unsafe { allocate!(next!(Malloc, fn(size_t) -> *mut c_void, (size), std::ptr::null_mut())) }
}

/// `void *calloc(size_t nmemb, size_t size)`
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: size_t, size: size_t) -> *mut c_void {
    // SAFETY: the function of that name.
    unsafe {
        allocate!(next!(
            Calloc,
            fn(size_t, size_t) -> *mut c_void,
            (count, size),
            std::ptr::null_mut()
        ))
    }
}

/// `void free(void *ptr)`
///
/// # Safety
/// As in C: `memory` is null or came from here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(memory: *mut c_void) {
    // SAFETY: the caller's contract; glibc reads the same header first.
    unsafe {
        let is_watched = is_watched();
        if is_watched && !memory.is_null() {
            let chunk = Chunk::from_memory(memory);
            if chunk.is_mapped() {
                thresholds::freed(chunk);
                large::forget(chunk);
            }
        }
        next!(Free, fn(*mut c_void) -> (), (memory), ());
        if is_watched {
            arenas::notice_trim();
        }
    }
}

/// `void *realloc(void *ptr, size_t size)`
///
/// # Safety
/// As in C: `memory` is null or came from here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(memory: *mut c_void, size: size_t) -> *mut c_void {
    // SAFETY: the function of that name, and its contract.
    unsafe {
        let resize = |size| {
            next!(
                Realloc,
                fn(*mut c_void, size_t) -> *mut c_void,
                (memory, size),
                std::ptr::null_mut()
            )
        };
        if !is_watched() || memory.is_null() {
            return allocate!(resize(size));
        }
        let allocate =
            |size| next!(Malloc, fn(size_t) -> *mut c_void, (size), std::ptr::null_mut());
        let old = Chunk::from_memory(memory);
        if old.is_mapped() {
            large::resize(old, size, resize, allocate, glibc_free)
        } else if large::is_for_pool(size) {
            // What glibc returns has the contents already, and pages of the pool would take their place.
            growth::grow(old, size, allocate, glibc_free)
        } else {
            allocate!(resize(size))
        }
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
    // SAFETY: the caller's contract.
    unsafe {
        match count.checked_mul(size) {
            Some(total) => realloc(memory, total),
            // Its refusal, in its own words.
            None => next!(
                ReallocArray,
                fn(*mut c_void, size_t, size_t) -> *mut c_void,
                (memory, count, size),
                std::ptr::null_mut()
            ),
        }
    }
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
    // SAFETY: the function of that name, and its contract.
    unsafe {
        let is_watched = is_watched();
        let call = || {
            next!(
                PosixMemalign,
                fn(*mut *mut c_void, size_t, size_t) -> c_int,
                (result, alignment, size),
                libc::ENOMEM
            )
        };
        match call() {
            0 if is_watched && raw::keeping_errno(|| backed(*result)).is_null() => libc::ENOMEM,
            libc::ENOMEM if is_watched && arenas::stop_growing_ahead() => call(),
            answer => answer,
        }
    }
}

/// `void *aligned_alloc(size_t alignment, size_t size)`
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(alignment: size_t, size: size_t) -> *mut c_void {
    // SAFETY: the function of that name.
    unsafe {
        allocate!(next!(
            AlignedAlloc,
            fn(size_t, size_t) -> *mut c_void,
            (alignment, size),
            std::ptr::null_mut()
        ))
    }
}

/// `void *memalign(size_t alignment, size_t size)`
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(alignment: size_t, size: size_t) -> *mut c_void {
    // SAFETY: the function of that name.
    unsafe {
        allocate!(next!(
            Memalign,
            fn(size_t, size_t) -> *mut c_void,
            (alignment, size),
            std::ptr::null_mut()
        ))
    }
}

/// `void *valloc(size_t size)`
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn valloc(size: size_t) -> *mut c_void {
    // SAFETY: the function of that name.
    unsafe { allocate!(next!(Valloc, fn(size_t) -> *mut c_void, (size), std::ptr::null_mut())) }
}

/// `void *pvalloc(size_t size)`
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvalloc(size: size_t) -> *mut c_void {
    // SAFETY: the function of that name.
    unsafe { allocate!(next!(Pvalloc, fn(size_t) -> *mut c_void, (size), std::ptr::null_mut())) }
}

/// `int mallopt(int param, int value)`
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallopt(parameter: c_int, value: c_int) -> c_int {
    if is_watched() {
        thresholds::chosen_by_the_program(parameter);
    }
    set_option(parameter, value)
}

/// glibc's `free`.
unsafe extern "C" fn glibc_free(memory: *mut c_void) {
    // SAFETY: the function of that name.
    unsafe { next!(Free, fn(*mut c_void) -> (), (memory), ()) }
}

/// glibc's `mallopt`.
fn set_option(parameter: c_int, value: c_int) -> c_int {
    // SAFETY: numbers only.
    unsafe { next!(Mallopt, fn(c_int, c_int) -> c_int, (parameter, value), 0) }
}
