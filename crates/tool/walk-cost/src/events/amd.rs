//! AMD's Zen cores, from `memory.json` and `branch.json` of each in `tools/perf/pmu-events/arch/x86` (manual). These
//! cores count misses and walks but not walk cycles, so estimates need the cost of a miss.

use super::Meaning::{FirstLevelMisses, PrintedOnly, SecondLevelHits, Walks, WalksOfOneSize};
use super::Side::{Data, Fetch};
use super::{Event, Table, event};

pub(super) static TABLES: &[Table] = &[
    Table {
        name: "Zen 1",
        walkers: 2,
        groups: &[&misses("bp_l1_tlb_miss_l2_miss", 0, "bp_l1_tlb_miss_l2_hit"), &SIZES],
        note: NOTE,
    },
    Table {
        name: "Zen 2",
        walkers: 2,
        groups: &[&misses("bp_l1_tlb_miss_l2_tlb_miss", 0x07, "bp_l1_tlb_miss_l2_tlb_hit"), &SIZES],
        note: NOTE,
    },
    Table {
        name: "Zen 3 to 5",
        walkers: 6,
        groups: &[
            &misses("bp_l1_tlb_miss_l2_tlb_miss.all", 0x0f, "bp_l1_tlb_miss_l2_tlb_hit"),
            &SIZES,
        ],
        note: NOTE,
    },
];

const NOTE: Option<&str> = Some("Zen counts page walks, not their cycles");

/// Returns the table for a family and model. Hygon's family 18h is a Zen 1.
pub(super) fn table(family: u32, model: u32) -> Option<&'static Table> {
    let name = match (family, model) {
        (0x17, 0..0x30) | (0x18, _) => "Zen 1",
        (0x17, _) => "Zen 2",
        (0x19 | 0x1a, _) => "Zen 3 to 5",
        _ => return None,
    };
    TABLES.iter().find(|table| table.name == name)
}

/// Walks, and all first-level misses: those without a walk are second-level hits, of all page sizes.
const fn misses(fetch_miss: &'static str, fetch_umask: u64, fetch_hit: &'static str) -> [Event; 4] {
    [
        event("ls_l1_d_tlb_miss.all_l2_miss", 0x45, 0xf0, Data, Walks),
        event("ls_l1_d_tlb_miss.all", 0x45, 0xff, Data, FirstLevelMisses),
        event(fetch_miss, 0x85, fetch_umask, Fetch, Walks),
        event(fetch_hit, 0x84, 0, Fetch, SecondLevelHits),
    ]
}

/// Walks by page size, and the page-table walker's own counts of walks.
const SIZES: [Event; 4] = [
    event("ls_l1_d_tlb_miss.tlb_reload_4k_l2_miss", 0x45, 0x10, Data, WalksOfOneSize),
    event("ls_l1_d_tlb_miss.tlb_reload_2m_l2_miss", 0x45, 0x40, Data, WalksOfOneSize),
    event("ls_tablewalker.dside", 0x46, 0x03, Data, PrintedOnly),
    event("ls_tablewalker.iside", 0x46, 0x0c, Fetch, PrintedOnly),
];
