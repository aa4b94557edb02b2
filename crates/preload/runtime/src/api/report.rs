//! Messages on stderr in the style of libhugetlbfs, filtered by `HUGETLB_VERBOSE`.
//!
//! A message is one `write`. Functions under this library's own names print nothing.

use std::ffi::{CStr, c_int};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::environment;
use crate::raw;
use crate::text::{LossyUtf8, Text};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Error = 1,
    /// Recovered, but not as requested. Printed by default.
    Warning = 2,
    Debug = 4,
}

/// Whether messages use the name libhugetlbfs: set by the compatible library.
static OLD_NAME: AtomicBool = AtomicBool::new(false);

pub fn use_old_name() {
    OLD_NAME.store(true, Ordering::Relaxed);
}

pub fn report(level: Level, message: fmt::Arguments<'_>) {
    let verbose = environment::settings().verbose;
    if verbose < level as c_int {
        return;
    }
    raw::keeping_errno(|| write(level, verbose, message));
}

fn write(level: Level, verbose: c_int, message: fmt::Arguments<'_>) {
    let name = if OLD_NAME.load(Ordering::Relaxed) { "libhugetlbfs" } else { "superpage" };
    let word = match level {
        Level::Error => "ERROR",
        Level::Warning => "WARNING",
        Level::Debug => "DEBUG",
    };
    let mut line = if verbose >= Level::Debug as c_int {
        let mut host = Text::<64>::new();
        // SAFETY: the kernel or libc writes at most 63 bytes, and a zero byte follows.
        unsafe { libc::gethostname(host.as_mut_c(), 63) };
        // SAFETY: the zero byte after the text is inside the buffer.
        let host = unsafe { CStr::from_ptr(host.as_c()) };
        // SAFETY: the call takes no arguments.
        let pid = unsafe { libc::getpid() };
        Text::<1024>::from_args(format_args!(
            "{name} [{}:{pid}]: {word}: ",
            LossyUtf8(host.to_bytes())
        ))
    } else {
        Text::from_args(format_args!("{name}: {word}: "))
    };
    let _ = fmt::write(&mut line, message);
    if line.is_full() {
        // The end of the message was cut off, including its newline.
        line = Text::from_args(format_args!("{name}: {word}: (a message too long to show)"));
    }
    line.push(b"\n");
    // SAFETY: a live buffer and its length. A write to a closed stderr fails, which is ignored.
    unsafe { libc::write(2, line.bytes().as_ptr().cast(), line.bytes().len()) };
}

/// Displays an errno as text.
pub struct ErrnoText(pub c_int);

impl fmt::Display for ErrnoText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Text::<96>::new();
        // SAFETY: at most 95 bytes are written, the zero byte included.
        let code = raw::keeping_errno(|| unsafe { libc::strerror_r(self.0, words.as_mut_c(), 95) });
        if code != 0 {
            return write!(f, "errno {}", self.0);
        }
        // SAFETY: the text ends with a zero byte inside the buffer.
        let words = unsafe { CStr::from_ptr(words.as_c()) };
        write!(f, "{}", LossyUtf8(words.to_bytes()))
    }
}
