//! What libc itself writes in the midst of a fork, between our handlers and the new process's first
//! instruction of ours: the locks of open files, and the state of its name services.
//!
//! It is memory that libc got from malloc, so it may lie on pages of the pool. In the parent such a
//! page is held up for the copy, and the forking thread would wait for itself; in the child a write
//! to it needs a page that there may not be. So the superpages that hold such state are turned into
//! ordinary memory before the first fork that finds it there; later forks find nothing to do.
//!
//! # Safety
//! The list of files is walked under libc's own lock for it, which is kept until the fork is over so
//! that none is added; glibc takes it once more itself, and in the child sets it back. Offsets are
//! those of `struct _IO_FILE`, which glibc cannot change: programs were compiled with them. Of libc's
//! data, words are read and compared, nothing more.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::mapping::demote;
use crate::maps;

const FILE_CHAIN: usize = 0x68;
const FILE_LOCK: usize = 0x88;
const FILE_SIZE: usize = 0xe0;
/// More open files than this are a list that is not one.
const MOST_FILES: usize = 1 << 20;

unsafe extern "C" {
    static _IO_list_all: *mut c_void;
    fn _IO_list_lock();
    fn _IO_list_unlock();
}

/// Before a fork of a process with threads; until [`let_go`].
pub fn leave_the_pool() {
    // SAFETY: libc's own lock, given back by the same thread.
    unsafe { _IO_list_lock() };
    TAKEN.store(true, Ordering::Relaxed);
    // SAFETY: under that lock the list does not change; each entry is a FILE.
    unsafe {
        let mut file = (&raw const _IO_list_all).read_volatile() as usize;
        for _ in 0..MOST_FILES {
            if file == 0 {
                break;
            }
            let lock = *((file + FILE_LOCK) as *const usize);
            for address in [file, file + FILE_SIZE, lock] {
                leave(address);
            }
            file = *((file + FILE_CHAIN) as *const usize);
        }
    }
    in_libc_data(|word| {
        leave(word);
    });
}

/// Turns the superpage of the pool that holds `address`, if one does, into ordinary memory.
fn leave(address: usize) {
    // Not at a boundary, whatever the address.
    demote::edges(address | 1, address | 1);
}

/// In the parent, after the fork.
pub fn let_go() {
    if TAKEN.swap(false, Ordering::Relaxed) {
        // SAFETY: taken above, by this thread.
        unsafe { _IO_list_unlock() };
    }
}

/// Whether this thread, which forks, holds the list's lock.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Calls `tell` with each word of libc's own variables.
fn in_libc_data(mut tell: impl FnMut(usize)) {
    let mut data_end = 0;
    maps::each(|vma| {
        let is_libc = vma.name.ends_with(b"/libc.so.6");
        let is_its_bss = vma.start == data_end && vma.name.is_empty();
        if vma.is_private() && vma.flags.starts_with(b"rw") && (is_libc || is_its_bss) {
            data_end = if is_libc { vma.end } else { 0 };
            for at in (vma.start..vma.end).step_by(size_of::<usize>()) {
                // SAFETY: a readable word of a mapping that libc keeps.
                tell(unsafe { (at as *const usize).read_volatile() });
            }
        }
    });
}
