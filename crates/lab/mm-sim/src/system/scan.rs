//! The scan that collapses superpages: selection of candidates, without the policy's decisions.

use std::collections::BTreeMap;

use policy::{
    Action, Candidates, Compaction, Daemon, Event, Extent, Facts, Process, Result as Ended,
    ScanAction, UpkeepAction, WatchAction,
};
use trace::{Page, Pages, Region, SLOTS};

use super::System;
use super::clock::Payer;
use super::daemons::{Collapsed, Pass};
use super::frames::{LARGE_ORDER, QUEUE};
use super::larger::Larger;
use super::spaces::region::{ACCESSED, COW, LISTED, NO_TABLE, POOL, RESERVED, WATCHED, ZEROS};
use crate::Cause;
use crate::memory::Frame;
use crate::memory::compaction::{Mode, Request};
use crate::reservation::ReservationId;
use crate::touched::TouchedView;

#[derive(Debug, Default)]
pub(crate) struct Visited {
    /// The next reservation to examine; the outer `None`: none was examined yet.
    pub partial: Option<Option<ReservationId>>,
    /// The last reservation whose pages could not be moved.
    pub passed: Option<ReservationId>,
}

impl System {
    /// Performs an action of the scan. Returns its result, and the number of mappings skipped.
    pub(crate) fn scan(&mut self, action: ScanAction, pass: &mut Pass) -> (Ended, u32) {
        let done = (Ended::Done { pages: 0 }, 0);
        match action {
            ScanAction::Rewind => self.daemons.set_cursor(0, Page(0)),
            ScanAction::Rank { most, one_process } => pass.chosen = self.choose(most, one_process),
            ScanAction::ClearAccessed => {
                let entries = self.spaces.clear_accessed();
                self.clock.spend_behind(Cause::Scan, self.costs.scan_page * entries);
            }
            ScanAction::CountAccessed { newest_percent } => {
                let entries = self.spaces.count_accessed(newest_percent, self.clock.pace().weight);
                self.clock.spend_behind(Cause::Scan, self.costs.scan_page * entries);
            }
            ScanAction::Visit(Candidates::Best) => return (self.visit_best(pass), 0),
            ScanAction::Visit(Candidates::Listed) => {
                if let Some(region) = self.daemons.next_candidate() {
                    self.spaces.unmark(region, LISTED);
                    let process = self.spaces.at(region).process;
                    self.daemons.set_cursor(process, region.first());
                }
                return self.visit_next();
            }
            ScanAction::Visit(Candidates::Next) => return self.visit_next(),
        }
        done
    }

    fn visit_next(&mut self) -> (Ended, u32) {
        let mut passed = 0;
        let Some((owner, region)) = self.next_region(self.daemons.cursor(), &mut passed) else {
            return (Ended::Nothing, passed);
        };
        if self.policy.scanned_sizes().has(self.larger_order()) && self.group > 0 {
            return (self.visit_larger(owner, region), passed);
        }
        self.clock.spend_behind(Cause::Scan, self.costs.scan_page * u64::from(SLOTS));
        self.daemons.set_cursor(owner, region.next().first());
        (self.visit(region), passed)
    }

    fn visit(&mut self, region: Region) -> Ended {
        match self.collapse(region, Payer::Daemon) {
            Collapsed::Yes => Ended::Done { pages: SLOTS },
            Collapsed::NoMemory => Ended::NoMemory,
            Collapsed::Unfit => {
                self.spaces.unmark(region, ACCESSED);
                Ended::Unfit
            }
        }
    }

    /// Visits a candidate for the largest superpage, beginning at one of its regions. If none is made, visits each of
    /// its regions in the mapping.
    fn visit_larger(&mut self, owner: u32, from: Region) -> Ended {
        let mapping = self.spaces.process(owner).and_then(|own| own.find(from.first()));
        let held = mapping.map_or(from.next().0, |(_, mapping)| mapping.end / SLOTS);
        let end = self.extent_around(from).end().region().0.min(held);
        self.daemons.set_cursor(owner, Region(end).first());
        let read = (from.0..end).map(Region).map(|region| match self.spaces.table(region) {
            Some(_) => u64::from(SLOTS),
            None => 1,
        });
        let entries: u64 = read.sum();
        self.clock.spend_behind(Cause::Scan, self.costs.scan_page * entries);
        match self.collapse_larger(from) {
            Larger::Made => return Ended::Done { pages: SLOTS << self.group },
            Larger::NoMemory => return Ended::NoMemory,
            Larger::Unfit => return Ended::Unfit,
            Larger::Parts => {}
        }
        let mut all = Ended::Unfit;
        for region in (from.0..end).map(Region) {
            match self.visit(region) {
                Ended::NoMemory => return Ended::NoMemory,
                Ended::Unfit => {}
                done => all = done,
            }
        }
        all
    }

    fn visit_best(&mut self, pass: &mut Pass) -> Ended {
        let Some(region) = pass.chosen.pop() else { return Ended::Nothing };
        match self.collapse(region, Payer::Daemon) {
            Collapsed::Yes => Ended::Done { pages: SLOTS },
            Collapsed::NoMemory => Ended::NoMemory,
            Collapsed::Unfit => {
                // A failed region returns to HawkEye's bin 0.
                self.spaces.forget_coverage(region);
                Ended::Unfit
            }
        }
    }

