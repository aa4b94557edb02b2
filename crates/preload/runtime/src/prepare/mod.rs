//! Superpages that are there before they are touched, made so by the thread that maps them (why:
//! docs/decisions/prepare.md).
//!
//! | module | what it owns |
//! |---|---|
//! | `given` | which mappings are as they were handed out |
//! | `stock` | mappings that were unmapped and are kept for the next request of that length |
//! | `ahead` | populating the beginning of a new mapping |
//! | `bound` | by what it is decided how much of either there may be |
//! | `zero` | zeroing past the caches |
//!
//! How much of either, and for how long, is decided by `policy::live`. There is no thread of ours and no address space is reserved. What a program gets is an ordinary
//! mapping, but that some of it is resident.
//!
//! # Safety
//! Everything is words that change one at a time: a signal handler, another thread or a fork may come
//! in between any two. Memory is written only between being taken out of the stock and being handed
//! out, by the thread that does both.
//! See docs/decisions/prepare.md#1.

use crate::once::OnceBool;
use crate::{executor, filter, settings};

mod ahead;
mod bound;
mod given;
mod stock;
mod zero;

pub use ahead::populate;
pub use given::{changed, discard_untouched};
pub use stock::{give_way, keep, make_way, take};

/// Whether anything is to be prepared in this process. Never on the pool, whatever a policy says: what is
/// kept is moved without entering it in `mapping::exclusive`, where another thread may be making it ordinary.
pub fn is_on() -> bool {
    static ANSWER: OnceBool = OnceBool::new();
    ANSWER.get_or_init(|| settings::get().is_thp() && executor::prepares())
        && !filter::may_be_in_place()
}

/// In a forked child, which has neither a stock nor mappings of its own yet.
pub fn after_fork() {
    given::after_fork();
    stock::after_fork();
}
