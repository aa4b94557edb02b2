//! Reads small kernel files and directories, and appends lines, without allocating and without libc's functions.
//!
//! # Safety
//! System calls on descriptors and buffers of our own.

use std::ffi::{CStr, c_int, c_long};

use crate::{raw, text};

/// Reads the beginning of a small file, as much as fits into `buffer`.
pub fn read_file<'a>(path: &CStr, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let length = raw::keeping_errno(|| {
        // SAFETY: a path, a descriptor of our own and a buffer of our own.
        unsafe {
            let fd = raw::open(path, flags, 0)?;
            let mut used = 0;
            let complete = loop {
                let rest = buffer.as_mut_ptr().add(used);
                match raw::call!(SYS_read, fd, rest, buffer.len() - used) {
                    0 => break true,
                    -1 if raw::errno() == libc::EINTR => {}
                    -1 => break false,
                    got => used += got as usize,
                }
            };
            raw::close(fd);
            complete.then_some(used)
        }
    })?;
    Some(&buffer[..length])
}

/// Whether a small file contains one of the words; `None`: the file cannot be read.
pub fn file_has(path: &CStr, words: &[&[u8]]) -> Option<bool> {
    Some(text::has_any(read_file(path, &mut [0; 128])?, words))
}

/// Whether THP is off for the whole machine, or the setting cannot be read.
pub fn is_thp_off() -> bool {
    file_has(c"/sys/kernel/mm/transparent_hugepage/enabled", &[b"[never]"]) != Some(false)
}

/// Calls `tell` with the directory's descriptor and each name, until `tell` returns `false`; `None` if the directory
/// could not be read.
pub fn each_name(path: &CStr, mut tell: impl FnMut(c_int, &CStr) -> bool) -> Option<()> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    raw::keeping_errno(|| {
        let fd = raw::open(path, flags, 0)?;
        let complete = read_names(fd, &mut tell);
        raw::close(fd);
        complete
    })
}

fn read_names(fd: c_int, tell: &mut dyn FnMut(c_int, &CStr) -> bool) -> Option<()> {
    // Offset of the name in `linux_dirent64`: inode, offset, length of the entry and type precede it.
    const NAME: usize = 19;
    // Small because of signal stacks, as in `maps`. An entry takes 280 bytes at most.
    let mut buffer = [0u64; 128];
    loop {
        let into = buffer.as_mut_ptr();
        // SAFETY: a descriptor and a buffer of our own.
        let got = unsafe { raw::call!(SYS_getdents64, fd, into, size_of_val(&buffer)) };
        if got <= 0 {
            return (got == 0).then_some(());
        }
        // SAFETY: the kernel wrote `got` bytes, and numbers may be read as bytes.
        let entries =
            unsafe { std::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), got as usize) };
        let mut at = 0;
        while let Some(entry) = entries.get(at..).filter(|rest| rest.len() > NAME) {
            let length = usize::from(u16::from_ne_bytes([entry[16], entry[17]]));
            let name = CStr::from_bytes_until_nul(entry.get(NAME..length)?).ok()?;
            if !tell(fd, name) {
                return Some(());
            }
            at += length;
        }
    }
}

/// Appends a line to a file in one write, and creates the file if it is missing; `None`: not all was written. errno is
/// left alone.
pub fn append(path: &CStr, mode: c_int, line: &[u8]) -> Option<()> {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
    raw::keeping_errno(|| {
        let fd = raw::open(path, flags, mode)?;
        // SAFETY: a descriptor of our own and a slice that is only read.
        let write = || unsafe { raw::call!(SYS_write, fd, line.as_ptr(), line.len()) };
        let written = raw::without_signals_of_a_write(write);
        raw::close(fd);
        (written == line.len() as c_long).then_some(())
    })
}
