//! Checks the invariants of a simulated system from scratch.
//!
//! Page tables and owners of frames are two views of the same state. Everything else (resident, clean and superpage
//! counts, shares, folios, reservations) is redundant and kept for speed; it is recomputed here from the page tables.
//! For tests, and once at the end of a run in debug builds.

use std::collections::BTreeSet;

use trace::{Page, Pages, Region, SLOTS};

use super::System;
use super::spaces::region::{
    BASE, CHECK, CONT, COW, DIRTY, Entry, NO_TABLE, POOL, RESERVED, RegionEntry, SIZE, ZEROS,
};
use crate::memory::{Frame, Owner};

/// Maximum memory to verify at the end of a run, in frames (1 GiB): more takes seconds.
const MAX_FRAMES: u32 = 1 << 18;

/// Users of frames: (frame, page), sorted.
type Users = Vec<(u32, u32)>;

impl System {
    /// In debug builds, verifies machines that are small enough.
    pub(crate) fn check(&self) {
        if cfg!(debug_assertions) && self.memory.frames() <= MAX_FRAMES {
            assert_eq!(self.verify(), Ok(()));
        }
    }

    /// Checks all invariants and reports the first error.
    pub(crate) fn verify(&self) -> Result<(), String> {
        self.memory.verify()?;
        let pooled = self.pool.verify()?;
        self.spaces.verify_mappings()?;
        let users = self.verify_regions()?;
        self.verify_frames(&users, &pooled)?;
        let is_used = |frame: u32| users.binary_search_by_key(&frame, |user| user.0).is_ok();
        self.frames.verify(is_used)
    }

    fn verify_regions(&self) -> Result<Users, String> {
        let mut users = Vec::new();
        let mut swapped = 0;
        for (region, at) in self.spaces.regions() {
            let found = match self.spaces.is_large(region) {
                true => self.verify_large(region, at, &mut users),
                false => self.verify_table(region, at, &mut users, &mut swapped),
            };
            found.map_err(|what| format!("{region:?} of process {}: {what}", at.process))?;
        }
        self.spaces.verify_counts(swapped)?;
        users.sort_unstable();
        Ok(users)
    }

    fn verify_large(
        &self,
        region: Region,
        at: &RegionEntry,
        users: &mut Users,
    ) -> Result<(), String> {
        // The zero superpage has no resident pages.
        let resident = if at.has(ZEROS) { 0 } else { SLOTS as u16 };
        if at.resident != resident || at.clean != 0 {
            return Err(format!("a superpage with the counts of base pages: {at:?}"));
        }
        let checked = self.spaces.kind(region) & CHECK != 0;
        if (at.has(COW | ZEROS) || !at.has(DIRTY)) && !checked {
            return Err("the superpage's writes must be looked at, and are not".to_string());
        }
        if self.spaces.is_part(region) && !self.is_larger(region) {
            return Err("a part of a larger superpage that is not whole".to_string());
        }
        let process = self.spaces.owner(at);
        // A heap's last pool page reaches past the heap's end, and advice does not apply to a part of a pool page.
        let first = if at.has(POOL) { self.pool.regions(region).next() } else { None };
        let place = process.and_then(|process| process.find(first.unwrap_or(region).first()));
        if !at.has(POOL)
            && !place.is_some_and(|(first, mapping)| mapping.holds_window(first, region.first().0))
            && !self.is_mapped_throughout(region)
        {
            return Err("a superpage reaches beyond its mapping".to_string());
        }
        if at.has(ZEROS) {
            return Ok(());
        }
        if !self.memory.is_superpage(Frame(at.place)) {
            return Err(format!("frame {} does not know that it is a superpage's", at.place));
        }
        if at.has(POOL) {
            let id = place.and_then(|(_, mapping)| mapping.pool);
            let page = id.and_then(|id| self.pool.page(id, region));
            if page != Some(Frame(at.place)) {
                return Err(format!("maps frame {}, the pool says {page:?}", at.place));
            }
            return Ok(());
        }
        users.extend((0..SLOTS).map(|slot| (at.place + slot, region.first().0 | slot)));
        Ok(())
    }

    /// Returns whether the regions around `region` are parts of one superpage and mapped alike.
    fn is_larger(&self, region: Region) -> bool {
        let at = |region| (self.spaces.kind(region) & (SIZE | CHECK), self.spaces.at(region));
        let first = self.spaces.around(region).next().unwrap_or(region);
        let (kind, of_first) = at(first);
        (0..).zip(self.spaces.around(region)).all(|(number, part)| {
            let (other, found) = at(part);
            let flags = |at: &RegionEntry| at.flags & (COW | DIRTY | ZEROS | POOL);
            let is_next = of_first.has(ZEROS) || found.place == of_first.place + number * SLOTS;
            let is_alike = (other, found.process) == (kind, of_first.process);
            is_alike && is_next && flags(found) == flags(of_first)
        })
    }

