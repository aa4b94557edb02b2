//! `Machine`: settings and counters of this computer around superpages, and how fast the counters grow.

use host::{
    Counters, FreeContiguity, HugetlbPools, MemInfo, Pressure, ReadError, Root, Thp, Unknown,
    ZoneFree,
};
use serde::Serialize;
use units::{ByteSize, PageSize};

/// This computer at one moment. A field is `None` where it could not be read; `unknown` says why.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    /// The base page size.
    #[serde(rename = "base_bytes")]
    pub base: PageSize,
    /// The superpage size: the size of a PMD's page. `None`: no THP.
    #[serde(rename = "superpage_bytes")]
    pub superpage: Option<PageSize>,
    /// The mode of THP: `always`, `madvise` or `never`.
    pub thp_mode: Option<String>,
    /// Sizes of memory.
    pub memory: Option<MachineMemory>,
    /// Number of free superpages that need no compaction, without those of the DMA zone.
    pub free_superpages: Option<u64>,
    /// Free blocks, by zone.
    pub free_blocks: Option<Vec<ZoneFree>>,
    /// hugetlb pools, smallest page first.
    pub pools: Vec<Pool>,
    /// Waits for memory.
    pub pressure: Option<Pressure>,
    /// Growth of counters since the sample before; `None` in the first sample.
    pub rates: Option<Rates>,
    /// What could not be read.
    pub unknown: Vec<Unknown>,
    /// The counters of `/proc/vmstat`.
    #[serde(skip)]
    pub counters: Option<Counters>,
    /// The settings and counters of THP.
    #[serde(skip)]
    pub thp: Option<Thp>,
}

/// Sizes of this computer's memory, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct MachineMemory {
    /// All memory.
    pub total: Option<ByteSize>,
    /// Free memory.
    pub free: Option<ByteSize>,
    /// Memory that programs can have without swapping.
    pub available: Option<ByteSize>,
    /// Anonymous memory.
    pub anonymous: Option<ByteSize>,
    /// Anonymous memory on THP.
    pub anonymous_superpages: Option<ByteSize>,
    /// Shared memory on THP.
    pub shared_superpages: Option<ByteSize>,
    /// Files on THP.
    pub file_superpages: Option<ByteSize>,
}

/// A hugetlb pool. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pool {
    /// Size of its pages.
    #[serde(rename = "page_bytes")]
    pub page: PageSize,
    /// All pages.
    pub total: Option<ByteSize>,
    /// Pages not in use.
    pub free: Option<ByteSize>,
    /// Free pages that are reserved for mappings.
    pub reserved: Option<ByteSize>,
    /// Pages beyond the persistent pool.
    pub surplus: Option<ByteSize>,
}

/// Growth of counters, in events per second.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Superpages that khugepaged made.
    pub collapses: Option<f64>,
    /// Faults that got a superpage.
    pub superpage_faults: Option<f64>,
    /// Faults that wanted a superpage and got a base page.
    pub fallbacks: Option<f64>,
    /// Allocations that waited for direct compaction.
    pub compaction_stalls: Option<f64>,
    /// Superpages that were split.
    pub splits: Option<f64>,
}

