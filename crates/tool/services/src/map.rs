//! A process's memory with the reason for each part: what `superpage map` shows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use host::cgroup::MemoryStat;
use host::coverage::{MappingKind, Scanned};
use host::folios::{self, FolioSizes};
use host::process::{self, Device, Mapping, Resident};
use host::waste::{self, Waste};
use host::{ReadError, Root};
use serde::Serialize;
use sys::affinity::Undisturbed;
use sys::pagemap::{Pace, Pagemap};
use units::{ByteSize, PageSize, Pid};

use crate::smaps::{self, Contention, Known, SmapsState};
use crate::why::{Attributes, Fit, Machine, Place, Program, Reason, ShmemMode, reason};
use crate::{AddressSpace, Block, Extent, Pages, Process, SpaceError};

/// What is read beside the page tables.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Read smaps if it would hold the process's lock for at most this long.
    pub smaps: Option<Duration>,
    /// Number of base pages of superpages to read, to estimate how many are all zero.
    pub waste: Option<u32>,
    /// Number of base pages whose folios are looked up.
    pub folios: Option<u32>,
    /// Seed of the samples.
    pub seed: u64,
}

/// A process's memory, explained.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProcessMap {
    /// The process.
    pub process: Process,
    /// The superpage size.
    pub superpage: PageSize,
    /// The base page size.
    pub base: PageSize,
    /// What the kernel counts, without a walk; from before the scan.
    pub counted: Resident,
    /// The process's own facts.
    pub program: Program,
    /// Sum over all extents.
    pub pages: Scanned,
    /// The same by reason, the largest first.
    pub reasons: Vec<Share>,
    /// Mappings, lowest address first. They may be 100,000, so a document decides whether it has them.
    #[serde(skip)]
    pub extents: Vec<ExplainedExtent>,
    /// What became of smaps.
    pub smaps: SmapsState,
    /// Zero-filled base pages of superpages, if asked for.
    pub waste: Option<Sampled<Waste>>,
    /// Sizes of the folios below the superpage size, if asked for.
    pub folios: Option<Sampled<FolioSizes>>,
    /// Seconds that the scan took.
    pub scan_seconds: f64,
    /// Seconds of the scan's longest call: the process's mmap lock was held at most so long at a time.
    pub longest_hold_seconds: f64,
}

/// Result of reading a sample.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sampled<T> {
    /// The sample.
    Read(T),
    /// It could not be read.
    Unknown {
        /// The reason.
        why: String,
    },
}

/// One mapping, explained.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExplainedExtent {
    /// The mapping.
    pub mapping: Mapping,
    /// Kind of memory.
    pub kind: MappingKind,
    /// Its pages.
    pub pages: Scanned,
    /// What smaps says of it; `None`: unknown.
    pub attributes: Option<Attributes>,
    /// Its memory by reason, the largest first.
    pub reasons: Vec<Share>,
    /// The blocks, for a picture.
    #[serde(skip)]
    pub blocks: Vec<Block>,
}

/// Memory with the same reason. Each page of a mapping is in one share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Share {
    /// The reason.
    #[serde(flatten)]
    pub reason: Reason,
    /// Bytes in memory.
    pub resident: ByteSize,
    /// Bytes in swap.
    pub swapped: ByteSize,
    /// Bytes without memory behind them: never touched, or the zero page.
    pub empty: ByteSize,
}

/// Blocks whose page-table entries are read one by one, for pages shared after a fork: 9 µs each.
const FORKED_BLOCKS: usize = 256;