    /// Returns the next region at or after (process, page) that lies wholly within a mapping of a scanned kind.
    fn next_region(&self, (process, page): (u32, Page), passed: &mut u32) -> Option<(u32, Region)> {
        for (number, space) in self.spaces.processes_from(process) {
            let from = if number == process { page.0 } else { 0 };
            let start = space.find(Page(from)).map_or(from, |(first, _)| first);
            for (first, mapping) in space.mappings_from(start) {
                let window = first.max(from).next_multiple_of(SLOTS);
                let fits = window + SLOTS <= mapping.end
                    && mapping.is_anonymous()
                    && mapping.pool.is_none()
                    && self.policy.is_eligible(&self.spaces.facts_of(&mapping));
                if fits {
                    return Some((number, Page(window).region()));
                }
                *passed += 1;
            }
        }
        None
    }

    /// Returns the regions of a pass, in reverse order.
    fn choose(&mut self, most: u32, one_process: bool) -> Vec<Region> {
        let mut candidates = self.candidates_by_process();
        if one_process {
            let all = candidates.iter();
            let best = all.filter_map(|(&number, regions)| {
                let ranks = regions.iter().map(|&(rank, _)| rank);
                Some((self.policy.rank_process(ranks, &self.process_facts(number))?, number))
            });
            let Some((_, process)) = best.max() else { return Vec::new() };
            self.daemons.serve(process, self.clock.now());
            candidates.retain(|&number, _| number == process);
        }
        let mut all: Vec<(u32, Region)> = candidates.into_values().flatten().collect();
        // Highest rank first. Among equals, the highest address first: the last one inserted is at the head.
        all.sort_unstable();
        let most = if most == 0 { usize::MAX } else { most as usize };
        all.drain(..all.len().saturating_sub(most));
        all.into_iter().map(|(_, region)| region).collect()
    }

    fn process_facts(&self, number: u32) -> Process {
        let (walks, all) = self.spaces.process(number).map_or((0, 1), |own| own.overhead());
        Process {
            walks_permille: walks * 1000 / all.max(1),
            served: self.daemons.served(number),
            number,
        }
    }

    fn facts_of_ranked(&self, region: Region) -> Facts {
        let at = self.spaces.at(region);
        let mut facts = Facts::default();
        facts.region.superpage =
            (self.spaces.is_large(region) || at.has(WATCHED)).then(Default::default);
        facts.region.has_table = at.place != NO_TABLE;
        facts.region.coverage = at.coverage;
        facts
    }

    fn candidates_by_process(&self) -> BTreeMap<u32, Vec<(u32, Region)>> {
        let mut found: BTreeMap<u32, Vec<(u32, Region)>> = BTreeMap::new();
        for (region, at) in self.spaces.regions() {
            if let Some(rank) = self
                .policy
                .rank(&self.facts_of_ranked(region).region, self.spaces.misses_of(region))
            {
                found.entry(at.process).or_default().push((rank, region));
            }
        }
        found
    }
}

// Daemons that maintain memory: performs the policy's actions and charges them.

impl System {
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
                // Computed only if proactive compaction is on.
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

    pub(crate) fn upkeep(
        &mut self,
        action: UpkeepAction,
        pass: &mut Pass,
        piece: &mut Visited,
        touched: TouchedView<'_>,
    ) -> Ended {
        match action {
            UpkeepAction::Evacuate { after } => self.evacuate_oldest(after, piece),
            UpkeepAction::BreakNext => {
                // No frames to migrate to: the next reservation is broken for its free part.
                let next = self.frames.reservations().newer(QUEUE, piece.passed);
                let Some(next) =
                    next.and_then(|id| self.frames.reservations().newer(QUEUE, Some(id)))
                else {
                    return Ended::Nothing;
                };
                self.break_one(next);
                Ended::Unfit
            }
            UpkeepAction::Fill { at } => self.fill_next(at, piece),
            UpkeepAction::Inspect => self.recover_next(pass, touched),
            UpkeepAction::Zero { order } => self.prezero(order),
            UpkeepAction::Compact { mode } => self.compact_behind(mode),
            UpkeepAction::ReleaseHeld => {
                self.release_held(Payer::Daemon);
                Ended::Nothing
            }
            UpkeepAction::Reclaim { pages, lumpy } => {
                self.reclaim(Payer::Daemon, pages, lumpy);
                Ended::Nothing
            }
        }
    }

    /// Migrates the pages of the oldest inactive reservation, which frees its superpage.
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

