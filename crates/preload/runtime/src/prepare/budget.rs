//! Facts that limit how much may be prepared: the process's resident memory, and its headroom.

use advisor::{Action, Outcome};
use advisor::{Facts, Source};

use crate::executor::DONE;
use crate::text::first_number;
use crate::{files, limits, raw};

/// Reads the fact that `action` asks for, if this module knows it; returns the result.
pub fn read(action: Action, facts: &mut Facts) -> Option<(Outcome, u32)> {
    match action {
        Action::Read(Source::Resident) => facts.resident = Some(resident() as u64),
        Action::Read(Source::Headroom) => {
            facts.headroom = limits::cgroup_headroom().map(|headroom| headroom as u64)
        }
        _ => return None,
    }
    Some((DONE, 0))
}

/// Bytes of resident memory. (`ru_maxrss` may stem from before `exec`.)
fn resident() -> usize {
    let mut buffer = [0; 128];
    let text = files::read_file(c"/proc/self/statm", &mut buffer);
    let pages = text.and_then(|text| first_number(text.split(|byte| *byte == b' ').nth(1)?));
    pages.map_or(0, |pages| pages.saturating_mul(raw::base_page()))
}
