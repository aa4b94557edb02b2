//! Why memory is on superpages, or is not: facts in, a reason out.
//!
//! [`reason`] is pure. It follows the kernel's own order: `__thp_vma_allowable_orders` (mm/huge_memory.c) decides whether
//! a mapping may have superpages at all, then `hpage_collapse_scan_pmd` (mm/khugepaged.c) what khugepaged makes of a
//! block. A fact that could not be read gives a reason that says so, never the reason that the default would give.
//!
//! Not told: memory of a program that execve is just starting (the kernel's temporary stack), and
//! `PR_THP_DISABLE_EXCEPT_ADVISED`, which no file shows. Locked memory (mlock) may be collapsed like any other, so
//! mlock is no reason. See docs/decisions/map.md#2.

use host::coverage::MappingKind;
use host::{Root, Thp, ZoneFree};
use serde::Serialize;
use units::PageSize;

use crate::Pages;

/// The machine's settings that decide about superpages. `None`: could not be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Which anonymous memory gets superpages: the setting of the superpage size, else that of all sizes.
    pub anonymous: Option<Mode>,
    /// The same for shared memory of the kernel's own mount: `MAP_SHARED` without a file, memfd, System V.
    pub shared: Option<ShmemMode>,
    /// Maximum number of empty base pages in a block that khugepaged collapses.
    pub max_ptes_none: Option<u64>,
    /// Maximum number of swapped-out base pages in such a block.
    pub max_ptes_swap: Option<u64>,
    /// Maximum number of base pages shared with other processes in such a block.
    pub max_ptes_shared: Option<u64>,
    /// Number of base pages that khugepaged scans in one pass; 0: none.
    pub pages_to_scan: Option<u64>,
    /// Whether khugepaged may compact memory to get a superpage.
    pub compacts: Option<bool>,
    /// Number of superpages that fit into free blocks.
    pub free_superpages: Option<u64>,
    /// Whether PAGEMAP_SCAN tells the huge zero page from superpages with memory. Linux 6.7 to 6.15 do not: there the
    /// bytes on superpages are an upper bound.
    pub tells_zero_page: Option<bool>,
}

/// `always`, `madvise` or `never`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// All memory.
    Always,
    /// Memory with MADV_HUGEPAGE.
    Madvise,
    /// None; MADV_COLLAPSE works nevertheless.
    Never,
}

/// `shmem_enabled`, or the `huge=` option of a tmpfs mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShmemMode {
    /// All shared memory.
    Always,
    /// What lies whole within the file's size, and memory with MADV_HUGEPAGE.
    WithinSize,
    /// Memory with MADV_HUGEPAGE.
    Advise,
    /// None.
    Never,
}

/// The process's own facts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Program {
    /// Whether the process may have THP: false after `prctl(PR_SET_THP_DISABLE)`, which children inherit.
    pub thp_enabled: Option<bool>,
}

/// What only smaps knows of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Attributes {
    /// The mapping's advice about superpages.
    pub advice: Advice,
    /// Locked in memory by mlock.
    pub locked: bool,
    /// Registered with userfaultfd.
    pub userfault: bool,
    /// Memory of a device or of a driver, or one that the kernel may not expand (VM_SPECIAL).
    pub special: bool,
    /// The kernel's own answer whether THP may be used here; `None` on kernels without it.
    pub eligible: Option<bool>,
}

/// Advice about superpages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Advice {
    /// None given.
    None,
    /// MADV_HUGEPAGE.
    HugePage,
    /// MADV_NOHUGEPAGE. glibc's stacks of threads have it too: the kernel gives it to MAP_STACK.
    NoHugePage,
}

/// A block of a mapping, as large as a superpage, before its pages are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Kind of memory.
    pub kind: MappingKind,
    /// How the block lies in the mapping.
    pub fit: Fit,
    /// `None` without smaps.
    pub attributes: Option<Attributes>,
    /// The switch of the file system that holds a mapping of shared memory; `None`: unknown.
    pub shared: Option<ShmemMode>,
    /// Base pages of a superpage.
    pub per_block: u32,
    /// Pages of the block that other processes share after a fork; `None`: not read.
    pub forked: Option<u64>,
}

