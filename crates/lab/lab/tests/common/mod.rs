//! Made-up reports for tests.
#![allow(dead_code)] // each test file uses its part

use mm_sim::{Cause, Counters, CycleCounts, Moment};
use superpage_lab::{Cell, End, Report, SCHEMA};

/// A finished run of `design` at 1 GHz on one CPU with these cycles and nothing else.
pub fn report(design: &str, cycles: &[(Cause, u64)]) -> Report {
    let mut ledger = CycleCounts::default();
    for (cause, cycles) in cycles {
        ledger.charge(*cause, *cycles);
    }
    Report {
        schema: SCHEMA.to_string(),
        cell: Cell {
            design: design.to_string(),
            machine: "e3-1245v6".to_string(),
            workload: "gups:size=8G".to_string(),
            fragmentation: "none".to_string(),
            memory_bytes: 32 << 30,
            seed: 1,
            swap_bytes: 0,
            nodes_bytes: Vec::new(),
            movable_bytes: 0,
            free_lists: None,
        },
        bound: false,
        superpage_pages: None,
        kernel_bytes: Some(32 << 30 >> 6),
        end: End::Done,
        mhz: 1000,
        wall_cycles: ledger.total(),
        ledger,
        background: CycleCounts::default(),
        counters: Counters::default(),
        phases: Vec::new(),
        timeline: Vec::new(),
        requests: None,
        memory_parts: Vec::new(),
    }
}

/// Numbers of superpages at given times, with 1000 superpages' memory resident from the start.
pub fn timeline(superpages: &[(u64, u64)]) -> Vec<Moment> {
    let moment = |(microseconds, superpages): &(u64, u64)| Moment {
        smaller_superpages: 0,
        microseconds: *microseconds,
        superpages: *superpages,
        resident_pages: 512_000,
        free_superpages: 5000 - superpages,
        free_pages: 3_000_000,
    };
    superpages.iter().map(moment).collect()
}