    /// Returns whether every page of a region is in some mapping of its process: advice splits mappings under a
    /// superpage.
    fn is_mapped_throughout(&self, region: Region) -> bool {
        let process = self.spaces.owner(self.spaces.at(region));
        let mapped = |page| process.is_some_and(|process| process.find(Page(page)).is_some());
        (region.first().0..region.next().first().0).all(mapped)
    }

    fn verify_table(
        &self,
        region: Region,
        at: &RegionEntry,
        users: &mut Users,
        swapped: &mut u64,
    ) -> Result<(), String> {
        let kind = self.spaces.kind(region);
        if at.place == NO_TABLE {
            let empty = at.resident == 0 && at.clean == 0;
            return if empty && kind & SIZE == BASE && !at.has(POOL | ZEROS) {
                Ok(())
            } else {
                Err(format!("no table, and not empty: {at:?}, kind {kind}"))
            };
        }
        let process = self.spaces.owner(at);
        let (mut resident, mut clean, mut attention) = (0, 0, false);
        for (slot, &entry) in (0..).zip(self.spaces.table(region).unwrap_or_default()) {
            let page = Page::new(region, slot);
            let present = self.spaces.is_present(page);
            *swapped += u64::from(entry.is_swapped());
            if present {
                clean += u16::from(!entry.has(Entry::DIRTY));
                attention |= !entry.has(Entry::DIRTY) || entry.has(Entry::COW);
                if entry.is_empty() || entry.is_swapped() {
                    return Err(format!("page {slot} is mapped to {entry:?}"));
                }
            } else if entry.is_zero_page() {
                return Err(format!("page {slot}: zeros that are not mapped"));
            }
            if entry.is_empty() {
                continue;
            }
            let mapped = process.is_some_and(|process| process.find(page).is_some());
            if let Some(frame) = entry.frame() {
                resident += 1;
                users.push((frame.0, page.0));
                // Pages of a reservation that was filled past the mapping's end wait for the mapping to grow.
                let reserved = self.frames.reservations().at(frame).is_some();
                if !mapped && (present || !reserved) && !self.awaits_growth(page) {
                    return Err(format!("page {slot} has {frame:?} and is in no mapping"));
                }
            } else if !mapped && !self.awaits_growth(page) {
                return Err(format!("page {slot} is {entry:?} and in no mapping"));
            }
        }
        if (at.resident, at.clean) != (resident, clean) {
            return Err(format!(
                "{resident} resident and {clean} clean, kept {} and {}",
                at.resident, at.clean
            ));
        }
        if attention && kind & CHECK == 0 {
            return Err("writes must be looked at, and are not".to_string());
        }
        if kind & SIZE == CONT {
            self.verify_runs(region)?;
        }
        Ok(())
    }

    /// Returns whether a page may be outside all mappings: it was filled past a mapping's end or in a hole, and its
    /// reservation was broken. It stays while the region has any mapping, as in an object of FreeBSD.
    fn awaits_growth(&self, page: Page) -> bool {
        let process = self.spaces.owner(self.spaces.at(page.region()));
        let window = Pages { first: page.region().first(), count: SLOTS };
        process.is_some_and(|process| process.meets(window))
    }

    /// Checks that runs of 16 pages that may share a TLB entry are contiguous and wholly mapped.
    fn verify_runs(&self, region: Region) -> Result<(), String> {
        let table = self.spaces.table(region).unwrap_or_default();
        for run in (0..SLOTS).step_by(16) {
            let slots = run..run + 16;
            let is_mapped = |slot: &u32| self.spaces.is_present(Page::new(region, *slot));
            let mapped = slots.clone().filter(is_mapped).count();
            let first = table[run as usize].frame();
            let together = slots.clone().all(|slot| {
                let frame = table[slot as usize].frame().map(|frame| frame.0);
                frame.is_some_and(|frame| {
                    Some(Frame(frame - (slot - run))) == first && (frame - (slot - run)) % 16 == 0
                })
            });
            if mapped != 0 && (mapped != 16 || !together) {
                return Err(format!(
                    "the 16 pages from page {run} on are marked as a run, but are not one"
                ));
            }
        }
        Ok(())
    }

