//! 64-bit words in a shared file mapping, used as atomics and futexes.
//!
//! # Safety
//! [`SharedWords`] owns the mapping and uses its words only as atomics. The caller guarantees that the file cannot be
//! truncated by passing a sealed one ([`crate::memfd::sealed`]).

use std::fs::File;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex::{Flags, Timespec, wait, wake};

use crate::SysError;

/// The 64-bit words of a shared file mapping. A futex uses the first four bytes of its word.
#[derive(Debug)]
pub struct SharedWords {
    start: NonNull<u64>,
    words: usize,
}

// SAFETY: the mapping holds atomics, and only this value unmaps it.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Maps the first `words` words of a memfd of sealed size: `mmap(..., MAP_SHARED)`.
    ///
    /// # Errors
    /// `mmap(2)` fails.
    pub fn map(file: &File, words: usize) -> Result<Self, SysError> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: with a null hint the kernel chooses a free range and replaces no mapping.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), words * 8, prot, MapFlags::SHARED, file, 0)
        };
        let start = start.map_err(|errno| SysError::new("mmap", "counters", errno))?;
        Ok(Self { start: NonNull::new(start.cast()).expect("mmap returns no null range"), words })
    }

    /// The first four bytes of word number `at`.
    ///
    /// # Panics
    /// `at` is out of range.
    pub fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at < self.words, "word {at} of {}", self.words);
        // SAFETY: the word is within the mapping, aligned, and used only as an atomic.
        unsafe { &*self.start.as_ptr().add(at).cast::<AtomicU32>() }
    }

    /// The whole word number `at`.
    ///
    /// # Panics
    /// `at` is out of range.
    pub fn long(&self, at: usize) -> &AtomicU64 {
        assert!(at < self.words, "word {at} of {}", self.words);
        // SAFETY: the word is within the mapping, aligned, and used only as an atomic.
        unsafe { &*self.start.as_ptr().add(at).cast::<AtomicU64>() }
    }

    /// Sleeps on the futex of a word if its value is `seen`, until a wake-up or until `most` has passed. May return
    /// early.
    pub fn wait(&self, at: usize, seen: u32, most: Duration) {
        let time = Timespec {
            tv_sec: most.as_secs() as i64,
            tv_nsec: i64::from(most.subsec_nanos()) as _,
        };
        let _ = wait(self.word(at), Flags::empty(), seen, Some(&time));
    }

    /// Wakes all waiters of a word.
    pub fn wake(&self, at: usize) {
        let _ = wake(self.word(at), Flags::empty(), i32::MAX as u32);
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: our own range, with no references left.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.words * 8) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn a_word_is_the_same_in_both_mappings_and_wakes() {
        let file = File::from(crate::memfd::sealed("words", &[0; 64]).unwrap());
        let [ours, theirs] = [(); 2].map(|()| SharedWords::map(&file, 8).unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while ours.word(3).load(Ordering::SeqCst) == 0 {
                    ours.wait(3, 0, Duration::from_secs(10));
                }
                ours.word(4).store(9, Ordering::SeqCst);
                ours.wake(4);
            });
            theirs.word(3).store(1, Ordering::SeqCst);
            theirs.wake(3);
            while theirs.word(4).load(Ordering::SeqCst) == 0 {
                theirs.wait(4, 0, Duration::from_secs(10));
            }
        });
        assert_eq!(ours.word(4).load(Ordering::SeqCst), 9);
        ours.wait(4, 0, Duration::ZERO);
    }
}
