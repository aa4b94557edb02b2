//! Names of events that occur in files but in no table: the kernel's generic TLB events (perf-list(1), "Hardware cache
//! event"), events of single page sizes, and events sampled for data addresses. The generic events differ by CPU:
//! Intel's count walks, AMD's and Arm's count first-level misses, whether or not they hit in the second level
//! (arch/x86/events/intel/core.c, arch/x86/events/amd/core.c, drivers/perf/arm_pmuv3.c).

use super::{EventMeaning, Meaning, Side};

pub(super) fn meaning_of(name: &str) -> Option<EventMeaning> {
    use Meaning::{
        FirstLevelMisses, GenericMisses, HitsOfOneSize, SecondLevelHits, Walks, WalksOfOneSize,
    };
    let (side, meaning) = match name {
        "dtlb-load-misses" => (Side::Load, GenericMisses),
        "dtlb-store-misses" => (Side::Store, GenericMisses),
        "dtlb-misses" => (Side::Data, GenericMisses),
        "itlb-load-misses" | "itlb-misses" => (Side::Fetch, GenericMisses),
        // AMD's events under other names: perf's older ones, and a common name of the sum of its hits.
        "ls_l1_d_tlb_miss.all_l2_hit" => (Side::Data, SecondLevelHits),
        "l1_dtlb_misses" => (Side::Data, FirstLevelMisses),
        // These events count at retirement, and their samples have a data address
        // (skylakex/cache.json, haswell/cache.json).
        "mem_inst_retired.stlb_miss_loads" | "mem_uops_retired.stlb_miss_loads" => {
            (Side::Load, Walks)
        }
        "mem_inst_retired.stlb_miss_stores" | "mem_uops_retired.stlb_miss_stores" => {
            (Side::Store, Walks)
        }
        "dtlb_load_misses.miss_causes_a_walk" => (Side::Load, Walks),
        "dtlb_store_misses.miss_causes_a_walk" => (Side::Store, Walks),
        "itlb_misses.miss_causes_a_walk" => (Side::Fetch, Walks),
        "l2_dtlb_misses" => (Side::Data, Walks),
        "l2_itlb_misses" => (Side::Fetch, Walks),
        _ => {
            let size = name.strip_prefix("ls_l1_d_tlb_miss.tlb_reload_");
            if size.is_some_and(|size| size.ends_with("miss")) {
                (Side::Data, WalksOfOneSize)
            } else if size.is_some_and(|size| size.ends_with("hit")) {
                (Side::Data, HitsOfOneSize)
            } else {
                let pages = ["_4k", "_2m_4m", "_1g"];
                let event = pages.iter().find_map(|pages| name.strip_suffix(pages))?;
                let side = match event.strip_suffix("_misses.walk_completed")? {
                    "dtlb_load" => Side::Load,
                    "dtlb_store" => Side::Store,
                    "itlb" => Side::Fetch,
                    _ => return None,
                };
                (side, WalksOfOneSize)
            }
        }
    };
    Some(EventMeaning { side, meaning })
}
