//! Converts counts to an estimate: selects the most informative events and combines them. Live counters and files use
//! the same code.

use crate::count::{Count, MissCost, Mode};
use crate::estimate::{Figure, Hits, Missing, Recount};
use crate::events::{self, EventMeaning, Meaning, Side, Table};
use crate::{Estimate, Evidence, Interval, Method, Scope, formula};

/// Minimum number of cycles for a meaningful count. Starting a program (exec, the dynamic loader) takes about a million
/// cycles (inferred from 0.5 ms of `/bin/true` at 2 to 4 GHz).
pub const MIN_CYCLES: f64 = 1e6;

/// Information beyond the counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context<'a> {
    /// Event table of the CPU, if the CPU is known.
    pub table: Option<&'static Table>,
    /// Cost of a miss on the CPU, if known.
    pub cost: Option<&'a MissCost>,
}

/// Returns the best estimate from these counts; if there is none, an unknown estimate with the
/// reason.
pub fn interpret(counts: &[Count], context: Context) -> Estimate {
    let counted = Counted::sort(counts, context);
    let estimate = counted.estimate(context);
    let mut estimate = estimate.with_evidence(counted.evidence());
    estimate.scope = counted.scope();
    (estimate.missing, estimate.recount) = counted.missing(context);
    let note = context.table.and_then(|table| table.note).filter(|_| !counted.usable.is_empty());
    estimate.notes.extend(note.map(String::from));
    estimate.notes.extend(counted.notes());
    estimate
}

/// Cycles with a walk per cycle above which counts are not of one run; counters that take turns are off by less.
const MAX_ACTIVE: f64 = 1.5;

/// Events that count misses, the most informative first.
const MISSES: [Meaning; 4] =
    [Meaning::Walks, Meaning::WalksOfOneSize, Meaning::FirstLevelMisses, Meaning::GenericMisses];
const WALK_CYCLES: [Meaning; 3] = [Meaning::Active, Meaning::Outstanding, Meaning::Stalled];

const DATA: &[Side] = &[Side::Load, Side::Store, Side::Data];
const CODE: &[Side] = &[Side::Fetch];

/// The usable counts with their meanings.
struct Counted<'a> {
    cycles: Vec<&'a Count>,
    usable: Vec<(EventMeaning, &'a Count)>,
}

impl<'a> Counted<'a> {
    fn sort(counts: &'a [Count], context: Context) -> Self {
        let (cycles, others): (Vec<&Count>, Vec<&Count>) =
            counts.iter().partition(|count| count.is_cycles());
        let with_meaning =
            |count: &'a Count| Some((events::meaning_of(&count.name(), context.table)?, count));
        Self { cycles, usable: others.into_iter().filter_map(with_meaning).collect() }
    }

    fn estimate(&self, context: Context) -> Estimate {
        let longest = self.cycles.iter().filter_map(|count| count.value).fold(0.0, f64::max);
        if self.cycles.is_empty() {
            return Estimate::unknown(
                "cycles were not counted; count them together with the misses: perf stat -e cycles,…",
            );
        }
        if self.cycles.iter().all(|count| count.value.is_none()) {
            return Estimate::unknown(
                "cycles were requested but not counted: no performance counter was available",
            );
        }
        if longest < MIN_CYCLES {
            return Estimate::unknown(format!(
                "the program ran for only {longest:.0} cycles, most of them its start; measure a longer \
                 run"
            ));
        }
        if self.usable.iter().all(|(_, count)| count.value.is_none()) {
            return Estimate::unknown(
                "no TLB event was counted; count walk cycles or misses together with cycles",
            );
        }
        let is_comparable =
            |(_, count): &(EventMeaning, &Count)| self.in_mode_of_cycles(count).is_some();
        if !self.usable.iter().any(is_comparable) {
            return Estimate::unknown(
                "TLB events and cycles were counted in different modes; count both in the same: perf stat -e \
                 cycles:u,EVENT:u",
            );
        }
        let is_active = |of: &EventMeaning| of.meaning == Meaning::Active;
        let actives = self.usable.iter().filter(|(of, _)| is_active(of));
        let largest =
            actives.filter_map(|(of, _)| self.rate(of.side, of.meaning)).map(|rate| rate.likely);
        let largest = largest.fold(0.0, f64::max);
        // Counters that take turns estimate; the sum of one kind of walk cannot be far above all cycles.
        if largest > MAX_ACTIVE {
            return Estimate::unknown(format!(
                "cycles with a page walk are {largest:.1} times the cycles: the counts are not of one run"
            ));
        }
        let estimate = self.by_walk_cycles(context).unwrap_or_else(|| self.by_misses(context));
        self.with_hits(estimate, context)
    }

