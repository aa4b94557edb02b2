//! Populating the beginning of a new mapping, by the thread that maps it.
//!
//! # Safety
//! Populating changes no contents.

use super::{bound, given, is_on};
use crate::ledger::{self, Prepared};
use crate::source::superpage;
use crate::{raw, settings};

/// So much at a time: who waits for the address space's lock does not wait for longer.
const PORTION: usize = 8 << 20;

/// A new mapping of `length` bytes was handed out, `advised` of them for superpages: remembers it, and
/// populates its beginning as far as `SUPERPAGE_PREFAULT` says.
pub fn populate(start: usize, length: usize, advised: usize) {
    if !is_on() {
        return;
    }
    given::enter(start, length, ahead_of(start, length, advised));
}

/// The bytes from the beginning that are populated now.
fn ahead_of(start: usize, length: usize, advised: usize) -> usize {
    let size = superpage();
    let prefault = settings::get().prefault.min(advised);
    if prefault < size {
        return 0;
    }
    let first = start.next_multiple_of(size);
    let end = (start + bound::allowed(prefault, length)) / size * size;
    let mut at = first;
    while at < end {
        let portion = PORTION.max(size).min(end - at);
        // SAFETY: changes no contents. There may be no memory.
        if unsafe { raw::madvise(at, portion, libc::MADV_POPULATE_WRITE) }.is_err() {
            break;
        }
        ledger::prepared(Prepared::Ahead, portion);
        at += portion;
    }
    at - start
}
