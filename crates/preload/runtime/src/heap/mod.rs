//! malloc and its relatives: glibc's own allocator, on superpages (why: docs/decisions/heap.md).
//!
//! The program keeps the allocator it would have without the library, and so everything it can observe of the
//! allocator: the order of locks at a fork, the detection of double frees, the results of `mallinfo2` and `mallopt`,
//! system calls, and behaviour at limits. Each function here calls the allocator, and then checks where the memory
//! lies:
//!
//! | memory | gets its superpages |
//! |---|---|
//! | a large object with a separate mapping (`large`) | before the first touch |
//! | a smaller one, packed with others in a region of the library (`packed`, `slots`) | before the first touch |
//! | an arena: the main one's brk area, a thread's 64 MiB (`arenas`) | ahead of allocations, once the heap is large |
//!
//! A program with its own allocator (jemalloc, tcmalloc) keeps that allocator: every call is passed on, and the
//! allocator's mappings get superpages like any others.
//!
//! # Safety
//! The exported functions have the C signatures and contracts of the functions they interpose, and call those. Only the
//! header of a chunk is read, whose layout programs have relied on since glibc 2.0 (`chunk`).
//! See docs/decisions/heap.md#1.

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use libc::size_t;

use crate::counters::{self, Column, Kind, Reason};
use crate::settings::{self, Pages};
use crate::{looks, raw, symbols};

/// The interposed functions: signature, and result if there is no next definition.
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty, $otherwise:expr;)*) => {
        #[allow(non_camel_case_types, reason = "they are the functions' names")]
        #[derive(Clone, Copy)]
        #[repr(usize)]
        enum Function {
            $($name),*
        }

        const NAMES: [&[u8]; [$(stringify!($name)),*].len()] =
            [$(stringify!($name).as_bytes()),*];

        /// The next definitions in link-map order (`dlsym(RTLD_NEXT)`).
        #[allow(clippy::unused_unit, reason = "free returns nothing")]
        mod next {
            use super::*;
            $(
                #[inline(always)]
                pub unsafe fn $name($($argument: $type),*) -> $result {
                    type Type = unsafe extern "C" fn($($type),*) -> $result;
                    let function = NEXT[Function::$name as usize].load(Ordering::Relaxed);
                    if function.is_null() {
                        return $otherwise;
                    }
                    // SAFETY: the function of that name, which has that type; the caller's contract.
                    unsafe { transmute::<*mut c_void, Type>(function)($($argument),*) }
                }
            )*
        }
    };
}

functions! {
    malloc(size: size_t) -> *mut c_void, std::ptr::null_mut();
    free(memory: *mut c_void) -> (), ();
    calloc(count: size_t, size: size_t) -> *mut c_void, std::ptr::null_mut();
    realloc(memory: *mut c_void, size: size_t) -> *mut c_void, std::ptr::null_mut();
    reallocarray(memory: *mut c_void, count: size_t, size: size_t) -> *mut c_void, std::ptr::null_mut();
    posix_memalign(into: *mut *mut c_void, alignment: size_t, size: size_t) -> c_int, libc::ENOMEM;
    aligned_alloc(alignment: size_t, size: size_t) -> *mut c_void, std::ptr::null_mut();
    memalign(alignment: size_t, size: size_t) -> *mut c_void, std::ptr::null_mut();
    valloc(size: size_t) -> *mut c_void, std::ptr::null_mut();
    pvalloc(size: size_t) -> *mut c_void, std::ptr::null_mut();
    mallopt(parameter: c_int, value: c_int) -> c_int, 0;
    malloc_trim(kept: size_t) -> c_int, 0;
}

/// Addresses of the next definitions.
static NEXT: [AtomicPtr<c_void>; NAMES.len()] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; NAMES.len()];

mod arenas;
mod chunk;
mod growth;
mod large;
mod packed;
mod separate;
mod slots;
mod spans;
mod thresholds;

use chunk::Chunk;

static STATE: AtomicU8 = AtomicU8::new(UNDECIDED);
const UNDECIDED: u8 = 0;
/// Calls are passed on: the program has another allocator, or the heap gets no superpages.
const PASSED_ON: u8 = 1;
/// The allocator is glibc's, and its memory is backed with superpages.
const WATCHED: u8 = 2;

/// Whether glibc's heap is backed with superpages.
#[inline(always)]
fn is_watched() -> bool {
    match STATE.load(Ordering::Acquire) {
        UNDECIDED => decide(),
        state => state == WATCHED,
    }
}

/// Decides at the first call, before a second thread exists.
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
    let is_asked = settings.memory.heap && settings.pages != Pages::None;
    if is_asked && !is_glibc {
        counters::count_reason(Reason::OwnAllocator);
    }
    let is_watched = is_asked && is_glibc;
    STATE.store(if is_watched { WATCHED } else { PASSED_ON }, Ordering::Release);
    if is_watched {
        thresholds::begin();
        arenas::begin();
    }
    is_watched
}

