//! Arm's architectural events (Arm ARM, "Common event numbers"; Linux' `arch/arm64/common-and-microarch.json`, manual).
//! DTLB_WALK_PERCYC came with PMUv3p7 (Neoverse V2; N2 lacks it): a core without this event counts zero, which is
//! treated as unknown.

use super::Meaning::{FirstLevelMisses, Outstanding, Stalled, Walks};
use super::Side::{Data, Fetch};
use super::{Table, event};

pub(super) static ARM_V8: Table = Table {
    name: "Armv8",
    // The TRMs do not give the number of walkers. Two is the smallest number for which a sum can
    // exceed the time (inferred).
    walkers: 2,
    groups: &[
        &[
            event("dtlb_walk", 0x34, 0, Data, Walks),
            event("itlb_walk", 0x35, 0, Fetch, Walks),
            event("l1d_tlb_refill", 0x05, 0, Data, FirstLevelMisses),
            event("l1i_tlb_refill", 0x02, 0, Fetch, FirstLevelMisses),
        ],
        &[
            event("dtlb_walk_percyc", 0x8128, 0, Data, Outstanding),
            event("itlb_walk_percyc", 0x8129, 0, Fetch, Outstanding),
            event("stall_backend_tlb", 0x8167, 0, Data, Stalled),
            event("stall_frontend_tlb", 0x815c, 0, Fetch, Stalled),
        ],
    ],
    note: None,
};
