//! Coverage: how much of a process's memory is mapped by superpages, by size and kind.
//!
//! smaps walks the page tables and so shows the current state. `Rss` in smaps excludes hugetlb pages, so they are
//! added. A sum over processes counts a page once for each process that maps it, in every field, as RSS does. A
//! [`Census`] counts each page once.

mod census;
pub(crate) mod zero_page;

pub use census::{Census, Counted};
pub use zero_page::is_flagged as tells_zero_page;

use std::collections::BTreeMap;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};
use sys::SysError;
use sys::pagemap::{Categories, PageRegion, Pagemap};
use units::{ByteSize, PageSize, Pid};

use crate::process::{Mapping, MemoryMounts, Sharing, Smaps, SmapsEntry};
use crate::root::Reasons;
use crate::{MemInfo, ReadError, Root, Thp, Unknown, process};

/// Coverage of a process and its descendants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeCoverage {
    /// The sum of all processes.
    pub coverage: Coverage,
    /// The processes that were read.
    pub processes: Vec<Pid>,
    /// Processes that could not be read, with reasons. Ended processes are not included.
    pub unknown: Vec<Unknown>,
}

/// Coverage of one mapping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappingCoverage {
    /// First address.
    pub start: u64,
    /// The address after the last byte.
    pub end: u64,
    /// The file's path, `[heap]`, `[anon:NAME]`, or nothing.
    pub name: String,
    /// Kind of memory.
    pub kind: MappingKind,
    /// The kernel's two-letter flags; `hg`: MADV_HUGEPAGE, `nh`: MADV_NOHUGEPAGE.
    pub vm_flags: String,
    /// Whether the kernel would use THP here; `None` if this kernel does not say.
    pub thp_eligible: Option<bool>,
    /// Resident memory of the mapping.
    pub coverage: Coverage,
}

impl Coverage {
    /// Coverage of one process.
    pub fn of_process(root: &Root, pid: Pid) -> Result<Self, ReadError> {
        let classifier = Classifier::new(root, pid)?;
        let mut sum = Self::default();
        for entry in Smaps::open(root, pid)? {
            sum += classifier.classify(&entry?).1;
        }
        Ok(sum)
    }

    /// Coverage of a process and its live descendants. Fails only if `pid` itself cannot be read;
    /// the result names descendants that could not be read.
    pub fn of_tree(root: &Root, pid: Pid) -> Result<TreeCoverage, ReadError> {
        let coverage = Self::of_process(root, pid)?;
        let mut tree = TreeCoverage { coverage, processes: vec![pid], unknown: Vec::new() };
        let mut reasons = Reasons::default();
        for child in process::tree(root, pid).into_iter().filter(|child| *child != pid) {
            match Self::of_process(root, child) {
                Ok(coverage) => {
                    tree.coverage += coverage;
                    tree.processes.push(child);
                }
                Err(error) if error.is_gone() => {}
                Err(error) => reasons.note(&format!("coverage of {child:?}"), error.to_string()),
            }
        }
        tree.unknown = reasons.0;
        Ok(tree)
    }
}

/// Coverage of each mapping of a process, lowest address first.
pub fn per_mapping(root: &Root, pid: Pid) -> Result<Vec<MappingCoverage>, ReadError> {
    let classifier = Classifier::new(root, pid)?;
    let mapping = |entry: Result<SmapsEntry, ReadError>| {
        let entry = entry?;
        let (kind, coverage) = classifier.classify(&entry);
        Ok(MappingCoverage {
            start: entry.mapping.start,
            end: entry.mapping.end,
            name: entry.mapping.name,
            kind,
            vm_flags: entry.vm_flags,
            thp_eligible: entry.thp_eligible,
            coverage,
        })
    };
    Smaps::open(root, pid)?.map(mapping).collect()
}

/// The facts outside smaps that classifying an entry needs.
#[derive(Debug)]
struct Classifier {
    /// The superpage size: the PMD size; without THP, the default hugetlb page size.
    superpage: Option<PageSize>,
    mounts: MemoryMounts,
}

