//! The memory of a running process that can be on superpages, and how much of it is.
//!
//! Eligible memory is what MADV_COLLAPSE takes from outside: whole, aligned blocks of private memory without a file, and
//! of shared memory that lies at the same offset from a superpage in its file. See docs/decisions/manage.md#7.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::path::Path;

use host::coverage::MappingKind;
use host::process::Sharing;
use host::{ReadError, Root, Thp, process};
use serde::{Deserialize, Serialize};
use services::why::{Machine, Mode};
use services::{AddressSpace, Extent, Pages, Process, SpaceError};
use sys::SysError;
use sys::pidfd::PidFd;
use units::{ByteSize, PageSize, Pid};

use crate::record::{Compared, Record};

/// Why a process cannot be managed.
#[derive(Debug, thiserror::Error)]
pub enum ManageError {
    /// The address space cannot be read, or the process ended.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// The process ended, or no pidfd of it can be opened.
    #[error("{0}")]
    Process(SysError),
    /// It executes another program now: its memory is not the one that was opened.
    #[error("executed another program")]
    Executed,
    /// A comparison switches its memory.
    #[error(transparent)]
    Compared(#[from] Compared),
    /// The record of changes cannot be written, so nothing is changed.
    #[error("{0}; nothing is changed without a record to undo it")]
    Record(String),
}

impl ManageError {
    /// Whether the process ended.
    pub fn is_ended(&self) -> bool {
        match self {
            Self::Space(error) => matches!(error, SpaceError::Ended),
            Self::Process(error) => error.errno() == libc::ESRCH,
            Self::Executed | Self::Compared(_) | Self::Record(_) => false,
        }
    }
}

/// What forbids superpages in a process. Left alone unless the user says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forbidden {
    /// `prctl(PR_SET_THP_DISABLE)`, which `MemoryTHP=` of systemd sets too. MADV_COLLAPSE fails.
    OffForProcess,
    /// `transparent_hugepage/enabled` is `never`. MADV_COLLAPSE works nevertheless.
    OffForMachine,
    /// The process has a userfaultfd: pages that a collapse fills would be faults that a program never sees.
    Userfaultfd,
    /// Whether the process has a userfaultfd cannot be read.
    UserfaultfdUnknown,
}

/// Why resident memory cannot be on superpages, whatever is done from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ineligible {
    /// Pages of a file.
    File,
    /// The main thread's stack.
    Stack,
    /// A mapping of the kernel.
    Kernel,
    /// Memory of a hugetlb pool: it is on superpages already.
    Pool,
    /// In no whole aligned block of its mapping.
    AtEdge,
    /// Shared memory whose addresses and offsets in its file are not aligned alike.
    Unaligned,
    /// Not writable.
    ReadOnly,
}

/// A superpage-sized, aligned block of eligible memory that has pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Block {
    /// First address.
    pub start: u64,
    /// First address of its mapping.
    pub mapping: u64,
    /// Whether it is shared memory.
    pub is_shared: bool,
    /// Its pages.
    #[serde(skip)]
    pub pages: Pages,
}

impl Block {
    /// Whether a superpage maps it.
    pub fn is_huge(&self) -> bool {
        self.pages.huge > 0 && self.pages.base == 0
    }
}

/// Resident bytes that can be on superpages, and those that are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Resident bytes of eligible memory.
    pub eligible: ByteSize,
    /// Those that superpages map.
    pub on_superpages: ByteSize,
}

impl Coverage {
    /// From 0 to 1; `None`: nothing is eligible.
    pub fn share(&self) -> Option<f64> {
        let all = self.eligible.bytes();
        (all > 0).then(|| self.on_superpages.bytes() as f64 / all as f64)
    }
}

impl AddAssign for Coverage {
    fn add_assign(&mut self, more: Self) {
        self.eligible = ByteSize(self.eligible.bytes() + more.eligible.bytes());
        self.on_superpages = ByteSize(self.on_superpages.bytes() + more.on_superpages.bytes());
    }
}

/// The eligible memory of a process at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// The superpage size.
    pub superpage: PageSize,
    /// The base page size.
    pub base: PageSize,
    /// Eligible blocks, lowest address first.
    pub blocks: Vec<Block>,
    /// Resident bytes of other memory, by why it is not eligible.
    pub ineligible: BTreeMap<Ineligible, ByteSize>,
}

impl Survey {
    /// Sorts the memory of an address space.
    pub fn of(space: &AddressSpace) -> Self {
        let mut survey = Self {
            superpage: space.superpage,
            base: space.base,
            blocks: Vec::new(),
            ineligible: BTreeMap::new(),
        };
        for extent in &space.extents {
            survey.add(extent);
        }
        survey
    }

