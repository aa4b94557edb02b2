//! Unlinked files on superpages.
//!
//! The file lies in a hugetlbfs mount if there is one: programs check it by fstatfs and read its path from /proc, and
//! an administrator reserves pages for a mount (`min_size=`) or limits it (`size=`). If no mount has the size,
//! `memfd_create(MFD_HUGETLB)` creates the file; libhugetlbfs returned an error. See docs/decisions/libhugetlbfs.md#5.

use std::ffi::{CStr, c_int};

use super::mounts::{self, Found};
use super::report::{ErrnoText, Level, report};
use super::sizes;
use crate::raw;
use crate::text::Text;

/// Creates a file with pages of this size; `None` with errno.
pub fn unlinked(size: usize) -> Option<c_int> {
    match mounts::find(size) {
        Found::Path(directory) => in_mount(directory),
        Found::None if size.is_power_of_two() && sizes::kernel_default().is_some() => memory(size),
        Found::None => {
            raw::set_errno(libc::ENOSYS);
            None
        }
        // The mounts are unknown: return libhugetlbfs' error rather than guess.
        Found::Unknown => {
            raw::set_errno(libc::ENOENT);
            None
        }
    }
}

/// Creates a file in a hugetlbfs mount; `None`, without a message, if there is no mount.
pub fn unlinked_in_mount(size: usize) -> Option<c_int> {
    match mounts::find(size) {
        Found::Path(directory) => raw::keeping_errno(|| in_mount(directory)),
        _ => None,
    }
}

/// Creates a file that never has a name, if the kernel supports that (`O_TMPFILE`, hugetlbfs since 5.1). A killed
/// process then leaves no file behind that holds superpages.
fn in_mount(directory: &CStr) -> Option<c_int> {
    let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_EXCL;
    let before = raw::errno();
    // SAFETY: a C string; O_TMPFILE takes the mode.
    let fd = unsafe { libc::open(directory.as_ptr(), flags, 0o600) };
    if fd >= 0 {
        return Some(fd);
    }
    let mut name = Text::<4160>::new();
    name.push(directory.to_bytes());
    name.push(b"/superpage.XXXXXX");
    raw::set_errno(before);
    // SAFETY: a template that ends with a zero byte, in a buffer of ours that it may change.
    let fd = unsafe { libc::mkstemp(name.as_mut_c()) };
    if fd < 0 {
        let (path, words) = (directory.to_bytes(), ErrnoText(raw::errno()));
        let path = crate::text::LossyUtf8(path);
        report(Level::Error, format_args!("no file could be made in {path}: {words}"));
        return None;
    }
    // SAFETY: the name mkstemp wrote.
    unsafe { libc::unlink(name.as_c()) };
    Some(fd)
}

/// Creates a file in the kernel's internal hugetlbfs mount. Close-on-exec is off, as for files in a mount.
fn memory(size: usize) -> Option<c_int> {
    let flags = libc::MFD_HUGETLB | (size.trailing_zeros() << libc::MAP_HUGE_SHIFT);
    // SAFETY: the pointer is to a C string.
    let fd = unsafe { libc::memfd_create(c"superpage".as_ptr(), flags) };
    (fd >= 0).then_some(fd)
}