    /// Checks that every frame is free or has exactly one use, and that owner words, shares, folios and reservations
    /// agree.
    fn verify_frames(&self, users: &Users, pooled: &BTreeSet<u32>) -> Result<(), String> {
        let mut from = 0;
        let mut folio = 0;
        for frame in 0..self.memory.frames() {
            let head = frame & !(SLOTS - 1);
            if frame == head {
                folio = 0;
            }
            let to = from + users[from..].iter().take_while(|user| user.0 == frame).count();
            let pages = &users[from..to];
            from = to;
            folio += u16::from(!pages.is_empty());
            let found = if pages.is_empty() {
                self.verify_unused(Frame(frame), pooled.contains(&head))
            } else {
                self.verify_used(Frame(frame), pages)
            };
            found.map_err(|what| {
                let state = (
                    self.memory.owner(Frame(frame)),
                    self.memory.is_free(Frame(frame)),
                    self.frames.reservations().at(Frame(frame)).is_some(),
                );
                format!("frame {frame} (owner, free, reserved: {state:?}): {what}")
            })?;
            if frame == head + SLOTS - 1
                && let Some(kept) = self.frames.used_of_held(Frame(head))
                && kept != folio
            {
                return Err(format!("{folio} frames of folio {head} are used, kept {kept}"));
            }
        }
        Ok(())
    }

    fn verify_unused(&self, frame: Frame, pooled: bool) -> Result<(), String> {
        let reserved = match self.frames.reservations().at(frame) {
            Some(id) => {
                let slot = frame.0 - self.frames.reservations().base(id).0;
                if self.frames.reservations().is_populated(id, slot) {
                    return Err(
                        "a populated part of a reservation, which no process maps".to_string()
                    );
                }
                let key = self.frames.reservations().key(id);
                let flagged = self.spaces.at(Page(key.page).region()).has(RESERVED);
                if u32::from(key.order) == SLOTS.ilog2() && !flagged {
                    return Err("its region does not know that it is reserved".to_string());
                }
                true
            }
            None => false,
        };
        let held = self.frames.used_of_held(frame.pageblock()).is_some();
        let free = self.memory.is_free(frame);
        let ways = [free, pooled, reserved, held].iter().filter(|&&way| way).count();
        match self.memory.owner(frame) {
            Owner::Page(page) => Err(format!("{page:?} does not map it")),
            Owner::Kernel | Owner::Cache(_) if ways == 0 => Ok(()),
            Owner::Pinned if pooled && ways == 1 => Ok(()),
            Owner::None if ways == 1 => Ok(()),
            _ if ways == 0 => Err("it is lost: neither free nor used".to_string()),
            _ => Err(format!(
                "more than one use: free {free}, pool {pooled}, reserved {reserved}, folio {held}"
            )),
        }
    }

    fn verify_used(&self, frame: Frame, pages: &[(u32, u32)]) -> Result<(), String> {
        let owner = match self.memory.owner(frame) {
            Owner::Page(page) => Some(page.0),
            Owner::None => None,
            other => return Err(format!("used by {pages:?}, owned by {other:?}")),
        };
        if self.memory.is_free(frame) {
            return Err(format!("free, and used by {pages:?}"));
        }
        let reservation = self.frames.reservations().at(frame);
        if let Some(id) = reservation {
            let slot = frame.0 - self.frames.reservations().base(id).0;
            if !self.frames.reservations().is_populated(id, slot) {
                return Err(format!("used by {pages:?}, and its reservation does not know"));
            }
        }
        let large = pages.iter().filter(|user| self.spaces.is_large(Page(user.1).region())).count();
        if large != 0 && large != pages.len() {
            return Err(format!("mapped by superpages and base pages: {pages:?}"));
        }
        let head = frame.0 & (SLOTS - 1) == 0;
        // Only the first frame of a whole superpage has an owner.
        let may_be_nobodys = large > 0 && !head && reservation.is_none();
        match owner {
            None if may_be_nobodys => {}
            Some(page) if pages.iter().any(|user| user.1 == page) => {}
            _ => return Err(format!("used by {pages:?}, and owned by none of them")),
        }
        let further = self.frames.sharers(frame);
        let mut known: Vec<u32> = further.iter().copied().chain(owner).collect();
        known.sort_unstable();
        let alike = known.iter().eq(pages.iter().map(|user| &user.1));
        if alike || (large > 0 && !head && further.is_empty()) {
            return Ok(());
        }
        Err(format!("used by {pages:?}, shared by {further:?}"))
    }

    /// Returns the number of frames that remain in use without processes: the kernel's, the page cache's and the
    /// pool's.
    #[cfg(test)]
    pub(crate) fn frames_beyond_processes(&self) -> u64 {
        let fixed = |&frame: &u32| {
            matches!(self.memory.owner(Frame(frame)), Owner::Kernel | Owner::Cache(_))
        };
        let fixed = (0..self.memory.frames()).filter(fixed).count() as u64;
        let pool = self.pool.verify().map_or(0, |pooled| pooled.len() as u64);
        fixed + pool * u64::from(SLOTS)
    }
}
