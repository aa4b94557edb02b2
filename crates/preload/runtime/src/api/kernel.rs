//! Small memory services for this module, over `raw`.

use crate::raw;

/// `length` in whole pages of `page`; `None` past the end of the address space.
pub fn round_up(length: usize, page: usize) -> Option<usize> {
    length.checked_next_multiple_of(page).filter(|length| *length <= isize::MAX as usize)
}

/// Memory of its own for a value, zeroed, page-aligned, never given back. `None` when there is none.
pub fn forever<T>() -> Option<*mut T> {
    raw::map(size_of::<T>(), 0).ok().map(|start| start as *mut T)
}
