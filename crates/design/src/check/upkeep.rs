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
        |d| is_direct(d.rules.allocation.effort) && d.rules.memory.reclaim == Reclaim::None,
    ),
    rule(
        &[ADVISED, RECLAIM],
        "compacts and reclaims: needs reclaim = \"compaction\" or \"lumpy\"",
        |d| is_direct(d.rules.allocation.effort_advised) && d.rules.memory.reclaim == Reclaim::None,
    ),
    rule(
        &["mapping.scan.effort", RECLAIM],
        "compacts and reclaims: needs reclaim = \"compaction\" or \"lumpy\"",
        |d| scan(d, |scan| is_direct(scan.effort)) && d.rules.memory.reclaim == Reclaim::None,
    ),
    rule(
        &[EFFORT, KCOMPACTD],
        "\"wake\" wakes background compaction: needs background-compaction = true",
        |d| d.rules.allocation.effort == Effort::Wake && !d.rules.memory.background_compaction,
    ),
    rule(
        &[ADVISED, KCOMPACTD],
        "\"wake\" wakes background compaction: needs background-compaction = true",
        |d| {
            d.rules.allocation.effort_advised == Effort::Wake
                && !d.rules.memory.background_compaction
        },
    ),
    rule(
        &["mapping.scan.effort", KCOMPACTD],
        "\"wake\" wakes background compaction: needs background-compaction = true",
        |d| scan(d, |scan| scan.effort == Effort::Wake) && !d.rules.memory.background_compaction,
    ),
    rule(&[KCOMPACTD, RECLAIM], "needs reclaim = \"compaction\"", |d| {
        d.rules.memory.background_compaction && d.rules.memory.reclaim != Reclaim::Compaction
    }),
    rule(
        &["memory.proactiveness", KCOMPACTD],
        "is background compaction's: needs background-compaction = true",
        |d| d.rules.memory.proactiveness > 0 && !d.rules.memory.background_compaction,
    ),
    rule(
        &[KCOMPACTD, EFFORT, ADVISED, "mapping.scan.effort"],
        "nothing would wake it: needs an effort = \"wake\", or proactiveness",
        |d| {
            let Allocation { effort, effort_advised, .. } = d.rules.allocation;
            let wakes = |effort| effort == Effort::Wake;
            d.rules.memory.background_compaction
                && d.rules.memory.proactiveness == 0
                && !wakes(effort)
                && !wakes(effort_advised)
                && !scan(d, |scan| wakes(scan.effort))
        },
    ),
    rule(
        &[KCOMPACTD, PERIODIC],
        "a daemon that compacts periodically is not woken: leave one of them out",
        |d| d.rules.memory.background_compaction && d.rules.memory.periodic_compaction.is_some(),
    ),
    rule(&["memory.contended-permille", RECLAIM, FORM], COMPACTS, |d| {
        d.rules.memory.contended_permille > 0 && !compacts(d) && !form(d, Form::Pool)
    }),
    rule(
        &["memory.contended-pages", "memory.contended-permille"],
        "is moved by compactions that are given up: needs contended-permille",
        |d| d.rules.memory.contended_pages > 0 && d.rules.memory.contended_permille == 0,
    ),
    rule(&["memory.defer-shift", RECLAIM], COMPACTS, |d| {
        !matches!(d.rules.memory.defer_shift, 0 | 6) && !compacts(d)
    }),
    rule(&[PERIODIC, RECLAIM], "needs reclaim = \"compaction\"", |d| {
        d.rules.memory.periodic_compaction.is_some()
            && d.rules.memory.reclaim != Reclaim::Compaction
    }),
    // Candidates with pages that are swapped out.
    rule(
        &[MOST_SWAPPED, LEAST, SIZES],
        "so many are never swapped out beside least-present pages: needs less, or 512 (no limit)",
        |d| {
            scan(d, |scan| {
                let (least, most) = (u64::from(scan.least_present), u64::from(scan.most_swapped));
                limits_swapped(scan) && most + least >= pages(d)
            })
        },
    ),
    rule(
        &[MOST_SWAPPED, RECLAIM],
        "nothing is swapped out: needs reclaim = \"compaction\" or \"lumpy\"",
        |d| scan(d, limits_swapped) && d.rules.memory.reclaim == Reclaim::None,
    ),
    // Orders of a scan.
    rule(
        &["mapping.scan.referenced", ORDER],
        "whatever was accessed is referenced: needs order = \"address\" or \"crossing\"",
        |d| scan(d, |scan| !scan.referenced && by_access(scan.order)),
    ),
    rule(&[ORDER, SAMPLING], "needs a [mapping.scan.sampling]", |d| {
        scan(d, |scan| by_access(scan.order) && scan.sampling.is_none())
    }),
    rule(
        &[SAMPLING, ORDER],
        "is of no use to this order: needs order = \"coverage\", \"misses\" or \"overhead\", or a condition \
         that names coverage, skew or misses",
        |d| {
            scan(d, |scan| {
                !by_access(scan.order)
                    && scan.sampling.is_some()
                    && !super::conditions::samples(scan)
            })
        },
    ),
    // What goes back, and when.
    rule(&[RELEASE, FORM], "is what reservations do: needs form = \"reservation\"", |d| {
        let kept =
            matches!(d.rules.deallocation.release, Release::WhenEmpty | Release::Inactive { .. });
        kept && !form(d, Form::Reservation)
    }),
    rule(
        &[RELEASE, FORM],
        "pages of a reservation go back to it: needs when = \"when-empty\" or \"inactive\"",
        |d| {
            let release = d.rules.deallocation.release;
            matches!(release, Release::UnderPressure | Release::AtOnce)
                && form(d, Form::Reservation)
        },
    ),
    rule(&[RELEASE, FORM], "needs form = \"pool\"", |d| {
        d.rules.deallocation.release == Release::ToPool && !form(d, Form::Pool)
    }),
    rule(&[RELEASE, FORM], "pages of a pool go back to it: needs when = \"to-pool\"", |d| {
        d.rules.deallocation.release != Release::ToPool && form(d, Form::Pool)
    }),
    rule(&[BLOAT, FORM], "splits superpages: a pool's are never split", |d| {
        d.rules.deallocation.bloat.is_some() && form(d, Form::Pool)
    }),
    rule(&[BLOAT, TRIGGER], "splits superpages: with trigger = \"never\" there are none", |d| {
        d.rules.deallocation.bloat.is_some() && trigger(d, Trigger::Never)
    }),
    rule(&["memory.pool-pages", FORM], "needs form = \"pool\"", |d| {
        d.rules.memory.pool_pages.is_some() && !form(d, Form::Pool)
    }),
    rule(
        &["memory.ideal", TRIGGER],
        "is about superpages at faults: needs trigger = \"first-fault\"",
        |d| d.rules.memory.ideal && !trigger(d, Trigger::FirstFault),
    ),
    // Locks.
    rule(
        &["fault.rss", "fault.locking"],
        "is counted under the page-table lock, which \"atomic-entries\" does not take",
        |d| {
            d.rules.fault.resident == ResidentCount::Locked
                && d.rules.fault.locking == Locking::AtomicEntries
        },
    ),
];
