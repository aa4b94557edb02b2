//! Reads small files of /proc and /sys by libc's own functions, with fixed buffers.

use std::ffi::{CStr, c_int, c_void};

use crate::raw;
use crate::text;

/// An open file, read byte by byte from a buffer. Short reads are continued until a read returns 0.
pub struct File {
    fd: c_int,
    buffer: [u8; 2048],
    next: usize,
    end: usize,
    /// Set when a read failed: the data is incomplete.
    pub is_broken: bool,
}

impl File {
    pub fn open(path: &CStr) -> Option<Self> {
        Self::open_path(path.as_ptr())
    }

    /// As [`File::open`], for a zero-terminated text.
    pub fn open_path(path: *const libc::c_char) -> Option<Self> {
        // SAFETY: callers pass a C string; the flags need no mode.
        let fd = unsafe { libc::open(path, libc::O_RDONLY | libc::O_CLOEXEC) };
        let buffer = [0; 2048];
        (fd >= 0).then_some(Self { fd, buffer, next: 0, end: 0, is_broken: false })
    }

    pub fn byte(&mut self) -> Option<u8> {
        if self.next == self.end {
            self.refill();
        }
        let byte = self.buffer[..self.end].get(self.next).copied()?;
        self.next += 1;
        Some(byte)
    }

    /// Copies the next line without its newline into `line`, truncated; `None` at the end of the file.
    pub fn line<'a>(&mut self, line: &'a mut [u8]) -> Option<&'a [u8]> {
        let mut len = 0;
        let mut any = false;
        while let Some(byte) = self.byte() {
            any = true;
            if byte == b'\n' {
                break;
            }
            if len < line.len() {
                line[len] = byte;
                len += 1;
            }
        }
        any.then_some(&line[..len])
    }

    fn refill(&mut self) {
        (self.next, self.end) = (0, 0);
        loop {
            let buffer = self.buffer.as_mut_ptr().cast::<c_void>();
            // SAFETY: the buffer is ours and of that length.
            let got = unsafe { libc::read(self.fd, buffer, self.buffer.len()) };
            match usize::try_from(got) {
                Ok(got) => self.end = got,
                Err(_) if raw::errno() == libc::EINTR => continue,
                Err(_) => self.is_broken = true,
            }
            return;
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours, and not used after this.
        raw::keeping_errno(|| unsafe { libc::close(self.fd) });
    }
}

/// The number in a file.
pub fn number(path: *const libc::c_char) -> Option<u64> {
    raw::keeping_errno(|| {
        let mut line = [0; 32];
        let line = File::open_path(path)?.line(&mut line)?;
        text::number(line.trim_ascii()).map(|(value, _)| value)
    })
}

/// The number after `key` at the beginning of a line, as in /proc/meminfo.
pub fn keyed_number(path: &CStr, key: &[u8]) -> Option<u64> {
    raw::keeping_errno(|| {
        let mut file = File::open(path)?;
        let mut line = [0; 128];
        while let Some(line) = file.line(&mut line) {
            if let Some(value) = line.strip_prefix(key) {
                return text::number(value.trim_ascii_start()).map(|(value, _)| value);
            }
        }
        None
    })
}
