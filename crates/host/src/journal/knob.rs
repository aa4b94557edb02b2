//! `Knob`: a setting that may be changed. The type's value is its proof: a path outside the list
//! below cannot be made into one, not even by a forged journal.

use std::fmt;

use serde::{Deserialize, Serialize};
use units::{NodeId, PageSize};

use crate::{hugetlb, text, thp};

/// A setting of the machine, as an absolute path below `/sys` or `/proc/sys/vm`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Knob(String);

/// A path that is not a knob.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path:?} is not a setting that can be changed: {why}")]
pub struct NotAKnob {
    /// The path, cut after 200 characters.
    pub path: String,
    /// Why not.
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
    /// The knob at `path`, an absolute path as the kernel has it (no root before it).
    pub fn new(path: &str) -> Result<Self, NotAKnob> {
        match check(path) {
            Ok(()) => Ok(Self(path.to_string())),
            Err(why) => Err(NotAKnob { path: path.chars().take(200).collect(), why }),
        }
    }

    /// The pool of `size` on the whole machine: its persistent pages.
    pub fn hugetlb_pool(size: PageSize) -> Self {
        Self(format!("{}/{}/nr_hugepages", hugetlb::DIR, text::dir_of_size(size)))
    }

    /// One node's share of the pool of `size`: its persistent pages.
    pub fn hugetlb_node_pool(node: NodeId, size: PageSize) -> Self {
        let size = text::dir_of_size(size);
        Self(format!("{}/node{node}/hugepages/{size}/nr_hugepages", hugetlb::NODES))
    }

    /// The size of its pages, if it is a pool of the whole machine.
    pub(crate) fn pool_size(&self) -> Option<PageSize> {
        let name = self.0.strip_prefix(hugetlb::DIR)?.strip_prefix('/')?;
        let size = text::size_of_dir(name.strip_suffix("/nr_hugepages")?)?;
        Some(size).filter(|size| Self::hugetlb_pool(*size) == *self)
    }

    /// How many surplus pages of `size` may be made on demand.
    pub fn hugetlb_overcommit(size: PageSize) -> Self {
        Self(format!("{}/{}/nr_overcommit_hugepages", hugetlb::DIR, text::dir_of_size(size)))
    }

    /// Who gets THP.
    pub fn thp_enabled() -> Self {
        Self(format!("{}/enabled", thp::DIR))
    }

    /// How hard a fault tries to get one.
    pub fn defrag() -> Self {
        Self(format!("{}/defrag", thp::DIR))
    }

    /// The same as [`Knob::thp_enabled`] for shared memory.
    pub fn shmem_enabled() -> Self {
        Self(format!("{}/shmem_enabled", thp::DIR))
    }

    /// Whether reads map the huge page of zeroes.
    pub fn use_zero_page() -> Self {
        Self(format!("{}/use_zero_page", thp::DIR))
    }

    /// Whether underused superpages are split under pressure.
    pub fn shrink_underused() -> Self {
        Self(format!("{}/shrink_underused", thp::DIR))
    }

    /// Who gets folios of one size (mTHP).
    pub fn thp_size_enabled(size: PageSize) -> Self {
        Self(format!("{}/{}/enabled", thp::DIR, text::dir_of_size(size)))
    }

    /// The same for shared memory.
    pub fn thp_size_shmem_enabled(size: PageSize) -> Self {
        Self(format!("{}/{}/shmem_enabled", thp::DIR, text::dir_of_size(size)))
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

    /// The group whose members may use hugetlb shared memory.
    pub fn hugetlb_shm_group() -> Self {
        Self("/proc/sys/vm/hugetlb_shm_group".to_string())
    }

    /// Memory kept free for emergencies.
    pub fn min_free_kbytes() -> Self {
        Self("/proc/sys/vm/min_free_kbytes".to_string())
    }

    /// The largest SysV shared memory segment.
    pub fn shmmax() -> Self {
        Self("/proc/sys/kernel/shmmax".to_string())
    }

    /// A sysctl of `/proc/sys/vm`, such as `min_free_kbytes` or `compaction_proactiveness`.
    pub fn vm(name: &str) -> Result<Self, NotAKnob> {
        Self::new(&format!("/proc/sys/vm/{name}"))
    }

    /// Its absolute path.
    pub fn path(&self) -> &str {
        &self.0
    }

    /// Whether several processes may raise it at a time: a pool, its limit, or who gets THP of one size.
    pub(super) fn may_be_shared(&self) -> bool {
        self.0.ends_with("/nr_hugepages")
            || self.0.ends_with("/nr_overcommit_hugepages")
            || self.is_thp_size()
    }

    fn is_thp_size(&self) -> bool {
        self.0.starts_with(thp::DIR)
            && self.0.strip_suffix("/enabled").is_some_and(|dir| dir != thp::DIR)
    }

    /// A value of a knob that is shared as a number: the larger, the more is allowed.
    pub(super) fn number(&self, value: &str) -> Option<u64> {
        match self.is_thp_size() {
            true => THP_LEVELS.iter().position(|word| *word == value).map(|level| level as u64),
            false => value.parse().ok(),
        }
    }

    /// The value that is this number.
    pub(super) fn value(&self, number: u64) -> String {
        match self.is_thp_size() {
            true => THP_LEVELS[(number as usize).min(THP_LEVELS.len() - 1)].to_string(),
            false => number.to_string(),
        }
    }

    /// For a hugetlb pool, the file that tells how many of its pages are surplus.
    pub(super) fn surplus(&self) -> Option<String> {
        Some(format!("{}/surplus_hugepages", self.0.strip_suffix("/nr_hugepages")?))
    }
}

/// Who gets THP of one size. `inherit` comes above `madvise`, because it is left alone: what it means is another
/// setting's to say.
const THP_LEVELS: [&str; 4] = ["never", "madvise", "inherit", "always"];

/// Files in /proc/sys/vm that do something instead of holding a setting.
const ACTIONS: [&str; 3] = ["compact_memory", "drop_caches", "stat_refresh"];
/// Second names of the default pool. A change under one name could not be told from somebody
/// else's change when the journal looks under the other.
const ALIASES: [&str; 3] = ["nr_hugepages", "nr_hugepages_mempolicy", "nr_overcommit_hugepages"];

fn check(path: &str) -> Result<(), &'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let parts: Vec<&str> = path.split('/').collect();
    let sane = |part: &&str| !part.is_empty() && !part.starts_with('.') && part.chars().all(plain);
    let ["", parts @ ..] = parts.as_slice() else { return Err("its path is not absolute") };
    if path.len() > 200 || !parts.iter().all(sane) {
        return Err("its path is not a plain one");
    }
    let is_size = |name: &str| text::size_of_dir(name).is_some();
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
