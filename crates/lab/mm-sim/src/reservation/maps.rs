//! The populated pages of reservations larger than a superpage: a map for each 512.

use std::collections::BTreeMap;

use super::{Population, ReservationId, Reservations, SUPERPAGE_ORDER};

/// Their maps, by reservation.
#[derive(Debug, Default)]
pub(super) struct Maps(BTreeMap<ReservationId, Box<[Population]>>);

impl Maps {
    pub fn begin(&mut self, id: ReservationId, order: u8) {
        if order > SUPERPAGE_ORDER {
            self.0.insert(id, vec![[0; 8]; 1 << (order - SUPERPAGE_ORDER)].into());
        }
    }

    pub fn end(&mut self, id: ReservationId, order: u8) {
        if order > SUPERPAGE_ORDER {
            self.0.remove(&id);
        }
    }
}

impl Reservations {
    /// The maps of a reservation's pages, ascending.
    pub(super) fn maps(&self, id: ReservationId) -> &[Population] {
        match self.larger.0.get(&id) {
            Some(maps) => maps,
            None => std::slice::from_ref(&self.records[id.at()].population),
        }
    }

    /// The map that has a page, and the page's place in it.
    #[inline]
    pub(super) fn map(&self, id: ReservationId, slot: u32) -> (&Population, u16) {
        let record = &self.records[id.at()];
        match record.order > SUPERPAGE_ORDER {
            false => (&record.population, slot as u16),
            true => (&self.maps(id)[(slot >> SUPERPAGE_ORDER) as usize], (slot & 511) as u16),
        }
    }

    /// The same, to be changed.
    #[inline]
    pub(super) fn map_mut(&mut self, id: ReservationId, slot: u32) -> (&mut Population, u16) {
        let record = &mut self.records[id.at()];
        if record.order <= SUPERPAGE_ORDER {
            return (&mut record.population, slot as u16);
        }
        let maps = self.larger.0.get_mut(&id).expect("a larger reservation has maps");
        (&mut maps[(slot >> SUPERPAGE_ORDER) as usize], (slot & 511) as u16)
    }
}
