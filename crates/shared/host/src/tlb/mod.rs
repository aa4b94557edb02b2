//! CPUID's description of the TLB and the hypervisor (x86), which no file contains. CPUID is read only on the real
//! machine. In a guest the hypervisor chooses the values.

mod decode;

pub use decode::{AMD_UNIT, arrays as decode};

use Level::{First, Micro, Second, Under};
use serde::{Deserialize, Serialize};
use units::PageSize;

use crate::Root;
use TlbKind::{Data, Instruction, Unified};

/// One TLB array as CPUID describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlbArray {
    /// 1 for the first level, 2 for the second.
    pub level: u32,
    /// Accesses that the array translates.
    pub kind: TlbKind,
    /// Page sizes of its translations.
    pub page_sizes: Vec<PageSize>,
    /// Number of entries.
    pub entries: u32,
    /// Associativity: the number of ways. Equal to `entries` if fully associative; `None` if
    /// unknown.
    #[serde(default)]
    pub ways: Option<u32>,
}

/// CPUID's leaves about TLBs: registers EAX, EBX, ECX, EDX of each leaf, undecoded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leaves {
    /// Leaf 2: one-byte descriptors (Intel).
    pub descriptors: Option<[u32; 4]>,
    /// Leaf 0x18, one element for each subleaf (Intel since Goldmont Plus and Ice Lake).
    pub translation: Vec<[u32; 4]>,
    /// Leaf 0x8000_0005: first level (AMD).
    pub amd_first: Option<[u32; 4]>,
    /// Leaf 0x8000_0006: second level (AMD).
    pub amd_second: Option<[u32; 4]>,
    /// Leaf 0x8000_0019: pages of 1 GiB at both levels (AMD).
    pub amd_giant: Option<[u32; 4]>,
    /// Leaf 0x8000_0021: features, including the unit of the second level (AMD since Zen 5).
    pub amd_features: Option<[u32; 4]>,
}

/// The accesses that a TLB array translates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TlbKind {
    /// Loads and stores.
    Data,
    /// Instruction fetches.
    Instruction,
    /// Both.
    Unified,
    /// Stores alone.
    Stores,
}

/// Returns the arrays, first level first. The list is empty on fixtures and on other architectures: Arm's
/// identification registers describe base page sizes (ID_AA64MMFR0_EL1), but not TLBs.
#[cfg(target_arch = "x86_64")]
pub(crate) fn arrays(root: &Root) -> Vec<TlbArray> {
    if root.is_real() { decode::arrays(&Leaves::read()) } else { Vec::new() }
}

#[cfg(target_arch = "x86_64")]
impl Leaves {
    /// Queries this processor.
    fn read() -> Self {
        use raw_cpuid::{CpuIdReader, CpuIdReaderNative};
        let ask = |leaf, sub| {
            let found = CpuIdReaderNative.cpuid2(leaf, sub);
            [found.eax, found.ebx, found.ecx, found.edx]
        };
        let (basic, extended) = (ask(0, 0), ask(0x8000_0000, 0)[0]);
        let amd = |leaf: u32| (extended >= leaf).then(|| ask(leaf, 0));
        // Other vendors' CPUs reserve these leaves.
        let is_amd =
            [basic[1], basic[3], basic[2]] == AMD || [basic[1], basic[3], basic[2]] == HYGON;
        let amd = |leaf| amd(leaf).filter(|_| is_amd);
        let subleaves = || {
            let last = ask(0x18, 0)[0].min(MAX_SUBLEAVES);
            (0..=last).map(|sub| ask(0x18, sub)).collect()
        };
        Self {
            descriptors: (basic[0] >= 2 && !is_amd).then(|| ask(2, 0)),
            translation: if basic[0] >= 0x18 { subleaves() } else { Vec::new() },
            amd_first: amd(0x8000_0005),
            amd_second: amd(0x8000_0006),
            amd_giant: amd(0x8000_0019),
            amd_features: amd(0x8000_0021),
        }
    }
}

/// `AuthenticAMD` and `HygonGenuine` as EBX, EDX, ECX of leaf 0.
#[cfg(target_arch = "x86_64")]
const AMD: [u32; 3] = [0x6874_7541, 0x6974_6e65, 0x444d_4163];
#[cfg(target_arch = "x86_64")]
const HYGON: [u32; 3] = [0x6f67_7948, 0x6e65_476e, 0x656e_6975];
/// Maximum number of subleaves read. More than any CPU reports; a hypervisor may report any number.
#[cfg(target_arch = "x86_64")]
const MAX_SUBLEAVES: u32 = 64;

