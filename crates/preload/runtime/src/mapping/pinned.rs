//! Memory that io_uring holds on to: buffers that were registered with a ring are written through their
//! pages, wherever the addresses lead later. A copy would miss what comes after it.
//!
//! The kernel lists them in /proc/self/fdinfo of the ring: `    0: 0x7f0000000000/4096`.
//!
//! # Safety
//! System calls on descriptors and buffers of our own.
//! See docs/decisions/pool.md#8.

use std::ffi::CStr;

use super::plan::Extent;
use crate::maps::hexadecimal;
use crate::{limits, maps, raw, source};

/// Whether a buffer that is registered with a ring of this process lies in an extent.
pub fn are_any(extents: &[Extent]) -> bool {
    if extents.is_empty() {
        return false;
    }
    let mut is_pinned = false;
    source::each_name(c"/proc/thread-self/fd", |directory, name| {
        let mut target = [0u8; 32];
        // SAFETY: a name that ends with zero, and a buffer of our own.
        let length = unsafe {
            let (name, into) = (name.as_ptr(), target.as_mut_ptr());
            raw::call!(SYS_readlinkat, directory, name, into, target.len())
        };
        if length > 0 && target[..length as usize] == *b"anon_inode:[io_uring]" {
            is_pinned |= has_buffer_in(name, extents);
        }
        true
    });
    is_pinned
}

fn has_buffer_in(ring: &CStr, extents: &[Extent]) -> bool {
    let mut path = [0u8; 64];
    let parts = [b"/proc/thread-self/fdinfo/" as &[u8], ring.to_bytes()];
    let Some(path) = limits::join(&mut path, &parts) else { return true };
    let mut is_pinned = false;
    let read = maps::each_line(path, |line| {
        if let Some((start, length)) = buffer_of(line) {
            let end = start.saturating_add(length);
            is_pinned |= extents.iter().any(|extent| extent.start < end && start < extent.end);
        }
    });
    is_pinned || read.is_none()
}

/// `    0: 0x7f0000000000/4096`
fn buffer_of(line: &[u8]) -> Option<(usize, usize)> {
    let at = line.windows(4).position(|window| window == b": 0x")?;
    if !line[..at].trim_ascii().iter().all(u8::is_ascii_digit) {
        return None;
    }
    let rest = &line[at + 4..];
    let slash = rest.iter().position(|&byte| byte == b'/')?;
    Some((hexadecimal(&rest[..slash])? as usize, source::first_number(&rest[slash..])?))
}