    /// Adds the cost of second-level hits, and removes the bound if it is not known whole: superpages save hits too
    /// (docs/decisions/walk-cost.md#3).
    fn with_hits(&self, estimate: Estimate, context: Context) -> Estimate {
        let price = context.cost.and_then(|cost| cost.second_level_hit);
        let mut unpriced = 0.0;
        let mut is_whole = true;
        let mut parts = [None, None];
        let shares = [estimate.dtlb, estimate.itlb];
        for ((part, share), sides) in parts.iter_mut().zip(shares).zip([DATA, CODE]) {
            if share.is_none() {
                continue;
            }
            let (hits, is_all) = self.hits(sides, context);
            is_whole &= is_all;
            let Some(hits) = hits else { continue };
            match price {
                Some(price) => {
                    *part = hits.share(|rate| Interval::new(0.0, 0.0, (rate * price).min(1.0)));
                    is_whole &= part.is_some();
                }
                None if hits.likely > 0.0 => {
                    unpriced += hits.known;
                    is_whole = false;
                }
                None => {}
            }
        }
        let mut estimate = estimate.with_hits(parts);
        if unpriced > 0.0 {
            estimate = estimate.with_note(format!(
                "{:.3} second-level TLB hits per 1000 cycles have no price, so the speedup has no bound; give the cost of \
                 a hit with --hit-cost CYCLES, or measure it: superpage tlb --save",
                unpriced * 1000.0
            ));
        }
        if let (Some(price), Some(cost), true) =
            (price, context.cost, parts.iter().any(Option::is_some))
        {
            let name = "cost of a second-level hit, cycles";
            estimate.evidence.push(Evidence::new(name, price, &cost.source));
        }
        estimate.hits = estimate.share.map(|_| match is_whole {
            true => Hits::Priced,
            false if unpriced > 0.0 => Hits::Unpriced,
            false => Hits::NotCounted,
        });
        if is_whole { estimate } else { estimate.without_bound() }
    }

    /// Second-level hits of these accesses, and whether these are all.
    fn hits(&self, sides: &[Side], context: Context) -> (Option<Rate>, bool) {
        let counted = |side: Side| {
            let whole = self.rate(side, Meaning::SecondLevelHits).or_else(|| {
                let all = self.rate(side, Meaning::FirstLevelMisses)?;
                Some(all.minus(self.rate(side, Meaning::Walks)?))
            });
            let sizes =
                || Some((self.rate(side, Meaning::HitsOfOneSize)?, self.has_hits_of_all_sizes()));
            whole.map(|rate| (rate, true)).or_else(sizes)
        };
        let sum = |a: (Rate, bool), b: (Rate, bool)| (a.0.plus(b.0), a.1 && b.1);
        let found: Vec<(Rate, bool)> = sides.iter().filter_map(|side| counted(*side)).collect();
        let has = |side| sides.contains(&side) && counted(side).is_some();
        let is_every_side =
            has(Side::Data) || has(Side::Fetch) || (has(Side::Load) && has(Side::Store));
        // First-level misses at the price of a walk have the hits in them.
        let is_in_misses = self.misses_kind(sides, context) == Some(Meaning::FirstLevelMisses);
        match found.into_iter().reduce(sum) {
            Some((rate, is_whole)) => (Some(rate), is_in_misses || (is_whole && is_every_side)),
            None => (None, is_in_misses),
        }
    }

    /// Whether hits were counted for every page size of AMD's event.
    fn has_hits_of_all_sizes(&self) -> bool {
        let counted = |size: &str| {
            let name = format!("ls_l1_d_tlb_miss.tlb_reload_{size}_hit");
            self.usable.iter().any(|(_, count)| count.value.is_some() && count.name() == name)
        };
        let merged = ["coalesced_page", "32k_l2", "16k_l2"].into_iter().any(counted);
        merged && ["4k_l2", "2m_l2", "1g_l2"].into_iter().all(counted)
    }

