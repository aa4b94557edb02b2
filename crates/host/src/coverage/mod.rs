//! Coverage: how much of a process's memory is mapped by superpages, by size and kind.
//!
//! Read from smaps, which walks the page tables and is therefore what is true now. hugetlb pages
//! are not in `Rss` and are added. Sums over processes count a page once for each process that
//! maps it, in every field alike, as RSS does; a [`Census`] counts it once.

mod census;
mod kind;
mod scan;
mod sizes;
pub(crate) mod zero_page;

use serde::{Deserialize, Serialize};
use units::{PageSize, Pid};

pub use census::{Census, Counted};
pub use kind::MappingKind;
pub use scan::{Scanned, scan};
pub use sizes::Coverage;

use crate::process::{self, MemoryMounts, Smaps, SmapsEntry};
use crate::unknown::Reasons;
use crate::{MemInfo, ReadError, Root, Thp, Unknown};

/// Coverage of a process and its descendants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeCoverage {
    /// All of them together.
    pub coverage: Coverage,
    /// The processes that were read.
    pub processes: Vec<Pid>,
    /// Processes that could not be read, and why. Those that ended are not among them.
    pub unknown: Vec<Unknown>,
}

/// Coverage of one mapping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappingCoverage {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// The file's path, `[heap]`, `[anon:NAME]`, or nothing.
    pub name: String,
    /// What it is.
    pub kind: MappingKind,
    /// The kernel's two-letter flags; `hg` is advised huge, `nh` advised against.
    pub vm_flags: String,
    /// Whether the kernel would make superpages here; `None` where it does not say.
    pub thp_eligible: Option<bool>,
    /// What is resident in it.
    pub coverage: Coverage,
}

impl Coverage {
    /// Coverage of one process.
    pub fn of_process(root: &Root, pid: Pid) -> Result<Self, ReadError> {
        let lens = Lens::new(root, pid)?;
        let mut sum = Self::default();
        for entry in Smaps::open(root, pid)? {
            sum += lens.look(&entry?).1;
        }
        Ok(sum)
    }

    /// Coverage of a process and its live descendants. An error only if `pid` itself cannot be
    /// read; descendants that refuse are named in the result.
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

/// Coverage of a process, mapping by mapping, lowest address first.
pub fn per_mapping(root: &Root, pid: Pid) -> Result<Vec<MappingCoverage>, ReadError> {
    let lens = Lens::new(root, pid)?;
    let mapping = |entry: Result<SmapsEntry, ReadError>| {
        let entry = entry?;
        let (kind, coverage) = lens.look(&entry);
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

/// What has to be known besides smaps to judge an entry.
#[derive(Debug)]
struct Lens {
    /// What counts as one superpage: the PMD's, or without THP the default hugetlb page.
    superpage: Option<PageSize>,
    mounts: MemoryMounts,
}

impl Lens {
    fn new(root: &Root, pid: Pid) -> Result<Self, ReadError> {
        let superpage = match Thp::pmd_size_of(root) {
            Ok(size) => Some(size),
            Err(error) if error.is_gone() => MemInfo::read(root)?.default_hugepage,
            Err(error) => return Err(error),
        };
        Ok(Self { superpage, mounts: MemoryMounts::from_pid(root, pid)? })
    }

    fn look(&self, entry: &SmapsEntry) -> (MappingKind, Coverage) {
        let kind = MappingKind::from_entry(entry, &self.mounts);
        (kind, Coverage::from_entry(entry, kind, self.superpage))
    }
}
