//! Predicates on designs for the rules, and names of keys that several rules use.

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
pub const LEAST_PRESENT: &str = "mapping.scan.least-present";
pub const MOST_SWAPPED: &str = "mapping.scan.most-swapped";
pub const ORDER: &str = "mapping.scan.order";
pub const SAMPLING: &str = "mapping.scan.sampling";
pub const RELEASE: &str = "deallocation.when";
pub const BLOAT: &str = "deallocation.bloat";
pub const RECLAIM: &str = "memory.reclaim";
pub const PERIODIC: &str = "memory.periodic-compaction";
pub const KCOMPACTD: &str = "memory.background-compaction";

/// The smallest base page size; a design does not know its machine's page size.
pub const BASE: ByteSize = ByteSize::kib(4);

pub fn bad_name(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase();
    let rest = |c: char| letter(c) || c.is_ascii_digit() || c == '.' || c == '-';
    !name.starts_with(letter) || !name.chars().all(rest)
}

pub fn bad_sizes(r: &Rules) -> bool {
    let sizes = &r.allocation.sizes;
    let good = |size: &ByteSize| {
        size.0.is_power_of_two() && (BASE.0 * 2..=ByteSize::gib(512).0).contains(&size.0)
    };
    sizes.is_empty() || !sizes.iter().all(good) || !sizes.is_sorted_by(|a, b| a < b)
}

pub fn largest(r: &Rules) -> ByteSize {
    r.allocation.sizes.last().copied().unwrap_or_default()
}

/// Number of base pages in the largest size: 512 in 2M.
pub fn pages(r: &Rules) -> u64 {
    largest(r).0 / BASE.0
}

pub fn within_superpage(count: u16, r: &Rules) -> bool {
    count > 0 && u64::from(count) <= pages(r)
}

pub fn trigger(r: &Rules, trigger: Trigger) -> bool {
    r.allocation.trigger == trigger
}

pub fn form(r: &Rules, form: Form) -> bool {
    r.allocation.form == form
}

/// Whether a fault maps a whole superpage, so that all of the superpage must be prepared.
pub fn whole_at_fault(r: &Rules) -> bool {
    form(r, Form::Pool) || (form(r, Form::Superpage) && trigger(r, Trigger::FirstFault))
}

/// Whether all sizes are smaller than the smallest superpage size.
pub fn only_small(r: &Rules) -> bool {
    largest(r) < ByteSize::mib(2)
}

/// Whether a fault, or the filling of reservations, zeroes more than a base page at once.
pub fn zeroes_many(r: &Rules) -> bool {
    let preparation = &r.preparation;
    let fills = preparation.grain == Grain::Superpage
        || preparation.fill_at.is_some()
        || preparation.background.is_some();
    (whole_at_fault(r) || form(r, Form::Reservation) && fills) && !only_small(r)
}

pub fn compacts(r: &Rules) -> bool {
    r.memory.reclaim == Reclaim::Compaction
}

pub fn is_direct(effort: Effort) -> bool {
    matches!(effort, Effort::Direct | Effort::DirectRetry | Effort::Direct43)
}

pub fn wakes(effort: Effort) -> bool {
    effort == Effort::Wake
}

pub fn by_access(order: ScanOrder) -> bool {
    matches!(order, ScanOrder::Coverage | ScanOrder::Misses | ScanOrder::Overhead)
}

pub fn fill(r: &Rules, is: impl FnOnce(&BackgroundFill) -> bool) -> bool {
    r.preparation.background.as_ref().is_some_and(is)
}

pub fn prezero(r: &Rules, is: impl FnOnce(&Prezero) -> bool) -> bool {
    r.preparation.prezero.as_ref().is_some_and(is)
}

pub fn scan(r: &Rules, is: impl FnOnce(&Scan) -> bool) -> bool {
    r.mapping.scan.as_ref().is_some_and(is)
}

/// Whether a scan limits the swapped-out pages of a candidate.
pub fn limits_swapped(scan: &Scan) -> bool {
    scan.most_swapped < 512
}

pub fn bloat(r: &Rules, is: impl FnOnce(&BloatRecovery) -> bool) -> bool {
    r.deallocation.bloat.as_ref().is_some_and(is)
}