    fn add(&mut self, extent: &Extent) {
        let mapping = &extent.mapping;
        let whole = ineligible(extent, self.superpage);
        for block in &extent.blocks {
            let end = block.start.saturating_add(self.superpage.bytes());
            let is_whole = block.start >= mapping.start && end <= mapping.end;
            let why = whole.or((!is_whole).then_some(Ineligible::AtEdge));
            match why {
                Some(why) => {
                    let bytes = u64::from(block.pages.resident()) * self.base.bytes();
                    if bytes > 0 {
                        let sum = self.ineligible.entry(why).or_default();
                        *sum = ByteSize(sum.bytes() + bytes);
                    }
                }
                None => self.blocks.push(Block {
                    start: block.start,
                    mapping: mapping.start,
                    is_shared: mapping.sharing == Sharing::Shared,
                    pages: block.pages,
                }),
            }
        }
    }

    /// How much of the eligible memory is on superpages.
    pub fn coverage(&self) -> Coverage {
        let pages = |count: fn(&Pages) -> u32| {
            let all: u64 = self.blocks.iter().map(|block| u64::from(count(&block.pages))).sum();
            ByteSize(all * self.base.bytes())
        };
        Coverage { eligible: pages(Pages::resident), on_superpages: pages(|pages| pages.huge) }
    }

    /// Zeroed bytes that would fill a superpage of the block.
    pub fn missing(&self, block: &Block) -> ByteSize {
        let resident = u64::from(block.pages.resident()) * self.base.bytes();
        ByteSize(self.superpage.bytes().saturating_sub(resident))
    }
}

/// Whether a process has memory that is locked (mlock), which cannot be split again.
///
/// # Errors
/// The process ended, or `/proc` cannot be read.
pub(crate) fn has_locked(root: &Root, pid: Pid) -> Result<bool, ReadError> {
    let locked = process::status(root, pid)?.locked;
    Ok(locked.is_some_and(|bytes| bytes.bytes() > 0))
}

/// Why no block of a mapping is eligible.
fn ineligible(extent: &Extent, superpage: PageSize) -> Option<Ineligible> {
    let mapping = &extent.mapping;
    match extent.kind {
        MappingKind::File => return Some(Ineligible::File),
        MappingKind::Stack => return Some(Ineligible::Stack),
        MappingKind::Special => return Some(Ineligible::Kernel),
        MappingKind::Hugetlb => return Some(Ineligible::Pool),
        // Private copies of shared memory are pages of their own, over a file.
        MappingKind::Shmem if mapping.sharing == Sharing::Private => return Some(Ineligible::File),
        MappingKind::Shmem => {
            let distance = mapping.start.wrapping_sub(mapping.offset);
            if !distance.is_multiple_of(superpage.bytes()) {
                return Some(Ineligible::Unaligned);
            }
        }
        MappingKind::Anonymous | MappingKind::Heap => {}
    }
    (!mapping.writable).then_some(Ineligible::ReadOnly)
}

/// A running process whose memory is put on superpages or taken off them. The pidfd stays this process's, also when its
/// pid is reused.
#[derive(Debug)]
pub struct Memory {
    /// The process.
    pub process: Process,
    pub(crate) root: Root,
    pub(crate) fd: PidFd,
    /// Start of the stack, which is another one after an execve.
    stack: u64,
    pub(crate) superpage: PageSize,
    pub(crate) base: PageSize,
}

impl Memory {
    /// Opens a process.
    ///
    /// # Errors
    /// It ended, or the kernel has no superpages.
    pub fn open(root: &Root, process: &Process) -> Result<Self, ManageError> {
        let fd = PidFd::open(process.pid).map_err(ManageError::Process)?;
        // Between selection and pidfd_open the pid may have become another process's.
        if !process.is_running(root) {
            return Err(SpaceError::Ended.into());
        }
        let superpage = Thp::pmd_size_of(root).map_err(SpaceError::Read)?;
        let stack = process::stat(root, process.pid).map_err(SpaceError::from)?.stack_start;
        let (process, root, base) = (process.clone(), root.clone(), root.page_size());
        Ok(Self { process, root, fd, stack, superpage, base })
    }

    /// The record of what was made in the process.
    ///
    /// # Errors
    /// It cannot be read, or the process ended.
    pub fn record(&self, dir: &Path) -> Result<Record, ManageError> {
        Record::open(&self.root, dir, &self.process).map_err(|why| {
            match self.process.is_running(&self.root) {
                true => ManageError::Record(why),
                false => SpaceError::Ended.into(),
            }
        })
    }

    /// Resident memory of the process, by the kernel's counters; `None`: unknown.
    pub fn resident(&self) -> Option<ByteSize> {
        process::status(&self.root, self.process.pid).ok()?.total()
    }

    /// Reads the page tables. Takes 1 to 13 ms of CPU time per GiB of base pages, in slices.
    ///
    /// # Errors
    /// The process ended, executes another program, may not be read, or the kernel has no PAGEMAP_SCAN.
    pub fn survey(&self) -> Result<Survey, ManageError> {
        let survey = Survey::of(&AddressSpace::read(&self.root, &self.process)?);
        let now = process::stat(&self.root, self.process.pid).map_err(SpaceError::from)?;
        match () {
            () if now.stack_start == self.stack => Ok(survey),
            // One that has ended has no stack.
            () if !self.process.is_running(&self.root) => Err(SpaceError::Ended.into()),
            () => Err(ManageError::Executed),
        }
    }

