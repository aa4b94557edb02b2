//! Superpages made in a running process with `process_madvise(MADV_COLLAPSE)`, one call each, and read back.
//!
//! A call copies the block's pages into a superpage. Threads of the process that access the block, or change mappings,
//! wait meanwhile: at most as long as the call takes. See docs/decisions/manage.md#7.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use host::{FreeContiguity, MemInfo, cgroup};
use live::Latency;
use serde::Serialize;
use sys::SysError;
use sys::mem::Advice;
use sys::pagemap::{Categories, PageRegion, Pagemap};
use units::ByteSize;

use crate::memory::{Block, Memory, Survey, has_locked};
use crate::realtime::Realtime;
use crate::record::Record;

/// Number of calls between two readings of free memory.
const CALLS_PER_READING: usize = 16;
/// Failures in a row for lack of a free superpage after which no more are asked for.
const MAX_REFUSALS: u32 = 4;
/// Free superpages with which none is lacking.
const PLENTY: u64 = 64;
/// Attempts at a block whose page the kernel holds (EAGAIN).
const ATTEMPTS: u32 = 3;

/// Limits of making superpages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Largest share of the time, 0 to 1, that is spent in calls.
    pub duty: f64,
    /// When to stop.
    pub deadline: Option<Instant>,
    /// Most bytes of zeroed pages added to fill superpages.
    pub fill: ByteSize,
    /// Bytes that stay available on the machine and in the process's control group.
    pub headroom: ByteSize,
}

/// Why a block is still on base pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Skip {
    /// Filling it would add more memory than allowed.
    Sparse,
    /// It has pages in swap, which would be read back.
    Swapped,
    /// Other processes share pages of it after a fork; a superpage would copy them.
    SharedByFork,
    /// The kernel refuses (EINVAL): MADV_NOHUGEPAGE, or the mapping changed.
    Refused,
    /// No superpage is free, and memory could not be compacted (ENOMEM).
    NoSuperpage,
    /// The kernel held a page of it at each attempt (EAGAIN).
    Busy,
    /// The memory was unmapped meanwhile.
    Gone,
    /// The time was over before.
    NoTime,
    /// Too little memory is available on the machine or in the control group.
    NoMemory,
    /// A realtime task is running, which can hold up the collapse, and with it the process.
    Realtime,
    /// It is locked in memory (mlock): the kernel could not split it again.
    Locked,
    /// No record could be written, so it could not be undone.
    Unrecorded,
    /// This user may not (EPERM): CAP_SYS_NICE.
    Denied,
    /// Another error.
    Failed,
    /// The user interrupted.
    Interrupted,
}

/// What was made.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Collapsed {
    /// Number of superpages made.
    pub made: u64,
    /// Resident bytes of the blocks that stayed on base pages, by reason.
    pub skipped: BTreeMap<Skip, ByteSize>,
    /// Zeroed bytes added.
    pub filled: ByteSize,
    /// The longest call, in seconds: no thread of the process waited longer for one. `None`: none was made.
    pub longest_seconds: Option<f64>,
    /// 99th percentile of the calls, in seconds.
    pub p99_seconds: Option<f64>,
    /// Seconds in calls.
    pub seconds: f64,
    /// Addresses of the superpages made.
    #[serde(skip)]
    pub starts: Vec<u64>,
}

impl Collapsed {
    fn skip(&mut self, why: Skip, block: &Block, base: u64) {
        let sum = self.skipped.entry(why).or_default();
        *sum = ByteSize(sum.bytes() + u64::from(block.pages.resident()) * base);
    }
}

