//! Ranges of numbers that other keys decide, in the order of the events. Those that stand by themselves are declared
//! with their keys.

use super::ask::*;
use super::{Rule, rule};

pub(super) const RULES: &[Rule] = &[
    rule(
        &[SIZES],
        "must be sizes, ascending: powers of two of 8K (two base pages) or more, to 512G",
        bad_sizes,
    ),
    rule(&[FILL_AT, SIZES], "must be 1 to the pages of a superpage (512 for 2M)", |r| {
        r.preparation.fill_at.is_some_and(|at| !within_superpage(at, r))
    }),
    rule(&[BULK, SIZES], "must be a power of two, from 4K to the largest size", |r| {
        let bulk = r.preparation.bulk;
        !bulk.0.is_power_of_two() || bulk < BASE || bulk > largest(r)
    }),
    rule(&[BACKGROUND_AT, SIZES], "must be 1 to the pages of a superpage (512 for 2M)", |r| {
        fill(r, |fill| !within_superpage(fill.at, r))
    }),
    rule(
        &["preparation.prezero.stop-permille", "preparation.prezero.start-permille"],
        "must be start-permille to 1000",
        |r| prezero(r, |prezero| !(prezero.start_permille..=1000).contains(&prezero.stop_permille)),
    ),
    rule(&[LEAST_PRESENT, SIZES], "must be 1 to the pages of a superpage (512 for 2M)", |r| {
        scan(r, |scan| !within_superpage(scan.least_present, r))
    }),
    rule(
        &["deallocation.bloat.until-percent", "deallocation.bloat.below-percent"],
        "must be below-percent to 100",
        |r| bloat(r, |bloat| !(bloat.below_percent..=100).contains(&bloat.until_percent)),
    ),
    rule(
        &["deallocation.bloat.more-zero-than", SIZES],
        "must be less than the pages of a superpage (512 for 2M), or none is ever split",
        |r| bloat(r, |bloat| u64::from(bloat.more_zero_than) >= pages(r)),
    ),
];
