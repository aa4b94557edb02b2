//! Superpages of a running process split into base pages, from outside.
//!
//! `process_madvise(MADV_COLD)` on one base page of a superpage splits it (`madvise_cold_or_pageout_pte_range`,
//! mm/madvise.c), and marks that page as not recently used; contents stay. From Linux 6.12 on the split gives pages of
//! zeros back (`try_to_map_unused_to_zeropage`, mm/migrate.c). A superpage that several processes map is not split.
//! See docs/decisions/manage.md#7.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;
use sys::mem::Advice;
use sys::pagemap::Pagemap;

use crate::collapse::{State, is_shared, pause, state};
use crate::memory::Memory;

/// Base pages tried of a superpage that the kernel has locked.
const ATTEMPTS: u64 = 3;

/// Why a superpage was not split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kept {
    /// Several processes map it.
    Shared,
    /// The kernel had it locked at each attempt.
    Busy,
    /// It is locked in memory (mlock): the kernel splits it only when the program unlocks it.
    Locked,
    /// This user may not (EPERM): CAP_SYS_NICE.
    Denied,
    /// The time was over before.
    NoTime,
}

/// What was split.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Split {
    /// Number of superpages split.
    pub split: u64,
    /// Number of blocks that had no superpage any more.
    pub gone: u64,
    /// Number of superpages that were not split, by reason.
    pub kept: BTreeMap<Kept, u64>,
    /// The longest call, in seconds. `None`: none was made.
    pub longest_seconds: Option<f64>,
    /// Addresses of the superpages that are left.
    #[serde(skip)]
    pub left: Vec<u64>,
}

impl Memory {
    /// Splits the superpages at these addresses, and reads each back. Spends at most the share `duty` of the time in
    /// calls.
    pub fn split(&self, starts: &[u64], duty: f64, deadline: Option<Instant>) -> Split {
        let mut result = Split::default();
        let pagemap = Pagemap::open(self.process.pid).ok();
        let size = self.superpage.bytes();
        let mut longest = None::<Duration>;
        for &start in starts {
            if state(pagemap.as_ref(), start, size) != Some(State::Huge) {
                result.gone += 1;
                continue;
            }
            let kept = match deadline.is_some_and(|end| Instant::now() >= end) {
                true => Some(Kept::NoTime),
                false => self.split_one(start, duty, pagemap.as_ref(), &mut longest),
            };
            match kept {
                None => result.split += 1,
                Some(why) => {
                    *result.kept.entry(why).or_default() += 1;
                    result.left.push(start);
                }
            }
        }
        result.longest_seconds = longest.map(|longest| longest.as_secs_f64());
        result
    }

    fn split_one(
        &self,
        start: u64,
        duty: f64,
        pagemap: Option<&Pagemap>,
        longest: &mut Option<Duration>,
    ) -> Option<Kept> {
        let (size, base) = (self.superpage.bytes(), self.base.bytes());
        for attempt in 0..ATTEMPTS {
            let page = start + size / base * attempt / ATTEMPTS * base;
            let began = Instant::now();
            let asked = self.fd.advise(std::slice::from_ref(&(page..page + base)), Advice::Cold);
            let took = began.elapsed();
            *longest = Some(longest.map_or(took, |most| most.max(took)));
            std::thread::sleep(pause(took, duty));
            let errno = asked.err().map(|error| error.errno());
            if errno == Some(libc::EPERM) {
                return Some(Kept::Denied);
            }
            if errno == Some(libc::EINVAL) && state(pagemap, start, size) == Some(State::Huge) {
                return Some(Kept::Locked);
            }
            if state(pagemap, start, size) != Some(State::Huge) {
                return None;
            }
        }
        Some(if is_shared(pagemap, start, size) { Kept::Shared } else { Kept::Busy })
    }
}