/// In a forked child: resets the parts of the heap.
pub fn after_fork() {
    arenas::after_fork();
    packed::after_fork();
}

/// Backs memory that malloc returned. Returns the memory or its new address, aligned as requested; null if the fallback
/// is `error` and there are no superpages.
#[inline(always)]
unsafe fn backed(memory: *mut c_void, alignment: usize) -> *mut c_void {
    if memory.is_null() {
        return memory;
    }
    // SAFETY: memory that glibc's malloc has just returned.
    unsafe {
        let chunk = Chunk::from_memory(memory);
        if chunk.is_mapped() {
            return mapped(chunk, alignment);
        }
        if thresholds::is_large(chunk)
            && alignment <= chunk::HEADER
            && let Some(own) = separate::move_to_own_mapping(chunk, 0)
        {
            return mapped(own, alignment);
        }
        if arenas::back_up_to(chunk) { memory } else { refused(memory) }
    }
}

/// As [`backed`], for an object with a separate mapping.
#[cold]
unsafe fn mapped(chunk: Chunk, alignment: usize) -> *mut c_void {
    thresholds::renew();
    let memory = chunk.memory as *mut c_void;
    // SAFETY: memory that glibc's malloc has just returned.
    unsafe {
        if settings::get().is_thp()
            && let Some(moved) = packed::place(chunk, alignment)
        {
            return moved;
        }
        if !large::back(chunk) {
            return refused(memory);
        }
        arenas::mapped(chunk.size());
        memory
    }
}

#[cold]
fn refused(memory: *mut c_void) -> *mut c_void {
    // SAFETY: memory that no other code has seen yet.
    unsafe { next::free(memory) };
    raw::set_errno(libc::ENOMEM);
    std::ptr::null_mut()
}

/// Calls an allocation function and backs the memory that it returns. If it is out of memory, returns what the heap
/// holds ahead, stops growing the heap ahead for a while, and calls the function again.
macro_rules! allocate {
    ($call:expr, $alignment:expr) => {{
        if !is_watched() {
            return $call;
        }
        let memory: *mut c_void = $call;
        if memory.is_null() && arenas::stop_growing_ahead() {
            $call
        } else {
            backed(memory, $alignment)
        }
    }};
}

/// Defines functions that take sizes and return memory.
macro_rules! allocating {
    ($($(#[$doc:meta])* $name:ident($($argument:ident),*) at $alignment:expr;)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// As in C.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: size_t),*) -> *mut c_void {
            // SAFETY: the function of that name.
            unsafe { allocate!(next::$name($($argument),*), $alignment) }
        }
    )* };
}

allocating! {
    /// `void *malloc(size_t size)`
    malloc(size) at 1;
    /// `void *aligned_alloc(size_t alignment, size_t size)`
    aligned_alloc(alignment, size) at alignment;
    /// `void *memalign(size_t alignment, size_t size)`
    memalign(alignment, size) at alignment;
    /// `void *valloc(size_t size)`
    valloc(size) at raw::base_page();
    /// `void *pvalloc(size_t size)`
    pvalloc(size) at raw::base_page();
}

/// `void *calloc(size_t nmemb, size_t size)`
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: size_t, size: size_t) -> *mut c_void {
    // SAFETY: the function of that name; a fresh mapping is zero, and so is an object that was moved to one.
    unsafe {
        match count.checked_mul(size) {
            Some(bytes) if is_watched() && separate::may_be_ahead(bytes) => {
                let memory = allocate!(next::malloc(bytes), 1);
                if !memory.is_null() && !Chunk::from_memory(memory).is_mapped() {
                    memory.cast::<u8>().write_bytes(0, bytes);
                }
                memory
            }
            _ => allocate!(next::calloc(count, size), 1),
        }
    }
}

/// `void free(void *ptr)`
///
/// # Safety
/// As in C: `memory` is null or came from here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(memory: *mut c_void) {
    // SAFETY: the caller keeps this function's contract; glibc reads the same header first.
    unsafe {
        let is_watched = is_watched();
        if is_watched && !memory.is_null() {
            let chunk = Chunk::from_memory(memory);
            if chunk.is_mapped() {
                return free_mapped(chunk);
            }
        }
        next::free(memory);
        if is_watched {
            arenas::notice_trim();
        }
    }
}