    /// Estimates from walk cycles, if they were counted.
    fn by_walk_cycles(&self, context: Context) -> Option<Estimate> {
        // If the number of walkers is unknown, assume four, the maximum of all tables, so that the lower bound holds.
        let walkers = context.table.map_or(4, |table| table.walkers);
        let (data, fetch) = (self.walk_share(DATA, walkers), self.walk_share(CODE, walkers));
        let mut estimate = match (data, fetch) {
            (None, None) => return None,
            (data, fetch) => Estimate::from_parts(Method::PmuWalkCycles, data, fetch),
        };
        let nested = self.rate(Side::Nested, Meaning::Outstanding).filter(|rate| rate.likely > 0.0);
        if let (Some(share), Some(rate)) = (estimate.share, nested) {
            let host = rate.share(|rate| formula::outstanding(rate, 1.0, walkers))?;
            estimate = Estimate {
                share: Some(share.and(host)),
                gain: Some(formula::gain(share.and(host))),
                ..estimate
            }
            .with_note("includes walks of the host's page tables, for data and code together");
        }
        let meanings = [Meaning::Active, Meaning::Outstanding];
        estimate = match data {
            Some(_) => self.without_uncounted(estimate, "walks for", &meanings),
            None => estimate.without_bound(),
        };
        for (sides, name) in [(DATA, "cycles of a data walk"), (CODE, "cycles of a code walk")] {
            let found = self.cycles_per_walk(sides);
            estimate = estimate
                .with_evidence(found.map(|(cost, source)| Evidence::new(name, cost, source)));
        }
        let sums = self.has(Meaning::Outstanding) && !self.has(Meaning::Active);
        if sums && context.table.is_none() {
            estimate = estimate.with_note(
                "the events add up concurrent walks; the processor is unknown, so up to four at a time \
                 are assumed",
            );
        }
        Some(estimate)
    }

    /// Adds a note and removes the speedup bound if loads or stores were not counted.
    fn without_uncounted(
        &self,
        mut estimate: Estimate,
        what: &str,
        meanings: &[Meaning],
    ) -> Estimate {
        let counted = |side| meanings.iter().any(|meaning| self.rate(side, *meaning).is_some());
        for (side, whose) in [(Side::Load, "loads"), (Side::Store, "stores")] {
            if !counted(side) && !counted(Side::Data) {
                let note = format!("{what} {whose} were not counted");
                estimate = estimate.without_bound().with_note(note);
            }
        }
        estimate
    }

    /// Mean number of cycles per walk of these accesses. Uses walk cycles summed over concurrent walks if available,
    /// otherwise cycles with any walk in progress, which give a lower bound.
    fn cycles_per_walk(&self, sides: &[Side]) -> Option<(f64, &'static str)> {
        let both = |meaning| {
            let of =
                |side: &Side| Some((self.rate(*side, meaning)?, self.rate(*side, Meaning::Walks)?));
            let pairs = sides.iter().filter_map(of);
            let (cycles, walks) =
                pairs.fold((0.0, 0.0), |sum, it| (sum.0 + it.0.likely, sum.1 + it.1.likely));
            (cycles > 0.0 && walks > 0.0).then(|| cycles / walks)
        };
        let summed = both(Meaning::Outstanding).map(|cost| (cost, "cycles of walks / walks"));
        summed.or_else(|| {
            both(Meaning::Active).map(|cost| (cost, "cycles with a walk / walks, at least"))
        })
    }