impl Memory {
    /// Makes superpages of `blocks`, in this order, and reads each back. Blocks on superpages are left out. `record` gets
    /// each address before the call; `goes_on` is asked between calls, with the number of blocks done.
    ///
    /// An end of the process is no error: its blocks are [`Skip::Gone`]. Nor is a record that cannot be written: nothing is
    /// made from then on.
    pub fn collapse(
        &self,
        survey: &Survey,
        blocks: &[Block],
        limits: &Limits,
        record: &mut Record,
        mut goes_on: impl FnMut(usize) -> bool,
    ) -> Collapsed {
        let (base, size) = (self.base.bytes(), self.superpage.bytes());
        let mut result = Collapsed::default();
        let mut calls = Vec::new();
        let pagemap = Pagemap::open(self.process.pid).ok();
        let mut realtime = Realtime::new(&self.root);
        let mut stopped = None;
        let has_locked = has_locked(&self.root, self.process.pid).unwrap_or(false);
        let mut refused = BTreeMap::<u64, u32>::new();
        let (mut refusals, mut has_memory) = (0, true);
        for (at, block) in blocks.iter().filter(|block| block.pages.base > 0).enumerate() {
            if stopped.is_none() {
                stopped = match () {
                    () if !goes_on(at) => Some(Skip::Interrupted),
                    () if limits.deadline.is_some_and(|end| Instant::now() >= end) => {
                        Some(Skip::NoTime)
                    }
                    () => None,
                };
            }
            if calls.len().is_multiple_of(CALLS_PER_READING) && stopped.is_none() {
                has_memory = self.has_memory(limits.headroom);
            }
            let filled = survey.missing(block).bytes();
            let why = match () {
                () if stopped.is_some() => stopped,
                () if !has_memory => Some(Skip::NoMemory),
                () if block.pages.swapped > 0 => Some(Skip::Swapped),
                () if result.filled.bytes() + filled > limits.fill.bytes() => Some(Skip::Sparse),
                // The kernel refuses whole mappings, for their flags.
                () if refused.get(&block.mapping).is_some_and(|times| *times >= 2) => {
                    Some(Skip::Refused)
                }
                () if refusals >= MAX_REFUSALS => Some(Skip::NoSuperpage),
                () if !block.is_shared && is_shared(pagemap.as_ref(), block.start, size) => {
                    Some(Skip::SharedByFork)
                }
                () if realtime.is_running(&self.root) => Some(Skip::Realtime),
                () => None,
            };
            if let Some(why) = why {
                result.skip(why, block, base);
                continue;
            }
            if has_locked && self.is_locked(block.start) {
                result.skip(Skip::Locked, block, base);
                continue;
            }
            if record.add(block.start).is_err() {
                stopped = Some(Skip::Unrecorded);
                result.skip(Skip::Unrecorded, block, base);
                continue;
            }
            let ended = self.collapse_one(block.start, limits, &mut calls, pagemap.as_ref());
            match ended {
                Ok(()) => {
                    refusals = 0;
                    result.made += 1;
                    result.filled = ByteSize(result.filled.bytes() + filled);
                    result.starts.push(block.start);
                }
                Err(why) => {
                    // A line more in the record is harmless: only superpages are split.
                    let _ = record.remove(block.start);
                    result.skip(why, block, base);
                    match why {
                        Skip::Refused => *refused.entry(block.mapping).or_default() += 1,
                        Skip::NoSuperpage => refusals += 1,
                        Skip::Denied => stopped = Some(why),
                        _ => {}
                    }
                }
            }
        }
        result.seconds = calls.iter().map(Duration::as_secs_f64).sum();
        result.longest_seconds = calls.iter().max().map(Duration::as_secs_f64);
        let micros = calls.iter().map(|call| call.as_micros() as u64).collect();
        result.p99_seconds = Latency::from_ticks(micros).map(|latency| latency.p99_seconds);
        result
    }

