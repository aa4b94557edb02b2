//! `SysError`: which call failed, on what, and the errno.

use std::fmt;
use std::io;

/// A syscall that failed.
#[derive(Debug)]
pub struct SysError {
    /// The call, by its man page name with the argument that selects the operation: `madvise(MADV_COLLAPSE)`.
    pub call: &'static str,
    /// The object of the call: a pid, an address range, a path.
    pub on: String,
    /// The errno.
    pub source: io::Error,
}

impl SysError {
    pub(crate) fn new(
        call: &'static str,
        on: impl Into<String>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self { call, on: on.into(), source: source.into() }
    }

    pub(crate) fn last(call: &'static str, on: impl Into<String>) -> Self {
        Self::new(call, on, io::Error::last_os_error())
    }

    /// The errno, e.g. `libc::ENOMEM`.
    pub fn errno(&self) -> i32 {
        self.source.raw_os_error().unwrap_or(0)
    }
}

impl fmt::Display for SysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}: {}", self.call, self.on, self.source)
    }
}

impl std::error::Error for SysError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
