//! `Snapshot`: all properties of the machine that a result depends on, in one document.

use serde::{Deserialize, Serialize};
use units::PageSize;

use crate::root::Reasons;
use crate::{
    Counters, Cpu, HugetlbPools, MemInfo, PageTypes, Root, Thp, TlbArray, Unknown, ZoneFree,
    ZoneLevels, root, tlb,
};

/// The machine at one moment. For each `None`, `unknown` has the reason under the name of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// `uname -r`.
    pub kernel: Option<String>,
    /// The random id of this boot.
    pub boot_id: Option<String>,
    /// The base page size.
    pub page_size: PageSize,
    /// The processor.
    pub cpu: Option<Cpu>,
    /// The TLB according to CPUID; empty if CPUID does not describe it.
    pub tlb: Vec<TlbArray>,
    /// Memory of the whole machine.
    pub memory: Option<MemInfo>,
    /// Transparent huge pages; `None` if the kernel was built without them.
    pub thp: Option<Thp>,
    /// hugetlb pools.
    pub hugetlb: HugetlbPools,
    /// Free blocks by zone and order.
    pub free: Option<Vec<ZoneFree>>,
    /// Zones' sizes and watermarks.
    pub zones: Option<Vec<ZoneLevels>>,
    /// Free blocks and pageblocks by migratetype; needs root.
    pub page_types: Option<PageTypes>,
    /// Event counters since boot.
    pub counters: Option<Counters>,
    /// Values that could not be read, with reasons.
    pub unknown: Vec<Unknown>,
}

impl Snapshot {
    /// Reads everything; values that cannot be read are `None`. Takes 10 to 20 ms on a 24 GB guest, nearly all of it in
    /// pagetypeinfo, where the kernel walks every pageblock.
    pub fn read(root: &Root) -> Self {
        let mut reasons = Reasons::default();
        let mut word = |path: &str| reasons.ask(path, root::word(root, path));
        let kernel = word("/proc/sys/kernel/osrelease");
        let boot_id = word(BOOT_ID);
        let cpu = Cpu::read(root, &mut reasons);
        let tlb = tlb::arrays(root);
        if tlb.is_empty() {
            reasons.note("tlb", "the processor does not describe its TLB by page size");
        }
        Self {
            kernel,
            boot_id,
            page_size: root.page_size(),
            cpu,
            tlb,
            memory: reasons.ask("/proc/meminfo", MemInfo::read(root)),
            thp: Thp::read(root, &mut reasons),
            hugetlb: HugetlbPools::read(root, &mut reasons),
            free: reasons.ask("/proc/buddyinfo", ZoneFree::read(root)),
            zones: reasons.ask("/proc/zoneinfo", ZoneLevels::read(root)),
            page_types: reasons.ask("/proc/pagetypeinfo", PageTypes::read(root)),
            counters: reasons.ask("/proc/vmstat", Counters::read(root)),
            unknown: reasons.0,
        }
    }
}

/// The name of the machine, `uname -n`; `None` if unreadable.
pub fn host_name(root: &Root) -> Option<String> {
    root::word(root, "/proc/sys/kernel/hostname").ok()
}

pub(crate) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
