//! `/sys/kernel/mm/transparent_hugepage`: the THP settings, by size, and khugepaged.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use units::PageSize;

use crate::root::Reasons;
use crate::{ReadError, Root, Unknown, root};

/// Directory of the THP files.
pub(crate) const DIR: &str = "/sys/kernel/mm/transparent_hugepage";

/// The settings of transparent huge pages. A field is `None` if this kernel has no such file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thp {
    /// Which memory gets superpages at a fault: `always`, `madvise` or `never`.
    pub enabled: Option<Choice>,
    /// How hard a fault tries to get a superpage: `always`, `defer`, `defer+madvise`, `madvise` or `never`.
    pub defrag: Option<Choice>,
    /// Like `enabled`, for shared memory.
    pub shmem_enabled: Option<Choice>,
    /// Whether a read fault on untouched memory maps the huge zero page.
    pub use_zero_page: Option<bool>,
    /// Whether underused superpages are split under memory pressure.
    pub shrink_underused: Option<bool>,
    /// The size of a superpage that one PMD maps: 2 MiB on x86, 512 MiB with 64K base pages.
    pub pmd_size: Option<PageSize>,
    /// Every size that this kernel supports (mTHP); empty on kernels with only the PMD size.
    pub sizes: BTreeMap<PageSize, ThpSize>,
    /// The background daemon khugepaged.
    pub khugepaged: Khugepaged,
}

/// Settings and counters of one folio size.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThpSize {
    /// The setting for anonymous memory; `None` for the smallest size, which exists only for shared
    /// memory.
    pub enabled: Option<Choice>,
    /// The setting for shared memory.
    pub shmem_enabled: Option<Choice>,
    /// Counters since boot by the kernel's names (numbers of folios); empty if only the settings were read.
    pub stats: BTreeMap<String, u64>,
}

/// khugepaged's settings and counters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Khugepaged {
    /// Whether khugepaged may compact memory to get a superpage.
    pub defrag: Option<bool>,
    /// Number of base pages scanned in one pass.
    pub pages_to_scan: Option<u64>,
    /// Milliseconds between passes.
    pub scan_sleep_ms: Option<u64>,
    /// Milliseconds of pause after a failed allocation.
    pub alloc_sleep_ms: Option<u64>,
    /// Maximum number of empty base pages in a region that khugepaged collapses.
    pub max_ptes_none: Option<u64>,
    /// Maximum number of swapped-out base pages in such a region.
    pub max_ptes_swap: Option<u64>,
    /// Maximum number of base pages shared with other processes in such a region.
    pub max_ptes_shared: Option<u64>,
    /// Number of superpages collapsed since boot.
    pub pages_collapsed: Option<u64>,
    /// Number of full passes over all registered processes since boot.
    pub full_scans: Option<u64>,
}

/// Which files to read: most files are counters, about 17 for each of 9 sizes.
#[derive(Clone, Copy)]
enum Parts {
    Settings,
    All,
}

impl Thp {
    /// Reads only the superpage size of a PMD.
    pub fn pmd_size_of(root: &Root) -> Result<PageSize, ReadError> {
        root::page_size(root, &format!("{DIR}/hpage_pmd_size"))
    }

    /// Reads only the settings, which are a tenth of the files; [`crate::Snapshot`] gives the reasons for missing
    /// values.
    pub fn from_root(root: &Root) -> Option<Self> {
        Self::read_parts(root, Parts::Settings, &mut Reasons::default())
    }

    /// Like [`Self::from_root`], with the reasons for missing values.
    pub fn settings(root: &Root) -> (Option<Self>, Vec<Unknown>) {
        let mut reasons = Reasons::default();
        let thp = Self::read_parts(root, Parts::Settings, &mut reasons);
        (thp, reasons.0)
    }

    /// Reads settings and counters.
    pub fn with_counters(root: &Root) -> Option<Self> {
        Self::read(root, &mut Reasons::default())
    }

    pub(crate) fn read(root: &Root, reasons: &mut Reasons) -> Option<Self> {
        Self::read_parts(root, Parts::All, reasons)
    }

