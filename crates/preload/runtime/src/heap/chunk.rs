//! Header of a chunk of glibc's malloc: two words before the memory. The second is the chunk's size, with three
//! flags in its lowest bits (`malloc/malloc.c`, `struct malloc_chunk`).
//!
//! # Safety
//! Headers are read and written only for memory that malloc returned and that is not freed, by its owner.

use std::ffi::c_void;

use crate::raw;

/// The two words before a chunk's memory.
pub const HEADER: usize = 2 * size_of::<usize>();
const IS_MAPPED: usize = 2;
const IS_OF_A_THREAD: usize = 4;
const FLAGS: usize = 7;

/// A chunk in use.
#[derive(Clone, Copy)]
pub struct Chunk {
    /// Address that malloc returned.
    pub memory: usize,
    size_and_flags: usize,
}

impl Chunk {
    /// The chunk of an address that malloc returned.
    ///
    /// # Safety
    /// See the module.
    #[inline(always)]
    pub unsafe fn from_memory(memory: *mut c_void) -> Self {
        // SAFETY: the caller keeps this function's contract.
        let size_and_flags = unsafe { *memory.cast::<usize>().sub(1) };
        Self { memory: memory as usize, size_and_flags }
    }

    /// Whether the chunk has a separate mapping.
    #[inline(always)]
    pub fn is_mapped(self) -> bool {
        self.size_and_flags & IS_MAPPED != 0
    }

    /// Whether the chunk is in a thread's arena, not in the brk area.
    #[inline(always)]
    pub fn is_of_a_thread(self) -> bool {
        self.size_and_flags & IS_OF_A_THREAD != 0
    }

    /// Size in bytes, with the header.
    #[inline(always)]
    pub fn size(self) -> usize {
        self.size_and_flags & !FLAGS
    }

    /// Sets the size in the header.
    ///
    /// # Safety
    /// The chunk has a separate mapping of that size.
    pub unsafe fn set_size(self, size: usize) {
        // SAFETY: the header's second word.
        unsafe { *(self.memory as *mut usize).sub(1) = size | self.size_and_flags & FLAGS };
    }

    /// Address after the last byte. (The last word may be the first of the next chunk's header.)
    #[inline(always)]
    pub fn end(self) -> usize {
        self.memory + self.size() - HEADER
    }

    /// Usable bytes: without the header, and with the first word of the next chunk, which a separate mapping
    /// does not have.
    pub fn usable(self) -> usize {
        self.size() - if self.is_mapped() { HEADER } else { HEADER / 2 }
    }

    /// Address and length of a separate mapping; `None` if the header does not describe one.
    ///
    /// # Safety
    /// As [`Self::from_memory`], for a chunk that [`Self::is_mapped`].
    pub unsafe fn mapping(self) -> Option<(usize, usize)> {
        // SAFETY: the header's first word: the bytes before the header in the mapping, for alignment.
        let before = unsafe { *(self.memory as *const usize).sub(2) };
        let start = self.memory.checked_sub(HEADER)?.checked_sub(before)?;
        let length = self.size().checked_add(before)?;
        let page = raw::base_page();
        (start.is_multiple_of(page) && length.is_multiple_of(page) && length > 0)
            .then_some((start, length))
    }
}