impl Machine {
    /// Reads this computer. `before`: an earlier reading, and the seconds since.
    pub fn read(root: &Root, before: Option<(&Self, f64)>) -> Self {
        let mut unknown = Vec::new();
        let thp = Thp::with_counters(root);
        let superpage = thp.as_ref().and_then(|thp| thp.pmd_size);
        let memory = known(&mut unknown, "/proc/meminfo", MemInfo::read(root));
        let counters = known(&mut unknown, "/proc/vmstat", Counters::read(root));
        let free_blocks = known(&mut unknown, "/proc/buddyinfo", ZoneFree::read(root));
        let pressure =
            known(&mut unknown, Pressure::MACHINE, Pressure::read(root, Pressure::MACHINE));
        if thp.is_none() {
            let why = "this kernel has no transparent huge pages, or hides them".to_string();
            unknown.push(Unknown { what: "transparent huge pages".to_string(), why });
        }
        let free_superpages = free_blocks.as_ref().zip(superpage).and_then(|(zones, superpage)| {
            FreeContiguity::for_programs_of(zones, root.page_size(), superpage).superpages
        });
        let rates = before.and_then(|(before, seconds)| {
            let grown = counters.as_ref()?.since(before.counters.as_ref()?);
            let rate = |name: &str| Some(grown.get(name)? as f64 / seconds);
            (seconds > 0.0).then(|| Rates {
                collapses: rate("thp_collapse_alloc"),
                superpage_faults: rate("thp_fault_alloc"),
                fallbacks: rate("thp_fault_fallback"),
                compaction_stalls: rate("compact_stall"),
                splits: rate("thp_split_page"),
            })
        });
        Self {
            base: root.page_size(),
            superpage,
            thp_mode: thp.as_ref().and_then(|thp| Some(thp.enabled.as_ref()?.selected.clone())),
            memory: memory.map(|memory| MachineMemory {
                total: memory.total,
                free: memory.free,
                available: memory.available,
                anonymous: memory.anon,
                anonymous_superpages: memory.anon_huge,
                shared_superpages: memory.shmem_huge,
                file_superpages: memory.file_huge,
            }),
            free_superpages,
            free_blocks,
            pools: pools(root),
            pressure,
            rates,
            unknown,
            counters,
            thp,
        }
    }
}

fn pools(root: &Root) -> Vec<Pool> {
    let pool = |(page, pool): (PageSize, host::Pool)| {
        let bytes = |pages: u64| ByteSize(pages.saturating_mul(page.bytes()));
        Pool {
            page,
            total: pool.total.map(bytes),
            free: pool.free.map(bytes),
            reserved: pool.reserved.map(bytes),
            surplus: pool.surplus.map(bytes),
        }
    };
    HugetlbPools::read_sizes(root).into_iter().map(pool).collect()
}

/// The value, or `None` with the reason added to `unknown`.
fn known<T>(unknown: &mut Vec<Unknown>, what: &str, read: Result<T, ReadError>) -> Option<T> {
    read.map_err(|error| unknown.push(Unknown { what: what.to_string(), why: error.to_string() }))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_two_readings_and_what_is_missing_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let root = Root::at(dir.path()).with_page_size(PageSize::new(4096).unwrap());
        let thp = "sys/kernel/mm/transparent_hugepage";
        file(&format!("{thp}/enabled"), "always [madvise] never\n");
        file(&format!("{thp}/hpage_pmd_size"), "2097152\n");
        file("proc/vmstat", "thp_collapse_alloc 10\nthp_fault_alloc 5\ncompact_stall 3\n");
        file(
            "proc/buddyinfo",
            "Node 0, zone DMA 0 0 0 0 0 0 0 0 0 7 1\nNode 0, zone Normal 1 0 0 0 0 0 0 0 0 2 3\n",
        );
        file("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "4\n");
        let first = Machine::read(&root, None);
        assert_eq!((first.thp_mode.as_deref(), first.free_superpages), (Some("madvise"), Some(8)));
        assert_eq!(first.pools[0].total, Some(ByteSize(8 << 20)));
        assert_eq!((first.pools[0].free, first.rates.clone()), (None, None));
        let missing: Vec<_> = first.unknown.iter().map(|unknown| unknown.what.as_str()).collect();
        assert_eq!(missing, ["/proc/meminfo", "/proc/pressure/memory"]);
        file("proc/vmstat", "thp_collapse_alloc 30\nthp_fault_alloc 4\ncompact_stall 3\n");
        let rates = Machine::read(&root, Some((&first, 4.0))).rates.unwrap();
        assert_eq!((rates.collapses, rates.compaction_stalls), (Some(5.0), Some(0.0)));
        // A counter that fell, or that this kernel lacks, has no rate.
        assert_eq!((rates.superpage_faults, rates.fallbacks), (None, None));
    }
}
