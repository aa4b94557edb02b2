//! Rules for daemons, deallocation and memory maintenance.

use super::predicates::*;
use super::{Rule, table};
use crate::*;

const COMPACTS: &str = "is about compaction: needs reclaim = \"compaction\"";

pub(super) const RULES: &[Rule] = table! { |r|
    // An effort requires the mechanism that performs it.
    [EFFORT, RECLAIM] "compacts and reclaims: needs reclaim = \"compaction\" or \"lumpy\", or effort = \"none\""
        => is_direct(r.allocation.effort) && r.memory.reclaim == Reclaim::None;
    [ADVISED, RECLAIM] "compacts and reclaims: needs reclaim = \"compaction\" or \"lumpy\", or effort-advised = \"none\""
        => is_direct(r.allocation.effort_advised) && r.memory.reclaim == Reclaim::None;
    ["mapping.scan.effort", RECLAIM] "compacts and reclaims: needs reclaim = \"compaction\" or \"lumpy\", or effort = \"none\""
        => scan(r, |scan| is_direct(scan.effort)) && r.memory.reclaim == Reclaim::None;
    [EFFORT, KCOMPACTD] "\"wake\" wakes background compaction: needs background-compaction = true"
        => wakes(r.allocation.effort) && !r.memory.background_compaction;
    [ADVISED, KCOMPACTD] "\"wake\" wakes background compaction: needs background-compaction = true"
        => wakes(r.allocation.effort_advised) && !r.memory.background_compaction;
    ["mapping.scan.effort", KCOMPACTD] "\"wake\" wakes background compaction: needs background-compaction = true"
        => scan(r, |scan| wakes(scan.effort)) && !r.memory.background_compaction;
    [KCOMPACTD, RECLAIM] "needs reclaim = \"compaction\""
        => r.memory.background_compaction && r.memory.reclaim != Reclaim::Compaction;
    ["memory.proactiveness", KCOMPACTD] "is background compaction's: needs background-compaction = true"
        => r.memory.proactiveness > 0 && !r.memory.background_compaction;
    [KCOMPACTD, EFFORT, ADVISED, "mapping.scan.effort"]
        "nothing would wake it: needs an effort = \"wake\", or proactiveness"
        => r.memory.background_compaction && r.memory.proactiveness == 0 && !wakes(r.allocation.effort)
            && !wakes(r.allocation.effort_advised) && !scan(r, |scan| wakes(scan.effort));
    [KCOMPACTD, PERIODIC] "a daemon that compacts periodically is not woken: leave one of them out"
        => r.memory.background_compaction && r.memory.periodic_compaction.is_some();
    ["memory.contended-permille", RECLAIM, FORM] COMPACTS
        => r.memory.contended_permille > 0 && !compacts(r) && !form(r, Form::Pool);
    ["memory.contended-pages", "memory.contended-permille"]
        "is moved by compactions that are given up: needs contended-permille"
        => r.memory.contended_pages > 0 && r.memory.contended_permille == 0;
    ["memory.defer-shift", RECLAIM] COMPACTS
        => !matches!(r.memory.defer_shift, 0 | 6) && !compacts(r);
    [PERIODIC, RECLAIM] "needs reclaim = \"compaction\""
        => r.memory.periodic_compaction.is_some() && r.memory.reclaim != Reclaim::Compaction;
    // Limits on swapped-out pages of candidates.
    [MOST_SWAPPED, LEAST_PRESENT, SIZES]
        "a region with least-present pages never has that many swapped out: needs less, or 512 (no limit)"
        => scan(r, |scan| {
            limits_swapped(scan) && u64::from(scan.most_swapped) + u64::from(scan.least_present) >= pages(r)
        });
    [MOST_SWAPPED, RECLAIM] "nothing is swapped out: needs reclaim = \"compaction\" or \"lumpy\""
        => scan(r, limits_swapped) && r.memory.reclaim == Reclaim::None;
    // Order in which a scan visits candidates.
    ["mapping.scan.referenced", ORDER] "whatever was accessed is referenced: needs order = \"address\" or \"crossing\""
        => scan(r, |scan| !scan.referenced && by_access(scan.order));
    [ORDER, SAMPLING] "needs a [mapping.scan.sampling]"
        => scan(r, |scan| by_access(scan.order) && scan.sampling.is_none());
    [SAMPLING, ORDER]
        "is of no use to this order: needs order = \"coverage\", \"misses\" or \"overhead\", or a condition that \
         names coverage, skew or misses"
        => scan(r, |scan| !by_access(scan.order) && scan.sampling.is_some() && !super::conditions::samples(scan));
    // Deallocation: what is released, and when.
    [RELEASE, FORM] "is what reservations do: needs form = \"reservation\""
        => matches!(r.deallocation.release, Release::WhenEmpty | Release::Inactive { .. })
            && !form(r, Form::Reservation);
    [RELEASE, FORM] "pages of a reservation go back to it: needs when = \"when-empty\" or \"inactive\""
        => matches!(r.deallocation.release, Release::UnderPressure | Release::AtOnce) && form(r, Form::Reservation);
    [RELEASE, FORM] "needs form = \"pool\""
        => r.deallocation.release == Release::ToPool && !form(r, Form::Pool);
    [RELEASE, FORM] "pages of a pool go back to it: needs when = \"to-pool\""
        => r.deallocation.release != Release::ToPool && form(r, Form::Pool);
    [BLOAT, FORM] "splits superpages: a pool's are never split"
        => r.deallocation.bloat.is_some() && form(r, Form::Pool);
    [BLOAT, TRIGGER] "splits superpages: with trigger = \"never\" there are none"
        => r.deallocation.bloat.is_some() && trigger(r, Trigger::Never);
    ["memory.pool-pages", FORM] "needs form = \"pool\""
        => r.memory.pool_pages.is_some() && !form(r, Form::Pool);
    ["memory.ideal", TRIGGER] "is about superpages at faults: needs trigger = \"first-fault\""
        => r.memory.ideal && !trigger(r, Trigger::FirstFault);
    // Locks.
    ["fault.rss", "fault.locking"] "is counted under the page-table lock, which \"atomic-entries\" does not take"
        => r.fault.resident == ResidentCount::Locked && r.fault.locking == Locking::AtomicEntries;
};