/// How a block lies in its mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// Whole within the mapping.
    Whole,
    /// The mapping's first or last part, less than an aligned superpage.
    Edge,
    /// The mapping holds no aligned superpage at all.
    None,
}

/// Why a block's memory is on superpages, or is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case", tag = "reason")]
pub enum Reason {
    /// On superpages.
    OnSuperpages,
    /// The mapping belongs to a hugetlb pool.
    Pool,
    /// Nothing was ever written or read here.
    NeverTouched,
    /// Only read: the shared zero page is mapped.
    ZeroPage,
    /// A mapping of the kernel: vdso, vvar, vsyscall.
    Kernel,
    /// Memory of a device or of a driver.
    Device,
    /// The mapping holds no aligned superpage.
    TooSmall,
    /// The part of the mapping before its first or after its last aligned superpage.
    AtEdge,
    /// Pages of a file, or private copies of them.
    File,
    /// THP are off for the process.
    OffForProcess,
    /// MADV_NOHUGEPAGE.
    Refused,
    /// THP are off for this memory on the whole machine.
    OffForAll,
    /// THP are for advised memory, and this is not advised.
    NotAdvised,
    /// THP are for advised memory; smaps was not read, so whether this is advised is unknown.
    AdviceUnknown,
    /// Shared memory gets no superpages by this switch.
    SharedOff {
        /// The switch.
        mode: ShmemMode,
    },
    /// Shared memory gets superpages where it is advised, and this is not.
    SharedNotAdvised {
        /// The switch.
        mode: ShmemMode,
    },
    /// Shared memory gets superpages where it is advised; smaps was not read.
    SharedAdviceUnknown {
        /// The switch.
        mode: ShmemMode,
    },
    /// Registered with userfaultfd: a program resolves the faults.
    Userfault,
    /// More pages are in swap than khugepaged brings back.
    Swapped {
        /// khugepaged's limit, pages of a block.
        most: u64,
    },
    /// Fewer pages are resident than khugepaged asks for.
    TooSparse {
        /// Pages of a block that must be resident.
        least: u64,
    },
    /// More pages are shared after a fork than khugepaged copies.
    Forked {
        /// khugepaged's limit, pages of a block.
        most: u64,
    },
    /// khugepaged scans nothing (`pages_to_scan` is 0).
    ScanDisabled,
    /// No block of free memory is large enough.
    NoContiguity {
        /// Whether khugepaged may compact memory; `None`: unknown.
        compacts: Option<bool>,
    },
    /// No obstacle to a superpage: khugepaged has not scanned the memory yet, or could not isolate a page.
    NotYet,
    /// A setting could not be read.
    Unknown {
        /// Which.
        setting: Setting,
    },
}

/// A fact that decides and could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Setting {
    /// `transparent_hugepage/enabled` and that of the superpage size.
    Anonymous,
    /// `shmem_enabled`, or the mount's `huge=`.
    Shared,
    /// khugepaged's limits.
    Khugepaged,
}

impl Reason {
    /// Whether this memory is on superpages.
    pub fn is_on(self) -> bool {
        matches!(self, Self::OnSuperpages | Self::Pool)
    }

    /// Whether superpages could back this memory if a setting, an advice or the state of memory were another.
    pub fn could_be(self) -> bool {
        !self.is_on()
            && !matches!(
                self,
                Self::NeverTouched
                    | Self::ZeroPage
                    | Self::Kernel
                    | Self::Device
                    | Self::TooSmall
                    | Self::AtEdge
                    | Self::File
            )
    }
}

