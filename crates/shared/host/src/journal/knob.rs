//! `Knob`: a setting that this project may change. Only paths on the list below can become a `Knob`, so even a forged
//! journal cannot make this program write elsewhere.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use serde::{Deserialize, Serialize};
use units::{NodeId, PageSize};

use super::writer::Holder;
use crate::{Choice, ReadError, Root, hugetlb, root, thp};

/// A setting of the machine, as an absolute path below `/sys` or `/proc/sys/vm`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Knob(String);

/// A path that is not a knob.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path:?} is not a setting that can be changed: {why}")]
pub struct NotAKnob {
    /// The path, truncated to 200 characters.
    pub path: String,
    /// The reason.
    pub why: &'static str,
}

/// khugepaged's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the variants are the files' names")]
pub enum KhugepagedKnob {
    Defrag,
    PagesToScan,
    ScanSleepMillisecs,
    AllocSleepMillisecs,
    MaxPtesNone,
    MaxPtesSwap,
    MaxPtesShared,
}

impl Knob {
    /// The knob at `path`, an absolute kernel path (without the root).
    pub fn new(path: &str) -> Result<Self, NotAKnob> {
        match check(path) {
            Ok(()) => Ok(Self(path.to_string())),
            Err(why) => Err(NotAKnob { path: path.chars().take(200).collect(), why }),
        }
    }

    /// The machine-wide pool of `size`: number of persistent pages.
    pub fn hugetlb_pool(size: PageSize) -> Self {
        Self(format!("{}/{}/nr_hugepages", hugetlb::DIR, root::dir_of_size(size)))
    }

    /// One node's share of the pool of `size`: number of persistent pages.
    pub fn hugetlb_node_pool(node: NodeId, size: PageSize) -> Self {
        let size = root::dir_of_size(size);
        Self(format!("{}/node{node}/hugepages/{size}/nr_hugepages", hugetlb::NODES))
    }

    /// The pool's page size, if the knob is a machine-wide pool.
    pub(crate) fn pool_size(&self) -> Option<PageSize> {
        let name = self.0.strip_prefix(hugetlb::DIR)?.strip_prefix('/')?;
        let size = root::size_of_dir(name.strip_suffix("/nr_hugepages")?)?;
        Some(size).filter(|size| Self::hugetlb_pool(*size) == *self)
    }

    /// The knob for the maximum number of surplus pages of `size`.
    pub fn hugetlb_overcommit(size: PageSize) -> Self {
        Self(format!("{}/{}/nr_overcommit_hugepages", hugetlb::DIR, root::dir_of_size(size)))
    }

    /// The knob that selects which memory gets THP.
    pub fn thp_enabled() -> Self {
        Self(format!("{}/enabled", thp::DIR))
    }

    /// The knob for how hard a page fault tries to get THP.
    pub fn defrag() -> Self {
        Self(format!("{}/defrag", thp::DIR))
    }

    /// Like [`Knob::thp_enabled`], for shared memory.
    pub fn shmem_enabled() -> Self {
        Self(format!("{}/shmem_enabled", thp::DIR))
    }

    /// The knob that tells whether read faults map the huge zero page.
    pub fn use_zero_page() -> Self {
        Self(format!("{}/use_zero_page", thp::DIR))
    }

    /// The knob that tells whether the kernel splits underused superpages under memory pressure.
    pub fn shrink_underused() -> Self {
        Self(format!("{}/shrink_underused", thp::DIR))
    }

    /// The knob that selects which memory gets folios of one size (mTHP).
    pub fn thp_size_enabled(size: PageSize) -> Self {
        Self(format!("{}/{}/enabled", thp::DIR, root::dir_of_size(size)))
    }

    /// Like [`Knob::thp_size_enabled`], for shared memory.
    pub fn thp_size_shmem_enabled(size: PageSize) -> Self {
        Self(format!("{}/{}/shmem_enabled", thp::DIR, root::dir_of_size(size)))
    }

    /// A setting of khugepaged.
    pub fn khugepaged(setting: KhugepagedKnob) -> Self {
        let name = match setting {
            KhugepagedKnob::Defrag => "defrag",
            KhugepagedKnob::PagesToScan => "pages_to_scan",
            KhugepagedKnob::ScanSleepMillisecs => "scan_sleep_millisecs",
            KhugepagedKnob::AllocSleepMillisecs => "alloc_sleep_millisecs",
            KhugepagedKnob::MaxPtesNone => "max_ptes_none",
            KhugepagedKnob::MaxPtesSwap => "max_ptes_swap",
            KhugepagedKnob::MaxPtesShared => "max_ptes_shared",
        };
        Self(format!("{}/khugepaged/{name}", thp::DIR))
    }

