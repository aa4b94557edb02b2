//! Removes this library from the environment of programs that this one executes (`SUPERPAGE_CHILDREN=none`), and of
//! programs that must run without it (`instrumentation`).
//!
//! The kernel puts the environment and its strings on this process's stack. They are writable, and libc reads them
//! after this library's constructor. This module calls no libc function, because a sanitizer may interpose it.

use std::ffi::{CStr, c_char};

use crate::loaded::after;

/// Removes `SUPERPAGE_*`, and this library from `LD_PRELOAD`; returns whether LD_PRELOAD named it. Call only from the
/// constructor.
pub fn leave() -> bool {
    let list = initial_environment().cast_mut();
    if list.is_null() {
        return false;
    }
    let mut was_preloaded = false;
    // SAFETY: the kernel's list: pointers to C strings, then a null pointer. Only entries of the list are written back.
    unsafe {
        let (mut from, mut to) = (list, list);
        while !(*from).is_null() {
            let entry = *from;
            from = from.add(1);
            if is_kept(entry.cast_mut(), &mut was_preloaded) {
                *to = entry;
                to = to.add(1);
            }
        }
        *to = std::ptr::null();
    }
    was_preloaded
}

/// The value of a variable in the initial environment.
pub fn value(name: &str) -> Option<&'static CStr> {
    let mut list = initial_environment();
    // SAFETY: the kernel's list, as in `leave`; the strings are never freed.
    unsafe {
        while !list.is_null() && !(*list).is_null() {
            if let Some(value) = after(*list, name.as_bytes()).and_then(|it| after(it, b"=")) {
                let mut end = value;
                while end.read_volatile() != 0 {
                    end = end.add(1);
                }
                let length = end.offset_from_unsigned(value) + 1;
                let bytes = std::slice::from_raw_parts(value.cast::<u8>(), length);
                return Some(CStr::from_bytes_with_nul_unchecked(bytes));
            }
            list = list.add(1);
        }
    }
    None
}

/// Whether to keep the entry; removes this library from `LD_PRELOAD` in place.
unsafe fn is_kept(entry: *mut c_char, was_preloaded: &mut bool) -> bool {
    // SAFETY: a C string; writes never overtake reads.
    unsafe {
        if after(entry, b"SUPERPAGE_").is_some() {
            return false;
        }
        let Some(list) = after(entry, b"LD_PRELOAD=") else { return true };
        let start = list.cast_mut();
        let (mut at, mut end) = (start, start);
        while *at != 0 {
            let (name, mut file) = (at, at);
            while *at != 0 && !is_separator(*at) {
                if *at as u8 == b'/' {
                    file = at.add(1);
                }
                at = at.add(1);
            }
            if is_ours(file) {
                *was_preloaded = true;
            } else if at != name {
                if end != start {
                    *end = b':' as c_char;
                    end = end.add(1);
                }
                let mut from = name;
                while from != at {
                    // Volatile, so that the compiler does not emit a call to memmove.
                    end.write_volatile(*from);
                    (from, end) = (from.add(1), end.add(1));
                }
            }
            if *at != 0 {
                at = at.add(1);
            }
        }
        *end = 0;
        end != start
    }
}

fn is_separator(byte: c_char) -> bool {
    byte as u8 == b':' || byte as u8 == b' '
}

unsafe fn is_ours(file: *const c_char) -> bool {
    // SAFETY: a part of a C string.
    unsafe {
        after(file, b"libsuperpage.so").is_some() || after(file, b"libhugetlbfs.so").is_some()
    }
}

/// Calls `tell` with each variable of the initial environment.
pub fn each_variable(mut tell: impl FnMut(&'static [u8], &'static CStr)) {
    let mut next = initial_environment();
    // SAFETY: the kernel's list: pointers to C strings, then a null pointer. The strings stay for the life of the
    // process; programs that overwrite them (setproctitle) do so long after the first read.
    unsafe {
        while !next.is_null() && !(*next).is_null() {
            let entry = CStr::from_ptr(*next);
            let bytes = entry.to_bytes_with_nul();
            if let Some(at) = bytes.iter().position(|&byte| byte == b'=')
                && let Ok(value) = CStr::from_bytes_with_nul(&bytes[at + 1..])
            {
                tell(&bytes[..at], value);
            }
            next = next.add(1);
        }
    }
}

unsafe extern "C" {
    /// Address of argc on the initial stack; argv, a null pointer and the environment follow (System V ABI).
    static __libc_stack_end: *const usize;
}

/// The initial argv of the process.
pub fn initial_arguments() -> *const *const c_char {
    // SAFETY: the loader sets the variable before it runs or relocates anything else.
    unsafe {
        let start = __libc_stack_end;
        if start.is_null() { std::ptr::null() } else { start.add(1).cast() }
    }
}

/// The initial environment of the process.
pub fn initial_environment() -> *const *const c_char {
    let arguments = initial_arguments();
    if arguments.is_null() {
        return std::ptr::null();
    }
    // SAFETY: argv follows argc, and a null pointer ends argv.
    unsafe { arguments.add(*__libc_stack_end + 1) }
}