    /// What forbids superpages in the process; empty: nothing.
    ///
    /// # Errors
    /// The process ended, or `/proc` cannot be read.
    pub fn forbidden(&self) -> Result<Vec<Forbidden>, ManageError> {
        let status = process::status(&self.root, self.process.pid).map_err(SpaceError::from)?;
        let mut found = Vec::new();
        if status.thp_enabled == Some(false) {
            found.push(Forbidden::OffForProcess);
        }
        if Machine::read(&self.root, self.superpage).anonymous == Some(Mode::Never) {
            found.push(Forbidden::OffForMachine);
        }
        match process::has_userfaultfd(&self.root, self.process.pid) {
            Ok(false) => {}
            Ok(true) => found.push(Forbidden::Userfaultfd),
            Err(error) if error.is_gone() => return Err(SpaceError::Ended.into()),
            Err(_) => found.push(Forbidden::UserfaultfdUnknown),
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use host::process::{Device, Mapping};
    use services::Block as Part;
    use units::Pid;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn mapping(start: u64, end: u64, sharing: Sharing, writable: bool, offset: u64) -> Mapping {
        let device = Device { major: 0, minor: 0 };
        let (readable, executable, inode, name) = (true, false, 0, String::new());
        Mapping { start, end, readable, writable, executable, sharing, offset, device, inode, name }
    }

    fn extent(kind: MappingKind, mapping: Mapping, parts: &[(u64, Pages)]) -> Extent {
        let blocks = parts.iter().map(|(start, pages)| Part { start: *start, pages: *pages });
        Extent { mapping, kind, pages: Default::default(), blocks: blocks.collect() }
    }

    fn base(count: u32) -> Pages {
        Pages { base: count, ..Pages::default() }
    }

    fn huge() -> Pages {
        Pages { huge: 512, ..Pages::default() }
    }

    fn space(extents: Vec<Extent>) -> AddressSpace {
        let process = Process {
            pid: Pid(1),
            start_ticks: 1,
            parent: Pid(0),
            name: "x".to_string(),
            command: Vec::new(),
            user: None,
            cgroup: None,
            unit: None,
        };
        let size = |bytes| PageSize::new(bytes).unwrap();
        AddressSpace {
            process,
            superpage: size(2 * MIB),
            base: size(4096),
            longest_hold: std::time::Duration::ZERO,
            extents,
        }
    }

    #[test]
    fn each_kind_of_memory_is_eligible_or_has_its_reason() {
        use MappingKind::{Anonymous, File, Heap, Hugetlb, Shmem, Special, Stack};
        let (private, shared) = (Sharing::Private, Sharing::Shared);
        let at = |kind, sharing, writable, start: u64, offset| {
            extent(
                kind,
                mapping(start, start + 4 * MIB, sharing, writable, offset),
                &[(2 * MIB, base(7))],
            )
        };
        let plain = |kind| at(kind, private, true, 0, 0);
        for (extent, why) in [
            (plain(Anonymous), None),
            (plain(Heap), None),
            (at(Shmem, shared, true, 0, 4 * MIB), None),
            (at(Shmem, shared, true, 0, MIB), Some(Ineligible::Unaligned)),
            (at(Shmem, private, true, 0, 0), Some(Ineligible::File)),
            (plain(File), Some(Ineligible::File)),
            (plain(Stack), Some(Ineligible::Stack)),
            (plain(Hugetlb), Some(Ineligible::Pool)),
            (plain(Special), Some(Ineligible::Kernel)),
            (at(Anonymous, private, false, 0, 0), Some(Ineligible::ReadOnly)),
            // The block begins at the mapping's first address less a megabyte.
            (at(Anonymous, private, true, 3 * MIB, 0), Some(Ineligible::AtEdge)),
        ] {
            let survey = Survey::of(&space(vec![extent.clone()]));
            let found: Vec<_> = survey.ineligible.into_iter().collect();
            let expected: Vec<_> = why.map(|why| (why, ByteSize(7 * 4096))).into_iter().collect();
            assert_eq!(found, expected, "{extent:?}");
            assert_eq!(survey.blocks.len(), usize::from(why.is_none()), "{extent:?}");
        }
    }

    #[test]
    fn coverage_is_of_eligible_resident_memory() {
        let heap = mapping(0, 8 * MIB, Sharing::Private, true, 0);
        let parts = [(0, huge()), (2 * MIB, base(256)), (4 * MIB, base(256))];
        let file = extent(MappingKind::File, heap.clone(), &[(0, base(512))]);
        let survey = Survey::of(&space(vec![extent(MappingKind::Heap, heap, &parts), file]));
        assert_eq!(survey.coverage().share(), Some(0.5));
        assert_eq!(Survey::of(&space(Vec::new())).coverage().share(), None);
        let huge: Vec<bool> = survey.blocks.iter().map(Block::is_huge).collect();
        assert_eq!(huge, [true, false, false]);
    }
}
