//! Sizes of the folios behind base-sized page-table entries, by sampling.
//!
//! Page tables show superpages, but not smaller folios (mTHP), which base-sized entries map. Their sizes are known from
//! the pages' frame numbers and `/proc/kpageflags`, which only root may read. Each sampled page costs one or two reads
//! there, so a sample stands for the whole.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};
use sys::pagemap::{Categories, Pace, PageRegion, Pagemap};
use units::{ByteSize, PageSize, Pid};

use crate::coverage::MappingKind;
use crate::process::{Maps, MemoryMounts};
use crate::waste::{Cursor, strata};
use crate::{ReadError, Root, Thp};

/// Default number of pages sampled: the error for a share of one half is then at most 4.3 percentage points (95 %).
pub const DEFAULT_SAMPLES: u32 = 512;

/// Bits of `/proc/kpageflags` (`include/uapi/linux/kernel-page-flags.h`).
const COMPOUND_HEAD: u64 = 1 << 15;
const COMPOUND_TAIL: u64 = 1 << 16;

/// Result of [`sample`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolioSizes {
    /// The seed that chose the pages.
    pub seed: u64,
    /// Bytes that base-sized entries map, without files and the zero page: what the sample stands for.
    pub base_bytes: ByteSize,
    /// Number of pages whose folio was found.
    pub sampled: u32,
    /// Number of pages that were unmapped before the look-up, or whose folio changed meanwhile.
    pub lost: u32,
    /// Number of sampled pages by the size of their folio; the base page size is no folio of several pages.
    pub sizes: BTreeMap<PageSize, u32>,
}

/// Samples the pages of `pid` that base-sized entries map. Takes the scan and up to 0.12 ms for each page sampled.
///
/// # Errors
/// The process or `/proc/kpageflags` cannot be read: both need root (CAP_SYS_ADMIN), else frame numbers are 0.
pub fn sample(root: &Root, pid: Pid, samples: u32, seed: u64) -> Result<FolioSizes, ReadError> {
    let path = root.path("/proc/kpageflags");
    let opened = File::open(&path);
    let flags = opened.map_err(|source| ReadError::Io { path: path.clone(), source })?;
    let pagemap = Pagemap::open(pid)?;
    let page = root.page_size();
    let ranges = base_ranges(root, pid, &pagemap)?;
    let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    let mut sizes = FolioSizes { seed, base_bytes: ByteSize(bytes), ..FolioSizes::default() };
    let mut cursor = Cursor::new(&ranges);
    let largest = Thp::pmd_size_of(root)?.bytes() / page.bytes();
    for index in strata(bytes / page.bytes(), samples, seed) {
        let Some(address) = cursor.address(index * page.bytes()) else { break };
        let frames = pagemap.frames(address, address + page.bytes())?;
        // Frame 0 is never a program's: without privilege all numbers are 0.
        let frame = frames.first().copied().flatten().filter(|frame| *frame != 0);
        let pages = frame.and_then(|frame| folio_pages(&flags, frame, largest));
        let size = pages.and_then(|pages| PageSize::new(pages * page.bytes()).ok());
        match size {
            Some(size) => {
                sizes.sampled += 1;
                *sizes.sizes.entry(size).or_default() += 1;
            }
            None => sizes.lost += 1,
        }
    }
    Ok(sizes)
}

/// Number of pages of the folio that `frame` belongs to; `None` if its flags cannot be read or make no sense.
fn folio_pages(flags: &File, frame: u64, largest: u64) -> Option<u64> {
    let read = |frame: u64, count: u64| -> Option<Vec<u64>> {
        let mut bytes = vec![0; (count * 8) as usize];
        flags.read_exact_at(&mut bytes, frame * 8).ok()?;
        let words = bytes.chunks_exact(8);
        Some(words.map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default())).collect())
    };
    if read(frame, 1)?[0] & (COMPOUND_HEAD | COMPOUND_TAIL) == 0 {
        return Some(1);
    }
    // A folio is aligned to its size.
    let first = frame - frame % largest;
    length_around(&read(first, largest)?, (frame - first) as usize)
}

/// The number of pages of the folio around `at`, from the flags of an aligned range.
fn length_around(flags: &[u64], at: usize) -> Option<u64> {
    let head = flags[..=at].iter().rposition(|flags| flags & COMPOUND_HEAD != 0)?;
    let is_tail = |flags: &&u64| **flags & COMPOUND_TAIL != 0;
    let tails = flags[head + 1..].iter().take_while(is_tail).count();
    let is_inside = at <= head + tails;
    (is_inside && (1 + tails).is_power_of_two()).then_some(1 + tails as u64)
}

/// The ranges of anonymous and shared memory that base-sized entries map, lowest first.
fn base_ranges(root: &Root, pid: Pid, pagemap: &Pagemap) -> Result<Vec<PageRegion>, ReadError> {
    let mounts = MemoryMounts::from_pid(root, pid)?;
    let (mut ranges, mut pace) = (Vec::<PageRegion>::new(), Pace::new());
    for mapping in Maps::open(root, pid)? {
        let mapping = mapping?;
        let kind = MappingKind::from_mapping(&mapping, &mounts);
        if !kind.is_anonymous() && kind != MappingKind::Shmem {
            continue;
        }
        let is_base = |region: &&PageRegion| {
            let is = |wanted| region.categories.contains(wanted);
            is(Categories::PRESENT) && !is(Categories::HUGE) && !is(Categories::PFNZERO)
        };
        pagemap.scan_each(
            mapping.start,
            mapping.end,
            Categories::PRESENT,
            &mut pace,
            |regions| {
                ranges.extend(regions.iter().filter(is_base));
            },
        )?;
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: u64 = COMPOUND_HEAD;
    const TAIL: u64 = COMPOUND_TAIL;

    #[test]
    fn a_folio_is_a_head_and_its_tails() {
        let flags = [0, HEAD, TAIL, 0, HEAD, TAIL, TAIL, TAIL, HEAD, TAIL, TAIL, HEAD];
        assert_eq!(length_around(&flags, 1), Some(2));
        assert_eq!(length_around(&flags, 2), Some(2));
        assert_eq!((length_around(&flags, 4), length_around(&flags, 7)), (Some(4), Some(4)));
        // Not within a folio, or one that was torn between two reads.
        assert_eq!((length_around(&flags, 0), length_around(&flags, 3)), (None, None));
        assert_eq!(length_around(&flags, 9), None);
        assert_eq!(length_around(&flags, 11), Some(1));
    }

    #[test]
    fn base_pages_are_told_from_larger_folios() {
        use sys::mem::{Advice, Backing, Mapping};
        let root = Root::real();
        testkit::require!(testkit::is_root(), "frame numbers need root");
        testkit::require!(File::open("/proc/kpageflags").is_ok(), "no /proc/kpageflags");
        let mut memory = Mapping::anonymous(64 << 20, Backing::Pages).unwrap();
        memory.advise(Advice::NoHugePage).unwrap();
        memory.bytes_mut().fill(1);
        let found = sample(&root, sys::param::own_pid(), 256, 1).unwrap();
        assert!(found.base_bytes.bytes() >= 64 << 20, "{found:?}");
        let base = found.sizes.get(&root.page_size()).copied().unwrap_or(0);
        // This process's other memory is less than half of it.
        assert!(base > found.sampled / 2, "{found:?}");
    }
}
