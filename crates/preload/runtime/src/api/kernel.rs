//! Small memory helpers of this module, over `raw`.

use crate::raw;

/// Rounds `length` up to whole pages of `page`; `None` past the end of the address space.
pub fn round_up(length: usize, page: usize) -> Option<usize> {
    length.checked_next_multiple_of(page).filter(|length| *length <= isize::MAX as usize)
}

/// Maps zeroed, page-aligned memory for one value, which is never unmapped. `None`: out of memory.
pub fn forever<T>() -> Option<*mut T> {
    raw::map(size_of::<T>(), 0).ok().map(|start| start as *mut T)
}