    /// Share of time with a walk of these accesses in progress, from the most informative event of each side.
    fn walk_share(&self, sides: &[Side], walkers: u32) -> Option<Interval> {
        let rates = |meaning| sides.iter().filter_map(move |side| self.rate(*side, meaning));
        let share = |rate: Rate| rate.share(|rate| formula::active(rate, 1.0));
        let active = rates(Meaning::Active).filter_map(share).reduce(Interval::and);
        let others = sides.iter().filter(|side| self.rate(**side, Meaning::Active).is_none());
        let sums = others.filter_map(|side| self.rate(*side, Meaning::Outstanding));
        let sum = sums.reduce(Rate::plus);
        // A core that lacks the event counts zero even if there are walks.
        let walks = rates(Meaning::Walks).any(|rate| rate.likely > 0.0);
        let sum = sum.filter(|sum| sum.likely > 0.0 || !walks);
        let outstanding =
            sum.and_then(|sum| sum.share(|rate| formula::outstanding(rate, 1.0, walkers)));
        if let Some(together) = active.into_iter().chain(outstanding).reduce(Interval::and) {
            return Some(together);
        }
        share(rates(Meaning::Stalled).reduce(Rate::plus).filter(|rate| rate.likely > 0.0)?)
    }

    fn by_misses(&self, context: Context) -> Estimate {
        let Some((cost, walk)) = context.cost.and_then(|cost| Some((cost, cost.walk?))) else {
            return Estimate::unknown(
                "misses were counted, but the cost of a miss is unknown; give it with --cost CYCLES, or \
                 measure it: superpage tlb --save",
            );
        };
        let (data, fetch) = (self.misses(DATA, context), self.misses(CODE, context));
        let both = [data, fetch].into_iter().flatten();
        let of_walk = Evidence::new("cost of a walk, cycles", walk, &cost.source);
        // Check the sum too, because each part alone may look plausible although the cost is too
        // high.
        let sum = both.map(|(rate, _)| rate.likely).sum();
        if let Err(above) = formula::misses_times_cost(sum, walk, 1.0) {
            return Estimate::unknown(above.to_string()).with_evidence([of_walk]);
        }
        // First-level misses are walks at most: those that hit the second level cost less.
        let priced = |rate: f64, of: Meaning| {
            let most = formula::active(rate * walk, 1.0)?;
            let low = if of == Meaning::FirstLevelMisses { 0.0 } else { most.low() };
            Interval::new(low, most.mid(), most.high())
        };
        let share = |part: Option<(Rate, Meaning)>| {
            part.and_then(|(rate, of)| rate.share(|rate| priced(rate, of)))
        };
        let mut estimate =
            Estimate::from_parts(Method::PmuMissesTimesCost, share(data), share(fetch));
        if estimate.share.is_none() {
            return estimate;
        }
        if data.is_some() {
            estimate = self.without_uncounted(estimate, "misses of", &MISSES);
        }
        if cost.is_of_cached_tables {
            estimate = estimate.without_bound().with_note(
                "the cost of a walk is of page tables in the caches, as `superpage tlb` measures it; those of much memory are \
                 not, and cost more",
            );
        }
        estimate.evidence.push(of_walk);
        if context.table.is_none()
            && [data, fetch].into_iter().flatten().any(|(_, of)| of == Meaning::GenericMisses)
        {
            estimate = estimate.with_note(
                "the kernel's generic events count page walks on Intel, but first-level misses on AMD \
                 and Arm: give the cost of what was counted",
            );
        }
        estimate
    }

    /// Misses of these accesses, and what was counted of them.
    fn misses(&self, sides: &[Side], context: Context) -> Option<(Rate, Meaning)> {
        let of = self.misses_kind(sides, context)?;
        // The generic events of a known CPU have another name for their meaning.
        let rate =
            |meaning| sides.iter().filter_map(|side| self.rate(*side, meaning)).reduce(Rate::plus);
        Some((rate(of).or_else(|| rate(Meaning::GenericMisses))?, of))
    }

    /// What the events count that tell most of the misses of these accesses.
    fn misses_kind(&self, sides: &[Side], context: Context) -> Option<Meaning> {
        let has = |meaning: &Meaning| sides.iter().any(|side| self.rate(*side, *meaning).is_some());
        let of = MISSES.into_iter().find(has)?;
        // Zen and Arm cores, whose tables begin with walks, count first-level misses.
        let first = context.table.map(|table| table.groups[0][0].meaning.meaning);
        Some(match (of, first) {
            (Meaning::GenericMisses, Some(Meaning::Walks)) => Meaning::FirstLevelMisses,
            (Meaning::GenericMisses, Some(_)) => Meaning::Walks,
            (of, _) => of,
        })
    }