/// The hypervisor's name, from CPUID leaf 0x4000_0000.
#[cfg(target_arch = "x86_64")]
pub(crate) fn hypervisor_name(root: &Root) -> Option<String> {
    use raw_cpuid::Hypervisor::Unknown;
    let info = root.is_real().then(raw_cpuid::CpuId::new)?.get_hypervisor_info()?;
    match info.identify() {
        Unknown(b, c, d) => {
            let bytes: Vec<u8> = [b, c, d].into_iter().flat_map(u32::to_le_bytes).collect();
            let name: String =
                bytes.into_iter().map(char::from).filter(char::is_ascii_graphic).collect();
            (!name.is_empty()).then_some(name)
        }
        known => Some(format!("{known:?}")),
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn arrays(_: &Root) -> Vec<TlbArray> {
    Vec::new()
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn hypervisor_name(_: &Root) -> Option<String> {
    None
}

// Leaf 2 of CPUID: the one-byte descriptors about TLBs. Intel SDM volume 2A, CPUID, table "Encoding of CPUID Leaf 2
// Descriptors" (manual).

/// One array that a descriptor stands for.
#[derive(Debug, Clone, Copy)]
struct Row {
    pub code: u8,
    pub level: Level,
    pub kind: TlbKind,
    pub pages: &'static [u64],
    pub entries: u32,
    /// Associativity; 0: fully associative; `None`: the table does not say.
    pub ways: Option<u32>,
}

/// The level of an array. For some descriptors it depends on which others are present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// First level.
    First,
    /// First level, called "DTLB0" or "uTLB". If present, [`Level::Under`] is the second level.
    Micro,
    /// Second level if a [`Level::Micro`] array is present, otherwise first level ("DTLB1").
    Under,
    /// Second level ("shared 2nd-level TLB").
    Second,
}

const K4: u64 = 4 << 10;
const M2: u64 = 2 << 20;
const M4: u64 = 4 << 20;
const G1: u64 = 1 << 30;

const fn row(
    code: u8,
    level: Level,
    kind: TlbKind,
    pages: &'static [u64],
    entries: u32,
    ways: Option<u32>,
) -> Row {
    Row { code, level, kind, pages, entries, ways }
}

/// Every TLB descriptor. Two descriptors stand for two arrays.
const ROWS: &[Row] = &[
    row(0x01, First, Instruction, &[K4], 32, Some(4)),
    row(0x02, First, Instruction, &[M4], 2, Some(0)),
    row(0x03, First, Data, &[K4], 64, Some(4)),
    row(0x04, First, Data, &[M4], 8, Some(4)),
    row(0x05, Under, Data, &[M4], 32, Some(4)),
    row(0x0b, First, Instruction, &[M4], 4, Some(4)),
    row(0x4f, First, Instruction, &[K4], 32, None),
    row(0x50, First, Instruction, &[K4, M2, M4], 64, None),
    row(0x51, First, Instruction, &[K4, M2, M4], 128, None),
    row(0x52, First, Instruction, &[K4, M2, M4], 256, None),
    row(0x55, First, Instruction, &[M2, M4], 7, Some(0)),
    row(0x56, Micro, Data, &[M4], 16, Some(4)),
    row(0x57, Micro, Data, &[K4], 16, Some(4)),
    row(0x59, Micro, Data, &[K4], 16, Some(0)),
    // The SDM calls this array "DTLB0", but Nehalem has no DTLB1.
    row(0x5a, First, Data, &[M2, M4], 32, Some(4)),
    row(0x5b, First, Data, &[K4, M4], 64, None),
    row(0x5c, First, Data, &[K4, M4], 128, None),
    row(0x5d, First, Data, &[K4, M4], 256, None),
    row(0x61, First, Instruction, &[K4], 48, Some(0)),
    row(0x63, First, Data, &[M2, M4], 32, Some(4)),
    row(0x63, First, Data, &[G1], 4, Some(4)),
    row(0x64, First, Data, &[K4], 512, Some(4)),
    row(0x6a, Micro, Data, &[K4], 64, Some(8)),
    row(0x6b, Under, Data, &[K4], 256, Some(8)),
    row(0x6c, Under, Data, &[M2, M4], 128, Some(8)),
    row(0x6d, Under, Data, &[G1], 16, Some(0)),
    row(0x76, First, Instruction, &[M2, M4], 8, Some(0)),
    row(0xa0, First, Data, &[K4], 32, Some(0)),
    row(0xb0, First, Instruction, &[K4], 128, Some(4)),
    // The array has half as many entries for 4 MiB pages.
    row(0xb1, First, Instruction, &[M2], 8, Some(4)),
    row(0xb2, First, Instruction, &[K4], 64, Some(4)),
    row(0xb3, First, Data, &[K4], 128, Some(4)),
    row(0xb4, Under, Data, &[K4], 256, Some(4)),
    row(0xb5, First, Instruction, &[K4], 64, Some(8)),
    row(0xb6, First, Instruction, &[K4], 128, Some(8)),
    row(0xba, Under, Data, &[K4], 64, Some(4)),
    row(0xc0, First, Data, &[K4, M4], 8, Some(4)),
    row(0xc1, Second, Unified, &[K4, M2], 1024, Some(8)),
    row(0xc2, First, Data, &[K4, M2], 16, Some(4)),
    row(0xc3, Second, Unified, &[K4, M2], 1536, Some(6)),
    row(0xc3, Second, Unified, &[G1], 16, Some(4)),
    row(0xc4, First, Data, &[M2, M4], 32, Some(4)),
    row(0xca, Second, Unified, &[K4], 512, Some(4)),
];
