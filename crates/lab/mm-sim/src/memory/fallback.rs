//! What an allocation does when its own mobility type has no free block (Linux' `__rmqueue_fallback`).
//!
//! The largest free block of another type is looked for, from the largest order down: what must
//! be taken from another type is taken where much is free, so that few pageblocks get mixed. A pageblock of
//! which half would be alike is claimed whole; otherwise only what is needed is taken out of it.

use super::owner::is_movable;
use super::zone::Zone;
use super::{Claiming, Frame, MAX_ORDER, Mobility, PAGEBLOCK, PAGEBLOCK_ORDER};

/// From this order on a movable request may claim the pageblock of a block it found: half of a
/// pageblock's order (`can_steal_fallback`).
const CLAIM_ORDER: u8 = PAGEBLOCK_ORDER / 2;
/// Frames of a pageblock that must be alike for it to be claimed.
const HALF: u32 = PAGEBLOCK / 2;

/// The types that are asked, in order (Linux' table `fallbacks`).
pub(crate) const fn others(mobility: Mobility) -> [Mobility; 2] {
    match mobility {
        Mobility::Unmovable => [Mobility::Reclaimable, Mobility::Movable],
        Mobility::Reclaimable => [Mobility::Unmovable, Mobility::Movable],
        Mobility::Movable => [Mobility::Reclaimable, Mobility::Unmovable],
    }
}

impl Zone {
    /// Takes 2^order frames from another mobility's lists. `owners` are the words of the zone's frames.
    pub(crate) fn take_fallback(
        &mut self,
        mobility: Mobility,
        order: u8,
        rule: Claiming,
        owners: &[u32],
    ) -> Option<Frame> {
        self.settle();
        let (found, other) = self.largest(mobility, order)?;
        let may_claim = found >= CLAIM_ORDER || mobility != Mobility::Movable;
        if may_claim {
            let block = self.index[other.index()][found as usize].first()?;
            if found >= PAGEBLOCK_ORDER || self.alike(block, mobility, rule, owners) >= HALF {
                self.set_mobility(block, mobility);
                return self.take(mobility, order);
            }
        } else if rule == Claiming::HalfCompatible {
            let (found, other) = self.smallest(mobility, order)?;
            return Some(self.take_from(other, found, order));
        }
        Some(self.take_from(other, found, order))
    }

    /// The largest free block of another type.
    fn largest(&self, mobility: Mobility, order: u8) -> Option<(u8, Mobility)> {
        (order..=MAX_ORDER).rev().find_map(|order| self.first_other(mobility, order))
    }

    /// The smallest.
    fn smallest(&self, mobility: Mobility, order: u8) -> Option<(u8, Mobility)> {
        (order..=MAX_ORDER).find_map(|order| self.first_other(mobility, order))
    }

    fn first_other(&self, mobility: Mobility, order: u8) -> Option<(u8, Mobility)> {
        let other =
            others(mobility).into_iter().find(|other| self.orders(*other) >> order & 1 != 0)?;
        Some((order, other))
    }

    /// The frames of a pageblock that would be in the right place if it were of this mobility: the free
    /// ones, and by the later rule the used ones of compatible mobility (`steal_suitable_fallback`).
    fn alike(&self, block: usize, mobility: Mobility, rule: Claiming, owners: &[u32]) -> u32 {
        let free = u32::from(self.blocks[block].free);
        if rule == Claiming::HalfFree {
            return free;
        }
        let start = block << PAGEBLOCK_ORDER;
        let words = &owners[start..start + PAGEBLOCK as usize];
        let movable = words.iter().filter(|&&word| is_movable(word)).count() as u32;
        match mobility {
            Mobility::Movable => free + movable,
            _ if self.blocks[block].mobility == Mobility::Movable => PAGEBLOCK - movable,
            _ => free,
        }
    }

    /// Whether any type has a block of this order: a request takes what it needs from others
    /// (`__zone_watermark_ok` counts every type's list).
    pub(crate) fn has(&self, mobility: Mobility, order: u8) -> bool {
        let own = self.orders(mobility) >> order != 0;
        own || self.smallest(mobility, order).is_some()
    }

    /// Whether an allocation would find a block, or claim one (`find_suitable_fallback` with
    /// `only_stealable`): compaction's question whether its work is done.
    pub(crate) fn suits(&self, mobility: Mobility, order: u8) -> bool {
        let own = self.orders(mobility) >> order != 0;
        let claims = |found: u8| found >= CLAIM_ORDER || mobility != Mobility::Movable;
        own || (order..=MAX_ORDER)
            .any(|order| claims(order) && self.first_other(mobility, order).is_some())
    }
}