/// Frees an object with a separate mapping.
#[cold]
unsafe fn free_mapped(chunk: Chunk) {
    // SAFETY: the contract of `free`.
    unsafe {
        thresholds::freed(chunk);
        let mapping = chunk.mapping();
        arenas::unmapped(chunk.size());
        looks::gives_back(mapping.map_or(0, |(_, length)| length));
        match mapping.filter(|_| settings::get().is_thp()) {
            Some((start, length)) if packed::contains(start) => {
                counters::count(Kind::Heap, Column::Returned, length);
                next::free(chunk.memory as *mut c_void);
                packed::released(start, length);
            }
            _ => {
                large::forget(chunk);
                if let Some((start, length)) = mapping.filter(|_| settings::get().is_thp()) {
                    packed::forget_unpacked(start, length);
                }
                next::free(chunk.memory as *mut c_void);
            }
        }
    }
    arenas::notice_trim();
}

/// `void *realloc(void *ptr, size_t size)`
///
/// # Safety
/// As in C: `memory` is null or came from here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(memory: *mut c_void, size: size_t) -> *mut c_void {
    if size == 0 && !memory.is_null() {
        // SAFETY: the function of that name, and its contract.
        unsafe {
            if !is_watched() {
                return next::realloc(memory, size); // other allocators return a block
            }
            // glibc frees the block and returns null, which does not mean out of memory.
            free(memory);
        }
        return std::ptr::null_mut();
    }
    // SAFETY: the function of that name, and its contract.
    unsafe {
        if !is_watched() || memory.is_null() {
            return allocate!(next::realloc(memory, size), 1);
        }
        let old = Chunk::from_memory(memory);
        if old.is_mapped() {
            let mapping = old.mapping().filter(|_| settings::get().is_thp());
            let new = large::resize(old, size);
            let Some((start, length)) = mapping.filter(|_| !new.is_null()) else { return new };
            let chunk = Chunk::from_memory(new);
            packed::resized(start, length, chunk);
            let was_packed = packed::contains(start);
            let moved = match chunk.is_mapped() {
                true => packed::place_grown(chunk, old.usable(), was_packed),
                false => None,
            };
            if was_packed && moved.is_none() {
                packed::split_moved(start, length, chunk);
            }
            moved.unwrap_or(new)
        } else if large::is_for_pool(size) && size > old.usable() {
            // glibc would copy the contents, and placing pool pages would then discard them.
            growth::grow(old, size)
        } else {
            let kept = old.usable();
            let mut fresh = next::realloc(memory, size);
            if fresh.is_null() && arenas::stop_growing_ahead() {
                fresh = next::realloc(memory, size);
            }
            if !fresh.is_null() {
                // Too late to replace the memory by fresh pages, or to refuse it: realloc has copied the contents, and
                // freed the old block.
                let mut chunk = Chunk::from_memory(fresh);
                if !chunk.is_mapped() && thresholds::is_large(chunk) {
                    chunk = separate::move_to_own_mapping(chunk, kept.min(size)).unwrap_or(chunk);
                    fresh = chunk.memory as *mut c_void;
                }
                if !chunk.is_mapped() {
                    arenas::back_up_to(chunk);
                } else if settings::get().is_thp() {
                    packed::record_unpacked(chunk);
                    if let Some(moved) = packed::place_grown(chunk, kept, false) {
                        return moved;
                    }
                    large::back(chunk);
                }
            }
            fresh
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
    // libc's function calls the `realloc` in force: this library's, or that of an allocator before it, which owns the
    // block.
    // SAFETY: the function of that name, and its contract.
    unsafe {
        is_watched(); // looks up NEXT, if malloc is not this library's
        next::reallocarray(memory, count, size)
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
        let call = || next::posix_memalign(result, alignment, size);
        match call() {
            0 if is_watched => {
                let memory = raw::keeping_errno(|| backed(*result, alignment));
                if memory.is_null() {
                    return libc::ENOMEM;
                }
                *result = memory;
                0
            }
            libc::ENOMEM if is_watched && arenas::stop_growing_ahead() => call(),
            answer => answer,
        }
    }
}

/// `int malloc_trim(size_t pad)`
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_trim(kept: size_t) -> c_int {
    if is_watched() {
        return arenas::trim(kept);
    }
    // SAFETY: the function of that name.
    unsafe { next::malloc_trim(kept) }
}

/// `int mallopt(int param, int value)`
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallopt(parameter: c_int, value: c_int) -> c_int {
    if is_watched() {
        thresholds::chosen_by_the_program(parameter);
        if parameter == libc::M_PERTURB {
            separate::objects_are_filled();
        }
        if parameter == libc::M_TRIM_THRESHOLD && arenas::are_kept_whole() {
            return 1;
        }
    }
    set_option(parameter, value)
}

/// glibc's `mallopt`.
fn set_option(parameter: c_int, value: c_int) -> c_int {
    // SAFETY: all arguments are numbers.
    unsafe { next::mallopt(parameter, value) }
}
