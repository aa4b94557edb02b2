//! `/proc/PID/maps`, one mapping at a time.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use units::{ByteSize, PageSize, Pid};

use super::stat::{Lines, stat};
use crate::{ReadError, Root, root};

/// One mapping of a process's address space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// The address after the last byte.
    pub end: u64,
    /// Whether the memory may be read.
    pub readable: bool,
    /// Whether the memory may be written.
    pub writable: bool,
    /// Whether the memory may be executed.
    pub executable: bool,
    /// Private or shared.
    pub sharing: Sharing,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Device of the file's file system.
    pub device: Device,
    /// Inode of the file; 0 if there is none.
    pub inode: u64,
    /// The file's path, `[heap]`, `[stack]`, `[anon:NAME]`, or nothing.
    pub name: String,
}

/// Whether a mapping is private (copy on write) or shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// `MAP_PRIVATE`.
    Private,
    /// `MAP_SHARED`.
    Shared,
}

/// Converts a mapping that the kernel looked up by address.
impl From<sys::procmap::Found> for Mapping {
    fn from(found: sys::procmap::Found) -> Self {
        let (major, minor) = found.device;
        Self {
            start: found.start,
            end: found.end,
            readable: found.readable,
            writable: found.writable,
            executable: found.executable,
            sharing: if found.shared { Sharing::Shared } else { Sharing::Private },
            offset: found.offset,
            device: Device { major, minor },
            inode: found.inode,
            name: found.name,
        }
    }
}

/// A device number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Device {
    /// The major number: the driver.
    pub major: u32,
    /// The minor number: the instance.
    pub minor: u32,
}

impl Mapping {
    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Whether the mapping is empty; no mapping of a live process is.
    pub fn is_empty(&self) -> bool {
        self.end == self.start
    }

    /// Whether the mapping contains at least one aligned block of `size`.
    pub fn holds_aligned(&self, size: units::PageSize) -> bool {
        let first = self.start.checked_next_multiple_of(size.bytes());
        let end = first.and_then(|first| first.checked_add(size.bytes()));
        end.is_some_and(|end| end <= self.end)
    }
}

/// Iterates over the mappings of a process, lowest address first.
#[derive(Debug)]
pub struct Maps<R> {
    lines: Lines<R>,
}

impl Maps<BufReader<File>> {
    /// Opens `/proc/PID/maps`. Needs PTRACE_MODE_READ on the process.
    pub fn open(root: &Root, pid: Pid) -> Result<Self, ReadError> {
        Ok(Self { lines: Lines::open(root, &format!("/proc/{pid}/maps"))? })
    }
}

impl<R: BufRead> Maps<R> {
    /// Reads from existing text; errors name `path`.
    pub fn from_reader(reader: R, path: impl Into<PathBuf>) -> Self {
        Self { lines: Lines::new(reader, path.into()) }
    }
}

impl<R: BufRead> Iterator for Maps<R> {
    type Item = Result<Mapping, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.lines.advance() {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => return Some(Err(error)),
        }
        Some(parse_line(&self.lines.text()).ok_or_else(|| self.lines.malformed(EXPECTED)))
    }
}

pub(super) const EXPECTED: &str = "`start-end perms offset major:minor inode name`";

/// Reads one line such as `7f00-7f10 rw-p 00000000 08:01 12 /bin/true`.
pub fn parse_line(line: &str) -> Option<Mapping> {
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (start, end) = (hex(start)?, hex(end)?);
    let (perms, rest) = rest.trim_start().split_once(' ')?;
    let (offset, rest) = rest.trim_start().split_once(' ')?;
    let (device, rest) = rest.trim_start().split_once(' ')?;
    let (major, minor) = device.split_once(':')?;
    let rest = rest.trim_start();
    let (inode, name) = rest.split_once(' ').unwrap_or((rest, ""));
    let [r, w, x, s] = perms.as_bytes().try_into().ok()?;
    let sharing = match s {
        b'p' => Sharing::Private,
        b's' => Sharing::Shared,
        _ => return None,
    };
    (start <= end).then_some(Mapping {
        start,
        end,
        readable: r == b'r',
        writable: w == b'w',
        executable: x == b'x',
        sharing,
        offset: hex(offset)?,
        device: Device { major: hex(major)?.try_into().ok()?, minor: hex(minor)?.try_into().ok()? },
        inode: inode.parse().ok()?,
        // The kernel pads with spaces before the name. Later spaces belong to the name.
        name: name.trim_start_matches(' ').to_string(),
    })
}

