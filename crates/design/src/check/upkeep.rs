//! What daemons, deallocation and memory's upkeep need to be of any effect.

use super::ask::*;
use super::{Rule, rule};
use crate::*;

const COMPACTS: &str = "is about compaction: needs reclaim = \"compaction\"";

pub(super) const RULES: &[Rule] = &[
    // Effort needs somebody to make it.
    rule(
        &[EFFORT, RECLAIM],
        "compacts and reclaims: needs reclaim = \"compaction\" or \"lumpy\"",
        |r| is_direct(r.allocation.effort) && r.memory.reclaim == Reclaim::None,
    ),
    rule(
        &[ADVISED, RECLAIM],
        "compacts and reclaims: needs reclaim = \"compaction\" or \"lumpy\"",
        |r| is_direct(r.allocation.effort_advised) && r.memory.reclaim == Reclaim::None,
    ),
    rule(
        &["mapping.scan.effort", RECLAIM],
        "compacts and reclaims: needs reclaim = \"compaction\" or \"lumpy\"",
        |r| scan(r, |scan| is_direct(scan.effort)) && r.memory.reclaim == Reclaim::None,
    ),
    rule(
        &[EFFORT, KCOMPACTD],
        "\"wake\" wakes background compaction: needs background-compaction = true",
        |r| r.allocation.effort == Effort::Wake && !r.memory.background_compaction,
    ),
    rule(
        &[ADVISED, KCOMPACTD],
        "\"wake\" wakes background compaction: needs background-compaction = true",
        |r| r.allocation.effort_advised == Effort::Wake && !r.memory.background_compaction,
    ),
    rule(
        &["mapping.scan.effort", KCOMPACTD],
        "\"wake\" wakes background compaction: needs background-compaction = true",
        |r| scan(r, |scan| scan.effort == Effort::Wake) && !r.memory.background_compaction,
    ),
    rule(&[KCOMPACTD, RECLAIM], "needs reclaim = \"compaction\"", |r| {
        r.memory.background_compaction && r.memory.reclaim != Reclaim::Compaction
    }),
    rule(
        &["memory.proactiveness", KCOMPACTD],
        "is background compaction's: needs background-compaction = true",
        |r| r.memory.proactiveness > 0 && !r.memory.background_compaction,
    ),
    rule(
        &[KCOMPACTD, EFFORT, ADVISED, "mapping.scan.effort"],
        "nothing would wake it: needs an effort = \"wake\", or proactiveness",
        |r| {
            let Allocation { effort, effort_advised, .. } = r.allocation;
            let wakes = |effort| effort == Effort::Wake;
            r.memory.background_compaction
                && r.memory.proactiveness == 0
                && !wakes(effort)
                && !wakes(effort_advised)
                && !scan(r, |scan| wakes(scan.effort))
        },
    ),
    rule(
        &[KCOMPACTD, PERIODIC],
        "a daemon that compacts periodically is not woken: leave one of them out",
        |r| r.memory.background_compaction && r.memory.periodic_compaction.is_some(),
    ),
    rule(&["memory.contended-permille", RECLAIM, FORM], COMPACTS, |r| {
        r.memory.contended_permille > 0 && !compacts(r) && !form(r, Form::Pool)
    }),
    rule(
        &["memory.contended-pages", "memory.contended-permille"],
        "is moved by compactions that are given up: needs contended-permille",
        |r| r.memory.contended_pages > 0 && r.memory.contended_permille == 0,
    ),
    rule(&["memory.defer-shift", RECLAIM], COMPACTS, |r| {
        !matches!(r.memory.defer_shift, 0 | 6) && !compacts(r)
    }),
    rule(&[PERIODIC, RECLAIM], "needs reclaim = \"compaction\"", |r| {
        r.memory.periodic_compaction.is_some() && r.memory.reclaim != Reclaim::Compaction
    }),
    // Candidates with pages that are swapped out.
    rule(
        &[MOST_SWAPPED, LEAST_PRESENT, SIZES],
        "so many are never swapped out beside least-present pages: needs less, or 512 (no limit)",
        |r| {
            scan(r, |scan| {
                let (least, most) = (u64::from(scan.least_present), u64::from(scan.most_swapped));
                limits_swapped(scan) && most + least >= pages(r)
            })
        },
    ),
    rule(
        &[MOST_SWAPPED, RECLAIM],
        "nothing is swapped out: needs reclaim = \"compaction\" or \"lumpy\"",
        |r| scan(r, limits_swapped) && r.memory.reclaim == Reclaim::None,
    ),
    // Orders of a scan.
    rule(
        &["mapping.scan.referenced", ORDER],
        "whatever was accessed is referenced: needs order = \"address\" or \"crossing\"",
        |r| scan(r, |scan| !scan.referenced && by_access(scan.order)),
    ),
    rule(&[ORDER, SAMPLING], "needs a [mapping.scan.sampling]", |r| {
        scan(r, |scan| by_access(scan.order) && scan.sampling.is_none())
    }),
    rule(
        &[SAMPLING, ORDER],
        "is of no use to this order: needs order = \"coverage\", \"misses\" or \"overhead\", or a condition \
         that names coverage, skew or misses",
        |r| {
            scan(r, |scan| {
                !by_access(scan.order)
                    && scan.sampling.is_some()
                    && !super::conditions::samples(scan)
            })
        },
    ),
    // What goes back, and when.
    rule(&[RELEASE, FORM], "is what reservations do: needs form = \"reservation\"", |r| {
        let kept = matches!(r.deallocation.release, Release::WhenEmpty | Release::Inactive { .. });
        kept && !form(r, Form::Reservation)
    }),
    rule(
        &[RELEASE, FORM],
        "pages of a reservation go back to it: needs when = \"when-empty\" or \"inactive\"",
        |r| {
            let release = r.deallocation.release;
            matches!(release, Release::UnderPressure | Release::AtOnce)
                && form(r, Form::Reservation)
        },
    ),
    rule(&[RELEASE, FORM], "needs form = \"pool\"", |r| {
        r.deallocation.release == Release::ToPool && !form(r, Form::Pool)
    }),
    rule(&[RELEASE, FORM], "pages of a pool go back to it: needs when = \"to-pool\"", |r| {
        r.deallocation.release != Release::ToPool && form(r, Form::Pool)
    }),
    rule(&[BLOAT, FORM], "splits superpages: a pool's are never split", |r| {
        r.deallocation.bloat.is_some() && form(r, Form::Pool)
    }),
    rule(&[BLOAT, TRIGGER], "splits superpages: with trigger = \"never\" there are none", |r| {
        r.deallocation.bloat.is_some() && trigger(r, Trigger::Never)
    }),
    rule(&["memory.pool-pages", FORM], "needs form = \"pool\"", |r| {
        r.memory.pool_pages.is_some() && !form(r, Form::Pool)
    }),
    rule(
        &["memory.ideal", TRIGGER],
        "is about superpages at faults: needs trigger = \"first-fault\"",
        |r| r.memory.ideal && !trigger(r, Trigger::FirstFault),
    ),
    // Locks.
    rule(
        &["fault.rss", "fault.locking"],
        "is counted under the page-table lock, which \"atomic-entries\" does not take",
        |r| r.fault.resident == ResidentCount::Locked && r.fault.locking == Locking::AtomicEntries,
    ),
];
