//! What only smaps knows of a process's mappings, and what reading it costs the process.
//!
//! The kernel holds the process's mmap lock while it walks one mapping's page tables. Superpages cost next to nothing;
//! base pages cost 3 to 25 ms per GiB, by the machine, because smaps reads each page's `struct page`. See
//! docs/decisions/map.md#3.

use std::time::{Duration, Instant};

use host::process::{KeptLoad, Smaps, SmapsEntry};
use host::{ReadError, Root};
use serde::Serialize;
use sys::SysError;
use sys::pagemap::{Categories, Pace, PageRegion, Pagemap};
use units::{ByteSize, Pid};

use crate::Extent;
use crate::why::{Advice, Attributes};

/// Lowest price of a GiB of base pages: that of the fastest machine measured.
const LEAST_PER_GIB: Duration = Duration::from_millis(3);
/// Bytes in base pages that a call of a trial needs; a shorter one says nothing.
const ENOUGH: u64 = 4 << 20;
/// Address space of one call of a trial, and number of calls: each holds the lock for 0.1 to 0.2 ms.
const TRIAL_BYTES: u64 = 8 << 20;
const TRIALS: usize = 5;
/// Mappings that one read of smaps returns at most, under one lock: a page of text holds six entries.
const MAPPINGS_PER_READ: usize = 6;

/// What became of smaps.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum SmapsState {
    /// Not asked for.
    NotRead {
        /// Estimated longest time, in seconds, that reading it would hold the process's mmap lock.
        estimated: f64,
    },
    /// Asked for, and dearer than the budget.
    TooDear {
        /// See `NotRead`.
        estimated: f64,
        /// The budget in seconds.
        budget: f64,
    },
    /// Read.
    Read {
        /// See `NotRead`.
        estimated: f64,
        /// Longest time, in seconds, that one mapping took to read, with the time this process waited for a CPU.
        longest: f64,
        /// The budget in seconds.
        budget: f64,
        /// Whether `longest` is above the budget.
        over_budget: bool,
    },
    /// Asked for; it could not be read.
    Failed {
        /// The reason.
        why: String,
    },
}

/// CPU time that the kernel takes for a GiB of base pages whose `struct page` it reads, tried on some parts of an extent by
/// PAGEMAP_SCAN with the category FILE. The median of the parts. `None` if no part has enough base pages.
pub(crate) fn try_per_gib(
    pagemap: &Pagemap,
    extent: &Extent,
) -> Result<Option<Duration>, SysError> {
    let mut each = Vec::new();
    let has_base = extent.blocks.iter().filter(|block| block.pages.base > 0);
    let starts: Vec<u64> = has_base.map(|block| block.start.max(extent.mapping.start)).collect();
    let (mut regions, mut pace) = (Vec::new(), Pace::new());
    for start in starts.iter().step_by(starts.len().div_ceil(TRIALS).max(1)) {
        let end = extent.mapping.end.min(start.saturating_add(TRIAL_BYTES));
        regions.clear();
        let before = sys::param::thread_cpu_time();
        pagemap.scan_with(*start, end, Categories::PRESENT, Categories::FILE, &mut regions)?;
        let took = sys::param::thread_cpu_time() - before;
        pace.rest();
        let is_base = |region: &&PageRegion| !region.categories.contains(Categories::HUGE);
        let bytes = regions.iter().filter(is_base).map(|region| region.end - region.start);
        let bytes: u64 = bytes.sum();
        if bytes >= ENOUGH {
            each.push(took.mul_f64(GIB / bytes as f64));
        }
    }
    each.sort_unstable();
    Ok(each.get(each.len() / 2).copied())
}

const GIB: f64 = (1u64 << 30) as f64;

/// The longest time that reading smaps would hold the lock, from the bytes in base pages of each mapping in order, and
/// the time for a GiB of them if it was tried.
pub fn price(base_bytes: &[u64], per_gib: Option<Duration>) -> Duration {
    let together = base_bytes.windows(MAPPINGS_PER_READ.min(base_bytes.len().max(1)));
    let most = together.map(|some| some.iter().sum::<u64>()).max().unwrap_or(0);
    per_gib.unwrap_or_default().max(LEAST_PER_GIB).mul_f64(most as f64 / GIB)
}

/// Time for which the scheduler lets another task run before it looks again: a tick of the slowest usual kernel (HZ=250).
const TURN: Duration = Duration::from_millis(4);

/// How much a task of ordinary priority waits for a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contention {
    /// Tasks for each CPU, rounded up; at least 1.
    tasks: u32,
}

impl Contention {
    /// A task that waits for none.
    pub const NONE: Self = Self { tasks: 1 };

    /// Reads how many tasks run or wait now, this one included. If that is unknown, one more task is assumed on each
    /// CPU.
    pub fn read(root: &Root) -> Self {
        let running =
            KeptLoad::open(root).and_then(|mut file| file.read()).ok().map(|load| load.running);
        let cpus = sys::affinity::allowed().map_or(1, |cpus| cpus.len().max(1));
        Self::new(running, cpus)
    }

    fn new(running: Option<u64>, cpus: usize) -> Self {
        let tasks = running.map_or(2, |running| running.div_ceil(cpus as u64).max(1));
        Self { tasks: u32::try_from(tasks).unwrap_or(u32::MAX) }
    }