    /// The knob for the group whose members may use hugetlb shared memory.
    pub fn hugetlb_shm_group() -> Self {
        Self("/proc/sys/vm/hugetlb_shm_group".to_string())
    }

    /// The knob for the number of kB that the kernel keeps free for emergencies.
    pub fn min_free_kbytes() -> Self {
        Self("/proc/sys/vm/min_free_kbytes".to_string())
    }

    /// The knob for the maximum size of a SysV shared memory segment in bytes.
    pub fn shmmax() -> Self {
        Self("/proc/sys/kernel/shmmax".to_string())
    }

    /// A sysctl of `/proc/sys/vm`, such as `min_free_kbytes` or `compaction_proactiveness`.
    pub fn vm(name: &str) -> Result<Self, NotAKnob> {
        Self::new(&format!("/proc/sys/vm/{name}"))
    }

    /// The knob's absolute path.
    pub fn path(&self) -> &str {
        &self.0
    }

    /// Whether several processes may raise this knob at the same time: a pool, its overcommit limit, or the THP setting
    /// of one size.
    pub(super) fn may_be_shared(&self) -> bool {
        self.0.ends_with("/nr_hugepages")
            || self.0.ends_with("/nr_overcommit_hugepages")
            || self.is_thp_size()
    }

    fn is_thp_size(&self) -> bool {
        self.0.starts_with(thp::DIR)
            && self.0.strip_suffix("/enabled").is_some_and(|dir| dir != thp::DIR)
    }

    /// The value of a shared knob as a number: a larger number permits more.
    pub(super) fn number(&self, value: &str) -> Option<u64> {
        match self.is_thp_size() {
            true => THP_LEVELS.iter().position(|word| *word == value).map(|level| level as u64),
            false => value.parse().ok(),
        }
    }

    /// The inverse of [`Self::number`].
    pub(super) fn value(&self, number: u64) -> String {
        match self.is_thp_size() {
            true => THP_LEVELS[(number as usize).min(THP_LEVELS.len() - 1)].to_string(),
            false => number.to_string(),
        }
    }

    /// For a hugetlb pool, returns the path of the file with its number of surplus pages.
    pub(super) fn surplus(&self) -> Option<String> {
        Some(format!("{}/surplus_hugepages", self.0.strip_suffix("/nr_hugepages")?))
    }
}

/// Levels of the THP setting of one size, ascending. `inherit` ranks above `madvise`, so a request for `madvise` leaves
/// `inherit` unchanged: with `inherit`, the setting for all sizes decides.
const THP_LEVELS: [&str; 4] = ["never", "madvise", "inherit", "always"];

/// Files in /proc/sys/vm that trigger an action and store no setting.
const ACTIONS: [&str; 3] = ["compact_memory", "drop_caches", "stat_refresh"];
/// Other names of the default pool's files. A change journaled under one name would look foreign under another.
const ALIASES: [&str; 3] = ["nr_hugepages", "nr_hugepages_mempolicy", "nr_overcommit_hugepages"];

fn check(path: &str) -> Result<(), &'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let parts: Vec<&str> = path.split('/').collect();
    let sane = |part: &&str| !part.is_empty() && !part.starts_with('.') && part.chars().all(plain);
    let ["", parts @ ..] = parts.as_slice() else { return Err("its path is not absolute") };
    if path.len() > 200 || !parts.iter().all(sane) {
        return Err("its path is not a plain one");
    }
    let is_size = |name: &str| root::size_of_dir(name).is_some();
    let is_node = |name: &str| name.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok());
    match parts {
        ["proc", "sys", "vm", name] if ACTIONS.contains(name) => Err("it is an action"),
        ["proc", "sys", "vm", name] if ALIASES.contains(name) => {
            Err("it is a second name of a pool below /sys/kernel/mm/hugepages")
        }
        ["proc", "sys", "vm", _] | ["proc", "sys", "kernel", "shmmax"] => Ok(()),
        ["sys", "kernel", "mm", "transparent_hugepage", _] => Ok(()),
        ["sys", "kernel", "mm", "transparent_hugepage", dir, _]
            if *dir == "khugepaged" || is_size(dir) =>
        {
            Ok(())
        }
        ["sys", "kernel", "mm", "hugepages", size, file] if is_size(size) => match *file {
            "nr_hugepages" | "nr_overcommit_hugepages" | "demote_size" => Ok(()),
            _ => Err("it is no setting of a pool"),
        },
        ["sys", "devices", "system", "node", node, "hugepages", size, "nr_hugepages"]
            if is_node(node) && is_size(size) =>
        {
            Ok(())
        }
        _ => Err("only THP, hugetlb pools, /proc/sys/vm and shmmax may be changed"),
    }
}