// `/proc/PID/smaps`, one mapping at a time; unknown fields are skipped.

/// One mapping and its resident memory. A missing line counts as zero bytes, because a kernel that does not print the
/// line has no such pages (`ShmemPmdMapped` came with THP for shared memory in Linux 4.8, `FilePmdMapped` with THP for
/// files in 5.4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmapsEntry {
    /// The mapping, from the line that begins the entry.
    pub mapping: Mapping,
    /// The mapping's page size: the base page size, or the page size of a hugetlb pool.
    pub kernel_page_size: Option<PageSize>,
    /// Resident bytes, without hugetlb pages.
    pub rss: ByteSize,
    /// Resident bytes, each page divided by the number of processes that map it.
    pub pss: ByteSize,
    /// Resident anonymous bytes, including copies in private file mappings.
    pub anonymous: ByteSize,
    /// Bytes of `anonymous` that were freed with `MADV_FREE` and not yet reclaimed.
    pub lazy_free: ByteSize,
    /// Bytes of `anonymous` mapped by a PMD.
    pub anon_huge: ByteSize,
    /// Bytes of shared memory mapped by a PMD.
    pub shmem_pmd: ByteSize,
    /// Bytes of page cache mapped by a PMD.
    pub file_pmd: ByteSize,
    /// Bytes of hugetlb pages that other processes map too; not in `rss`.
    pub shared_hugetlb: ByteSize,
    /// Bytes of hugetlb pages that only this process maps; not in `rss`.
    pub private_hugetlb: ByteSize,
    /// Bytes swapped out.
    pub swap: ByteSize,
    /// Bytes referenced since the accessed bits were last cleared.
    pub referenced: ByteSize,
    /// Whether the kernel could use THP here; `None` before Linux 4.20.
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

    /// Whether the kernel printed this flag. Examples: `hg`: MADV_HUGEPAGE, `nh`: MADV_NOHUGEPAGE, `ht`: hugetlb.
    pub fn has_flag(&self, flag: &str) -> bool {
        self.vm_flags.split_ascii_whitespace().any(|have| have == flag)
    }
}

/// Iterates over the mappings of a process with their resident memory, lowest address first.
#[derive(Debug)]
pub struct Smaps<R> {
    lines: Lines<R>,
}

impl Smaps<BufReader<File>> {
    /// Opens `/proc/PID/smaps`. Needs PTRACE_MODE_READ on the process. The kernel walks the page tables: for each GB in
    /// base pages this takes 25 ms on a Zen 4 guest and 3 ms on a Cascade Lake guest; for superpages, next to nothing.
    pub fn open(root: &Root, pid: Pid) -> Result<Self, ReadError> {
        Ok(Self { lines: Lines::open(root, &format!("/proc/{pid}/smaps"))? })
    }
}

impl<R: BufRead> Smaps<R> {
    /// Reads from existing text; errors name `path`.
    pub fn from_reader(reader: R, path: impl Into<PathBuf>) -> Self {
        Self { lines: Lines::new(reader, path.into()) }
    }

    fn entry(&mut self) -> Result<Option<SmapsEntry>, ReadError> {
        if !self.lines.advance()? {
            return Ok(None);
        }
        let mapping =
            parse_line(&self.lines.text()).ok_or_else(|| self.lines.malformed(EXPECTED))?;
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
                let size = root::bytes(value).and_then(|bytes| PageSize::new(bytes).ok());
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
        *slot = ByteSize(root::bytes(value).ok_or("a number of kB")?);
        Ok(())
    }
}

