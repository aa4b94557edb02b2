//! The log of decisions that `SUPERPAGE_POLICY_LOG` asks for: a line each, appended by one `write`. The text is
//! `policy::live::Record`'s.
//!
//! # Safety
//! A descriptor that is opened and closed here, and buffers of our own, on the stack.
//! See docs/decisions/live.md#3.

use std::ffi::CStr;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use policy::Action;
use policy::live::{Begin, Event, Facts, Policy, Record, State};

use super::{TRIES, VERSION, load, request, words};
use crate::{filter, raw, settings};

/// A process writes so many bytes at most: a log is for looking at, not for filling a disk.
const MAX_BYTES: usize = 64 << 20;
static WRITTEN: AtomicUsize = AtomicUsize::new(0);

/// The process begins, or goes on as a child.
pub fn begin() {
    let Some(path) = settings::get().policy_log else { return };
    let found = (0..TRIES).find_map(|_| load());
    let (version, state) =
        found.unwrap_or_else(|| (VERSION.load(Relaxed), State::from_words(words())));
    WRITTEN.store(0, Relaxed);
    let policy = Policy { request: request(), state };
    append(path, &Begin { pid: pid(), seq: version / 2, policy });
}

/// A decision was made, on the state of that number, or on `state`.
#[inline]
pub fn decision(seq: u64, state: Option<State>, event: Event, facts: &Facts, action: Action) {
    if let Some(path) = settings::get().policy_log {
        append(path, &Record { pid: pid(), seq, state, event, facts: *facts, action });
    }
}

fn pid() -> u64 {
    // SAFETY: takes nothing. (The system call: libc of a child of `vfork` is its parent's.)
    unsafe { raw::call!(SYS_getpid) as u64 }
}

/// Not where a filter may be in place: no file is opened then.
#[cold]
#[inline(never)]
fn append(path: &CStr, line: &dyn fmt::Display) {
    if filter::may_be_in_place() {
        return;
    }
    let mut text = Line { bytes: [0; 2048], used: 0 };
    let fits = writeln!(text, "{line}").is_ok();
    let line = &text.bytes[..text.used];
    if !fits || WRITTEN.fetch_add(line.len(), Relaxed).saturating_add(line.len()) > MAX_BYTES {
        return;
    }
    raw::keeping_errno(|| {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
        let Some(fd) = raw::open(path, flags, 0o600) else { return };
        // SAFETY: a descriptor of our own and a slice that is only read.
        unsafe { raw::call!(SYS_write, fd, line.as_ptr(), line.len()) };
        raw::close(fd);
    });
}

/// A line under construction.
struct Line {
    bytes: [u8; 2048],
    used: usize,
}

impl Write for Line {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        let room = self.bytes[self.used..].get_mut(..piece.len()).ok_or(fmt::Error)?;
        room.copy_from_slice(piece.as_bytes());
        self.used += piece.len();
        Ok(())
    }
}
