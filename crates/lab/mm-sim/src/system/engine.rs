//! The engine: runs a stream's accesses through the TLB.
//!
//! Hits and walks never consult the policy. An access that needs attention (an absent page, a write to check) leaves
//! the loop and re-enters it afterwards.

use machine::{Footprint, Level, Machine, Size, Tally};
use tlb_sim::Translate;
use trace::{Access, Block, Page, SLOTS};

use super::formed::MAX_MICROSECONDS;
use super::plain::{Apart, PIECE};
use super::spaces::region::{BASE, LARGE, SIZE};
use super::spaces::{Attention, Superpage};
use super::spaces::{FLUSH_CEILING, TlbInvalidation};
use super::{Stop, System};
use crate::Cause;
use crate::touched::TouchedView;

const CHUNK: usize = 1024;

#[derive(Debug)]
pub(crate) struct Engine<T> {
    tlb: T,
    pub system: System,
    machine: Machine,
    /// The TLB's counts at the last update of the books.
    booked: Tally,
    /// The last access: another access to the same page is a hit.
    last: u32,
    superpage: Superpage,
    /// Whether a TLB entry may hold joined base pages.
    joins: bool,
    /// The last run of 16 pages dropped from the TLB, if nothing was looked up since.
    dropped: u32,
}

const NO_ACCESS: u32 = u32::MAX;
const NO_RUN: u32 = u32::MAX;

impl<T: Translate> Engine<T> {
    pub(crate) fn new(tlb: T, system: System, machine: Machine) -> Self {
        let superpage = superpage(&machine, system.group);
        let joins = machine.entry_size(Size::Cont) == Size::Cont;
        Self {
            booked: tlb.tally(),
            tlb,
            system,
            machine,
            last: NO_ACCESS,
            superpage,
            joins,
            dropped: NO_RUN,
        }
    }

    pub(crate) fn block(&mut self, block: &Block, touched: TouchedView<'_>) -> Result<(), Stop> {
        let mut from = 0;
        for (number, (at, event)) in block.events.iter().enumerate() {
            if number.is_multiple_of(PIECE) {
                self.system.prefetch_discards(&block.events[number..]);
            }
            self.accesses(block, from, *at as usize, touched)?;
            from = *at as usize;
            self.system.event(event)?;
            self.invalidate();
            self.last = NO_ACCESS;
            self.tick(touched);
        }
        self.accesses(block, from, block.accesses.len(), touched)
    }

    fn accesses(
        &mut self,
        block: &Block,
        from: usize,
        to: usize,
        touched: TouchedView<'_>,
    ) -> Result<(), Stop> {
        let mut at = from;
        while at < to {
            let end = to.min(at + CHUNK);
            let counts = block.counts.get(at..end);
            let made = counts.map_or((end - at) as u64, |counts| {
                counts.iter().map(|&count| u64::from(count)).sum()
            });
            self.chunk(&block.accesses[at..end])?;
            let made = made.saturating_mul(u64::from(self.system.clock.pace().weight));
            if self.system.clock.microseconds_of_work(made) > MAX_MICROSECONDS {
                return Err(Stop::IllFormed(format!("{made} accesses at once")));
            }
            self.system.counters.accesses += made;
            self.system.clock.work(made);
            self.book();
            self.tick(touched);
            at = end;
        }
        Ok(())
    }

    fn chunk(&mut self, accesses: &[Access]) -> Result<(), Stop> {
        let (mut at, mut prefetched) = (0, 0);
        loop {
            self.dropped = NO_RUN;
            let (tlb, system, last, superpage) =
                (&mut self.tlb, &mut self.system, &mut self.last, self.superpage);
            // Without the attribute the function would be compiled for narrow vectors, with a call per vector
            // instruction of the TLB.
            let attention = T::vectorized(
                #[inline(always)]
                || through(tlb, system, last, accesses, (at, &mut prefetched), superpage),
            );
            match attention {
                Attention::None => return Ok(()),
                Attention::Absent(found) => {
                    self.absent(accesses[found])?;
                    at = found + 1;
                }
                Attention::Check(found) => {
                    self.look_at(accesses[found])?;
                    at = found + 1;
                }
            }
        }
    }