    /// Number of events of this kind per cycle, preferably with cycles from the same group. An event that was counted
    /// in several groups is used once, because the counts estimate the same number.
    fn rate(&self, side: Side, meaning: Meaning) -> Option<Rate> {
        let of_kind = self.usable.iter().filter(|(of, _)| *of == EventMeaning { side, meaning });
        let mut rates: Vec<(String, Rate)> = Vec::new();
        for (_, count) in of_kind {
            let name = count.name();
            if rates.iter().any(|(seen, _)| *seen == name) {
                continue;
            }
            if let Some(mode) = self.in_mode_of_cycles(count)
                && let Some((value, group)) = self.in_mode(&name, mode)
                && let Some(cycles) = self.cycles_of(group, mode)
            {
                let gap = count.gap.as_ref().map_or(0.0, |gap| gap.cycles);
                rates.push((name, Rate::new(value / cycles, gap)));
            }
        }
        let summed = rates.iter().map(|(_, rate)| rate).copied();
        // Do not add the counts of two names of the same event (walk_completed and
        // miss_causes_a_walk).
        match meaning {
            Meaning::WalksOfOneSize | Meaning::HitsOfOneSize => summed.reduce(Rate::plus),
            _ => summed.reduce(|a, b| if b.likely > a.likely { b } else { a }),
        }
        .filter(|rate| rate.likely.is_finite())
    }

    fn has(&self, meaning: Meaning) -> bool {
        self.usable.iter().any(|(of, count)| of.meaning == meaning && count.value.is_some())
    }

    /// Returns the mode in which both the event and cycles were counted.
    fn in_mode_of_cycles(&self, count: &Count) -> Option<Mode> {
        let name = count.name();
        let is_whole = |mode: &Mode| {
            self.in_mode(&name, *mode)
                .is_some_and(|(_, group)| self.cycles_of(group, *mode).is_some())
        };
        Mode::ALL.into_iter().find(is_whole)
    }

    /// Returns count and group of an event in a mode. Adds separate counts in user and kernel mode.
    fn in_mode(&self, name: &str, mode: Mode) -> Option<(f64, u32)> {
        let of = |mode| {
            let counts = self.usable.iter().map(|(_, count)| count);
            let mut counts = counts.filter(|count| count.mode() == mode && count.name() == name);
            counts.find_map(|count| Some((count.value?, count.group)))
        };
        let apart = || {
            let ((user, group), (kernel, _)) = of(Mode::User).zip(of(Mode::Kernel))?;
            Some((user + kernel, group))
        };
        of(mode).or_else(|| apart().filter(|_| mode == Mode::Both))
    }

    /// Returns the number of cycles in a mode, preferably from this group.
    fn cycles_of(&self, group: u32, mode: Mode) -> Option<f64> {
        let of = |mode| {
            let known = || {
                let counts = self.cycles.iter().filter(move |count| count.mode() == mode);
                counts.filter(|count| count.value.is_some_and(|cycles| cycles > 0.0))
            };
            let own = known().find(|count| count.group == group);
            own.or_else(|| known().next())?.value
        };
        let apart = || of(Mode::User).zip(of(Mode::Kernel)).map(|(user, kernel)| user + kernel);
        of(mode).or_else(|| apart().filter(|_| mode == Mode::Both))
    }

    /// Returns which cycles the shares refer to.
    fn scope(&self) -> Option<Scope> {
        let of_usable = self.usable.iter().filter_map(|(_, count)| self.in_mode_of_cycles(count));
        let of_usable: Vec<Mode> = of_usable.collect();
        let of_cycles = || self.cycles.iter().map(|count| count.mode()).collect();
        let modes: Vec<Mode> = if of_usable.is_empty() { of_cycles() } else { of_usable };
        let is_all = |mode: Mode| !modes.is_empty() && modes.iter().all(|one| *one == mode);
        match (is_all(Mode::Both), is_all(Mode::User)) {
            (true, _) => Some(Scope::UserAndKernel),
            (_, true) => Some(Scope::User),
            (false, false) => None,
        }
    }

