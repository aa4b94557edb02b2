//! The order of this library's parts in a fork, and of their locks (`lock`).
//!
//! `counters` precedes the parts that count. `copy` comes last: it reads the table, and no other part may be half-way
//! through an update by then.

use crate::fork::{self, Part, copy};
use crate::lock::{RANKS, Rank};
use crate::mapping::{self, small};
use crate::{counters, executor, heap, looks, prepare, stack, table, write_protect};

static PARTS: [Part; 11] = ORDER;

const ORDER: [Part; 11] = [
    Part::in_child(None, write_protect::after_fork),
    Part::in_child(None, counters::after_fork),
    Part::in_child(None, looks::after_fork),
    Part::in_child(None, executor::after_fork),
    Part::in_child(Some(Rank::Stacks), stack::after_fork),
    Part::in_child(Some(Rank::Demotion), mapping::after_fork),
    Part::in_child(Some(Rank::Small), small::after_fork),
    Part::in_child(Some(Rank::Table), table::after_fork),
    Part::in_child(Some(Rank::Packed), heap::after_fork),
    Part::in_child(None, prepare::after_fork),
    Part { rank: None, prepare: copy::prepare, parent: copy::in_parent, child: copy::in_child },
];

/// Asserts that each lock belongs to one part, and that the parts with locks are in the order of their ranks.
const _: () = {
    let (mut at, mut locks) = (0, 0);
    while at < ORDER.len() {
        if let Some(rank) = ORDER[at].rank {
            assert!(rank as usize == locks);
            locks += 1;
        }
        at += 1;
    }
    assert!(locks == RANKS);
};

/// Registers all parts for forks.
pub fn provide() {
    fork::provide(&PARTS);
}