    /// Handles a walk to an unmapped page: faults, then repeats the access.
    fn absent(&mut self, access: Access) -> Result<(), Stop> {
        let page = access.page();
        self.dropped = NO_RUN;
        self.fault(page, access.writes())?;
        self.invalidate();
        let kind = self.system.spaces.kind(page.region());
        if kind & SIZE != BASE {
            // The walk inserted a base page, but the fault mapped a superpage.
            self.tlb.invalidate(page.0, Size::Base);
            let (number, size) = self.superpage.of(page.0, kind);
            self.tlb.look_up(number, size);
        }
        self.system.spaces.walked(page.region());
        self.last = access.0;
        Ok(())
    }

    /// Handles a fault. A fragmenter that fills all memory continues without the page.
    fn fault(&mut self, page: Page, write: bool) -> Result<(), Stop> {
        match self.system.fault(page, write) {
            Err(Stop::OutOfMemory) if !self.system.is_awake() => Ok(()),
            done => done,
        }
    }

    /// Handles an access to a region whose writes must be checked.
    fn look_at(&mut self, access: Access) -> Result<(), Stop> {
        let (page, write) = (access.page(), access.writes());
        if !self.system.spaces.is_fine(page, write) {
            self.fault(page, write)?;
            self.invalidate();
        }
        let region = page.region();
        let kind = self.system.spaces.kind(region);
        let (number, size) = self.superpage.of(page.0, kind);
        let level = self.tlb.look_up(number, size);
        let large = kind & LARGE != 0;
        if level == Level::Walk {
            let mapped = large || self.system.spaces.is_present(page);
            if !mapped {
                return self.absent(access);
            }
            if !large {
                self.system.spaces.lines().read(page, &self.tlb);
            }
            self.system.spaces.walked(region);
        }
        self.last = access.0;
        Ok(())
    }

    fn invalidate(&mut self) {
        let invalidations = self.system.spaces.invalidations();
        if invalidations.is_empty() {
            return;
        }
        self.last = NO_ACCESS;
        if invalidations.len() > FLUSH_CEILING || invalidations.contains(&TlbInvalidation::All) {
            self.tlb.flush();
        } else {
            let (tlb, dropped, joins) = (&mut self.tlb, &mut self.dropped, self.joins);
            let group = self.superpage.group;
            T::vectorized(
                #[inline(always)]
                || {
                    for invalidation in invalidations {
                        drop_from(tlb, *invalidation, dropped, joins);
                        if let (TlbInvalidation::Region(region), 1..) = (invalidation, group) {
                            tlb.invalidate(region.first().0 >> group, Size::Large);
                        }
                    }
                },
            );
        }
        self.system.spaces.clear_invalidations();
    }

    fn tick(&mut self, touched: TouchedView<'_>) {
        self.system.tick(touched);
        self.system.observe();
        self.invalidate();
    }

    /// Updates the ledger and the counters from the TLB's counts.
    pub(crate) fn book(&mut self) {
        let now = self.tlb.tally();
        let new = now - self.booked;
        let l2_hits = new.all_l2_hits();
        let walks = new.all_walks();
        if l2_hits + walks == 0 {
            return;
        }
        self.booked = now;
        let system = &mut self.system;
        let pace = system.clock.pace();
        let waited = if self.machine.walk_blocks { 1000 } else { pace.exposed_permille };
        let exposed = f64::from(pace.exposed_permille) / 1000.0 * f64::from(pace.weight);
        let waited = f64::from(waited) / 1000.0 * f64::from(pace.weight);
        let weight = u64::from(pace.weight);
        system.counters.second_tlb_hits += l2_hits * weight;
        if l2_hits > 0 {
            let each = self.machine.l2.first().map_or(0, |l2| l2.cycles);
            let cycles = (l2_hits as f64 * f64::from(each) * exposed) as u64;
            system.clock.spend(Cause::SecondTlb, cycles);
        }
        if walks == 0 {
            return;
        }
        let large_pages = system.spaces.superpages();
        let base_pages = system.spaces.base_pages();
        let regions = large_pages + base_pages.div_ceil(SLOTS.into());
        let memory = u64::from(system.memory.frames()) * self.machine.base_page.bytes();
        let footprint = Footprint {
            entries: base_pages + system.superpages(),
            ..Footprint::new(base_pages, regions.max(1), memory)
        };
        let mut large = new;
        let mut base = new;
        for size in Size::ALL {
            let other =
                if matches!(size, Size::Base | Size::Cont) { &mut large } else { &mut base };
            other.walks[size as usize] = [0; machine::READS];
            other.near[size as usize] = 0;
        }
        system.counters.walks_base += base.all_walks() * weight;
        system.counters.walks_large += large.all_walks() * weight;
        for (tally, cause) in [(base, Cause::WalkBase), (large, Cause::WalkLarge)] {
            if tally.all_walks() > 0 {
                let leaf = system.spaces.lines().price(&self.machine, footprint.pte_bytes, now);
                let cycles = self.machine.walk_cycles_of(&tally, footprint, leaf) * waited;
                system.clock.spend(cause, cycles as u64);
                system.note_walks(cycles as u64);
            }
        }
    }
}

