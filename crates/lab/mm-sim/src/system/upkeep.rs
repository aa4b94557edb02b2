//! Daemons that keep memory, as far as it is not the policy's: what it asks for is done, and charged.

use policy::{Action, Candidates, Compaction, Daemon, Event, Facts, Result as Ended};
use trace::{Page, Pages, Region, SLOTS};

use super::System;
use super::clock::Payer;
use super::daemons::Pass;
use super::frames::LARGE_ORDER;
use super::frames::QUEUE;
use super::scan::Visited;
use crate::Cause;
use crate::memory::compaction::{Mode, Request};
use crate::reservation::ReservationId;
use crate::touched::TouchedView;

impl System {
    /// What is known to a daemon at work.
    pub(crate) fn facts_of_daemon(&mut self, task: Daemon, pass: &Pass, piece: &Visited) -> Facts {
        let mut facts = Facts::default();
        let spent_in_piece = self.daemons.spent_in_piece(&self.clock);
        let free = self.memory.free_frames();
        facts.machine = policy::Machine {
            spent: pass.spent + spent_in_piece,
            spent_in_piece,
            is_piece_done: self.daemons.is_piece_done(&self.clock),
            free,
            pages: u64::from(self.memory.frames()),
            ..policy::Machine::default()
        };
        let machine = &mut facts.machine;
        match task {
            Daemon::Scan => machine.waiting = self.daemons.waiting(),
            Daemon::Fill => machine.waiting = u32::from(piece.partial != Some(None)),
            Daemon::Recover => {
                machine.waiting = self.spaces.region_count().saturating_sub(pass.at.0);
            }
            Daemon::Prezero => {
                machine.zeroed_permille = self.memory.zeroed_frames() * 1000 / free.max(1);
            }
            Daemon::Reclaim => {
                let nodes = (0..self.memory.nodes()).map(|node| self.memory.watermarks(node));
                machine.watermarks =
                    nodes.fold((0, 0), |(low, high), node| (low + node.low, high + node.high));
                machine.free_with_reserved = free + self.frames.reservations().clear_frames();
            }
            Daemon::Compact => {
                machine.compaction_wanted = self.daemons.take_compaction_wanted();
                // Looked at only where compaction ahead of need may be.
                if self.physical.proactiveness > 0 {
                    let nodes = || 0..self.memory.nodes();
                    let score = |node| self.compaction.score(&self.memory, node);
                    machine.is_fragmented =
                        nodes().any(|node| self.compaction.is_wanted(&self.memory, node));
                    machine.fragmentation = nodes().map(score).max().unwrap_or(0);
                }
            }
            Daemon::Evacuate | Daemon::Sample | Daemon::Split => {}
        }
        facts
    }

    /// Does what the policy asks of a daemon that keeps memory.
    pub(crate) fn keep_memory(
        &mut self,
        action: Action,
        pass: &mut Pass,
        piece: &mut Visited,
        touched: TouchedView<'_>,
    ) -> Ended {
        match action {
            Action::Evacuate { after } => self.evacuate_oldest(after, piece),
            Action::BreakNext => {
                // Nowhere to move to: the next one gives its free part.
                let next = self.frames.reservations().newer(QUEUE, piece.passed);
                let Some(next) =
                    next.and_then(|id| self.frames.reservations().newer(QUEUE, Some(id)))
                else {
                    return Ended::Nothing;
                };
                self.break_one(next);
                Ended::Unfit
            }
            Action::Visit(Candidates::Partial { at }) => self.fill_next(at, piece),
            Action::Visit(_) => self.recover_next(pass, touched),
            Action::Zero { order } => self.prezero(order),
            Action::Compact { mode, .. } => self.compact_behind(mode),
            Action::ReleaseHeld { .. } => {
                self.release_held(Payer::Daemon);
                Ended::Nothing
            }
            Action::Reclaim { pages, lumpy, .. } => {
                self.reclaim(Payer::Daemon, pages, lumpy);
                Ended::Nothing
            }
            other => unreachable!("{other:?} is nothing that such a daemon does"),
        }
    }

