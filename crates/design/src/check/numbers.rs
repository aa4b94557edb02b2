//! What each key may be, in the order of the events.

use super::ask::*;
use super::{Rule, rule};
use crate::*;

pub(super) const RULES: &[Rule] = &[
    rule(
        &["name"],
        "must be lower-case letters, digits, dots and dashes, and begin with a letter",
        bad_name,
    ),
    rule(&["summary"], "must be one line, without control characters", |d| {
        d.summary.contains(char::is_control)
    }),
    rule(
        &[SIZES],
        "must be sizes, ascending: powers of two of 8K (two base pages) or more, to 512G",
        bad_sizes,
    ),
    rule(&[FILL_AT, SIZES], "must be 1 to the pages of a superpage (512 for 2M)", |d| {
        d.rules.preparation.fill_at.is_some_and(|at| !within_superpage(at, d))
    }),
    rule(&[BULK, SIZES], "must be a power of two, from 4K to the largest size", |d| {
        let bulk = d.rules.preparation.bulk;
        !bulk.0.is_power_of_two() || bulk < BASE || bulk > largest(d)
    }),
    rule(&[BACKGROUND_AT, SIZES], "must be 1 to the pages of a superpage (512 for 2M)", |d| {
        fill(d, |fill| !within_superpage(fill.at, d))
    }),
    rule(&["preparation.background.every"], A_PERIOD, |d| fill(d, |fill| bad_period(fill.every))),
    rule(&["preparation.background.budget-pages"], "must be 1 or more", |d| {
        fill(d, |fill| fill.budget_pages == 0)
    }),
    rule(
        &["preparation.prezero.order"],
        "must be 0 to 10 (4M), the buddy allocator's largest",
        |d| prezero(d, |prezero| prezero.order > 10),
    ),
    rule(&["preparation.prezero.blocks"], "must be 1 or more", |d| {
        prezero(d, |prezero| prezero.blocks == 0)
    }),
    rule(&["preparation.prezero.every"], A_PERIOD, |d| {
        prezero(d, |prezero| bad_period(prezero.every))
    }),
    rule(&["preparation.prezero.start-permille"], "must be 1 to 1000 (1000: always)", |d| {
        prezero(d, |prezero| !(1..=1000).contains(&prezero.start_permille))
    }),
    rule(
        &["preparation.prezero.stop-permille", "preparation.prezero.start-permille"],
        "must be start-permille to 1000",
        |d| prezero(d, |prezero| !(prezero.start_permille..=1000).contains(&prezero.stop_permille)),
    ),
    rule(&["preparation.prefault.pages"], "must be 1 or more; kind = \"none\" for none", |d| {
        d.rules.preparation.prefault == Prefault::Resident(0)
    }),
    rule(
        &["preparation.prefault.order"],
        "must be 1 to 9 (512 pages); kind = \"none\" for none",
        |d| matches!(d.rules.preparation.prefault, Prefault::Doubling(order) if !(1..=9).contains(&order)),
    ),
    rule(&["mapping.scan.every"], A_PERIOD, |d| scan(d, |scan| bad_period(scan.every))),
    rule(&["mapping.scan.regions"], "must be 1 or more", |d| scan(d, |scan| scan.regions == 0)),
    rule(&["mapping.scan.after-failure"], "must be at most 24h", |d| {
        scan(d, |scan| scan.after_failure > DAY)
    }),
    rule(&[LEAST, SIZES], "must be 1 to the pages of a superpage (512 for 2M)", |d| {
        scan(d, |scan| !within_superpage(scan.least_present, d))
    }),
    rule(&[MOST_SWAPPED], "must be 0 to 512 (no limit)", |d| {
        scan(d, |scan| scan.most_swapped > 512)
    }),
    rule(&["mapping.scan.cpu-percent"], "must be 0 (no limit) to 100", |d| {
        scan(d, |scan| scan.cpu_percent > 100)
    }),
    rule(&["mapping.scan.sampling.every"], A_PERIOD, |d| {
        sampling(d, |sampling| bad_period(sampling.every))
    }),
    rule(&["mapping.scan.sampling.window"], "must be more than 0s, and at most 24h", |d| {
        sampling(d, |sampling| bad_period(sampling.window))
    }),
    rule(&["mapping.scan.sampling.newest-percent"], "must be 1 to 100", |d| {
        sampling(d, |sampling| !(1..=100).contains(&sampling.newest_percent))
    }),
    rule(&["deallocation.after"], "must be at most 24h", |d| {
        inactive(d, |after, _, _| after > DAY)
    }),
    rule(&["deallocation.every"], A_PERIOD, |d| inactive(d, |_, every, _| bad_period(every))),
    rule(&["deallocation.budget-pages"], "must be 1 or more", |d| {
        inactive(d, |_, _, budget| budget == 0)
    }),
    rule(&["deallocation.bloat.every"], A_PERIOD, |d| bloat(d, |bloat| bad_period(bloat.every))),
    rule(&["deallocation.bloat.below-percent"], "must be 1 to 100", |d| {
        bloat(d, |bloat| !(1..=100).contains(&bloat.below_percent))
    }),
    rule(
        &["deallocation.bloat.until-percent", "deallocation.bloat.below-percent"],
        "must be below-percent to 100",
        |d| bloat(d, |bloat| !(bloat.below_percent..=100).contains(&bloat.until_percent)),
    ),
    rule(
        &["deallocation.bloat.more-zero-than", SIZES],
        "must be less than the pages of a superpage (512 for 2M), or none is ever split",
        |d| bloat(d, |bloat| u64::from(bloat.more_zero_than) >= pages(d)),
    ),
    rule(&["memory.proactiveness"], "must be 0 (off) to 100", |d| {
        d.rules.memory.proactiveness > 100
    }),
    rule(&["memory.defer-shift"], "must be 0 to 16 (2^16 attempts skipped)", |d| {
        d.rules.memory.defer_shift > 16
    }),
    rule(&["memory.contended-permille"], "must be 0 to 1000", |d| {
        d.rules.memory.contended_permille > 1000
    }),
    rule(&["memory.contended-pages"], "must be at most 2^20", |d| {
        d.rules.memory.contended_pages > 1 << 20
    }),
    rule(&["memory.pool-pages"], "must be at most 2^40", |d| {
        d.rules.memory.pool_pages.is_some_and(|pages| pages > 1 << 40)
    }),
    rule(&["memory.periodic-compaction.blocks"], "must be 1 or more", |d| {
        d.rules.memory.periodic_compaction.is_some_and(|(blocks, _)| blocks == 0)
    }),
    rule(&["memory.periodic-compaction.every"], A_PERIOD, |d| {
        d.rules.memory.periodic_compaction.is_some_and(|(_, every)| bad_period(every))
    }),
];