/// Returns how this machine's TLB holds superpages; the largest superpages have 2^`group` regions.
fn superpage(machine: &Machine, group: u32) -> Superpage {
    let is_huge = group == Size::Huge.shift() - Size::Large.shift();
    let size = if is_huge { Size::Huge } else { Size::Large };
    let pages = |size| machine.entry_size(size).pages().min(SLOTS);
    let same = pages(size).min(pages(Size::Large));
    Superpage { same, group: if is_huge { 0 } else { group }, size }
}

/// Drops the TLB entries of one shootdown. `dropped` is the last dropped run of 16 pages.
#[inline(always)]
fn drop_from<T: Translate>(
    tlb: &mut T,
    invalidation: TlbInvalidation,
    dropped: &mut u32,
    joins: bool,
) {
    match invalidation {
        TlbInvalidation::Page(page) => {
            let run = page >> Size::Cont.shift();
            if *dropped == run && !joins {
                return;
            }
            // Without joined entries, this also drops the base pages.
            tlb.invalidate(page, Size::Cont);
            if joins {
                tlb.invalidate(page, Size::Base);
            }
            *dropped = run;
        }
        TlbInvalidation::Region(region) => tlb.invalidate_region(region.0),
        TlbInvalidation::All => {}
    }
}

/// Runs accesses through the TLB and handles the most frequent faults. `prefetched`: end of the faults prefetched so
/// far.
#[inline(always)]
fn through<T: Translate>(
    tlb: &mut T,
    system: &mut System,
    last: &mut u32,
    accesses: &[Access],
    (mut from, prefetched): (usize, &mut usize),
    superpage: Superpage,
) -> Attention {
    let sample = system.reads.has(policy::Reads::COVERAGE) || system.spaces.counts_walks();
    let mut apart = Apart::NONE;
    loop {
        let attention = system.spaces.walk(tlb, last, accesses, from, sample, superpage);
        let Attention::Absent(found) = attention else {
            system.end_apart(&mut apart);
            return attention;
        };
        let access = accesses[found];
        system.prefetch_faults(accesses, found, prefetched);
        let is_apart = accesses.get(found + 1).is_none_or(|next| next.0 != access.0 + 1);
        if is_apart && system.plain_apart(&mut apart, access) {
            from = found + 1;
            *last = access.0;
            continue;
        }
        system.end_apart(&mut apart);
        let plain = system.plain_ahead(&accesses[found..]) as usize;
        if plain == 0 {
            return attention;
        }
        // Looks up the following pages too, each before its fault.
        let mut walked = 1;
        let mut hit = false;
        while walked < plain && !hit {
            hit = tlb.look_up(access.page().0 + walked as u32, Size::Base) != Level::Walk;
            walked += usize::from(!hit);
        }
        let walks = walked as u32;
        for ahead in 1..walks {
            let page = Page(access.page().0 + ahead);
            system.spaces.lines().read_before(page, tlb, walks - 1 - ahead);
        }
        if !system.plain_faults(access.page(), access.writes(), walked as u32) {
            return attention;
        }
        from = found + walked + usize::from(hit);
        *last = accesses[from - 1].0;
        apart = system.begin_apart(access);
    }
}
