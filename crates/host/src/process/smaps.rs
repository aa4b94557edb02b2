//! `/proc/PID/smaps`, one mapping at a time; fields that are not known are skipped.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use units::{ByteSize, PageSize, Pid};

use super::lines::Lines;
use super::maps::{self, Mapping};
use crate::{ReadError, Root, text};

/// One mapping and what is resident in it. A byte count whose line the kernel does not print is
/// zero, because a kernel without the line cannot make that kind of page (`ShmemPmdMapped` came
/// with Linux 4.8's shmem THP, `FilePmdMapped` with 5.4's file THP).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmapsEntry {
    /// The line it opens with.
    pub mapping: Mapping,
    /// The page size the kernel backs it with: the base size, or a hugetlb pool's.
    pub kernel_page_size: Option<PageSize>,
    /// Resident bytes, of every page size but hugetlb's.
    pub rss: ByteSize,
    /// The same, each page divided by the number of processes that map it.
    pub pss: ByteSize,
    /// Resident bytes that belong to no file: also copies made in private file mappings.
    pub anonymous: ByteSize,
    /// Of these, given up with `MADV_FREE` and not yet taken.
    pub lazy_free: ByteSize,
    /// Of `anonymous`, mapped by a PMD.
    pub anon_huge: ByteSize,
    /// Shared memory mapped by a PMD.
    pub shmem_pmd: ByteSize,
    /// Page cache mapped by a PMD.
    pub file_pmd: ByteSize,
    /// hugetlb pages that other processes map too; not in `rss`.
    pub shared_hugetlb: ByteSize,
    /// hugetlb pages that only this process maps; not in `rss`.
    pub private_hugetlb: ByteSize,
    /// Bytes swapped out.
    pub swap: ByteSize,
    /// Bytes referenced since the accessed bits were last cleared.
    pub referenced: ByteSize,
    /// Whether a superpage could be made here; `None` before Linux 4.20.
    pub thp_eligible: Option<bool>,
    /// The kernel's two-letter flags, as printed: `rd wr mr mw me ac hg`.
    pub vm_flags: String,
}

impl SmapsEntry {
    fn new(mapping: Mapping) -> Self {
        Self {
            mapping,
            kernel_page_size: None,
            rss: ByteSize(0),
            pss: ByteSize(0),
            anonymous: ByteSize(0),
            lazy_free: ByteSize(0),
            anon_huge: ByteSize(0),
            shmem_pmd: ByteSize(0),
            file_pmd: ByteSize(0),
            shared_hugetlb: ByteSize(0),
            private_hugetlb: ByteSize(0),
            swap: ByteSize(0),
            referenced: ByteSize(0),
            thp_eligible: None,
            vm_flags: String::new(),
        }
    }

    /// Whether the kernel printed this flag: `hg` advised huge, `nh` advised against, `ht` hugetlb.
    pub fn has_flag(&self, flag: &str) -> bool {
        self.vm_flags.split_ascii_whitespace().any(|have| have == flag)
    }
}

/// The mappings of a process with what is resident in each, lowest address first.
#[derive(Debug)]
pub struct Smaps<R> {
    lines: Lines<R>,
}

impl Smaps<BufReader<File>> {
    /// Opens `/proc/PID/smaps`. Needs PTRACE_MODE_READ on the process. Reading costs the kernel a
    /// walk of the page tables: 25 ms for each GB in base pages on a Zen 4 guest (3 ms on a Cascade
    /// Lake guest), next to nothing in superpages.
    pub fn open(root: &Root, pid: Pid) -> Result<Self, ReadError> {
        Ok(Self { lines: Lines::open(root, &format!("/proc/{pid}/smaps"))? })
    }
}

impl<R: BufRead> Smaps<R> {
    /// Reads from text at hand; `path` is named in errors.
    pub fn from_reader(reader: R, path: impl Into<PathBuf>) -> Self {
        Self { lines: Lines::new(reader, path.into()) }
    }

    fn entry(&mut self) -> Result<Option<SmapsEntry>, ReadError> {
        if !self.lines.advance()? {
            return Ok(None);
        }
        let mapping = maps::parse_line(&self.lines.text())
            .ok_or_else(|| self.lines.malformed(maps::EXPECTED))?;
        let mut entry = SmapsEntry::new(mapping);
        while self.lines.advance()? {
            let line = self.lines.text();
            // A field's first word ends in a colon; a mapping's first word is an address range.
            let field = line.split_once(':').filter(|(key, _)| !key.contains(' '));
            let Some((key, value)) = field else {
                drop(line);
                self.lines.push_back();
                break;
            };
            entry.set(key, value).map_err(|expected| self.lines.malformed(expected))?;
        }
        Ok(Some(entry))
    }
}

impl<R: BufRead> Iterator for Smaps<R> {
    type Item = Result<SmapsEntry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.entry().transpose()
    }
}

impl SmapsEntry {
    fn set(&mut self, key: &str, value: &str) -> Result<(), &'static str> {
        let slot = match key {
            "Rss" => &mut self.rss,
            "Pss" => &mut self.pss,
            "Anonymous" => &mut self.anonymous,
            "LazyFree" => &mut self.lazy_free,
            "AnonHugePages" => &mut self.anon_huge,
            "ShmemPmdMapped" => &mut self.shmem_pmd,
            "FilePmdMapped" => &mut self.file_pmd,
            "Shared_Hugetlb" => &mut self.shared_hugetlb,
            "Private_Hugetlb" => &mut self.private_hugetlb,
            "Swap" => &mut self.swap,
            "Referenced" => &mut self.referenced,
            "KernelPageSize" => {
                let size = text::bytes(value).and_then(|bytes| PageSize::new(bytes).ok());
                self.kernel_page_size = Some(size.ok_or("a page size in kB")?);
                return Ok(());
            }
            "THPeligible" => {
                let flag: u64 = value.trim().parse().map_err(|_| "0 or 1")?;
                self.thp_eligible = Some(flag != 0);
                return Ok(());
            }
            "VmFlags" => {
                self.vm_flags = value.trim().to_string();
                return Ok(());
            }
            _ => return Ok(()),
        };
        *slot = ByteSize(text::bytes(value).ok_or("a number of kB")?);
        Ok(())
    }
}
