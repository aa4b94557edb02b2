//! Intel's cores since Sandy Bridge, from `virtual-memory.json` of each in `tools/perf/pmu-events/arch/x86` (manual),
//! and model numbers from that directory's `mapfile.csv`.
//!
//! Atom cores and Xeon Phi are missing: their events differ and were not verified.

use super::Meaning::{Outstanding, SecondLevelHits, Walks};
use super::Side::{Fetch, Load, Nested, Store};
use super::{Event, EventMeaning, Table, active, event};

/// Event select codes of loads, stores and instruction fetches.
struct Selects {
    load: u64,
    store: u64,
    fetch: u64,
}

const TO_ICE_LAKE: Selects = Selects { load: 0x08, store: 0x49, fetch: 0x85 };
const GOLDEN_COVE: Selects = Selects { load: 0x12, store: 0x13, fetch: 0x11 };

pub(super) static TABLES: &[Table] = &[
    Table {
        name: "Sandy Bridge",
        walkers: 1,
        groups: &[
            &duration([0x04, 0x04, 0x04]),
            &walks(&TO_ICE_LAKE, [0x02, 0x02, 0x02]),
            &hits(&TO_ICE_LAKE, [0x10, 0x10, 0x10]),
        ],
        note: None,
    },
    Table {
        name: "Ivy Bridge",
        walkers: 1,
        groups: &[
            &duration([0x84, 0x04, 0x04]),
            &walks(&TO_ICE_LAKE, [0x82, 0x02, 0x02]),
            &hits(&Selects { load: 0x5f, ..TO_ICE_LAKE }, [0x04, 0x10, 0x10]),
        ],
        note: None,
    },
    Table {
        name: "Haswell",
        walkers: 1,
        groups: &[
            &duration([0x10; 3]),
            &walks(&TO_ICE_LAKE, [0x0e; 3]),
            &hits(&TO_ICE_LAKE, [0x60; 3]),
        ],
        note: None,
    },
    // Broadwell has the same events but a second walker (assumed), and adds the cycles of both walkers.
    Table {
        name: "Broadwell",
        walkers: 2,
        groups: &[
            &summed(duration([0x10; 3])),
            &walks(&TO_ICE_LAKE, [0x0e; 3]),
            &hits(&TO_ICE_LAKE, [0x60; 3]),
        ],
        note: Some("erratum BDM69: these events may overcount"),
    },
    Table {
        name: "Skylake",
        walkers: 2,
        groups: &[
            &walk_active(&TO_ICE_LAKE),
            &walks(&TO_ICE_LAKE, [0x0e; 3]),
            &[
                event("dtlb_load_misses.walk_pending", 0x08, 0x10, Load, Outstanding),
                event("dtlb_store_misses.walk_pending", 0x49, 0x10, Store, Outstanding),
                event("itlb_misses.walk_pending", 0x85, 0x10, Fetch, Outstanding),
                event("ept.walk_pending", 0x4f, 0x10, Nested, Outstanding),
            ],
            &hits(&TO_ICE_LAKE, [0x20; 3]),
        ],
        note: Some(
            "in a virtual machine, walks of the host's page tables are counted separately (ept)",
        ),
    },
    Table {
        name: "Ice Lake",
        walkers: 2,
        groups: &[
            &walk_active(&TO_ICE_LAKE),
            &walks(&TO_ICE_LAKE, [0x0e; 3]),
            &pending(&TO_ICE_LAKE),
            &hits(&TO_ICE_LAKE, [0x20; 3]),
        ],
        note: None,
    },
    Table {
        name: "Golden Cove",
        walkers: 4,
        groups: &[
            &walk_active(&GOLDEN_COVE),
            &walks(&GOLDEN_COVE, [0x0e; 3]),
            &pending(&GOLDEN_COVE),
            &hits(&GOLDEN_COVE, [0x20; 3]),
        ],
        note: None,
    },
];

/// Returns the table for a model number of family 6.
pub(super) fn table(model: u32) -> Option<&'static Table> {
    let name = match model {
        0x2a | 0x2d => "Sandy Bridge",
        0x3a | 0x3e => "Ivy Bridge",
        0x3c | 0x3f | 0x45 | 0x46 => "Haswell",
        0x3d | 0x47 | 0x4f | 0x56 => "Broadwell",
        // Skylake, Cascade and Cooper Lake, Kaby, Coffee, Comet and Cannon Lake.
        0x4e | 0x5e | 0x55 | 0x8e | 0x9e | 0xa5 | 0xa6 | 0x66 => "Skylake",
        // Ice, Tiger and Rocket Lake.
        0x7d | 0x7e | 0x6a | 0x6c | 0x8c | 0x8d | 0xa7 => "Ice Lake",
        // Sapphire, Emerald and Granite Rapids; performance cores of Alder, Raptor and Meteor Lake.
        0x8f | 0xcf | 0xad | 0xae | 0x97 | 0x9a | 0xb7 | 0xba | 0xbf | 0xaa | 0xac => "Golden Cove",
        _ => return None,
    };
    TABLES.iter().find(|table| table.name == name)
}

const fn walk_active(at: &Selects) -> [Event; 3] {
    [
        active("dtlb_load_misses.walk_active", at.load, 0x10, Load),
        active("dtlb_store_misses.walk_active", at.store, 0x10, Store),
        active("itlb_misses.walk_active", at.fetch, 0x10, Fetch),
    ]
}

const fn pending(at: &Selects) -> [Event; 3] {
    [
        event("dtlb_load_misses.walk_pending", at.load, 0x10, Load, Outstanding),
        event("dtlb_store_misses.walk_pending", at.store, 0x10, Store, Outstanding),
        event("itlb_misses.walk_pending", at.fetch, 0x10, Fetch, Outstanding),
    ]
}

/// Events that count the walker's busy cycles: with one walker, these are the cycles with a walk in
/// progress.
const fn duration(umasks: [u64; 3]) -> [Event; 3] {
    use super::Meaning::Active;
    [
        event("dtlb_load_misses.walk_duration", 0x08, umasks[0], Load, Active),
        event("dtlb_store_misses.walk_duration", 0x49, umasks[1], Store, Active),
        event("itlb_misses.walk_duration", 0x85, umasks[2], Fetch, Active),
    ]
}

/// The events of `duration`, for CPUs that sum them over several walkers.
const fn summed(mut events: [Event; 3]) -> [Event; 3] {
    let mut index = 0;
    while index < events.len() {
        events[index].meaning =
            EventMeaning { side: events[index].meaning.side, meaning: Outstanding };
        index += 1;
    }
    events
}

const fn walks(at: &Selects, umasks: [u64; 3]) -> [Event; 3] {
    [
        event("dtlb_load_misses.walk_completed", at.load, umasks[0], Load, Walks),
        event("dtlb_store_misses.walk_completed", at.store, umasks[1], Store, Walks),
        event("itlb_misses.walk_completed", at.fetch, umasks[2], Fetch, Walks),
    ]
}

const fn hits(at: &Selects, umasks: [u64; 3]) -> [Event; 3] {
    [
        event("dtlb_load_misses.stlb_hit", at.load, umasks[0], Load, SecondLevelHits),
        event("dtlb_store_misses.stlb_hit", at.store, umasks[1], Store, SecondLevelHits),
        event("itlb_misses.stlb_hit", at.fetch, umasks[2], Fetch, SecondLevelHits),
    ]
}
