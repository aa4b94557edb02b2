//! By what it is decided how much may be prepared: what the process has, and what it may have.
//!
//! # Safety
//! One system call, with a place for its answer.

use policy::live::{Facts, Source};
use policy::{Action, Result};

use crate::executor::DONE;
use crate::text::first_number;
use crate::{files, limits, raw};

/// Learns what is asked for, if that is known here, and says how it went.
pub fn read(action: Action, facts: &mut Facts) -> Option<(Result, u32)> {
    match action {
        Action::Read(Source::Resident) => facts.resident = Some(resident() as u64),
        Action::Read(Source::Headroom) => {
            facts.headroom = limits::cgroup_headroom().map(|headroom| headroom as u64)
        }
        _ => return None,
    }
    Some((DONE, 0))
}

/// The memory that is resident. (`ru_maxrss` is that of the program that called `exec`, if it had more.)
fn resident() -> usize {
    let mut buffer = [0; 128];
    let text = files::read_file(c"/proc/self/statm", &mut buffer);
    let pages = text.and_then(|text| first_number(text.split(|byte| *byte == b' ').nth(1)?));
    pages.map_or(0, |pages| pages.saturating_mul(raw::base_page()))
}