impl ProcessMap {
    /// Reads a process.
    ///
    /// # Errors
    /// The process ended, may not be read, or the kernel has no PAGEMAP_SCAN.
    pub fn read(root: &Root, process: &Process, options: &Options) -> Result<Self, SpaceError> {
        let counted = process::status(root, process.pid)?;
        let switches = Switches::read(root, process.pid);
        let began = Instant::now();
        let space = AddressSpace::read(root, process)?;
        let scan = began.elapsed();
        let machine = Machine::read(root, space.superpage);
        let (known, smaps) = read_smaps(root, &space, options.smaps);
        let program = Program { thp_enabled: counted.thp_enabled };
        let mut forks = Forks::new(process.pid, &machine);
        let (superpage, base) = (space.superpage, space.base);
        let (pages, longest_hold) = (space.pages(), space.longest_hold);
        let mut known = known.into_iter().peekable();
        let mut extents = Vec::new();
        for extent in space.extents {
            while known.next_if(|one| one.start < extent.mapping.start).is_some() {}
            let same =
                |one: &&Known| (one.start, one.end) == (extent.mapping.start, extent.mapping.end);
            let attributes = known.peek().filter(same).map(|one| one.attributes);
            let shared = switches.of(&extent, &machine);
            let per_block = (superpage.bytes() / base.bytes()) as u32;
            let place = Place {
                kind: extent.kind,
                fit: Fit::Whole,
                attributes,
                shared,
                per_block,
                forked: None,
            };
            let explain = |place: &Place, pages: &Pages| reason(&machine, &program, place, pages);
            extents.push(explained(extent, place, superpage, base, &mut forks, explain));
        }
        let reasons = sum(extents.iter().flat_map(|extent| extent.reasons.iter().copied()));
        Ok(Self {
            waste: options.waste.map(|samples| {
                let waste = waste::sample(root, process.pid, samples, options.seed);
                sampled(waste, |waste| waste.wasted.is_some())
            }),
            folios: options.folios.map(|samples| {
                let sizes = folios::sample(root, process.pid, samples, options.seed);
                sampled(sizes, |_| true)
            }),
            process: process.clone(),
            superpage,
            base,
            counted,
            program,
            pages,
            reasons,
            extents,
            smaps,
            scan_seconds: scan.as_secs_f64(),
            longest_hold_seconds: longest_hold.as_secs_f64(),
        })
    }

    /// Share of the resident bytes that superpages map, from 0 to 1; `None` if nothing is resident.
    pub fn coverage(&self) -> Option<f64> {
        let (huge, all) = (self.pages.huge.bytes(), self.pages.present.bytes());
        (all > 0).then(|| huge as f64 / all as f64)
    }

    /// The largest share of resident memory that could be on superpages and is not.
    pub fn largest_gap(&self) -> Option<&Share> {
        self.reasons
            .iter()
            .filter(|share| share.reason.could_be() && share.resident.bytes() > 0)
            .max_by_key(|share| share.resident)
    }
}

fn sampled<T>(result: Result<T, ReadError>, is_known: impl Fn(&T) -> bool) -> Sampled<T> {
    match result {
        Ok(value) if is_known(&value) => Sampled::Read(value),
        Ok(_) => Sampled::Unknown { why: "no sampled page could be read".to_string() },
        Err(error) => Sampled::Unknown { why: error.to_string() },
    }
}

fn read_smaps(
    root: &Root,
    space: &AddressSpace,
    budget: Option<Duration>,
) -> (Vec<Known>, SmapsState) {
    let less = |pages: &Scanned| pages.present.bytes().saturating_sub(pages.huge.bytes());
    let base: Vec<u64> = space.extents.iter().map(|extent| less(&extent.pages)).collect();
    let undisturbed = Undisturbed::new();
    let contention = match undisturbed {
        Ok(_) => Contention::NONE,
        Err(_) => Contention::read(root),
    };
    let largest = space.extents.iter().max_by_key(|extent| less(&extent.pages));
    let per_gib = largest.and_then(|extent| {
        let pagemap = Pagemap::open(space.process.pid).ok()?;
        smaps::try_per_gib(&pagemap, extent).ok()?
    });
    let price = contention.wall_time(smaps::price(&base, per_gib));
    let estimated = price.as_secs_f64();
    let Some(budget) = budget else { return (Vec::new(), SmapsState::NotRead { estimated }) };
    if price > budget {
        let budget = budget.as_secs_f64();
        return (Vec::new(), SmapsState::TooDear { estimated, budget });
    }
    match smaps::read(root, space.process.pid) {
        Ok((known, longest)) => {
            let over_budget = longest > budget;
            let (longest, budget) = (longest.as_secs_f64(), budget.as_secs_f64());
            (known, SmapsState::Read { estimated, longest, budget, over_budget })
        }
        Err(error) => (Vec::new(), SmapsState::Failed { why: error.to_string() }),
    }
}

