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
use crate::text::{self, Text, hexadecimal};
use crate::{files, maps, raw};

/// Whether a buffer that is registered with a ring of this process lies in an extent.
pub fn are_any(extents: &[Extent]) -> bool {
    if extents.is_empty() {
        return false;
    }
    let mut is_pinned = false;
    files::each_name(c"/proc/thread-self/fd", |directory, name| {
        let mut target = [0u8; 32];
        if raw::read_link(directory, name, &mut target) == Some(b"anon_inode:[io_uring]") {
            is_pinned |= has_buffer_in(name, extents);
        }
        true
    });
    is_pinned
}

fn has_buffer_in(ring: &CStr, extents: &[Extent]) -> bool {
    let path = Text::<64>::join(&[b"/proc/thread-self/fdinfo/", ring.to_bytes()]);
    let Some(path) = path else { return true };
    let mut is_pinned = false;
    let read = maps::each_line(path.c_str(), |line| {
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
    let (start, rest) = hexadecimal(&line[at + 4..])?;
    Some((start as usize, text::first_number(rest.strip_prefix(b"/")?)?))
}