    /// The pages of the oldest inactive reservation are migrated, so that its superpage becomes free whole.
    fn evacuate_oldest(&mut self, after: u64, piece: &mut Visited) -> Ended {
        let now = self.daemons.now();
        let found = self.frames.reservations().oldest_inactive(QUEUE, piece.passed, now, after);
        let Some(id) = found else { return Ended::Nothing };
        match self.frames.evacuate(&mut self.memory, &mut self.spaces, id) {
            Some(pages) => {
                self.counters.evacuated += 1;
                self.counters.migrated += u64::from(pages);
                self.clock.spend_behind(Cause::Compact, self.costs.migrate_page * u64::from(pages));
                Ended::Done { pages }
            }
            None if self.memory.free_frames() == 0 => Ended::NoMemory,
            None => {
                piece.passed = Some(id);
                Ended::Unfit
            }
        }
    }

    /// The most recently changed reservation that was not looked at in this piece of work.
    fn fill_next(&mut self, at: u16, piece: &mut Visited) -> Ended {
        let first = || self.frames.reservations().newest_partial(QUEUE, None, at);
        let Some(id) = piece.partial.unwrap_or_else(first) else {
            piece.partial = Some(None);
            return Ended::Nothing;
        };
        piece.partial = Some(self.frames.reservations().newest_partial(QUEUE, Some(id), at));
        match self.policy.on(Event::Candidate, &self.facts_of_partial(id)) {
            Action::Populate { most } => Ended::Done { pages: self.fill(id, Payer::Daemon, most) },
            _ => {
                self.frames.mark_bad(id);
                Ended::Unfit
            }
        }
    }

    fn facts_of_partial(&self, id: ReservationId) -> Facts {
        let region = Page(self.frames.reservations().key(id).page).region();
        match self.reserves_larger() {
            true => self.facts_of_larger(region),
            false => self.facts_of_candidate(region),
        }
    }

    /// Zeroes a free block ahead of demand.
    fn prezero(&mut self, order: u8) -> Ended {
        let Some(block) = self.memory.take_unzeroed(order) else { return Ended::Nothing };
        self.memory.put_zeroed(block, order);
        let pages = 1u64 << order;
        self.counters.prezeroed += pages;
        let cost = self.costs.zero_ahead * pages / u64::from(SLOTS);
        self.clock.spend_behind(Cause::Zero, cost);
        Ended::Done { pages: pages as u32 }
    }

    /// kcompactd, or Ingens' periodic compaction.
    fn compact_behind(&mut self, mode: Compaction) -> Ended {
        let before = self.counters.migrated;
        for node in 0..self.memory.nodes() {
            let daemon = |mode| Request { mode, ..Request::daemon(node, LARGE_ORDER) };
            let request = match mode {
                Compaction::Async => daemon(Mode::Async),
                Compaction::SyncLight => daemon(Mode::SyncLight),
                Compaction::Sync => daemon(Mode::Sync),
                Compaction::Proactive => Request::proactive(node),
            };
            self.run_compaction(Payer::Daemon, request);
        }
        Ended::Done { pages: (self.counters.migrated - before) as u32 }
    }

    /// The next superpage: split where it has pages of zeros, and those freed. Pages that were never touched are
    /// zeros; others are not looked into.
    fn recover_next(&mut self, pass: &mut Pass, touched: TouchedView<'_>) -> Ended {
        let Some(pages) = touched.pages else { return Ended::Nothing };
        let all = self.spaces.region_count();
        let next = (pass.at.0..all).map(Region).find(|&region| {
            self.spaces.is_large(region)
                && self.policy.on(Event::Candidate, &self.facts_of_superpage(region))
                    == Action::Inspect
        });
        pass.at = next.map_or(Region(all), Region::next);
        let Some(region) = next else { return Ended::Nothing };
        let used = pages.region(region);
        let zeros = SLOTS - used.iter().map(|word| word.count_ones()).sum::<u32>();
        // A page with contents shows that in its first bytes (9 on average); one of zeros is read whole.
        let cost =
            self.costs.scan_page * u64::from(SLOTS) + self.costs.copy_page * u64::from(zeros);
        self.clock.spend_behind(Cause::Scan, cost);
        let mut facts = self.facts_of_superpage(region);
        facts.region.zeros = zeros as u16;
        if self.policy.on(Event::Inspected { requested: false }, &facts) != Action::Recover {
            return Ended::Unfit;
        }
        self.demote(region, Payer::Daemon);
        for slot in (0..SLOTS).filter(|slot| used[(slot / 64) as usize] >> (slot % 64) & 1 == 0) {
            self.release_unpaid(Pages { first: Page::new(region, slot), count: 1 });
        }
        self.release_held(Payer::Daemon);
        self.counters.recovered += u64::from(zeros);
        Ended::Done { pages: zeros }
    }
}
