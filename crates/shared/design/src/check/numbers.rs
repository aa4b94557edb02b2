//! Ranges of numbers that depend on other keys, in the order of the events. Other ranges are declared with their keys.

use super::predicates::*;
use super::{Rule, table};

pub(super) const RULES: &[Rule] = table! { |r|
    [SIZES] "must be sizes, ascending: powers of two of 8K (two base pages) or more, to 512G"
        => bad_sizes(r);
    [FILL_AT, SIZES] "must be 1 to the pages of the largest of allocation.sizes (512 for 2M)"
        => r.preparation.fill_at.is_some_and(|at| !within_superpage(at, r));
    [BULK, SIZES] "must be a power of two, from 4K to the largest size"
        => {
            let bulk = r.preparation.bulk;
            !bulk.0.is_power_of_two() || bulk < BASE || bulk > largest(r)
        };
    [BACKGROUND_AT, SIZES] "must be 1 to the pages of the largest of allocation.sizes (512 for 2M)"
        => fill(r, |fill| !within_superpage(fill.at, r));
    ["preparation.prezero.stop-permille", "preparation.prezero.start-permille"] "must be start-permille to 1000"
        => prezero(r, |prezero| !(prezero.start_permille..=1000).contains(&prezero.stop_permille));
    [LEAST_PRESENT, SIZES] "must be 1 to the pages of the largest of allocation.sizes (512 for 2M)"
        => scan(r, |scan| !within_superpage(scan.least_present, r));
    ["deallocation.bloat.until-percent", "deallocation.bloat.below-percent"] "must be below-percent to 100"
        => bloat(r, |bloat| !(bloat.below_percent..=100).contains(&bloat.until_percent));
    ["deallocation.bloat.more-zero-than", SIZES]
        "must be less than the pages of the largest of allocation.sizes (512 for 2M): else none is ever split"
        => bloat(r, |bloat| u64::from(bloat.more_zero_than) >= pages(r));
};
