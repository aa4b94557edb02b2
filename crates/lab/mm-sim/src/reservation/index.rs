//! Finding reservations by page or by frame: an array by superpage-sized extents, of which a larger reservation has
//! several, since this is asked at each fault, and a map for the reservations that are smaller.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{ReservationId, SUPERPAGE_ORDER};

/// The word of an extent that has only smaller reservations.
const SMALLER: u32 = u32::MAX;

/// Reservations by the number of their first page or frame.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// By number >> 9: 0 none, `SMALLER`, or the id of the reservation of order 9 or more.
    extents: Vec<u32>,
    /// By first number: id and order.
    smaller: BTreeMap<u32, (ReservationId, u8)>,
}

impl Index {
    #[inline]
    pub fn find(&self, number: u32) -> Option<ReservationId> {
        match *self.extents.get((number >> SUPERPAGE_ORDER) as usize)? {
            0 => None,
            SMALLER => self.find_smaller(number),
            id => Some(ReservationId::new(id)),
        }
    }

    #[cold]
    fn find_smaller(&self, number: u32) -> Option<ReservationId> {
        let (&first, &(id, order)) = self.smaller.range(..=number).next_back()?;
        (number - first < 1 << order).then_some(id)
    }

    pub fn overlaps(&self, first: u32, order: u8) -> bool {
        if order > SUPERPAGE_ORDER {
            let extents = extents(first, order);
            let end = extents.end.min(self.extents.len());
            return (extents.start..end).any(|extent| self.extents[extent] != 0);
        }
        match self.extents.get((first >> SUPERPAGE_ORDER) as usize) {
            None | Some(0) => false,
            Some(&SMALLER) => {
                let last = first + (1 << order) - 1;
                self.find_smaller(first).is_some() || self.smaller.range(first..=last).count() > 0
            }
            Some(_) => true,
        }
    }

    pub fn insert(&mut self, first: u32, order: u8, id: ReservationId) {
        debug_assert!(first.trailing_zeros() >= u32::from(order), "{first} of order {order}");
        let extents = extents(first, order);
        if extents.end > self.extents.len() {
            self.extents.resize(extents.end, 0);
        }
        if order >= SUPERPAGE_ORDER {
            self.extents[extents].fill(id.0.get());
        } else {
            self.extents[extents.start] = SMALLER;
            self.smaller.insert(first, (id, order));
        }
    }

    pub fn remove(&mut self, first: u32, order: u8) {
        let extent = first >> SUPERPAGE_ORDER;
        if order < SUPERPAGE_ORDER {
            self.smaller.remove(&first);
            let numbers = extent << SUPERPAGE_ORDER..=extent << SUPERPAGE_ORDER | 511;
            if self.smaller.range(numbers).next().is_some() {
                return;
            }
        }
        self.extents[extents(first, order)].fill(0);
    }

    /// Memory in use, about: a node of the map holds a few entries beside its own words.
    pub fn bytes(&self) -> usize {
        self.extents.capacity() * 4 + self.smaller.len() * 24
    }
}

/// The extents of what begins at a number.
fn extents(first: u32, order: u8) -> Range<usize> {
    let start = (first >> SUPERPAGE_ORDER) as usize;
    start..start + (1 << order.saturating_sub(SUPERPAGE_ORDER))
}