/// Explains each block of a mapping and sums up.
fn explained(
    extent: Extent,
    place: Place,
    superpage: PageSize,
    base: PageSize,
    forks: &mut Forks,
    reason: impl Fn(&Place, &Pages) -> Reason,
) -> ExplainedExtent {
    let Extent { mapping, kind, pages, blocks } = extent;
    let holds_any = mapping.holds_aligned(superpage);
    let mut shares = Vec::new();
    let bytes = |pages: u32| ByteSize(u64::from(pages) * base.bytes());
    let share = |reason, resident, swapped, empty| Share { reason, resident, swapped, empty };
    let none = ByteSize(0);
    for block in &blocks {
        let end = block.start.saturating_add(superpage.bytes());
        let fit = match (holds_any, block.start >= mapping.start && end <= mapping.end) {
            (false, _) => Fit::None,
            (true, false) => Fit::Edge,
            (true, true) => Fit::Whole,
        };
        let place = Place { fit, ..place };
        let mut why = reason(&place, &block.pages);
        if fit == Fit::Whole && forks.matter_for(why, kind) {
            let forked = forks.read(block.start, end);
            why = reason(&Place { forked, ..place }, &block.pages);
        }
        let Pages { base, huge, zero, swapped } = block.pages;
        let on = if kind == MappingKind::Hugetlb { Reason::Pool } else { Reason::OnSuperpages };
        for (pages, reason) in [(huge, on), (base, why)] {
            if pages > 0 {
                shares.push(share(reason, bytes(pages), none, none));
            }
        }
        if swapped > 0 {
            shares.push(share(why, none, bytes(swapped), none));
        }
        if zero > 0 {
            shares.push(share(Reason::ZeroPage, none, none, bytes(zero)));
        }
    }
    let touched = pages.present.bytes() + pages.zero.bytes() + pages.swapped.bytes();
    let untouched = ByteSize(mapping.len().saturating_sub(touched));
    let rest = if kind == MappingKind::Special { Reason::Kernel } else { Reason::NeverTouched };
    shares.push(share(rest, none, none, untouched));
    let attributes = place.attributes;
    ExplainedExtent { mapping, kind, pages, attributes, reasons: sum(shares), blocks }
}

/// Adds up shares with the same reason; the largest first, without empty ones.
pub fn sum(shares: impl IntoIterator<Item = Share>) -> Vec<Share> {
    let mut sums: BTreeMap<Reason, Share> = BTreeMap::new();
    let plus = |a: &mut ByteSize, b: ByteSize| *a = ByteSize(a.bytes().saturating_add(b.bytes()));
    for share in shares {
        let none =
            Share { resident: ByteSize(0), swapped: ByteSize(0), empty: ByteSize(0), ..share };
        let sum = sums.entry(share.reason).or_insert(none);
        plus(&mut sum.resident, share.resident);
        plus(&mut sum.swapped, share.swapped);
        plus(&mut sum.empty, share.empty);
    }
    let size = |share: &Share| std::cmp::Reverse((share.resident, share.swapped, share.empty));
    let mut sums: Vec<Share> = sums.into_values().collect();
    sums.retain(|share| size(share).0 != (ByteSize(0), ByteSize(0), ByteSize(0)));
    sums.sort_by_key(size);
    sums
}

/// Reads how many pages of a block are shared after a fork, of the first blocks for which the answer matters.
struct Forks {
    pagemap: Option<Pagemap>,
    pace: Pace,
    left: usize,
}

impl Forks {
    fn new(pid: Pid, machine: &Machine) -> Self {
        let pagemap = machine.max_ptes_shared.and_then(|_| Pagemap::open(pid).ok());
        Self { pagemap, pace: Pace::new(), left: FORKED_BLOCKS }
    }

    fn matter_for(&self, reason: Reason, kind: MappingKind) -> bool {
        let is_last =
            matches!(reason, Reason::NotYet | Reason::NoContiguity { .. } | Reason::ScanDisabled);
        is_last && kind.is_anonymous() && self.left > 0 && self.pagemap.is_some()
    }

    fn read(&mut self, start: u64, end: u64) -> Option<u64> {
        self.left = self.left.saturating_sub(1);
        let count = self.pagemap.as_ref()?.count_shared(start, end).ok();
        self.pace.rest();
        count
    }
}

/// The switches for shared memory of a process's tmpfs mounts.
struct Switches {
    /// `None`: mountinfo could not be read.
    mounts: Option<BTreeMap<(u32, u32), Option<ShmemMode>>>,
}

impl Switches {
    fn read(root: &Root, pid: Pid) -> Self {
        let text = root.read(&format!("/proc/{pid}/mountinfo")).ok();
        Self { mounts: text.map(|text| tmpfs_switches(&text)) }
    }

    fn of(&self, extent: &Extent, machine: &Machine) -> Option<ShmemMode> {
        if extent.kind != MappingKind::Shmem {
            return None;
        }
        let Device { major, minor } = extent.mapping.device;
        let mounts = self.mounts.as_ref()?;
        // The kernel's own mount (MAP_SHARED without a file, memfd, System V) is in no mount table.
        mounts.get(&(major, minor)).copied().unwrap_or(machine.shared)
    }
}

