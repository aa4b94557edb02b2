//! Whether another process maps an object of shared memory.
//!
//! Anonymous shared memory has no name: only processes forked since its creation can map it. The library looks for them
//! in /proc as far as it may read: it does not see a child that changed its user.
//!
//! # Safety
//! System calls on descriptors and buffers of our own.

use std::ffi::CStr;

use super::plan::Extent;
use crate::text::Text;
use crate::{files, maps, message, raw};

/// Whether the objects behind shared extents are mapped at the extents only, and by no other process.
pub fn are_only_here(extents: &[Extent]) -> bool {
    if !extents.iter().any(|extent| extent.shared) {
        return true;
    }
    let is_ours = |file| extents.iter().any(|extent| extent.shared && extent.file == file);
    let mut is_elsewhere = false;
    let read = maps::each(|vma| {
        let is_here = |extent: &Extent| extent.start < vma.end && vma.start < extent.end;
        is_elsewhere |= extents.iter().any(|extent| shows(vma, extent) && !is_here(extent));
    });
    read.is_some()
        && !is_elsewhere
        && any_other_process(|path| {
            let mut has_it = false;
            maps::each_of(path, |vma| has_it |= !vma.is_private() && is_ours(vma.file));
            has_it
        }) == Some(false)
}

/// Whether a VMA maps a part of an object that an extent maps, too.
fn shows(vma: &maps::Vma, extent: &Extent) -> bool {
    let (length, other) = ((vma.end - vma.start) as u64, extent.length() as u64);
    extent.shared
        && extent.file == vma.file
        && extent.offset < vma.offset + length
        && vma.offset < extent.offset + other
}

/// Whether `ask` returns `true` for a process other than this one; it gets the path of the process's maps. `None` if
/// the processes cannot be listed.
fn any_other_process(mut ask: impl FnMut(&CStr) -> bool) -> Option<bool> {
    let ours = message::Decimal::new(raw::pid() as u64);
    let mut found = false;
    files::each_name(c"/proc", |_, name| {
        let name = name.to_bytes();
        if name.iter().all(u8::is_ascii_digit)
            && name != ours.bytes()
            && let Some(path) = Text::<64>::join(&[b"/proc/", name, b"/maps"])
        {
            found = ask(path.c_str());
        }
        !found
    })?;
    Some(found)
}