impl Classifier {
    fn new(root: &Root, pid: Pid) -> Result<Self, ReadError> {
        let superpage = match Thp::pmd_size_of(root) {
            Ok(size) => Some(size),
            Err(error) if error.is_gone() => MemInfo::read(root)?.default_hugepage,
            Err(error) => return Err(error),
        };
        Ok(Self { superpage, mounts: MemoryMounts::from_pid(root, pid)? })
    }

    fn classify(&self, entry: &SmapsEntry) -> (MappingKind, Coverage) {
        let kind = MappingKind::from_entry(entry, &self.mounts);
        (kind, Coverage::from_entry(entry, kind, self.superpage))
    }
}

// What a mapping is.

/// Kind of memory that a mapping holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MappingKind {
    /// Private anonymous memory, from mmap.
    Anonymous,
    /// The brk heap.
    Heap,
    /// The main thread's stack.
    Stack,
    /// Shared memory: `MAP_SHARED` without a file, memfd, SysV, tmpfs.
    Shmem,
    /// A file; private copies of its pages count as anonymous bytes.
    File,
    /// Pages of a hugetlb pool.
    Hugetlb,
    /// Special mappings of the kernel: vdso, vvar, vsyscall.
    Special,
}

impl MappingKind {
    pub(crate) fn from_entry(entry: &SmapsEntry, mounts: &MemoryMounts) -> Self {
        let hugetlb = entry.shared_hugetlb.bytes() | entry.private_hugetlb.bytes();
        if hugetlb > 0 || entry.has_flag("ht") {
            Self::Hugetlb
        } else if entry.shmem_pmd.bytes() > 0 {
            Self::Shmem
        } else {
            Self::from_mapping(&entry.mapping, mounts)
        }
    }

    /// Classifies a line of maps. On a fixture of another machine, a hugetlb memfd is indistinguishable from shared
    /// memory.
    pub fn from_mapping(mapping: &Mapping, mounts: &MemoryMounts) -> Self {
        let name = mapping.name.as_str();
        // The kernel's internal tmpfs is in no mount table, but its files have fixed names (mm/shmem.c
        // shmem_zero_setup, mm/memfd.c, ipc/shm.c). `[anon_shmem:` is PR_SET_VMA_NAME. The last name is our own
        // library's (abi::environment::IN_PLACE_FILE).
        let shmem_name = ["/dev/zero", "/memfd:", "/SYSV", "[anon_shmem:", "/superpage-in-place"]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        // Name of hugetlbfs' unlinked internal files (fs/hugetlbfs/inode.c).
        let hugetlb_name = name.starts_with("/anon_hugepage");
        match (mapping.inode, mapping.sharing) {
            (1.., _) if hugetlb_name || mounts.hugetlb(mapping.device).is_some() => Self::Hugetlb,
            // A private mapping of /dev/zero is anonymous memory with a name.
            (_, Sharing::Private) if name == "/dev/zero" => Self::Anonymous,
            (1.., _) if shmem_name || mounts.tmpfs.contains(&mapping.device) => Self::Shmem,
            (1.., _) => Self::File,
            (0, Sharing::Shared) if shmem_name => Self::Shmem,
            (0, _) if name == "[heap]" => Self::Heap,
            (0, _) if name.starts_with("[stack") => Self::Stack,
            (0, _) if name.is_empty() || name.starts_with("[anon:") => Self::Anonymous,
            (0, _) if name.starts_with('[') => Self::Special,
            (0, _) => Self::File,
        }
    }

    /// Whether pages of a mapping of this kind count as the process's memory. Of the kernel's own mappings only `[vdso]`
    /// has such pages.
    pub fn has_pages(self, mapping: &Mapping) -> bool {
        self != Self::Special || mapping.name == "[vdso]"
    }

    /// Whether the mapping is private anonymous memory, which THP may back.
    pub fn is_anonymous(self) -> bool {
        matches!(self, Self::Anonymous | Self::Heap | Self::Stack)
    }
}

// Memory of an address range by PAGEMAP_SCAN: cheaper than smaps, and not limited to whole mappings. Works only on the
// real machine, because a system call has no fixture.

