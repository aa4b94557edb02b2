//! Named pipes.
//!
//! # Safety
//! One call with a C string that lives across it.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `mkfifo(3)`: a pipe that has a name, for this user alone (mode 0600).
///
/// # Errors
/// EEXIST where there is something, ENOENT and EACCES for its directory, EINVAL for a path with a zero byte.
pub fn make(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: a C string.
    match unsafe { libc::mkfifo(path.as_ptr(), 0o600) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
