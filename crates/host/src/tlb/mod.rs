//! What the processor itself says of its TLB and its hypervisor (x86 CPUID), which no file tells.
//! Asked on the real machine only; under a hypervisor it is what the hypervisor chose to say.

mod decode;
mod descriptors;

use serde::{Deserialize, Serialize};
use units::PageSize;

use crate::Root;

pub use decode::{AMD_UNIT, arrays as decode};

/// One TLB array as CPUID describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlbArray {
    /// 1 for the first level, 2 for the second.
    pub level: u32,
    /// What it translates.
    pub kind: TlbKind,
    /// The page sizes whose translations it holds.
    pub page_sizes: Vec<PageSize>,
    /// How many translations.
    pub entries: u32,
    /// Of these, in one set; as many as `entries`: fully associative; `None`: it is not said.
    #[serde(default)]
    pub ways: Option<u32>,
}

/// What CPUID says of TLBs: registers EAX, EBX, ECX, EDX of each leaf, as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leaves {
    /// Leaf 2: one-byte descriptors (Intel).
    pub descriptors: Option<[u32; 4]>,
    /// Leaf 0x18, subleaf after subleaf (Intel since Goldmont Plus and Ice Lake).
    pub translation: Vec<[u32; 4]>,
    /// Leaf 0x8000_0005: first level (AMD).
    pub amd_first: Option<[u32; 4]>,
    /// Leaf 0x8000_0006: second level (AMD).
    pub amd_second: Option<[u32; 4]>,
    /// Leaf 0x8000_0019: pages of 1 GiB at both levels (AMD).
    pub amd_giant: Option<[u32; 4]>,
    /// Leaf 0x8000_0021: features, of which one says how the second level is counted (AMD since Zen 5).
    pub amd_features: Option<[u32; 4]>,
}

/// What a TLB array translates.
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

/// The arrays, first level first; empty on fixtures and other architectures. Arm's identification
/// registers say which sizes of base page there are (ID_AA64MMFR0_EL1) and nothing of its TLBs.
#[cfg(target_arch = "x86_64")]
pub(crate) fn arrays(root: &Root) -> Vec<TlbArray> {
    if root.is_real() { decode::arrays(&Leaves::read()) } else { Vec::new() }
}

#[cfg(target_arch = "x86_64")]
impl Leaves {
    /// Asks this processor.
    fn read() -> Self {
        use raw_cpuid::{CpuIdReader, CpuIdReaderNative};
        let ask = |leaf, sub| {
            let found = CpuIdReaderNative.cpuid2(leaf, sub);
            [found.eax, found.ebx, found.ecx, found.edx]
        };
        let (basic, extended) = (ask(0, 0), ask(0x8000_0000, 0)[0]);
        let amd = |leaf: u32| (extended >= leaf).then(|| ask(leaf, 0));
        // Reserved at other makers, and zero at best.
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
/// More than any processor has: a hypervisor may say anything.
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