/// The reason for the pages of a block that no superpage maps; for a block that superpages map, that they do.
pub fn reason(machine: &Machine, program: &Program, place: &Place, pages: &Pages) -> Reason {
    let anonymous = place.kind.is_anonymous();
    match place.kind {
        MappingKind::Hugetlb => {
            return if pages.resident() > 0 { Reason::Pool } else { Reason::NeverTouched };
        }
        MappingKind::Special => return Reason::Kernel,
        _ if pages.huge > 0 && pages.base == 0 => return Reason::OnSuperpages,
        _ if pages.resident() == 0 && pages.swapped == 0 => {
            return if pages.zero > 0 { Reason::ZeroPage } else { Reason::NeverTouched };
        }
        _ => {}
    }
    if place.attributes.is_some_and(|known| known.special) {
        return Reason::Device;
    }
    match place.fit {
        Fit::None => return Reason::TooSmall,
        Fit::Edge => return Reason::AtEdge,
        Fit::Whole => {}
    }
    if place.kind == MappingKind::File {
        return Reason::File;
    }
    if program.thp_enabled == Some(false) {
        return Reason::OffForProcess;
    }
    let advice = place.attributes.map(|known| known.advice);
    if advice == Some(Advice::NoHugePage) {
        return Reason::Refused;
    }
    let refused = match anonymous {
        true => by_mode(machine.anonymous, advice),
        false => by_switch(place.shared, advice),
    };
    if let Some(refused) = refused {
        return refused;
    }
    if place.attributes.is_some_and(|known| known.userfault) {
        return Reason::Userfault;
    }
    scanned(machine, place, pages)
}

fn by_mode(mode: Option<Mode>, advice: Option<Advice>) -> Option<Reason> {
    match (mode, advice) {
        (None, _) => Some(Reason::Unknown { setting: Setting::Anonymous }),
        (Some(Mode::Never), _) => Some(Reason::OffForAll),
        (Some(Mode::Always), _) | (Some(Mode::Madvise), Some(Advice::HugePage)) => None,
        (Some(Mode::Madvise), Some(_)) => Some(Reason::NotAdvised),
        (Some(Mode::Madvise), None) => Some(Reason::AdviceUnknown),
    }
}

fn by_switch(mode: Option<ShmemMode>, advice: Option<Advice>) -> Option<Reason> {
    let Some(mode) = mode else { return Some(Reason::Unknown { setting: Setting::Shared }) };
    match (mode, advice) {
        (ShmemMode::Never, _) => Some(Reason::SharedOff { mode }),
        (ShmemMode::Always | ShmemMode::WithinSize, _)
        | (ShmemMode::Advise, Some(Advice::HugePage)) => None,
        (ShmemMode::Advise, Some(_)) => Some(Reason::SharedNotAdvised { mode }),
        (ShmemMode::Advise, None) => Some(Reason::SharedAdviceUnknown { mode }),
    }
}

/// What khugepaged makes of a block that may have a superpage.
fn scanned(machine: &Machine, place: &Place, pages: &Pages) -> Reason {
    let unknown = Reason::Unknown { setting: Setting::Khugepaged };
    // In shared memory khugepaged counts the pages of the file, which other processes may have mapped; not this mapping's.
    if place.kind.is_anonymous() {
        let (Some(none), Some(swap)) = (machine.max_ptes_none, machine.max_ptes_swap) else {
            return unknown;
        };
        if u64::from(pages.swapped) > swap {
            return Reason::Swapped { most: swap };
        }
        // The zero page counts as empty.
        let empty = place.per_block.saturating_sub(pages.resident() + pages.swapped);
        if u64::from(empty) > none {
            return Reason::TooSparse { least: u64::from(place.per_block).saturating_sub(none) };
        }
        if let (Some(most), Some(forked)) = (machine.max_ptes_shared, place.forked)
            && forked > most
        {
            return Reason::Forked { most };
        }
    }
    match (machine.pages_to_scan, machine.free_superpages) {
        (None, _) => unknown,
        (Some(0), _) => Reason::ScanDisabled,
        (_, Some(0)) => Reason::NoContiguity { compacts: machine.compacts },
        _ => Reason::NotYet,
    }
}