    /// Fills the most recently changed reservation that this piece of work has not examined yet.
    fn fill_next(&mut self, at: u16, piece: &mut Visited) -> Ended {
        let first = || self.frames.reservations().newest_partial(QUEUE, None, at);
        let Some(id) = piece.partial.unwrap_or_else(first) else {
            piece.partial = Some(None);
            return Ended::Nothing;
        };
        piece.partial = Some(self.frames.reservations().newest_partial(QUEUE, Some(id), at));
        match self.policy.on(Event::Candidate, &self.facts_of_partial(id)) {
            Action::Populate => {
                let pages = self.fill(id, Payer::Daemon);
                let key = self.frames.reservations().key(id);
                if self.frames.reservations().popcnt(id) == 1 << key.order {
                    return Ended::Done { pages };
                }
                self.frames.mark_bad(id);
                Ended::Unfit
            }
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

    fn prezero(&mut self, order: u8) -> Ended {
        let Some(block) = self.memory.take_unzeroed(order) else { return Ended::Nothing };
        self.memory.put_zeroed(block, order);
        let pages = 1u64 << order;
        self.counters.prezeroed += pages;
        let cost = self.costs.zero_ahead * pages / u64::from(SLOTS);
        self.clock.spend_behind(Cause::Zero, cost);
        Ended::Done { pages: pages as u32 }
    }

    /// Compacts in the background, as kcompactd or as Ingens' periodic compaction.
    fn compact_behind(&mut self, mode: Compaction) -> Ended {
        let before = self.counters.migrated;
        for node in 0..self.memory.nodes() {
            let daemon = |mode| Request { mode, ..Request::daemon(node, LARGE_ORDER) };
            let request = match mode {
                Compaction::Async => daemon(Mode::Async),
                Compaction::SyncLight => daemon(Mode::SyncLight),
                Compaction::Sync => Request::periodic(node),
                Compaction::Proactive => Request::proactive(node),
            };
            self.run_compaction(Payer::Daemon, request);
        }
        Ended::Done { pages: (self.counters.migrated - before) as u32 }
    }

    /// Examines the next superpage: splits it and frees its zero pages, if the policy decides so. Pages that were never
    /// touched count as zeros; no other page is examined.
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
        // A page with contents differs from zero in its first bytes (9 on average); a zero page is read completely.
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

// Watched superpages, which are mapped by base pages in place for a while.

impl System {
    pub(crate) fn watch(&mut self, action: WatchAction) -> Ended {
        match action {
            WatchAction::Begin { most } => self.watch_next(most),
            WatchAction::Visit => self.visit_watched(),
        }
    }

    /// Starts watching the next superpages by address, at most one round.
    fn watch_next(&mut self, most: u32) -> Ended {
        let (all, from) = (self.spaces.region_count(), self.daemons.watches_from().0);
        let mut found = Vec::new();
        for region in (from..all).chain(0..from.min(all)).map(Region) {
            if found.len() as u32 == most {
                break;
            }
            let at = self.spaces.at(region);
            let is_large = self.spaces.is_large(region) && !self.spaces.is_part(region);
            if is_large && !at.has(COW | POOL | RESERVED | ZEROS) {
                found.push(region);
            }
        }
        if found.is_empty() {
            return Ended::Nothing;
        }
        for &region in &found {
            self.demote(region, Payer::Daemon);
            self.counters.demoted -= 1;
            self.spaces.mark(region, WATCHED);
        }
        self.daemons.watch(found);
        Ended::Done { pages: 0 }
    }

    /// Visits the next watched superpage: splits it for good, or maps it as a superpage again.
    fn visit_watched(&mut self) -> Ended {
        let Some(region) = self.daemons.next_watched() else { return Ended::Nothing };
        if !self.spaces.at(region).has(WATCHED) {
            return Ended::Unfit;
        }
        self.spaces.unmark(region, WATCHED);
        self.clock.spend_behind(Cause::Scan, self.costs.scan_page * u64::from(SLOTS));
        let Some(base) = self.whole_again(region) else {
            // Part of the superpage changed while it was watched, so it stays split.
            self.counters.demoted += 1;
            return Ended::Unfit;
        };
        let facts = self.facts_of_watched(region);
        match self.policy.on(Event::Candidate, &facts) {
            Action::Demote => self.counters.demoted += 1,
            _ => {
                self.frames.end_hold(base);
                self.clock.spend_behind(Cause::Map, self.costs.promote);
                self.map_superpage(region, base, true);
            }
        }
        Ended::Done { pages: SLOTS }
    }

    /// Returns the first frame of a region, if all its pages are mapped, unshared, and in one aligned block.
    fn whole_again(&self, region: Region) -> Option<Frame> {
        let at = self.spaces.at(region);
        let is_whole = !self.spaces.is_large(region)
            && *self.spaces.present(region) == [!0; 8]
            && !at.has(COW | RESERVED);
        let first = region.first();
        (is_whole && self.spaces.lies_together(first, LARGE_ORDER))
            .then(|| self.spaces.entry(first).frame())
            .flatten()
            .filter(|&base| !self.frames.is_any_shared(base))
    }

    fn facts_of_watched(&mut self, region: Region) -> Facts {
        let coverage = self.spaces.accessed(region, self.clock.pace().weight);
        let mut facts = self.facts_of_candidate(region);
        facts.extent = Extent { coverage, ..self.extent(region.first(), LARGE_ORDER) };
        facts
    }
}