    fn read_parts(root: &Root, parts: Parts, reasons: &mut Reasons) -> Option<Self> {
        let names = match root.list(DIR) {
            Ok(names) => names,
            Err(error) if error.is_gone() => {
                reasons.note(DIR, "this kernel was built without transparent huge pages");
                return None;
            }
            Err(error) => {
                reasons.note(DIR, error.to_string());
                return None;
            }
        };
        let sizes = names.iter().filter_map(|name| {
            let dir = format!("{DIR}/{name}");
            Some((root::size_of_dir(name)?, ThpSize::read(root, &dir, parts, reasons)))
        });
        let sizes: BTreeMap<_, _> = sizes.collect();
        if sizes.is_empty() {
            reasons.note(&format!("{DIR}/hugepages-*kB"), "this kernel has no mTHP sizes");
        }
        let at = |name: &str| format!("{DIR}/{name}");
        let mut choice = |name: &str| reasons.ask(&at(name), Choice::read(root, &at(name)));
        let (enabled, defrag, shmem_enabled) =
            (choice("enabled"), choice("defrag"), choice("shmem_enabled"));
        let mut flag = |name: &str| reasons.ask(&at(name), root::flag(root, &at(name)));
        Some(Self {
            enabled,
            defrag,
            shmem_enabled,
            use_zero_page: flag("use_zero_page"),
            shrink_underused: flag("shrink_underused"),
            pmd_size: reasons.ask(&at("hpage_pmd_size"), Self::pmd_size_of(root)),
            sizes,
            khugepaged: Khugepaged::read(root, reasons),
        })
    }
}

impl ThpSize {
    fn read(root: &Root, dir: &str, parts: Parts, reasons: &mut Reasons) -> Self {
        // A missing file means that this size has no such setting. Record no reason.
        let mut choice = |name: &str| match Choice::read(root, &format!("{dir}/{name}")) {
            Err(error) if error.is_gone() => None,
            result => reasons.ask(&format!("{dir}/{name}"), result),
        };
        let (enabled, shmem_enabled) = (choice("enabled"), choice("shmem_enabled"));
        let names = match parts {
            Parts::Settings => Vec::new(),
            Parts::All => root.list(&format!("{dir}/stats")).unwrap_or_default(),
        };
        let stats = names.into_iter().filter_map(|name| {
            let path = format!("{dir}/stats/{name}");
            reasons.ask(&path, root::number(root, &path)).map(|count| (name, count))
        });
        Self { enabled, shmem_enabled, stats: stats.collect() }
    }
}

impl Khugepaged {
    fn read(root: &Root, reasons: &mut Reasons) -> Self {
        let at = |name: &str| format!("{DIR}/khugepaged/{name}");
        let defrag = reasons.ask(&at("defrag"), root::flag(root, &at("defrag")));
        let mut number = |name: &str| reasons.ask(&at(name), root::number(root, &at(name)));
        Self {
            defrag,
            pages_to_scan: number("pages_to_scan"),
            scan_sleep_ms: number("scan_sleep_millisecs"),
            alloc_sleep_ms: number("alloc_sleep_millisecs"),
            max_ptes_none: number("max_ptes_none"),
            max_ptes_swap: number("max_ptes_swap"),
            max_ptes_shared: number("max_ptes_shared"),
            pages_collapsed: number("pages_collapsed"),
            full_scans: number("full_scans"),
        }
    }
}

// `Choice`: a setting printed as `always [madvise] never`.

/// The selected word, and the words that this kernel allows. Not an enum, because new kernels add
/// words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The word in brackets.
    pub selected: String,
    /// Every word, in the kernel's order.
    pub allowed: Vec<String>,
}

impl Choice {
    /// Reads `always [madvise] never`; `None` unless exactly one word is in brackets.
    pub fn parse(line: &str) -> Option<Self> {
        let mut selected = None;
        let mut allowed = Vec::new();
        for word in line.split_ascii_whitespace() {
            let chosen = word.strip_prefix('[').and_then(|w| w.strip_suffix(']'));
            let word = chosen.unwrap_or(word);
            if word.is_empty() || (chosen.is_some() && selected.is_some()) {
                return None;
            }
            selected = selected.or(chosen);
            allowed.push(word.to_string());
        }
        Some(Self { selected: selected?.to_string(), allowed })
    }

    /// Whether `word` is selected.
    pub fn is(&self, word: &str) -> bool {
        self.selected == word
    }

    /// Whether this kernel allows `word`.
    pub fn allows(&self, word: &str) -> bool {
        self.allowed.iter().any(|allowed| allowed == word)
    }

    pub(crate) fn read(root: &Root, path: &str) -> Result<Self, ReadError> {
        let text = root.read(path)?;
        let line = text.trim();
        Self::parse(line).ok_or_else(|| {
            let expected = "words, one of them in brackets, such as `always [madvise] never`";
            ReadError::malformed(&root.path(path), 1, line, expected)
        })
    }
}