// Resident memory of a process, from `/proc/PID/status`: cheap, without a page table walk.

/// Resident memory of one process, in bytes. The kernel's per-CPU counters may be off by some dozen pages per CPU
/// (proc_pid_status(5)). A field is `None` for a kernel thread, or if this kernel does not print its line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resident {
    /// The command's name.
    pub name: String,
    /// `VmRSS`: `anon` + `file` + `shmem`, without hugetlb.
    pub rss: Option<ByteSize>,
    /// `RssAnon`.
    pub anon: Option<ByteSize>,
    /// `RssFile`.
    pub file: Option<ByteSize>,
    /// `RssShmem`.
    pub shmem: Option<ByteSize>,
    /// `HugetlbPages`.
    pub hugetlb: Option<ByteSize>,
    /// `VmSwap`.
    pub swap: Option<ByteSize>,
    /// `VmHWM`: the maximum of `rss`.
    pub peak_rss: Option<ByteSize>,
    /// `VmPTE`: bytes of its page tables.
    pub page_tables: Option<ByteSize>,
    /// `VmLck`: bytes of mappings that are locked (mlock(2)). Not in documents.
    #[serde(skip)]
    pub locked: Option<ByteSize>,
    /// `THP_enabled`: false after `prctl(PR_SET_THP_DISABLE)`.
    pub thp_enabled: Option<bool>,
    /// Number of faults that needed no I/O, from `/proc/PID/stat`.
    pub minor_faults: Option<u64>,
    /// Start time in clock ticks since boot. Pid and start time together identify a process.
    pub start_ticks: Option<u64>,
}

impl Resident {
    /// Bytes of `rss` and hugetlb together.
    pub fn total(&self) -> Option<ByteSize> {
        let hugetlb = self.hugetlb.map_or(0, ByteSize::bytes);
        Some(ByteSize(self.rss?.bytes().saturating_add(hugetlb)))
    }
}

/// Reads only `/proc/PID/status`; fields that other files provide are `None`. Needs no privilege.
pub fn status(root: &Root, pid: Pid) -> Result<Resident, ReadError> {
    let path = format!("/proc/{pid}/status");
    parse(&root.read(&path)?, &root.path(&path))
}

/// Reads `/proc/PID/status`, and from `/proc/PID/stat` the faults and the start time.
pub fn resident(root: &Root, pid: Pid) -> Result<Resident, ReadError> {
    let resident = status(root, pid)?;
    let stat = stat(root, pid)?;
    let (minor_faults, start_ticks) = (Some(stat.minor_faults), Some(stat.start_ticks));
    Ok(Resident { minor_faults, start_ticks, ..resident })
}

/// Reads the text of `/proc/PID/status`; errors name `path`.
pub fn parse(text: &str, path: &Path) -> Result<Resident, ReadError> {
    let mut resident = Resident::default();
    for (line, bad) in root::numbered(text, path) {
        let (key, value) = line.split_once(':').ok_or_else(|| bad("`Key: value`"))?;
        let slot = match key {
            "VmRSS" => &mut resident.rss,
            "RssAnon" => &mut resident.anon,
            "RssFile" => &mut resident.file,
            "RssShmem" => &mut resident.shmem,
            "HugetlbPages" => &mut resident.hugetlb,
            "VmSwap" => &mut resident.swap,
            "VmHWM" => &mut resident.peak_rss,
            "VmLck" => &mut resident.locked,
            "VmPTE" => &mut resident.page_tables,
            "Name" => {
                resident.name = value.trim_start_matches('\t').to_string();
                continue;
            }
            "THP_enabled" => {
                resident.thp_enabled = Some(match value.trim() {
                    "0" => false,
                    "1" => true,
                    _ => return Err(bad("0 or 1")),
                });
                continue;
            }
            _ => continue,
        };
        *slot = Some(ByteSize(root::bytes(value).ok_or_else(|| bad("a number of kB"))?));
    }
    Ok(resident)
}