impl TryFrom<String> for Knob {
    type Error = NotAKnob;
    fn try_from(path: String) -> Result<Self, NotAKnob> {
        Self::new(&path)
    }
}

impl From<Knob> for String {
    fn from(knob: Knob) -> Self {
        knob.0
    }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// Reading and writing a knob's value. Writing is private to the journal.

/// Maximum length of a setting.
const MAX_VALUE: usize = 256;

/// The canonical form of a value, for comparison: the word in brackets of `always [madvise] never`, a number without
/// leading zeroes, words separated by one space.
pub fn canonical(text: &str) -> String {
    if let Some(choice) = Choice::parse(text) {
        return choice.selected;
    }
    let words: Vec<String> = text
        .split_ascii_whitespace()
        .map(|word| word.parse::<u64>().map_or_else(|_| word.to_string(), |n| n.to_string()))
        .collect();
    words.join(" ")
}

impl Knob {
    /// Returns the current value in canonical form. For a hugetlb pool this is the number of persistent pages: the
    /// file's number includes surplus pages, which are not a setting.
    pub fn read(&self, root: &Root) -> Result<String, JournalError> {
        let value = || self.raw(root).map(|text| canonical(&text));
        match self.surplus() {
            Some(surplus) => persistent(value, || root::number(root, &surplus).ok()),
            None => value(),
        }
    }

    /// Returns the current value, and reads it again if it is not `expected`. A pool's value comes from two files,
    /// which may change between the reads.
    pub(super) fn read_twice(
        &self,
        root: &Root,
        expected: impl Fn(&str) -> bool,
    ) -> Result<String, JournalError> {
        let value = self.read(root)?;
        if expected(&value) { Ok(value) } else { self.read(root) }
    }

