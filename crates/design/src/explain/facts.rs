//! Facts that stand for many.

use policy::{Backing, Event, Facts, Mapping, Orders, Region, Reservation, Superpage};

use super::PAGES;

pub const READ: Event = Event::Fault { write: false };
pub const WRITE: Event = Event::Fault { write: true };

pub trait With: Sized {
    fn with(self, change: impl FnOnce(&mut Facts)) -> Facts;
}

impl With for Facts {
    fn with(mut self, change: impl FnOnce(&mut Facts)) -> Facts {
        change(&mut self);
        self
    }
}

/// A superpage's worth of untouched anonymous memory, amid a large writable mapping.
pub fn fresh() -> Facts {
    let all: Orders = (1..=18).collect();
    Facts {
        mapping: Mapping { backing: Backing::Anonymous, advised: None, writable: true },
        place: (0, PAGES.into()),
        region: Region {
            inside: true,
            begins: all,
            ends: all,
            absent: all,
            unreserved: all,
            nothing_shared: true,
            has_writable: true,
            accessed: true,
            ..Region::default()
        },
        ..Facts::default()
    }
}

pub fn advised(advised: bool) -> Facts {
    fresh().with(|facts| facts.mapping.advised = Some(advised))
}

/// The mapping ends 64 KiB further on.
pub fn cut() -> Facts {
    let ends: Orders = (1..=4).collect();
    fresh().with(|facts| (facts.region.inside, facts.region.ends) = (false, ends))
}

pub fn file() -> Facts {
    fresh().with(|facts| facts.mapping.backing = Backing::File { cached: true })
}

/// Other pages of the region are in use, so that no larger page fits.
pub fn beside(pages: u16) -> Facts {
    fresh().with(|facts| {
        let region = &mut facts.region;
        (region.populated, region.has_table) = (pages, true);
        (region.absent, region.unreserved) = (Orders::NONE, Orders::NONE);
    })
}

pub fn reserved(pages: u16) -> Facts {
    let reservation = Reservation { order: 9, populated: pages.into(), ..Reservation::default() };
    beside(pages).with(|facts| facts.region.reservation = Some(reservation))
}

pub fn full(dirty: [u64; 8]) -> Facts {
    reserved(PAGES).with(|facts| {
        let region = &mut facts.region;
        (region.is_mapped, region.dirty) = (true, dirty);
        region.reservation = region.reservation.map(|one| Reservation { is_full: true, ..one });
    })
}

pub fn mapped(superpage: Superpage) -> Facts {
    fresh().with(|facts| facts.region.superpage = Some(superpage))
}

pub fn large() -> Facts {
    mapped(Superpage::default())
}

pub fn under_zeros(facts: &Facts, order: u8) -> Facts {
    let superpage = Superpage { order, zeros: true, ..Superpage::default() };
    facts.with(|facts| facts.region.superpage = Some(superpage))
}

pub fn shared_after_fork() -> Facts {
    mapped(Superpage { cow: true, shared: true, ..Superpage::default() })
}

/// A machine on which every daemon has something to do.
pub fn busy() -> Facts {
    fresh().with(|facts| {
        let machine = &mut facts.machine;
        (machine.pages, machine.waiting, machine.watermarks) = (1 << 20, 1, (256, 512));
        (machine.compaction_wanted, machine.is_fragmented) = (true, true);
    })
}