    /// Returns notes about counts that are ignored because cycles were not counted in the same
    /// mode.
    fn skipped_counts(&self) -> impl Iterator<Item = String> {
        let is_any_known = Mode::ALL.into_iter().any(|mode| self.cycles_of(0, mode).is_some());
        let counts = self.usable.iter().map(|(_, count)| *count).filter(move |_| is_any_known);
        let skipped_counts = counts.filter(|count| {
            let (mode, own) = (self.in_mode_of_cycles(count), count.mode());
            count.value.is_some() && mode != Some(own) && mode != Some(Mode::Both)
        });
        skipped_counts.map(|count| {
            format!("{} was counted in {}, cycles were not", count.event, count.mode().in_words())
        })
    }

    fn evidence(&self) -> impl Iterator<Item = Evidence> {
        let counts = self.cycles.iter().copied().chain(self.usable.iter().map(|(_, count)| *count));
        counts.filter_map(|count| {
            let (name, source) = (count.event.clone(), count.source.clone());
            let gap = count.gap.as_ref().map(|gap| gap.cycles);
            Some(Evidence { name, value: count.value?, counted: count.counted, gap, source })
        })
    }

    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.skipped_counts().collect();
        let counts =
            || self.usable.iter().map(|(_, count)| *count).chain(self.cycles.iter().copied());
        let least = counts().filter(|count| count.value.is_some()).filter_map(|c| c.counted);
        let least = least.fold(1.0, f64::min);
        if least < 0.995 {
            notes.push(format!(
                "more events than counters: the least counted event ran {:.0} % of the time, and was \
                 scaled up",
                least * 100.0
            ));
        }
        for (count, gap) in counts().filter_map(|count| Some((count, count.gap.as_ref()?))) {
            let (missing, all) = gap.parts;
            notes.push(format!(
                "{} was not counted in {missing} of {all} parts of the run (first: {}), with {:.0} % of the cycles: \
                 the bounds hold whatever it did there, the middle takes these parts for like the others",
                count.event,
                if gap.first.is_empty() { "without a name" } else { &gap.first },
                gap.cycles * 100.0
            ));
        }
        let missing: Vec<&str> =
            counts().filter(|count| count.value.is_none()).map(|c| c.event.as_str()).collect();
        if !missing.is_empty() {
            notes.push(format!("not counted: {}", missing.join(", ")));
        }
        notes
    }
}

/// Events per cycle.
#[derive(Clone, Copy, Debug)]
struct Rate {
    /// Counted events per cycle of the run: a lower bound if there is a gap.
    known: f64,
    /// The same of the cycles in which the events were counted.
    likely: f64,
    /// Share of the cycles in which the events were not counted.
    gap: f64,
}

impl Rate {
    fn new(known: f64, gap: f64) -> Self {
        Self { known, likely: known / (1.0 - gap), gap }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            known: self.known + other.known,
            likely: self.likely + other.likely,
            gap: (self.gap + other.gap).min(1.0),
        }
    }

    /// The rest of these events; the counts of both may be estimates, so that the rest may be below zero.
    fn minus(self, other: Self) -> Self {
        Self {
            known: (self.known - other.known).max(0.0),
            likely: (self.likely - other.likely).max(0.0),
            gap: (self.gap + other.gap).min(1.0),
        }
    }

    /// Applies a formula that gives a share of the time. The events take between none and all of the time in which they
    /// were not counted.
    fn share(self, formula: impl Fn(f64) -> Option<Interval>) -> Option<Interval> {
        let (known, likely) = (formula(self.known)?, formula(self.likely)?);
        if self.gap == 0.0 {
            return Some(known);
        }
        let high = (known.high() + self.gap).min(1.0);
        Interval::new(known.low(), likely.mid().clamp(known.low(), high), high)
    }
}

// What is missing, and how to count it.