    fn raw(&self, root: &Root) -> Result<String, JournalError> {
        let path = root.path(self.path());
        let read = plain_file(&path).and_then(|()| {
            let mut bytes = Vec::new();
            fs::File::open(&path)?.take(4096).read_to_end(&mut bytes).map(|_| bytes)
        });
        let bytes = read.map_err(|source| JournalError::io("read", path, source))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(super) fn write(&self, root: &Root, value: &str) -> Result<(), JournalError> {
        let path = root.path(self.path());
        // The kernel requires the whole value in one write. The file is never created.
        let written = plain_file(&path).and_then(|()| {
            let mut file = OpenOptions::new().write(true).truncate(true).open(&path)?;
            file.write_all(format!("{value}\n").as_bytes())
        });
        written.map_err(|source| JournalError::io("write", path, source))
    }

    /// Whether `value` may be written, now or on restore.
    pub(super) fn check(&self, value: &str) -> Result<(), JournalError> {
        let bad = |why| JournalError::BadValue { knob: self.clone(), value: cut(value), why };
        if value.is_empty() || value.len() > MAX_VALUE {
            Err(bad("is empty or longer than any setting"))
        } else if value.bytes().any(|b| !(b.is_ascii_graphic() || b == b' ') || b == b'[') {
            Err(bad("is not a line of plain words or numbers"))
        } else {
            Ok(())
        }
    }
}

/// Number of pages of a pool without its surplus pages, if both are known. Reads the surplus before and after the
/// total: otherwise a surplus page allocated or freed in between would look like a change of the pool.
fn persistent<E>(
    total: impl Fn() -> Result<String, E>,
    surplus: impl Fn() -> Option<u64>,
) -> Result<String, E> {
    const MAX_READS: u32 = 8;
    let (mut before, mut looks) = (surplus(), 0);
    loop {
        let (value, after) = (total()?, surplus());
        looks += 1;
        if before == after || looks == MAX_READS {
            let pages = value.parse::<u64>().ok().zip(after);
            let pages = pages.map(|(total, surplus)| total.saturating_sub(surplus).to_string());
            return Ok(pages.unwrap_or(value));
        }
        before = after;
    }
}

fn cut(value: &str) -> String {
    value.chars().take(120).collect()
}

/// Knobs are regular files. A symbolic link could lead outside the list of knobs.
fn plain_file(path: &Path) -> io::Result<()> {
    let is_file = fs::symlink_metadata(path)?.is_file();
    if is_file { Ok(()) } else { Err(io::Error::other("it is not a regular file")) }
}

// A pool on several nodes. A shrink should take pages from the nodes that grew, but the kernel takes them from all
// nodes in turn.

/// Returns the number of persistent pages of each node, if `knob` is a pool on several nodes.
pub(super) fn read(root: &Root, knob: &Knob) -> BTreeMap<u32, u64> {
    let Some(size) = knob.pool_size() else { return BTreeMap::new() };
    let names = root.list(hugetlb::NODES).unwrap_or_default();
    let numbers = names.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok());
    let pages = |node: u32| {
        let knob = Knob::hugetlb_node_pool(NodeId(node), size);
        Some((node, knob.read(root).ok()?.parse().ok()?))
    };
    let nodes: BTreeMap<u32, u64> = numbers.filter_map(pages).collect();
    if nodes.len() > 1 { nodes } else { BTreeMap::new() }
}

/// Removes up to `pages` pages from the nodes that have more than before.
pub(super) fn lower(
    root: &Root,
    knob: &Knob,
    nodes: &BTreeMap<u32, u64>,
    pages: u64,
) -> Result<(), JournalError> {
    let Some(size) = knob.pool_size() else { return Ok(()) };
    let mut left = pages;
    for (node, had) in nodes {
        let knob = Knob::hugetlb_node_pool(NodeId(*node), size);
        let now = knob.read(root).ok().and_then(|now| now.parse::<u64>().ok()).unwrap_or(0);
        let given = left.min(now.saturating_sub(*had));
        if given > 0 {
            knob.write(root, &(now - given).to_string())?;
            left -= given;
        }
    }
    Ok(())
}

// Errors of knobs and of the journal.

/// An error of a knob or the journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The path is not one that the journal may write.
    #[error(transparent)]
    NotAKnob(#[from] NotAKnob),
    /// A value that the knob does not accept, or that could not be restored.
    #[error("{knob}: {value:?} {why}")]
    BadValue {
        /// The knob.
        knob: Knob,
        /// The value.
        value: String,
        /// The reason.
        why: &'static str,
    },
    /// The kernel refused.
    #[error("cannot {doing} {}: {source}{}", path.display(), remedy(source))]
    Io {
        /// `read`, `write`, `create`, ...
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// Another process holds the journal.
    #[error("{holder} is changing this machine's settings (it holds {}); wait until it ends",
        path.display())]
    Busy {
        /// The holder.
        holder: Holder,
        /// The lock file.
        path: PathBuf,
    },
    /// An earlier journal exists, and its changes could not be undone.
    #[error("{} was left behind and could not be undone: {why}; run `superpage restore`, or remove \
            the file to leave its settings as they are", path.display())]
    LeftBehind {
        /// The journal.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// Other users can write to the directory, and could place a journal there.
    #[error("{} is not a directory that only its owner can write; run `chmod 700` on it, \
        or name another journal directory", path.display())]
    OpenDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The id of this boot could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl JournalError {
    pub(super) fn io(doing: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { doing, path: path.into(), source }
    }

    /// Whether the error is that the file does not exist.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "; run as root",
        io::ErrorKind::ReadOnlyFilesystem => {
            "; it is mounted read-only here (a container?): run on the host"
        }
        io::ErrorKind::NotFound => "; not supported by this kernel",
        io::ErrorKind::InvalidInput => "; the kernel does not take this value",
        _ => "",
    }
}

#[cfg(test)]
mod value_tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_page_that_goes_between_the_looks_is_no_change() {
        let pages = |totals: &[&str], surplus: &[Option<u64>]| {
            let next = |from: &RefCell<std::vec::IntoIter<String>>| from.borrow_mut().next();
            let totals: Vec<String> = totals.iter().map(ToString::to_string).collect();
            let totals = RefCell::new(totals.into_iter());
            let surplus = RefCell::new(surplus.iter().copied().cycle());
            let total = || next(&totals).ok_or("looked too often");
            persistent(total, || surplus.borrow_mut().next().flatten())
        };
        assert_eq!(pages(&["15"], &[Some(5), Some(5)]), Ok("10".to_string()));
        // Five surplus pages are freed, or added, between the reads of total and surplus.
        assert_eq!(pages(&["15", "10"], &[Some(5), Some(0), Some(0)]), Ok("10".to_string()));
        assert_eq!(pages(&["10", "15"], &[Some(0), Some(5), Some(5)]), Ok("10".to_string()));
        // There is no surplus file, or the surplus changes at every read.
        assert_eq!(pages(&["15"], &[None]), Ok("15".to_string()));
        assert_eq!(pages(&["never"], &[Some(1)]), Ok("never".to_string()));
        assert_eq!(pages(&["15"; 8], &[Some(1), Some(2)]), Ok("14".to_string()));
    }
}