    /// The time after which work of this CPU time is done. Work as long as a turn loses its CPU, shorter work with as
    /// much probability as it is shorter.
    pub fn wall_time(self, work: Duration) -> Duration {
        let others = self.tasks - 1;
        work.saturating_mul(self.tasks).saturating_add(work.min(TURN).saturating_mul(others))
    }
}

/// A mapping's range and attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// First address.
    pub start: u64,
    /// The address after the last byte.
    pub end: u64,
    /// Its attributes.
    pub attributes: Attributes,
    /// Resident bytes, hugetlb included.
    pub resident: ByteSize,
    /// Bytes that superpages map.
    pub huge: ByteSize,
}

/// Reads smaps: the attributes of each mapping, lowest address first, and the longest time that one took.
///
/// # Errors
/// smaps cannot be read.
pub fn read(root: &Root, pid: Pid) -> Result<(Vec<Known>, Duration), ReadError> {
    let (mut known, mut longest) = (Vec::new(), Duration::ZERO);
    let mut entries = Smaps::open(root, pid)?;
    loop {
        let began = Instant::now();
        let Some(entry) = entries.next() else { return Ok((known, longest)) };
        longest = longest.max(began.elapsed());
        known.push(Known::from(&entry?));
    }
}

impl From<&SmapsEntry> for Known {
    fn from(entry: &SmapsEntry) -> Self {
        let sum = |parts: &[ByteSize]| ByteSize(parts.iter().map(|part| part.bytes()).sum());
        let pool = [entry.shared_hugetlb, entry.private_hugetlb];
        Self {
            start: entry.mapping.start,
            end: entry.mapping.end,
            attributes: Attributes::from(entry),
            resident: sum(&[pool[0], pool[1], entry.rss]),
            huge: sum(&[pool[0], pool[1], entry.anon_huge, entry.shmem_pmd, entry.file_pmd]),
        }
    }
}

/// `VmFlags` of proc_pid_smaps(5).
impl From<&SmapsEntry> for Attributes {
    fn from(entry: &SmapsEntry) -> Self {
        let any = |flags: &[&str]| flags.iter().any(|flag| entry.has_flag(flag));
        Self {
            advice: match () {
                () if any(&["nh"]) => Advice::NoHugePage,
                () if any(&["hg"]) => Advice::HugePage,
                () => Advice::None,
            },
            locked: any(&["lo"]),
            userfault: any(&["um", "uw", "ui"]),
            special: any(&["io", "de", "pf", "mm"]),
            eligible: entry.thp_eligible,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_price_is_that_of_the_largest_mappings_together() {
        let gib = 1u64 << 30;
        assert_eq!(price(&[], None), Duration::ZERO);
        assert_eq!(price(&[10 * gib], None), Duration::from_millis(30));
        assert_eq!(price(&[10 * gib], Some(Duration::from_millis(1))), Duration::from_millis(30));
        // A slow machine: 10 ms per GiB.
        assert_eq!(price(&[gib, gib], Some(Duration::from_millis(10))), Duration::from_millis(20));
        // Seven mappings are read in two parts.
        let seven = [gib, gib, gib, gib, gib, gib, gib];
        assert_eq!(price(&seven, None), Duration::from_millis(18));
    }

    #[test]
    fn other_tasks_delay_the_work_of_an_ordinary_one() {
        let work = Duration::from_millis(6);
        for (running, cpus, expected) in [
            (Some(1), 2, 6),
            (Some(2), 2, 6),
            // Two tasks for each CPU: half of its time, and a turn of the other one.
            (Some(3), 2, 16),
            (Some(10), 2, 46),
            (Some(0), 1, 6),
            (None, 64, 16),
        ] {
            let took = Contention::new(running, cpus).wall_time(work);
            assert_eq!(took, Duration::from_millis(expected), "{running:?} on {cpus}");
        }
        assert_eq!(Contention::NONE.wall_time(work), work);
        let little = Contention::new(Some(10), 2).wall_time(Duration::from_micros(10));
        assert_eq!(little, Duration::from_micros(90));
        let most = Contention::new(Some(u64::MAX), 1).wall_time(work);
        assert!(most > Duration::from_secs(1 << 20), "{most:?}");
    }

    #[test]
    fn flags_are_attributes() {
        let text = "7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \nRss: 2048 kB\nAnonHugePages: 2048 kB\n\
            THPeligible: 1\nVmFlags: rd wr mr mw me ac lo hg um \n\
            7f0000400000-7f0000600000 rw-s 00000000 00:00 0 \nRss: 0 kB\nPrivate_Hugetlb: 2048 kB\n\
            VmFlags: rd wr mr mw me de ht nh \n";
        let entries = Smaps::from_reader(text.as_bytes(), "smaps");
        let known: Vec<Known> = entries.map(|entry| Known::from(&entry.unwrap())).collect();
        let first = known[0].attributes;
        assert_eq!((first.advice, first.locked, first.userfault), (Advice::HugePage, true, true));
        assert_eq!((first.special, first.eligible), (false, Some(true)));
        let second = known[1];
        assert_eq!(
            (second.attributes.advice, second.attributes.special),
            (Advice::NoHugePage, true)
        );
        assert_eq!((second.attributes.eligible, second.attributes.locked), (None, false));
        assert_eq!(
            (known[0].huge, second.huge, second.resident),
            (ByteSize(2 << 20), ByteSize(2 << 20), ByteSize(2 << 20))
        );
    }
}
