//! What the processor itself says of its TLB and its hypervisor (x86 CPUID), which no file tells.
//! Asked on the real machine only; under a hypervisor it is what the hypervisor chose to say.

use serde::{Deserialize, Serialize};
use units::PageSize;

use crate::Root;

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
}

/// The arrays, first level first; empty on fixtures, other architectures, and processors that
/// describe themselves by leaf 2's codes alone, which name no page sizes reliably.
#[cfg(target_arch = "x86_64")]
pub(crate) fn arrays(root: &Root) -> Vec<TlbArray> {
    if !root.is_real() {
        return Vec::new();
    }
    let cpuid = raw_cpuid::CpuId::new();
    let mut arrays = amd(&cpuid);
    arrays.extend(deterministic(&cpuid));
    arrays.retain(|array| array.entries > 0);
    arrays
}

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

/// AMD's leaves 0x8000_0005, 6 and 19.
#[cfg(target_arch = "x86_64")]
fn amd(cpuid: &raw_cpuid::CpuId<raw_cpuid::CpuIdReaderNative>) -> Vec<TlbArray> {
    use TlbKind::{Data, Instruction};
    let mut arrays = Vec::new();
    let mut add = |level, kind, bytes: u64, entries: u32| {
        let page_sizes = PageSize::new(bytes).into_iter().collect();
        arrays.push(TlbArray { level, kind, page_sizes, entries });
    };
    const K4: u64 = 4 << 10;
    const M2: u64 = 2 << 20;
    const G1: u64 = 1 << 30;
    let giant = cpuid.get_tlb_1gb_page_info();
    if let Some(first) = cpuid.get_l1_cache_and_tlb_info() {
        add(1, Data, K4, first.dtlb_4k_size().into());
        add(1, Data, M2, first.dtlb_2m_4m_size().into());
        add(1, Instruction, K4, first.itlb_4k_size().into());
        add(1, Instruction, M2, first.itlb_2m_4m_size().into());
    }
    if let Some(giant) = &giant {
        add(1, Data, G1, giant.dtlb_l1_1gb_size().into());
        add(1, Instruction, G1, giant.itlb_l1_1gb_size().into());
    }
    if let Some(second) = cpuid.get_l2_l3_cache_and_tlb_info() {
        add(2, Data, K4, second.dtlb_4k_size().into());
        add(2, Data, M2, second.dtlb_2m_4m_size().into());
        add(2, Instruction, K4, second.itlb_4k_size().into());
        add(2, Instruction, M2, second.itlb_2m_4m_size().into());
    }
    if let Some(giant) = &giant {
        add(2, Data, G1, giant.dtlb_l2_1gb_size().into());
        add(2, Instruction, G1, giant.itlb_l2_1gb_size().into());
    }
    arrays
}

/// Intel's leaf 0x18: entries are ways times sets.
#[cfg(target_arch = "x86_64")]
fn deterministic(cpuid: &raw_cpuid::CpuId<raw_cpuid::CpuIdReaderNative>) -> Vec<TlbArray> {
    use raw_cpuid::DatType;
    let infos = cpuid.get_deterministic_address_translation_info();
    let array = |info: raw_cpuid::DatInfo| {
        let kind = match info.cache_type() {
            DatType::DataTLB | DatType::LoadOnly | DatType::StoreOnly => TlbKind::Data,
            DatType::InstructionTLB => TlbKind::Instruction,
            DatType::UnifiedTLB => TlbKind::Unified,
            _ => return None,
        };
        let sizes = [
            (info.has_4k_entries(), 4u64 << 10),
            (info.has_2mb_entries(), 2 << 20),
            (info.has_4mb_entries(), 4 << 20),
            (info.has_1gb_entries(), 1 << 30),
        ];
        let held = sizes.into_iter().filter(|(held, _)| *held);
        let page_sizes = held.filter_map(|(_, bytes)| PageSize::new(bytes).ok()).collect();
        let entries = u32::from(info.ways()).saturating_mul(info.sets());
        Some(TlbArray { level: info.cache_level().into(), kind, page_sizes, entries })
    };
    infos.into_iter().flatten().filter_map(array).collect()
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn arrays(_: &Root) -> Vec<TlbArray> {
    Vec::new()
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn hypervisor_name(_: &Root) -> Option<String> {
    None
}
