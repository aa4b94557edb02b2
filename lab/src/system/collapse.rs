//! Base pages are copied into a superpage: out of place, as khugepaged does.

use design::Effort;
use trace::{Page, Pages, SLOTS};

use super::System;
use super::allocate::Payer;
use super::region::{ACCESSED, COW, Entry, LISTED, NO_TABLE, PROTECTED};
use crate::Cause;
use crate::memory::Owner;

/// What became of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collapsed {
    /// It is a superpage now.
    Yes,
    /// It does not qualify.
    Unfit,
    /// No superpage was to be had.
    NoMemory,
}

/// What is asked of a candidate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fitness {
    /// The fewest pages with a frame.
    pub least_present: u16,
    /// A page was referenced lately.
    pub referenced: bool,
}

impl System {
    /// Collapses a region if it qualifies. The cost is the payer's; the shootdown is the program's.
    pub(crate) fn collapse(
        &mut self,
        region: u32,
        fitness: Fitness,
        effort: Effort,
        payer: Payer,
    ) -> Collapsed {
        if !self.qualifies(region, fitness) {
            return Collapsed::Unfit;
        }
        let Some(got) = self.superpage(effort, payer) else { return Collapsed::NoMemory };
        let first = Page(region << 9);
        let present = (0..SLOTS)
            .filter(|slot| self.spaces.entry(Page(first.0 + slot)).frame().is_some())
            .count() as u64;
        self.charge(payer, Cause::Copy, self.costs.copy_page * present + self.costs.collapse);
        let holes = u64::from(SLOTS) - present;
        if !got.zeroed {
            self.charge(payer, Cause::Zero, self.costs.zero_page * holes);
            self.counters.zeroed += holes;
        }
        if payer == Payer::Daemon && self.design.mapping.scan.as_ref().is_some_and(|s| s.exclusive)
        {
            let cost = self.costs.copy_page * present
                + self.costs.collapse
                + if got.zeroed { 0 } else { self.costs.zero_page * holes };
            // What it did since the program was last told follows one on the other.
            let process = self.spaces.regions[region as usize].process;
            let until = if self.locked.0 == process { self.locked.1 } else { 0 };
            self.locked = (process, until.max(self.clock.now()) + cost);
        }
        self.clock.spend(Cause::Shootdown, self.costs.shootdown);
        // A daemon serves other processes too: what it makes for them is not the program's.
        let process = self.spaces.regions[region as usize].process;
        if self.spaces.is_ours(process) {
            self.counters.copied += present;
            self.counters.made_by_copy += 1;
        }
        // The old pages go, silently: the program pays nothing for that.
        let books = self.clock.ledger;
        self.release(Pages { first, count: SLOTS });
        self.clock.restore(books);
        self.memory.set_owner(got.frame, Owner::Page(first));
        self.map_superpage(region, got.frame, true);
        Collapsed::Yes
    }

    /// `hpage_collapse_scan_pmd`: not a superpage yet, nothing shared, enough pages, one of them writable
    /// and one referenced; and the whole window is in one mapping that may have superpages.
    fn qualifies(&mut self, region: u32, fitness: Fitness) -> bool {
        let at = self.spaces.regions[region as usize];
        if self.spaces.is_large(region) || at.place == NO_TABLE || at.has(COW) || at.has(PROTECTED)
        {
            return false;
        }
        if at.resident < fitness.least_present.max(1) {
            return false;
        }
        if fitness.referenced && !at.has(ACCESSED) {
            return false;
        }
        let Some(process) = self.spaces.processes.get(&at.process) else { return false };
        let Some((first, mapping)) = process.find(Page(region << 9)) else { return false };
        if !mapping.holds_window(first, region << 9)
            || !mapping.is_anonymous()
            || mapping.pool.is_some()
            || !self.is_eligible(mapping)
        {
            return false;
        }
        let table = self.spaces.tables.table(at.place);
        let writable = table.iter().any(|entry| entry.frame().is_some() && !entry.has(Entry::COW));
        let shared = !self.spaces.shares.is_empty()
            && table
                .iter()
                .filter_map(|entry| entry.frame())
                .any(|frame| self.spaces.shares.contains_key(&frame.0));
        // A candidate leaves the list when it is looked at.
        self.spaces.region(region).flags &= !LISTED;
        mapping.writable && writable && !shared
    }
}
