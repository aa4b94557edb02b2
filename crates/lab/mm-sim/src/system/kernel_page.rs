//! Pages of the kernel that are several of the processor's: mapped and zeroed together, each with its entry.
//! See docs/decisions/lab-model.md#19.

use trace::{Page, SLOTS};

use super::spaces::space::Place;
use super::{Stop, System};
use crate::Cause;
use crate::reservation::ReservationId;

impl System {
    /// The base pages of the kernel's page that holds one, as far as they are in a mapping.
    fn kernel_page(
        &self,
        page: Page,
        (first, mapping): Place,
    ) -> impl Iterator<Item = Page> + use<> {
        let start = page.0 >> self.page_order << self.page_order;
        (start.max(first)..(start + (1 << self.page_order)).min(mapping.end)).map(Page)
    }

    /// Maps the kernel's page that was touched, and those after it in its region, up to so many, that are empty.
    pub(crate) fn map_kernel_pages(
        &mut self,
        page: Page,
        pages: u32,
        write: bool,
        place: Place,
    ) -> Result<(), Stop> {
        let end = place.1.end.min(page.region().first().0 + SLOTS);
        let starts = (page.0..end).step_by(1 << self.page_order).take(pages as usize);
        for start in starts.map(Page) {
            self.map_kernel_page(start, page, write, place)?;
        }
        self.read_around(page, place);
        Ok(())
    }

    fn map_kernel_page(
        &mut self,
        at: Page,
        touched: Page,
        write: bool,
        place: Place,
    ) -> Result<(), Stop> {
        let all: Vec<Page> = self.kernel_page(at, place).collect();
        for &page in &all {
            if self.spaces.entry(page).is_zero_page() {
                self.spaces.empty_entry(page);
            }
        }
        let is_whole = all.len() == 1 << self.page_order;
        let is_empty = all.iter().all(|&page| self.spaces.entry(page).is_empty());
        if is_whole
            && is_empty
            && place.1.is_anonymous()
            && self.fresh_pages(at, self.page_order, write)
        {
            return Ok(());
        }
        // In part there already, of a file, or no free page of the kernel's.
        for page in all {
            if page == touched || self.spaces.entry(page).is_empty() {
                self.single(page, write, place)?;
                self.clock.spend(Cause::Map, self.costs.map_page);
            }
        }
        Ok(())
    }

    /// Maps the zeros for the rest of the kernel's page.
    pub(crate) fn map_zeros_around(&mut self, touched: Page, place: Place) {
        for page in self.kernel_page(touched, place) {
            if page != touched && self.spaces.entry(page).is_empty() {
                self.spaces.map_zero_page(page);
                self.clock.spend(Cause::Map, self.costs.map_page);
            }
        }
    }

    /// The same of a reservation's pages.
    pub(crate) fn map_reserved_around(
        &mut self,
        touched: Page,
        write: bool,
        id: ReservationId,
        place: Place,
    ) {
        let reservations = self.frames.reservations();
        let (key, base) = (reservations.key(id), reservations.base(id));
        let zeroed = self.frames.is_zeroed(base);
        for page in self.kernel_page(touched, place) {
            let slot = page.0.wrapping_sub(key.page);
            let is_free = slot < 1 << key.order
                && self.spaces.entry(page).is_empty()
                && !self.frames.reservations().is_populated(id, slot);
            if is_free {
                self.prepare_page(page, place.1.backing, zeroed);
                self.frames.populate(id, slot, 1, self.clock.now());
                self.install(page, crate::memory::Frame(base.0 + slot), write);
                self.clock.spend(Cause::Map, self.costs.map_page);
            }
        }
    }
}