/// Device and `huge=` option of each tmpfs; without the option the switch is `never` (mm/shmem.c, shmem_show_options).
fn tmpfs_switches(mountinfo: &str) -> BTreeMap<(u32, u32), Option<ShmemMode>> {
    let of_line = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let (major, minor) = before.split(' ').nth(2)?.split_once(':')?;
        let mut after = after.split(' ');
        if !["tmpfs", "devtmpfs"].contains(&after.next()?) {
            return None;
        }
        let huge = after.nth(1)?.split(',').find_map(|option| option.strip_prefix("huge="));
        let mode = huge.map_or(Some(ShmemMode::Never), ShmemMode::from_word);
        Some(((major.parse().ok()?, minor.parse().ok()?), mode))
    };
    mountinfo.lines().filter_map(of_line).collect()
}

/// What a cgroup's memory.stat counts, in bytes. A field is `None` if this version of cgroups does not count it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CgroupMemory {
    /// The path below the mount point of the memory controller.
    pub path: String,
    /// Anonymous memory.
    pub anonymous: Option<ByteSize>,
    /// The part of it in superpages. Version 1 counts whole folios, whether or not superpages map them.
    pub anonymous_huge: Option<ByteSize>,
    /// Shared memory.
    pub shared: Option<ByteSize>,
    /// The part of it in superpages; version 2 alone.
    pub shared_huge: Option<ByteSize>,
    /// Files' pages, without shared memory.
    pub file: Option<ByteSize>,
    /// The part of it in superpages; version 2 alone.
    pub file_huge: Option<ByteSize>,
}

impl CgroupMemory {
    /// Reads `memory.stat` of a cgroup, of version 1 or 2, with the groups below it.
    ///
    /// # Errors
    /// Neither hierarchy has the file, or it cannot be read.
    pub fn read(root: &Root, path: &str) -> Result<Self, ReadError> {
        let stat = MemoryStat::read(root, path)?;
        let value = |key: &str| stat.get(key).map(ByteSize);
        let less = |all: Option<ByteSize>, part: Option<ByteSize>| {
            Some(ByteSize(all?.bytes().saturating_sub(part?.bytes())))
        };
        let shared = value("total_shmem").or_else(|| value("shmem"));
        Ok(Self {
            path: path.trim_end_matches('/').to_string(),
            anonymous: value("total_rss").or_else(|| value("anon")),
            anonymous_huge: value("total_rss_huge").or_else(|| value("anon_thp")),
            shared,
            shared_huge: value("shmem_thp"),
            file: less(value("total_cache").or_else(|| value("file")), shared),
            file_huge: value("file_thp"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_the_largest_is_first() {
        let share = |reason, resident| Share {
            reason,
            resident: ByteSize(resident),
            swapped: ByteSize(0),
            empty: ByteSize(0),
        };
        let all = [share(Reason::File, 5), share(Reason::NotAdvised, 4), share(Reason::File, 1)];
        let none = [share(Reason::AtEdge, 0)];
        let sums = sum(all.into_iter().chain(none));
        assert_eq!(sums, [share(Reason::File, 6), share(Reason::NotAdvised, 4)]);
    }

    #[test]
    fn a_tmpfs_has_its_own_switch() {
        let text = "\
            22 1 0:21 / /dev/shm rw - tmpfs tmpfs rw,size=1k,huge=advise\n\
            23 1 0:22 / /run rw shared:1 - tmpfs tmpfs rw,mode=755\n\
            24 1 0:23 / /new rw - tmpfs tmpfs rw,huge=sometimes\n\
            25 1 8:1 / / rw - ext4 /dev/sda1 rw,huge=always\nx\n";
        let found = tmpfs_switches(text);
        let expected = [
            ((0, 21), Some(ShmemMode::Advise)),
            ((0, 22), Some(ShmemMode::Never)),
            ((0, 23), None),
        ];
        assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn both_versions_of_memory_stat_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put(
            "sys/fs/cgroup/a/memory.stat",
            "anon 70\nfile 30\nshmem 10\nanon_thp 50\nshmem_thp 4\n",
        );
        let two = CgroupMemory::read(&root, "/a/").unwrap();
        assert_eq!((two.anonymous, two.anonymous_huge), (Some(ByteSize(70)), Some(ByteSize(50))));
        assert_eq!((two.file, two.shared_huge), (Some(ByteSize(20)), Some(ByteSize(4))));
        assert_eq!(two.file_huge, None);
        let text = "rss 1\ntotal_rss 80\ntotal_rss_huge 60\ntotal_cache 9\ntotal_shmem 2\n";
        put("sys/fs/cgroup/memory/a/memory.stat", text);
        let one = CgroupMemory::read(&root, "/a").unwrap();
        assert_eq!((one.anonymous, one.anonymous_huge), (Some(ByteSize(80)), Some(ByteSize(60))));
        assert_eq!((one.file, one.shared_huge), (Some(ByteSize(7)), None));
        assert!(CgroupMemory::read(&root, "/b").unwrap_err().is_gone());
    }
}
