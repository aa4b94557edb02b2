//! What only smaps knows of a process's mappings, and what reading it costs the process.
//!
//! The kernel holds the process's mmap lock while it walks one mapping's page tables. Superpages cost next to nothing;
//! base pages cost 3 to 14 ms per GiB on a Cascade Lake guest and 25 ms on a Zen 4 guest. See docs/decisions/map.md#3.

use std::time::{Duration, Instant};

use host::process::{Smaps, SmapsEntry};
use host::{ReadError, Root};
use serde::Serialize;
use units::{ByteSize, Pid};

use crate::why::{Advice, Attributes};

/// Lowest price of a GiB of base pages: that of the fastest machine measured.
const LEAST_PER_GIB: Duration = Duration::from_millis(3);
/// Base pages that a scan must have met before its time says something of this machine.
const ENOUGH: u64 = 64 << 20;
/// smaps reads each page's `struct page`, PAGEMAP_SCAN the page tables alone: at most twice as slow where both were
/// measured.
const SMAPS_OVER_SCAN: u32 = 2;
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
    },
    /// Asked for; it could not be read.
    Failed {
        /// The reason.
        why: String,
    },
}

/// The longest time that reading smaps would hold the lock, from the bytes in base pages of each mapping in order, and
/// the time that PAGEMAP_SCAN took for all of them.
pub fn price(base_bytes: &[u64], scan: Duration) -> Duration {
    let all: u64 = base_bytes.iter().sum();
    let per_gib = match all >= ENOUGH {
        true => scan.mul_f64((1u64 << 30) as f64 / all as f64) * SMAPS_OVER_SCAN,
        false => LEAST_PER_GIB,
    };
    let together = base_bytes.windows(MAPPINGS_PER_READ.min(base_bytes.len().max(1)));
    let most = together.map(|some| some.iter().sum::<u64>()).max().unwrap_or(0);
    per_gib.max(LEAST_PER_GIB).mul_f64(most as f64 / (1u64 << 30) as f64)
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
        let none = Duration::ZERO;
        assert_eq!(price(&[], none), none);
        assert_eq!(price(&[10 * gib], none), Duration::from_millis(30));
        // A slow machine: the scan took 10 ms per GiB.
        assert_eq!(price(&[gib, gib], Duration::from_millis(20)), Duration::from_millis(40));
        // Seven mappings are read in two parts.
        let seven = [gib, gib, gib, gib, gib, gib, gib];
        assert_eq!(price(&seven, none), Duration::from_millis(18));
        // The time of a short scan says nothing.
        assert_eq!(price(&[1 << 20], Duration::from_secs(1)).as_micros(), 2);
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
