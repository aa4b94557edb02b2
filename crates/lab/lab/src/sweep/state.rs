//! How far each shard of a sweep is. Pure.

use super::{Contents, Group, Plan, Shard};

/// How far a shard is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// Which.
    pub shard: Shard,
    /// Its cells.
    pub cells: usize,
    /// Those with a report.
    pub done: usize,
    /// Passes with cells that have none.
    pub passes_left: usize,
}

impl State {
    /// Of `shard`, whose groups these are.
    pub fn new(shard: Shard, groups: &[Group], contents: &Contents) -> Self {
        let mut state = Self { shard, cells: 0, done: 0, passes_left: 0 };
        for group in groups {
            let is_done = |member: &&super::Member| contents.reports.contains_key(&member.cell);
            let (cells, done) = (group.members.len(), group.members.iter().filter(is_done).count());
            state.cells += cells;
            state.done += done;
            state.passes_left += usize::from(done < cells);
        }
        state
    }

    /// Of the whole sweep.
    pub fn of_whole(plan: &Plan, contents: &Contents) -> Self {
        Self::new(Shard::WHOLE, &plan.groups(), contents)
    }
}

/// How far each of `of` shards of all groups is, in the order of their numbers.
pub fn states(groups: &[Group], contents: &Contents, of: u32) -> Vec<State> {
    let shards = (0..of).filter_map(|index| Shard::new(index, of));
    shards.map(|shard| State::new(shard, &shard.select(groups), contents)).collect()
}
