//! Zero-filled superpage memory, by sampling.
//!
//! A superpage occupies 2 MiB even if the program touched only one byte. Unwritten memory reads as zero, so the
//! all-zero base pages in superpages are an upper bound for the memory that base pages would save. (Ingens and HawkEye
//! call this memory bloat; HawkEye, section 3.2, finds it the same way.) Zeroes that the program wrote are counted too,
//! because they look the same from outside. The true cost is the extra memory of a run compared with a run on base
//! pages.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use sys::pagemap::{Categories, Pace, PageRegion, Pagemap};
use sys::peek::Memory;
use units::{ByteSize, Pid};

use crate::coverage::{MappingKind, zero_page};
use crate::process::{Maps, MemoryMounts};
use crate::{ReadError, Root};

/// Default number of base pages to read: the error for a share of one half is then at most 4.3 percentage points (95
/// %).
pub const DEFAULT_SAMPLES: u32 = 512;

/// Result of sampling a process's superpages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waste {
    /// The seed that chose the pages.
    pub seed: u64,
    /// Bytes in superpages: THP and hugetlb, anonymous and shared memory, without files.
    pub superpage_bytes: ByteSize,
    /// Number of base pages read.
    pub sampled: u32,
    /// Number of the pages read that are all zero.
    pub zero: u32,
    /// Number of sampled base pages that were unmapped before the read.
    pub unreadable: u32,
    /// Estimated bytes of zero pages: the share of zero pages in the sample times
    /// `superpage_bytes`; `None` if there are superpages but no page could be read.
    pub wasted: Option<ByteSize>,
}

/// Samples the superpages of `pid`: divides them into `samples` equal strata and reads one random
/// base page of each; reads all base pages if there are no more than `samples`. Needs
/// PTRACE_MODE_ATTACH and, for PAGEMAP_SCAN, Linux 6.7.
///
/// Costs one scan of the superpages (0.1 ms) plus 1.4 us for each page read (Zen 4 guest: 0.8 ms
/// for 512 pages), whatever the size of the process. If the process discards a page between scan
/// and read, the read maps the zero page there, and the page counts as zero.
pub fn sample(root: &Root, pid: Pid, samples: u32, seed: u64) -> Result<Waste, ReadError> {
    let ranges = huge_ranges(root, pid)?;
    let page = root.page_size().bytes();
    let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    let mut waste = Waste {
        seed,
        superpage_bytes: ByteSize(bytes),
        sampled: 0,
        zero: 0,
        unreadable: 0,
        wasted: None,
    };
    if bytes > 0 && !zero_page::is_flagged(root) {
        return Ok(waste); // the superpages may be the huge zero page, which takes no memory
    }
    let mut cursor = Cursor::new(&ranges);
    let chosen = strata(bytes / page, samples, seed);
    let addresses: Vec<u64> = chosen.map_while(|index| cursor.address(index * page)).collect();
    (waste.sampled, waste.zero) = zero_pages(pid, &addresses, page);
    waste.unreadable = addresses.len() as u32 - waste.sampled;
    waste.wasted = match (bytes, waste.sampled) {
        (0, _) => Some(ByteSize(0)),
        (_, 0) => None,
        _ => {
            let product = u128::from(bytes) * u128::from(waste.zero);
            Some(ByteSize((product / u128::from(waste.sampled)) as u64))
        }
    };
    Ok(waste)
}

/// Numbers of some base pages of the superpage at `start`, one in each of `samples` equal parts. Not at equal distances,
/// because programs access memory at equal strides. `pages` is the number of base pages of a superpage.
pub fn scattered(
    start: u64,
    superpage: u64,
    pages: u64,
    samples: u64,
) -> impl Iterator<Item = u64> {
    let every = pages / samples;
    (0..samples).map(move |at| at * every + (at * 13 + start / superpage * 5) % every)
}

/// Reads the base pages at these addresses. Returns the number of readable pages, and how many of them are all zero.
/// Pass only resident pages, because reading would fault in others.
pub fn zero_pages(pid: Pid, addresses: &[u64], page: u64) -> (u32, u32) {
    let (mut buffer, zeroes) = (vec![0; page as usize], vec![0; page as usize]);
    let (mut read, mut zero) = (0, 0);
    let Ok(memory) = Memory::open(pid) else { return (0, 0) };
    for address in addresses {
        if memory.read(*address, &mut buffer).is_ok_and(|length| length == buffer.len()) {
            read += 1;
            zero += u32::from(buffer == zeroes);
        }
    }
    (read, zero)
}

/// The superpage ranges of a process, lowest first; excludes files and the huge zero page.
fn huge_ranges(root: &Root, pid: Pid) -> Result<Vec<PageRegion>, ReadError> {
    let pagemap = Pagemap::open(pid)?;
    let mounts = MemoryMounts::from_pid(root, pid)?;
    let (mut ranges, mut pace) = (Vec::new(), Pace::new());
    for mapping in Maps::open(root, pid)? {
        let mapping = mapping?;
        if matches!(
            MappingKind::from_mapping(&mapping, &mounts),
            MappingKind::File | MappingKind::Special
        ) {
            continue;
        }
        pagemap.scan_each(mapping.start, mapping.end, Categories::HUGE, &mut pace, |regions| {
            ranges.extend_from_slice(regions);
        })?;
    }
    ranges.retain(|range| {
        range.categories.contains(Categories::PRESENT)
            && !range.categories.contains(Categories::PFNZERO)
    });
    Ok(ranges)
}

/// Picks one random number from each of `samples` equal parts of `0..pages`; all numbers if there are no more than
/// `samples`.
pub(crate) fn strata(pages: u64, samples: u32, seed: u64) -> impl Iterator<Item = u64> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let parts = pages.min(u64::from(samples));
    let edge = move |part: u64| (u128::from(pages) * u128::from(part) / u128::from(parts)) as u64;
    (0..parts).map(move |part| {
        let (low, high) = (edge(part), edge(part + 1));
        low + random.next_u64() % (high - low)
    })
}

/// Converts offsets in the concatenation of ranges to addresses. Offsets must not decrease between
/// calls.
pub(crate) struct Cursor<'a> {
    ranges: std::slice::Iter<'a, PageRegion>,
    /// The current range, and the offset where it begins.
    current: Option<(PageRegion, u64)>,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(ranges: &'a [PageRegion]) -> Self {
        let mut ranges = ranges.iter();
        let current = ranges.next().map(|range| (*range, 0));
        Self { ranges, current }
    }

    pub(crate) fn address(&mut self, offset: u64) -> Option<u64> {
        loop {
            let (range, begins) = self.current?;
            let len = range.end - range.start;
            if offset - begins < len {
                return Some(range.start + (offset - begins));
            }
            self.current = self.ranges.next().map(|range| (*range, begins + len));
        }
    }
}
