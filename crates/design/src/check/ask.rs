//! What the rules ask of a design, and the keys they name more than once.

use std::time::Duration;

use units::ByteSize;

use crate::*;

pub const TRIGGER: &str = "allocation.trigger";
pub const FORM: &str = "allocation.form";
pub const SIZES: &str = "allocation.sizes";
pub const EFFORT: &str = "allocation.effort";
pub const ADVISED: &str = "allocation.effort-advised";
pub const GRAIN: &str = "preparation.grain";
pub const FILL_AT: &str = "preparation.fill-at";
pub const BULK: &str = "preparation.bulk";
pub const BACKGROUND: &str = "preparation.background";
pub const BACKGROUND_AT: &str = "preparation.background.at";
pub const WHEN: &str = "mapping.when";
pub const SCAN: &str = "mapping.scan";
pub const LEAST: &str = "mapping.scan.least-present";
pub const MOST_SWAPPED: &str = "mapping.scan.most-swapped";
pub const ORDER: &str = "mapping.scan.order";
pub const SAMPLING: &str = "mapping.scan.sampling";
pub const RELEASE: &str = "deallocation.when";
pub const BLOAT: &str = "deallocation.bloat";
pub const RECLAIM: &str = "memory.reclaim";
pub const PERIODIC: &str = "memory.periodic-compaction";
pub const KCOMPACTD: &str = "memory.background-compaction";

pub const A_PERIOD: &str = "must be more than 0s, at most 24h";
pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The smallest base page there is: a design does not know its machine's.
pub const BASE: ByteSize = ByteSize::kib(4);

pub fn bad_period(every: Duration) -> bool {
    every.is_zero() || every > DAY
}

pub fn bad_name(d: &Design) -> bool {
    let letter = |c: char| c.is_ascii_lowercase();
    let rest = |c: char| letter(c) || c.is_ascii_digit() || c == '.' || c == '-';
    !d.name.starts_with(letter) || !d.name.chars().all(rest)
}

pub fn bad_sizes(d: &Design) -> bool {
    let sizes = &d.rules.allocation.sizes;
    let good = |size: &ByteSize| {
        size.0.is_power_of_two() && (BASE.0 * 2..=ByteSize::gib(512).0).contains(&size.0)
    };
    sizes.is_empty() || !sizes.iter().all(good) || !sizes.is_sorted_by(|a, b| a < b)
}

pub fn largest(d: &Design) -> ByteSize {
    d.rules.allocation.sizes.last().copied().unwrap_or_default()
}

/// The base pages of the largest size, at most: 512 in 2M.
pub fn pages(d: &Design) -> u64 {
    largest(d).0 / BASE.0
}

pub fn within_superpage(count: u16, d: &Design) -> bool {
    count > 0 && u64::from(count) <= pages(d)
}

pub fn trigger(d: &Design, trigger: Trigger) -> bool {
    d.rules.allocation.trigger == trigger
}

pub fn form(d: &Design, form: Form) -> bool {
    d.rules.allocation.form == form
}

/// A fault maps a whole superpage, so it prepares all of it.
pub fn whole_at_fault(d: &Design) -> bool {
    form(d, Form::Pool) || (form(d, Form::Superpage) && trigger(d, Trigger::FirstFault))
}

/// All sizes are smaller than the smallest superpage there is.
pub fn only_small(d: &Design) -> bool {
    largest(d) < ByteSize::mib(2)
}

/// No size is the superpage of a machine's page table: 2M, or 32M and 512M with base pages of 16K and 64K.
pub fn lacks_superpage(d: &Design) -> bool {
    !d.rules.allocation.sizes.iter().any(|size| [2, 32, 512].map(ByteSize::mib).contains(size))
}

/// Something zeroes more than a base page at once: a fault, or a fill of reservations.
pub fn zeroes_many(d: &Design) -> bool {
    let preparation = &d.rules.preparation;
    let fills = preparation.grain == Grain::Superpage
        || preparation.fill_at.is_some()
        || preparation.background.is_some();
    (whole_at_fault(d) || form(d, Form::Reservation) && fills) && !lacks_superpage(d)
}

pub fn compacts(d: &Design) -> bool {
    d.rules.memory.reclaim == Reclaim::Compaction
}

pub fn is_direct(effort: Effort) -> bool {
    matches!(effort, Effort::Direct | Effort::DirectRetry | Effort::Direct43)
}

pub fn by_access(order: ScanOrder) -> bool {
    matches!(order, ScanOrder::Coverage | ScanOrder::Misses | ScanOrder::Overhead)
}

pub fn fill(d: &Design, is: impl FnOnce(&BackgroundFill) -> bool) -> bool {
    d.rules.preparation.background.as_ref().is_some_and(is)
}

pub fn prezero(d: &Design, is: impl FnOnce(&Prezero) -> bool) -> bool {
    d.rules.preparation.prezero.as_ref().is_some_and(is)
}

pub fn scan(d: &Design, is: impl FnOnce(&Scan) -> bool) -> bool {
    d.rules.mapping.scan.as_ref().is_some_and(is)
}

/// Whether a scan says how many pages of a candidate may be swapped out.
pub fn limits_swapped(scan: &Scan) -> bool {
    scan.most_swapped < 512
}

pub fn sampling(d: &Design, is: impl FnOnce(&Sampling) -> bool) -> bool {
    scan(d, |scan| scan.sampling.as_ref().is_some_and(is))
}

pub fn inactive(d: &Design, is: impl FnOnce(Duration, Duration, u32) -> bool) -> bool {
    match d.rules.deallocation.release {
        Release::Inactive { after, every, budget_pages } => is(after, every, budget_pages),
        _ => false,
    }
}

pub fn bloat(d: &Design, is: impl FnOnce(&BloatRecovery) -> bool) -> bool {
    d.rules.deallocation.bloat.as_ref().is_some_and(is)
}
