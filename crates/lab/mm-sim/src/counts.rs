//! Counters and observations of a run, as in reports.

use serde::{Deserialize, Serialize};

use crate::CycleCounts;

/// Events of a run, counted. Pages are base pages unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Memory accesses of the program.
    pub accesses: u64,
    /// Accesses that missed the first-level TLB and hit the second.
    pub second_tlb_hits: u64,
    /// Walks for base pages.
    pub walks_base: u64,
    /// Walks for larger pages.
    pub walks_large: u64,
    /// Faults of any kind.
    pub faults: u64,
    /// Faults that allocated a whole superpage.
    pub superpage_faults: u64,
    /// Faults that wanted a superpage and got none.
    pub fallbacks: u64,
    /// Superpages mapped by a fault at once.
    pub made_at_fault: u64,
    /// Superpages mapped in place when all their base pages were present.
    pub made_in_place: u64,
    /// Superpages made by copying into them.
    pub made_by_copy: u64,
    /// Superpage mappings destroyed while partly in use.
    pub demoted: u64,
    /// Reservations made.
    pub reserved: u64,
    /// Reservations broken for their free pages.
    pub broken: u64,
    /// Reservations emptied by moving their pages.
    pub evacuated: u64,
    /// Pages zeroed in faults.
    pub zeroed: u64,
    /// Pages zeroed ahead of demand.
    pub prezeroed: u64,
    /// Pages copied by collapses and copy on write.
    pub copied: u64,
    /// Pages migrated.
    pub migrated: u64,
    /// Pages reclaimed.
    pub reclaimed: u64,
    /// Pages read from files or swap.
    pub read: u64,
    /// Zero-filled pages given back from superpages.
    pub recovered: u64,
    /// Direct compactions.
    pub compactions: u64,
    /// Direct compactions deferred after earlier failures.
    pub compactions_deferred: u64,
    /// Pages that the program read or wrote and did not free, at the peak of resident memory. Can exceed the number of
    /// resident pages: pages that were only read map the shared zero page and are not resident. `None` if not counted.
    pub touched_pages: Option<u64>,
    /// Resident pages of the program at the peak.
    pub resident_pages: u64,
    /// Maximum number of superpage mappings.
    pub superpages: u64,
}

/// A phase of the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Name.
    pub name: String,
    /// Wall-clock time, in cycles.
    pub wall_cycles: u64,
    /// CPU cycles by cause.
    pub ledger: CycleCounts,
    /// Accesses in the phase.
    pub accesses: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// State of memory at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Microseconds since the program began.
    pub microseconds: u64,
    /// Superpages mapped for the program.
    pub superpages: u64,
    /// Superpages of 512 base pages among `superpages`, if the design has larger ones.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub smaller_superpages: u64,
    /// Resident base pages of the program.
    pub resident_pages: u64,
    /// Superpages that could be allocated at once.
    pub free_superpages: u64,
    /// Free base pages.
    pub free_pages: u64,
}
