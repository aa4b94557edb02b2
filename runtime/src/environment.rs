//! Taking ourselves out of the environment, for programs that this one executes
//! (`SUPERPAGE_CHILDREN=none`).
//!
//! # Safety
//! The list and its strings are the kernel's, on this process's stack: they may be written, and libc
//! takes the list over as it finds it, after this library's constructor.

use std::ffi::{CStr, c_char};

use crate::settings;

/// Removes `SUPERPAGE_*` and this library's name in `LD_PRELOAD`. Only from the constructor.
pub fn leave() {
    let list = settings::initial_environment().cast_mut();
    if list.is_null() {
        return;
    }
    // SAFETY: the kernel's list: pointers to C strings, then a null pointer. What is written back is
    // a part of what was there.
    unsafe {
        let (mut from, mut to) = (list, list);
        while !(*from).is_null() {
            let entry = *from;
            from = from.add(1);
            if is_kept(entry.cast_mut()) {
                *to = entry;
                to = to.add(1);
            }
        }
        *to = std::ptr::null();
    }
}

/// Whether the entry stays; `LD_PRELOAD` is shortened in place.
unsafe fn is_kept(entry: *mut c_char) -> bool {
    // SAFETY: a C string.
    let text = unsafe { CStr::from_ptr(entry) }.to_bytes();
    const PRELOAD: &[u8] = b"LD_PRELOAD=";
    if text.starts_with(b"SUPERPAGE_") {
        return false;
    }
    if !text.starts_with(PRELOAD) {
        return true;
    }
    let length = text.len();
    // SAFETY: the string's own bytes, which nobody else looks at meanwhile.
    let text = unsafe { std::slice::from_raw_parts_mut(entry.cast::<u8>(), length + 1) };
    let kept = without_us(text, PRELOAD.len(), length);
    text[kept] = 0;
    kept > PRELOAD.len()
}

/// Moves the names that stay to the front of `text[from..to]`; where they end.
fn without_us(text: &mut [u8], from: usize, to: usize) -> usize {
    let is_separator = |byte: u8| byte == b':' || byte == b' ';
    let (mut at, mut end) = (from, from);
    while at < to {
        let length = text[at..to].iter().take_while(|&&byte| !is_separator(byte)).count();
        let name = &text[at..at + length];
        let file = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
        if length > 0 && !is_ours(file) {
            if end > from {
                text[end] = b':';
                end += 1;
            }
            text.copy_within(at..at + length, end);
            end += length;
        }
        at += length + 1;
    }
    end
}

fn is_ours(file: &[u8]) -> bool {
    file.starts_with(b"libsuperpage.so") || file.starts_with(b"libhugetlbfs.so")
}
