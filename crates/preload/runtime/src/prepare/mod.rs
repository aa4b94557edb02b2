//! Superpages that are resident before they are touched, prepared by the thread that maps them (why:
//! docs/decisions/prepare.md).
//!
//! | module | what it owns |
//! |---|---|
//! | `handed_out` | mappings that the program has not changed since mmap |
//! | `stock` | unmapped mappings, kept for the next request of the same length |
//! | `ahead` | populating the beginning of a new mapping |
//! | `budget` | facts that limit how much may be prepared |
//! | `zero` | zeroing with non-temporal stores |
//!
//! `advisor` decides how much is prepared, and for how long. The library has no thread of its own, and reserves no
//! address space in advance.
//!
//! # Safety
//! All state is words that change one at a time: a signal handler, another thread or a fork may run between any two
//! changes. Memory from the stock is written only by the thread that takes it, before that thread hands it out.
//! See docs/decisions/prepare.md#1.

use crate::once::OnceBool;
use crate::{executor, filter, settings};

mod ahead;
mod budget;
mod handed_out;
mod stock;
mod zero;

pub use ahead::populate;
pub use handed_out::{changed, discard_untouched};
pub use stock::{keep, release_all, release_range, take};

/// Whether superpages are prepared in this process. Nothing is prepared on the pool, whatever the advisor says: the
/// stock moves mappings without entering them in `mapping::exclusive`, and another thread may be demoting them.
pub fn is_on() -> bool {
    static ANSWER: OnceBool = OnceBool::new();
    ANSWER.get_or_init(|| settings::get().is_thp() && executor::prepares())
        && !filter::may_be_in_place()
}

/// In a forked child: drops the stock and the recorded mappings.
pub fn after_fork() {
    handed_out::after_fork();
    stock::after_fork();
}
