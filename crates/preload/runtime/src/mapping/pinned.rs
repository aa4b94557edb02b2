//! Buffers registered with io_uring: the kernel writes to their pages even after the addresses map other pages. A copy
//! would miss later writes.
//!
//! The kernel lists these buffers in /proc/self/fdinfo of the ring: `    0: 0x7f0000000000/4096`.
//!
//! # Safety
//! System calls on descriptors and buffers of our own.
//! See docs/decisions/pool.md#8.

use std::ffi::CStr;

use super::plan::Extent;
use crate::text::{self, Text, hexadecimal};
use crate::{files, maps, raw};

/// The io_uring rings of this process.
#[derive(Clone, Copy, Default)]
pub struct Rings {
    /// Whether there is a ring, whose workers may write to any memory of the program.
    pub are_any: bool,
    /// Whether a registered buffer overlaps an extent; `true` if unknown.
    pub have_buffer: bool,
}

/// The rings of this process, and whether their buffers overlap `extents`.
pub fn rings(extents: &[Extent]) -> Rings {
    let mut rings = Rings::default();
    if extents.is_empty() {
        return rings;
    }
    files::each_name(c"/proc/thread-self/fd", |directory, name| {
        let mut target = [0u8; 32];
        if raw::read_link(directory, name, &mut target) == Some(b"anon_inode:[io_uring]") {
            rings.are_any = true;
            rings.have_buffer |= has_buffer_in(name, extents);
        }
        true
    });
    rings
}

fn has_buffer_in(ring: &CStr, extents: &[Extent]) -> bool {
    let path = Text::<64>::join(&[b"/proc/thread-self/fdinfo/", ring.to_bytes()]);
    let Some(path) = path else { return true };
    // The kernel lists no buffers while a thread enters the ring.
    const TRIES: usize = 100;
    for _ in 0..TRIES {
        let (mut is_pinned, mut listed, mut reported_count) = (false, 0, None);
        let read = maps::each_line(path.c_str(), |line| {
            if let Some(count) = line.strip_prefix(b"UserBufs:") {
                reported_count = text::first_number(count.trim_ascii_start());
            } else if let Some((start, length)) = buffer_of(line) {
                listed += 1;
                let end = start.saturating_add(length);
                is_pinned |= extents.iter().any(|extent| extent.start < end && start < extent.end);
            }
        });
        if is_pinned || read.is_none() {
            return true;
        }
        // Older kernels print the number of buffers, and then list all or none; newer ones print no number, and omit
        // empty slots.
        if reported_count.is_some_and(|count: usize| count == 0 || listed > 0) {
            return false;
        }
        // SAFETY: the call takes no arguments.
        raw::keeping_errno(|| unsafe { raw::call!(SYS_sched_yield) });
    }
    true
}

/// Parses `    0: 0x7f0000000000/4096`; returns address and length.
fn buffer_of(line: &[u8]) -> Option<(usize, usize)> {
    let at = line.windows(4).position(|window| window == b": 0x")?;
    if !line[..at].trim_ascii().iter().all(u8::is_ascii_digit) {
        return None;
    }
    let (start, rest) = hexadecimal(&line[at + 4..])?;
    Some((start as usize, text::first_number(rest.strip_prefix(b"/")?)?))
}
