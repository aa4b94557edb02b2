//! What a stream holds in all, kept while it is written, or read where no footer says it.

use super::foot::Totals;
use super::regions::Regions;
use crate::{Access, Event};

/// The sums of a stream so far, and where its regions are.
pub struct Tally {
    /// `records` is left to whoever makes chunks.
    pub totals: Totals,
    pub regions: Regions,
}

impl Tally {
    /// Of nothing.
    pub fn new() -> Self {
        let totals = Totals { processes: 1, ..Totals::default() };
        Self { totals, regions: Regions::new() }
    }

    /// One more record.
    pub fn record(&mut self, access: Access, count: u32) {
        let totals = &mut self.totals;
        totals.regions = totals.regions.max(access.page().region().0 + 1);
        totals.accesses += u64::from(count);
        totals.writes += if access.writes() { u64::from(count) } else { 0 };
    }

    /// One more event; `false` if its process has a number that no stream can have.
    pub fn event(&mut self, event: &Event) -> bool {
        self.regions.see(event);
        self.totals.events += 1;
        let mut regions = self.regions.count();
        if let Some(pages) = event.pages() {
            regions = regions.max(((pages.first.0 + (pages.count - 1)) >> 9) + 1);
        }
        // Also where the child inherits nothing: a reader looks whether its pages lie in the stream.
        if let Event::Fork { offset, .. } = event {
            regions = regions.max((offset >> 9) + 1);
        }
        self.totals.regions = self.totals.regions.max(regions);
        let above = event.process().map_or(Some(1), |process| process.0.checked_add(1));
        self.totals.processes = self.totals.processes.max(above.unwrap_or(0));
        above.is_some()
    }
}