    fn collapse_one(
        &self,
        start: u64,
        limits: &Limits,
        calls: &mut Vec<Duration>,
        pagemap: Option<&Pagemap>,
    ) -> Result<(), Skip> {
        let size = self.superpage.bytes();
        let range = start..start + size;
        for attempt in 1.. {
            let began = Instant::now();
            let asked = self.fd.advise(std::slice::from_ref(&range), Advice::Collapse);
            let took = began.elapsed();
            calls.push(took);
            std::thread::sleep(pause(took, limits.duty));
            let found = state(pagemap, start, size);
            return match (found, asked.map_err(|error| error.errno())) {
                (Some(State::Huge), _) => Ok(()),
                (_, Err(libc::EAGAIN | libc::EBUSY)) if attempt < ATTEMPTS => continue,
                (_, Err(libc::EAGAIN | libc::EBUSY)) => Err(Skip::Busy),
                (_, Err(libc::EPERM)) => Err(Skip::Denied),
                (None | Some(State::Empty), _) | (_, Err(libc::ESRCH)) => Err(Skip::Gone),
                // The answer too where a part of the block is not mapped any more.
                (_, Err(libc::ENOMEM)) if self.has_free_superpages() => Err(Skip::Gone),
                (_, Err(libc::ENOMEM)) => Err(Skip::NoSuperpage),
                (_, Err(libc::EINVAL)) => Err(Skip::Refused),
                // Made, and split again before it was read back.
                (Some(State::Base), Ok(_)) => Err(Skip::Busy),
                (Some(State::Base), Err(_)) => Err(Skip::Failed),
            };
        }
        Err(Skip::Busy)
    }

    /// Whether a page of the process is locked in memory: the kernel then refuses MADV_COLD (EINVAL), which splits.
    pub(crate) fn is_locked(&self, start: u64) -> bool {
        let page = start..start + self.base.bytes();
        let asked = self.fd.advise(std::slice::from_ref(&page), Advice::Cold);
        asked.is_err_and(|error| error.errno() == libc::EINVAL)
    }

    /// Whether enough superpages are free that a collapse cannot have failed for lack of one.
    fn has_free_superpages(&self) -> bool {
        let free = FreeContiguity::for_programs(&self.root, self.superpage);
        free.is_ok_and(|free| free.superpages.is_some_and(|count| count >= PLENTY))
    }

    /// Whether a superpage more leaves the headroom, on the machine and in the control group. False if unknown.
    fn has_memory(&self, headroom: ByteSize) -> bool {
        let size = self.superpage.bytes();
        let needed = headroom.bytes().saturating_add(2 * size);
        let machine = MemInfo::read(&self.root).ok().and_then(|machine| machine.available);
        let group = cgroup::memory_available_of(&self.root, self.process.pid);
        machine.is_some_and(|available| available.bytes() >= needed)
            && group.is_none_or(|available| available.bytes() >= 4 * size)
    }
}

/// What maps a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Huge,
    Base,
    Empty,
}

/// Reads what maps a block now; `None`: the process ended.
pub(crate) fn state(pagemap: Option<&Pagemap>, start: u64, size: u64) -> Option<State> {
    let regions = regions(pagemap?, start, size).ok()?;
    let is_huge = |region: &PageRegion| region.categories.contains(Categories::HUGE);
    Some(match regions.is_empty() {
        true => State::Empty,
        false if regions.iter().all(is_huge) => State::Huge,
        false => State::Base,
    })
}

fn regions(pagemap: &Pagemap, start: u64, size: u64) -> Result<Vec<PageRegion>, SysError> {
    let mut regions = Vec::new();
    pagemap.scan(start, start + size, Categories::PRESENT, &mut regions)?;
    regions.retain(|region| !region.categories.contains(Categories::PFNZERO));
    Ok(regions)
}

/// Whether another process maps a page of the block, apart from the zero page. False if unknown.
pub(crate) fn is_shared(pagemap: Option<&Pagemap>, start: u64, size: u64) -> bool {
    pagemap.is_some_and(|pagemap| pagemap.has_shared_memory(start, start + size).unwrap_or(false))
}

/// The pause after a call that keeps calls below this share of the time.
pub(crate) fn pause(took: Duration, duty: f64) -> Duration {
    took.mul_f64((1.0 / duty.clamp(0.001, 1.0) - 1.0).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_keep_the_share() {
        assert_eq!(pause(Duration::from_millis(1), 0.25), Duration::from_millis(3));
        assert_eq!(pause(Duration::from_millis(1), 1.0), Duration::ZERO);
        assert_eq!(pause(Duration::from_millis(1), 0.0), Duration::from_millis(999));
    }
}
