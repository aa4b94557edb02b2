//! Small memory services for this module, over `raw`.

use std::ffi::c_int;

use crate::raw::{self, Errno};

/// Fresh, zeroed, private memory wherever the kernel puts it.
pub fn map(length: usize, flags: c_int) -> Result<usize, Errno> {
    // SAFETY: no address is fixed: nothing existing is replaced.
    unsafe { raw::mmap(0, length, raw::READ_WRITE, raw::PRIVATE_ANONYMOUS | flags, -1, 0) }
}

/// `length` in whole pages of `page`; `None` past the end of the address space.
pub fn round_up(length: usize, page: usize) -> Option<usize> {
    length.checked_next_multiple_of(page).filter(|length| *length <= isize::MAX as usize)
}

/// Memory of its own for a value, zeroed, page-aligned, never given back. `None` when there is none.
pub fn forever<T>() -> Option<*mut T> {
    map(size_of::<T>(), 0).ok().map(|start| start as *mut T)
}
