//! Log of decisions (`SUPERPAGE_POLICY_LOG`): one line each, appended by one `write`. `advisor::Record` defines
//! the text.
//!
//! # Safety
//! A descriptor opened and closed here, and own buffers on the stack.
//! See docs/decisions/live.md#3.

use std::ffi::CStr;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use advisor::Action;
use advisor::{Advisor, Begin, Event, Facts, Record, State};

use super::{TRIES, VERSION, load, request, words};
use crate::text::Text;
use crate::{files, filter, raw, settings};

/// Maximum bytes per process: the log is for reading, and must not fill a disk.
const MAX_BYTES: usize = 64 << 20;
static WRITTEN: AtomicUsize = AtomicUsize::new(0);

/// Logs that the process starts, or continues as a forked child.
pub fn begin() {
    let Some(path) = settings::get().policy_log else { return };
    let found = (0..TRIES).find_map(|_| load());
    let (version, state) =
        found.unwrap_or_else(|| (VERSION.load(Relaxed), State::from_words(words())));
    WRITTEN.store(0, Relaxed);
    let policy = Advisor { request: request(), state };
    append(path, &Begin { pid: pid(), seq: version / 2, policy });
}

/// Logs a decision on the state of this version, or on `state`.
#[inline]
pub fn decision(seq: u64, state: Option<State>, event: Event, facts: &Facts, action: Action) {
    if let Some(path) = settings::get().policy_log {
        append(path, &Record { pid: pid(), seq, state, event, facts: *facts, action });
    }
}

fn pid() -> u64 {
    // SAFETY: no arguments. (By system call: a `vfork` child shares libc's variables with its parent.)
    unsafe { raw::call!(SYS_getpid) as u64 }
}

/// Appends a line, unless the process may have a seccomp filter: then no file is opened.
#[cold]
#[inline(never)]
fn append(path: &CStr, line: &dyn fmt::Display) {
    if filter::may_be_in_place() {
        return;
    }
    let line = Text::<2049>::from_args(format_args!("{line}\n"));
    let length = line.bytes().len();
    if line.is_full() || WRITTEN.fetch_add(length, Relaxed).saturating_add(length) > MAX_BYTES {
        return;
    }
    files::append(path, 0o600, line.bytes());
}
