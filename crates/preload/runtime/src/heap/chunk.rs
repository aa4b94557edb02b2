//! What lies before memory that glibc's malloc returned: two words, the second of which is the chunk's
//! size with three flags in its lowest bits (`malloc/malloc.c`, `struct malloc_chunk`).
//!
//! # Safety
//! Read and written only for memory that malloc returned and nobody has freed, by whoever has it.

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
    /// What malloc returned.
    pub memory: usize,
    size_and_flags: usize,
}

impl Chunk {
    /// The chunk of what malloc returned.
    ///
    /// # Safety
    /// See above.
    #[inline(always)]
    pub unsafe fn from_memory(memory: *mut c_void) -> Self {
        // SAFETY: the contract.
        let size_and_flags = unsafe { *memory.cast::<usize>().sub(1) };
        Self { memory: memory as usize, size_and_flags }
    }

    /// Whether it is a mapping of its own.
    #[inline(always)]
    pub fn is_mapped(self) -> bool {
        self.size_and_flags & IS_MAPPED != 0
    }

    /// Whether it lies in the arena of some threads, not in the brk area.
    #[inline(always)]
    pub fn is_of_a_thread(self) -> bool {
        self.size_and_flags & IS_OF_A_THREAD != 0
    }

    /// Its bytes, header included.
    #[inline(always)]
    pub fn size(self) -> usize {
        self.size_and_flags & !FLAGS
    }

    /// Writes another size into its header.
    ///
    /// # Safety
    /// It is a mapping of its own, which is so large.
    pub unsafe fn set_size(self, size: usize) {
        // SAFETY: the header's second word.
        unsafe { *(self.memory as *mut usize).sub(1) = size | self.size_and_flags & FLAGS };
    }

    /// The address after its last byte. (The last word may be the next chunk's header's first.)
    #[inline(always)]
    pub fn end(self) -> usize {
        self.memory + self.size() - HEADER
    }

    /// The bytes that a program may use: without its header, and with the next chunk's first word, which a
    /// mapping of its own has not.
    pub fn usable(self) -> usize {
        self.size() - if self.is_mapped() { HEADER } else { HEADER / 2 }
    }

    /// First address and length of a mapping of its own; `None` if the header does not describe one.
    ///
    /// # Safety
    /// As [`Self::from_memory`], for a chunk that [`Self::is_mapped`].
    pub unsafe fn mapping(self) -> Option<(usize, usize)> {
        // SAFETY: the header's first word: what lies before it in the mapping, for alignment.
        let before = unsafe { *(self.memory as *const usize).sub(2) };
        let start = self.memory.checked_sub(HEADER)?.checked_sub(before)?;
        let length = self.size().checked_add(before)?;
        let page = raw::base_page();
        (start.is_multiple_of(page) && length.is_multiple_of(page) && length > 0)
            .then_some((start, length))
    }
}