/// Memory of a range of addresses, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scanned {
    /// Present bytes, of every page size. Excludes the shared zero page, as RSS does.
    pub present: ByteSize,
    /// The part of `present` mapped by an entry above the lowest level (THP or hugetlb).
    pub huge: ByteSize,
    /// Mapped to the shared zero page, small or huge.
    pub zero: ByteSize,
    /// In swap.
    pub swapped: ByteSize,
}

impl Scanned {
    /// Adds the pages of a region.
    pub fn add(&mut self, region: &PageRegion) {
        let bytes = ByteSize(region.end.saturating_sub(region.start));
        let is = |wanted| region.categories.contains(wanted);
        let slot = match () {
            () if is(Categories::PFNZERO) => &mut self.zero,
            () if is(Categories::PRESENT) => &mut self.present,
            () => &mut self.swapped,
        };
        *slot = plus(*slot, bytes);
        if is(Categories::PRESENT | Categories::HUGE) && !is(Categories::PFNZERO) {
            self.huge = plus(self.huge, bytes);
        }
    }

    /// The sum of two ranges.
    pub fn plus(self, other: Self) -> Self {
        Self {
            present: plus(self.present, other.present),
            huge: plus(self.huge, other.huge),
            zero: plus(self.zero, other.zero),
            swapped: plus(self.swapped, other.swapped),
        }
    }
}

/// Bytes per scan: the list of regions stays below 3 MB even if every other base page is absent.
const WINDOW: u64 = 1 << 30;

/// Scans `start..end` (page-aligned). Takes per GB: 13 ms for base pages on a Zen 4 guest (4 ms on a Cascade Lake
/// guest), 0.02 ms for superpages.
pub fn scan(pagemap: &Pagemap, start: u64, end: u64) -> Result<Scanned, SysError> {
    let mut sum = Scanned::default();
    let mut regions = Vec::new();
    let mut from = start;
    while from < end {
        let to = end.min(from.saturating_add(WINDOW));
        regions.clear();
        pagemap.scan(from, to, Categories::PRESENT | Categories::SWAPPED, &mut regions)?;
        regions.iter().for_each(|region| sum.add(region));
        from = to;
    }
    Ok(sum)
}

// `Coverage`: resident bytes by mapping size and kind, with sums and ratios.

/// Resident bytes by the size of the page-table entry that maps them, and by kind. "Base" includes large folios below
/// PMD size (mTHP), which base-sized entries map.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Anonymous, mapped by base-sized entries.
    pub anon_base: ByteSize,
    /// Anonymous, mapped by a PMD.
    pub anon_thp: ByteSize,
    /// Shared memory, mapped by base-sized entries.
    pub shmem_base: ByteSize,
    /// Shared memory, mapped by a PMD.
    pub shmem_pmd: ByteSize,
    /// Page cache, mapped by base-sized entries.
    pub file_base: ByteSize,
    /// Page cache, mapped by a PMD.
    pub file_pmd: ByteSize,
    /// hugetlb pages that one process maps, by page size.
    pub hugetlb_private: BTreeMap<PageSize, ByteSize>,
    /// hugetlb pages that several processes map, by page size.
    pub hugetlb_shared: BTreeMap<PageSize, ByteSize>,
    /// Bytes swapped out.
    pub swapped: ByteSize,
    /// Resident bytes that superpages could map: private anonymous memory in mappings that hold
    /// at least one whole aligned superpage, and all hugetlb.
    pub eligible: ByteSize,
    /// The part of `eligible` that superpages map.
    pub eligible_huge: ByteSize,
}

