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

/// Whether a limit of the process's own leaves headroom for what it does not need yet.
pub fn is_unlimited() -> bool {
    [libc::RLIMIT_AS, libc::RLIMIT_DATA].into_iter().all(|which| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the kernel fills the structure in.
        let got = raw::keeping_errno(|| unsafe {
            let nothing = std::ptr::null::<libc::rlimit>();
            raw::call!(SYS_prlimit64, 0, which as usize, nothing, &raw mut limit)
        });
        got == 0 && limit.rlim_cur == libc::RLIM_INFINITY
    })
}