impl Counted<'_> {
    /// Returns the events that are missing for each figure, and the commands that count all.
    fn missing(&self, context: Context) -> (Vec<Missing>, Vec<Recount>) {
        let has =
            |side| MISSES.into_iter().chain(WALK_CYCLES).any(|of| self.rate(side, of).is_some());
        let has_cycles = self.cycles.iter().any(|count| count.value.is_some());
        let has_data = has(Side::Data) || (has(Side::Load) && has(Side::Store));
        let has_code = has(Side::Fetch);
        let has_hits = self.hits(DATA, context).1 && (!has_code || self.hits(CODE, context).1);
        let figures = [
            (Figure::Share, has_cycles),
            (Figure::Data, has_data),
            (Figure::Code, has_code),
            (Figure::Bound, has_hits),
        ];
        if figures.iter().all(|(_, has)| *has) {
            return (Vec::new(), Vec::new());
        }
        let (mut missing, mut recount) = (Vec::new(), Vec::new());
        for table in self.tables(context) {
            let (walks, hits) = events_of(table);
            let of = |events: &[&'static events::Event], sides: &[Side]| -> Vec<&'static str> {
                events
                    .iter()
                    .filter(|event| sides.contains(&event.meaning.side))
                    .map(|event| event.name)
                    .collect()
            };
            let both = [DATA, CODE].concat();
            for (figure, _) in figures.into_iter().filter(|(_, has)| !has) {
                let wanted = match figure {
                    Figure::Share => vec!["cycles"],
                    Figure::Data => of(&walks, DATA),
                    Figure::Code => of(&walks, CODE),
                    Figure::Bound => of(&hits, &both),
                };
                let is_counted = |name: &&str| {
                    self.usable
                        .iter()
                        .any(|(_, count)| count.value.is_some() && count.name() == **name)
                };
                let events =
                    wanted.into_iter().filter(|name| !is_counted(name)).map(String::from).collect();
                missing.push(Missing { figure, processor: table.name.to_string(), events });
            }
            let all = [vec!["cycles"], of(&walks, &both), of(&hits, &both)].concat();
            let modifiers = self.cycles.first().map_or("", |count| events::modifiers(&count.event));
            let name = |event: &str| match modifiers {
                "" => event.to_string(),
                modifiers => format!("{event}:{modifiers}"),
            };
            let all: Vec<String> = all.into_iter().map(name).collect();
            let command = format!("perf stat -e {}", all.join(","));
            recount.push(Recount { processor: table.name.to_string(), command });
        }
        (missing, recount)
    }

    /// The table of the CPU; if it is unknown, the one that has most of the counted events, else one of each vendor of
    /// x86 CPUs.
    fn tables(&self, context: Context) -> Vec<&'static Table> {
        let names: Vec<String> = self.usable.iter().map(|(_, count)| count.name()).collect();
        let of = |table: &&'static Table| {
            let mut events = table.groups.iter().copied().flatten();
            names.iter().filter(|name| events.any(|event| event.name == **name)).count()
        };
        let named = |name: &str| events::tables().find(|table| table.name == name);
        // Later tables of Intel's have the names of Skylake's.
        let best = || {
            events::tables().fold(None, |best: Option<&'static Table>, table| {
                let most = best.map_or(0, |best| of(&best));
                if of(&table) > most { Some(table) } else { best }
            })
        };
        let by_prefix = || {
            let starts = |prefixes: [&str; 2]| {
                names.iter().any(|name| prefixes.iter().any(|one| name.starts_with(one)))
            };
            match (
                starts(["ls_l1_", "bp_l1_"]),
                starts(["dtlb_load_misses.", "dtlb_store_misses."]),
            ) {
                (true, _) => named("Zen 3 to 5"),
                (_, true) => named("Skylake"),
                _ => None,
            }
        };
        let found = context.table.or_else(best).or_else(by_prefix);
        found.map_or_else(
            || ["Skylake", "Zen 3 to 5"].into_iter().filter_map(named).collect(),
            |table| vec![table],
        )
    }
}

/// The events of walks that give a share of time, and those of second-level hits.
fn events_of(table: &'static Table) -> (Vec<&'static events::Event>, Vec<&'static events::Event>) {
    let first = table.groups[0][0].meaning.meaning;
    let all = || table.groups.iter().copied().flatten();
    let walks = all().filter(|event| event.meaning.meaning == first).collect();
    let hits = [Meaning::SecondLevelHits, Meaning::FirstLevelMisses];
    (walks, all().filter(|event| hits.contains(&event.meaning.meaning)).collect())
}

#[cfg(test)]
mod tests;