impl Coverage {
    /// Coverage of one smaps entry; `superpage` is the superpage size.
    fn from_entry(entry: &SmapsEntry, kind: MappingKind, superpage: Option<PageSize>) -> Self {
        let mut coverage = Self { swapped: entry.swap, ..Self::default() };
        let (anon, anon_thp) = (entry.anonymous, entry.anon_huge);
        coverage.anon_thp = anon_thp;
        coverage.anon_base = less(anon, anon_thp);
        let rest = less(entry.rss, anon);
        coverage.shmem_pmd = entry.shmem_pmd;
        coverage.file_pmd = entry.file_pmd;
        let base = less(less(rest, entry.shmem_pmd), entry.file_pmd);
        let slot = match kind {
            MappingKind::Shmem => &mut coverage.shmem_base,
            _ => &mut coverage.file_base,
        };
        *slot = base;
        if let Some(size) = entry.kernel_page_size {
            add_sized(&mut coverage.hugetlb_private, size, entry.private_hugetlb);
            add_sized(&mut coverage.hugetlb_shared, size, entry.shared_hugetlb);
        }
        let roomy = superpage.is_some_and(|size| entry.mapping.holds_aligned(size));
        let hugetlb = coverage.hugetlb();
        // Memory in a superpage counts as eligible even if the mapping has changed since.
        let eligible = if roomy && kind.is_anonymous() { anon } else { anon_thp };
        coverage.eligible = plus(eligible, hugetlb);
        coverage.eligible_huge = plus(anon_thp, hugetlb);
        coverage
    }

    /// All hugetlb bytes.
    pub fn hugetlb(&self) -> ByteSize {
        let sizes = self.hugetlb_private.values().chain(self.hugetlb_shared.values());
        sizes.copied().fold(ByteSize(0), plus)
    }

    /// Bytes mapped by superpages, of every kind.
    pub fn superpage_bytes(&self) -> ByteSize {
        [self.anon_thp, self.shmem_pmd, self.file_pmd].into_iter().fold(self.hugetlb(), plus)
    }

    /// All resident bytes, hugetlb included.
    pub fn resident(&self) -> ByteSize {
        let base = [self.anon_base, self.shmem_base, self.file_base];
        base.into_iter().fold(self.superpage_bytes(), plus)
    }

    /// Share of resident bytes that superpages map, from 0 to 1; `None` if nothing is resident.
    pub fn ratio(&self) -> Option<f64> {
        share(self.superpage_bytes(), self.resident())
    }

    /// Share of eligible bytes that superpages map, from 0 to 1; `None` if nothing is eligible.
    pub fn anon_ratio(&self) -> Option<f64> {
        share(self.eligible_huge, self.eligible)
    }
}

impl AddAssign for Coverage {
    fn add_assign(&mut self, other: Self) {
        for (mine, more) in [
            (&mut self.anon_base, other.anon_base),
            (&mut self.anon_thp, other.anon_thp),
            (&mut self.shmem_base, other.shmem_base),
            (&mut self.shmem_pmd, other.shmem_pmd),
            (&mut self.file_base, other.file_base),
            (&mut self.file_pmd, other.file_pmd),
            (&mut self.swapped, other.swapped),
            (&mut self.eligible, other.eligible),
            (&mut self.eligible_huge, other.eligible_huge),
        ] {
            *mine = plus(*mine, more);
        }
        for (mine, more) in [
            (&mut self.hugetlb_private, other.hugetlb_private),
            (&mut self.hugetlb_shared, other.hugetlb_shared),
        ] {
            more.into_iter().for_each(|(size, bytes)| add_sized(mine, size, bytes));
        }
    }
}

impl Add for Coverage {
    type Output = Self;
    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl Sum for Coverage {
    fn sum<I: Iterator<Item = Self>>(coverages: I) -> Self {
        coverages.fold(Self::default(), Add::add)
    }
}

fn add_sized(sizes: &mut BTreeMap<PageSize, ByteSize>, size: PageSize, bytes: ByteSize) {
    if bytes.bytes() > 0 {
        let mine = sizes.entry(size).or_default();
        *mine = plus(*mine, bytes);
    }
}

fn plus(a: ByteSize, b: ByteSize) -> ByteSize {
    ByteSize(a.bytes().saturating_add(b.bytes()))
}

fn less(a: ByteSize, b: ByteSize) -> ByteSize {
    ByteSize(a.bytes().saturating_sub(b.bytes()))
}

fn share(part: ByteSize, whole: ByteSize) -> Option<f64> {
    (whole.bytes() > 0).then(|| part.bytes() as f64 / whole.bytes() as f64)
}
