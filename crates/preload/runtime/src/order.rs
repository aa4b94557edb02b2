//! The order of this library's parts: in a fork, and of the locks that they have (`lock`).
//!
//! Counting comes first, because the others count. Copying comes last: it asks the table, and the others must
//! not be in the midst of something by then.

use crate::fork::{self, Part, copy};
use crate::lock::{RANKS, Rank};
use crate::mapping::{self, small};
use crate::{counters, executor, heap, looks, prepare, stack, table, write_protect};

/// All parts that have something to do about a fork.
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

/// Every lock is one part's, and they are taken in the order of the parts.
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

/// Sees to it that all of them are told of forks.
pub fn provide() {
    fork::provide(&PARTS);
}