impl Machine {
    /// Reads the settings.
    pub fn read(root: &Root, superpage: PageSize) -> Self {
        let Some(thp) = Thp::from_root(root) else { return Self::default() };
        let of_size = thp.sizes.get(&superpage);
        let word = |choice: Option<&host::Choice>| choice.map(|choice| choice.selected.clone());
        let general = word(thp.enabled.as_ref());
        let sized = of_size.and_then(|size| word(size.enabled.as_ref()));
        let shared = word(thp.shmem_enabled.as_ref());
        let sized_shared = of_size.and_then(|size| word(size.shmem_enabled.as_ref()));
        let daemon = &thp.khugepaged;
        Self {
            anonymous: anonymous_mode(sized.as_deref(), general.as_deref()),
            shared: shared_mode(sized_shared.as_deref(), shared.as_deref()),
            max_ptes_none: daemon.max_ptes_none,
            max_ptes_swap: daemon.max_ptes_swap,
            max_ptes_shared: daemon.max_ptes_shared,
            pages_to_scan: daemon.pages_to_scan,
            compacts: daemon.defrag,
            free_superpages: ZoneFree::read(root)
                .ok()
                .map(|zones| free_blocks(&zones, root.page_size(), superpage)),
            tells_zero_page: root.is_real().then(|| host::coverage::tells_zero_page(root)),
        }
    }
}

/// The mode of a size: its own word, or with `inherit` or without one the general word.
fn anonymous_mode(sized: Option<&str>, general: Option<&str>) -> Option<Mode> {
    match sized {
        None | Some("inherit") => match general? {
            "always" => Some(Mode::Always),
            "madvise" => Some(Mode::Madvise),
            "never" => Some(Mode::Never),
            _ => None,
        },
        Some("always") => Some(Mode::Always),
        Some("madvise") => Some(Mode::Madvise),
        Some("never") => Some(Mode::Never),
        Some(_) => None,
    }
}

/// The same for shared memory; `deny` and `force` of the general word win over every size.
fn shared_mode(sized: Option<&str>, general: Option<&str>) -> Option<ShmemMode> {
    match (sized, general) {
        (_, Some("deny")) => Some(ShmemMode::Never),
        (_, Some("force")) => Some(ShmemMode::Always),
        (None | Some("inherit"), general) => ShmemMode::from_word(general?),
        (Some(sized), _) => ShmemMode::from_word(sized),
    }
}

impl ShmemMode {
    /// Reads a word of `shmem_enabled` or of the mount option `huge=`.
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "always" | "force" => Some(Self::Always),
            "within_size" => Some(Self::WithinSize),
            "advise" => Some(Self::Advise),
            "never" | "deny" => Some(Self::Never),
            _ => None,
        }
    }
}

/// Number of superpages that fit into free blocks.
fn free_blocks(zones: &[ZoneFree], base: PageSize, superpage: PageSize) -> u64 {
    let order = (superpage.bytes() / base.bytes()).trailing_zeros() as usize;
    let of_zone = |zone: &ZoneFree| {
        let large = zone.blocks.iter().enumerate().skip(order);
        large.map(|(index, count)| count << (index - order)).sum::<u64>()
    };
    zones.iter().map(of_zone).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Reason::*;

    /// A machine with THP in this mode, and nothing against them.
    fn machine(mode: Mode) -> Machine {
        Machine {
            anonymous: Some(mode),
            shared: Some(ShmemMode::Never),
            max_ptes_none: Some(511),
            max_ptes_swap: Some(64),
            max_ptes_shared: Some(256),
            pages_to_scan: Some(4096),
            compacts: Some(true),
            free_superpages: Some(100),
            tells_zero_page: Some(true),
        }
    }

    const PLAIN: Attributes = Attributes {
        advice: Advice::None,
        locked: false,
        userfault: false,
        special: false,
        eligible: None,
    };
    const ADVISED: Attributes = Attributes { advice: Advice::HugePage, ..PLAIN };
    const NOT: Attributes = Attributes { advice: Advice::NoHugePage, ..PLAIN };
    const FULL: Pages = Pages { base: 512, huge: 0, zero: 0, swapped: 0 };

    fn place(kind: MappingKind, attributes: Option<Attributes>) -> Place {
        let (fit, per_block) = (Fit::Whole, 512);
        Place { kind, fit, attributes, shared: None, per_block, forked: None }
    }

    fn pages(base: u32, huge: u32, zero: u32, swapped: u32) -> Pages {
        Pages { base, huge, zero, swapped }
    }

    #[test]
    fn every_reason_has_its_cases() {
        use MappingKind::{Anonymous, File as OfFile, Heap, Hugetlb, Shmem, Special, Stack};
        let program = Program { thp_enabled: Some(true) };
        let off = Program { thp_enabled: Some(false) };
        let untold = Program { thp_enabled: None };
        let (always, madvise, never) =
            (machine(Mode::Always), machine(Mode::Madvise), machine(Mode::Never));
        let anon = |attributes| place(Anonymous, attributes);
        let fit = |fit, place: Place| Place { fit, ..place };
        let shared = |shared, attributes| Place { shared, ..place(Shmem, attributes) };
        let strict = Machine { max_ptes_none: Some(64), ..always.clone() };
        let full_only = Machine { max_ptes_none: Some(0), ..always.clone() };
        let unread = Machine { anonymous: None, ..always.clone() };
        let no_limits = Machine { max_ptes_none: None, ..always.clone() };
        let fragmented = Machine { free_superpages: Some(0), ..always.clone() };
        let lazy = Machine { compacts: Some(false), ..fragmented.clone() };
        let blind = Machine { free_superpages: None, ..always.clone() };
        let idle = Machine { pages_to_scan: Some(0), ..always.clone() };
        let advise = Some(ShmemMode::Advise);
        let cases: Vec<(&Machine, Program, Place, Pages, Reason)> = vec![
            // What is there.
            (&never, program, anon(None), pages(0, 512, 0, 0), OnSuperpages),
            (&always, program, fit(Fit::Edge, anon(None)), pages(0, 256, 0, 0), OnSuperpages),
            (&madvise, program, place(OfFile, None), pages(0, 512, 0, 0), OnSuperpages),
            (&madvise, off, place(Hugetlb, None), pages(0, 512, 0, 0), Pool),
            (&madvise, program, place(Hugetlb, None), pages(0, 0, 0, 0), NeverTouched),
            (&always, program, anon(None), pages(0, 0, 0, 0), NeverTouched),
            (&always, program, anon(Some(NOT)), pages(0, 0, 0, 0), NeverTouched),
            (&always, program, anon(None), pages(0, 0, 3, 0), ZeroPage),
            (&always, program, place(Special, None), pages(2, 0, 0, 0), Kernel),
            // What the mapping is.
            (&always, program, fit(Fit::None, anon(None)), pages(9, 0, 0, 0), TooSmall),
            (&never, off, fit(Fit::None, anon(None)), pages(9, 0, 0, 0), TooSmall),
            (&always, program, fit(Fit::Edge, anon(Some(ADVISED))), pages(9, 0, 0, 0), AtEdge),
            (&always, program, fit(Fit::None, place(Stack, None)), pages(9, 0, 0, 0), TooSmall),
            (&always, program, place(OfFile, None), FULL, File),
            (&always, program, place(OfFile, Some(ADVISED)), FULL, File),
            (&always, program, anon(Some(Attributes { special: true, ..PLAIN })), FULL, Device),
            // What may have superpages.
            (&always, off, anon(Some(ADVISED)), FULL, OffForProcess),
            (&never, off, place(Heap, None), FULL, OffForProcess),
            (&always, untold, anon(None), FULL, NotYet),
            (&always, program, anon(Some(NOT)), FULL, Refused),
            (&never, program, anon(Some(NOT)), FULL, Refused),
            (&never, program, anon(Some(ADVISED)), FULL, OffForAll),
            (&never, program, place(Heap, None), FULL, OffForAll),
            (&madvise, program, anon(Some(PLAIN)), FULL, NotAdvised),
            (&madvise, program, place(Stack, Some(PLAIN)), FULL, NotAdvised),
            (&madvise, program, anon(None), FULL, AdviceUnknown),
            (&madvise, program, anon(Some(ADVISED)), FULL, NotYet),
            (&unread, program, anon(None), FULL, Unknown { setting: Setting::Anonymous }),
            // Shared memory.
            (&always, program, shared(None, None), FULL, Unknown { setting: Setting::Shared }),
            (
                &always,
                program,
                shared(Some(ShmemMode::Never), Some(ADVISED)),
                FULL,
                SharedOff { mode: ShmemMode::Never },
            ),
            (
                &always,
                program,
                shared(advise, Some(PLAIN)),
                FULL,
                SharedNotAdvised { mode: ShmemMode::Advise },
            ),
            (
                &always,
                program,
                shared(advise, None),
                FULL,
                SharedAdviceUnknown { mode: ShmemMode::Advise },
            ),
            (&never, program, shared(advise, Some(ADVISED)), FULL, NotYet),
            (&never, program, shared(Some(ShmemMode::WithinSize), None), pages(1, 0, 0, 0), NotYet),
            // What khugepaged makes of it.
            (
                &always,
                program,
                anon(Some(Attributes { userfault: true, ..PLAIN })),
                FULL,
                Userfault,
            ),
            (&always, program, anon(None), pages(440, 0, 0, 65), Swapped { most: 64 }),
            (&always, program, anon(None), pages(448, 0, 0, 64), NotYet),
            (&always, program, anon(None), pages(0, 0, 0, 512), Swapped { most: 64 }),
            (&strict, program, anon(None), pages(447, 0, 0, 0), TooSparse { least: 448 }),
            (&strict, program, anon(None), pages(448, 0, 0, 0), NotYet),
            (&strict, program, anon(None), pages(447, 0, 65, 0), TooSparse { least: 448 }),
            (&full_only, program, anon(None), pages(511, 0, 0, 0), TooSparse { least: 512 }),
            (&always, program, anon(None), pages(1, 0, 0, 0), NotYet),
            (
                &always,
                program,
                Place { forked: Some(257), ..anon(None) },
                FULL,
                Forked { most: 256 },
            ),
            (&always, program, Place { forked: Some(256), ..anon(None) }, FULL, NotYet),
            (&fragmented, program, anon(None), FULL, NoContiguity { compacts: Some(true) }),
            (&lazy, program, anon(None), FULL, NoContiguity { compacts: Some(false) }),
            (&blind, program, anon(None), FULL, NotYet),
            (&idle, program, anon(None), FULL, ScanDisabled),
            (&no_limits, program, anon(None), FULL, Unknown { setting: Setting::Khugepaged }),
        ];
        assert!(cases.len() >= 30);
        for (index, (machine, program, place, pages, expected)) in cases.iter().enumerate() {
            let found = reason(machine, program, place, pages);
            assert_eq!(found, *expected, "case {index}: {place:?} {pages:?}");
        }
        // Every kind of reason has a case.
        let kinds: std::collections::BTreeSet<_> = cases
            .iter()
            .map(|(.., reason)| format!("{reason:?}").split(' ').next().map(str::to_string))
            .collect();
        assert_eq!(kinds.len(), 25, "{kinds:?}");
    }

    #[test]
    fn a_size_has_its_own_mode_or_inherits_one() {
        let mode = anonymous_mode;
        assert_eq!(mode(Some("inherit"), Some("madvise")), Some(Mode::Madvise));
        assert_eq!(mode(Some("never"), Some("always")), Some(Mode::Never));
        assert_eq!(mode(Some("always"), Some("never")), Some(Mode::Always));
        assert_eq!(mode(None, Some("always")), Some(Mode::Always));
        assert_eq!((mode(Some("new"), Some("always")), mode(None, None)), (None, None));
        let mode = shared_mode;
        assert_eq!(mode(Some("always"), Some("deny")), Some(ShmemMode::Never));
        assert_eq!(mode(Some("never"), Some("force")), Some(ShmemMode::Always));
        assert_eq!(mode(Some("inherit"), Some("within_size")), Some(ShmemMode::WithinSize));
        assert_eq!(mode(Some("advise"), Some("never")), Some(ShmemMode::Advise));
        assert_eq!(mode(Some("inherit"), None), None);
    }

    #[test]
    fn free_blocks_of_higher_orders_hold_several_superpages() {
        let zone = |blocks: &[u64]| ZoneFree {
            node: units::NodeId(0),
            zone: "Normal".into(),
            blocks: blocks.to_vec(),
        };
        let (base, superpage) = (PageSize::new(4096).unwrap(), PageSize::new(2 << 20).unwrap());
        let zones = [zone(&[7; 9]), zone(&[7, 0, 0, 0, 0, 0, 0, 0, 0, 3, 2])];
        assert_eq!(free_blocks(&zones, base, superpage), 3 + 4);
        assert_eq!(free_blocks(&zones[..1], base, superpage), 0);
    }
}
