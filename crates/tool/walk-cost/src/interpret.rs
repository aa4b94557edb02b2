//! Converts counts to an estimate: selects the most informative events and combines them. Live counters and files use
//! the same code.

use crate::count::{Count, MissCost, Mode};
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
    let note = context.table.and_then(|table| table.note).filter(|_| !counted.usable.is_empty());
    estimate.notes.extend(note.map(String::from));
    estimate.notes.extend(counted.notes());
    estimate
}

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
        self.by_walk_cycles(context).unwrap_or_else(|| self.by_misses(context))
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
        let nested = self.rate(Side::Nested, Meaning::Outstanding).filter(|rate| *rate > 0.0);
        if let (Some(share), Some(rate)) = (estimate.share, nested) {
            let host = formula::outstanding(rate, 1.0, walkers)?;
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
            let (cycles, walks) = pairs.fold((0.0, 0.0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
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
        let active = rates(Meaning::Active).filter_map(|rate| formula::active(rate, 1.0));
        let active = active.reduce(Interval::and);
        let others = sides.iter().filter(|side| self.rate(**side, Meaning::Active).is_none());
        let sums = others.filter_map(|side| self.rate(*side, Meaning::Outstanding));
        let sum = sums.reduce(|a, b| a + b);
        // A core that lacks the event counts zero even if there are walks.
        let walks = rates(Meaning::Walks).sum::<f64>() > 0.0;
        let sum = sum.filter(|sum| *sum > 0.0 || !walks);
        let outstanding = sum.and_then(|sum| formula::outstanding(sum, 1.0, walkers));
        if let Some(together) = active.into_iter().chain(outstanding).reduce(Interval::and) {
            return Some(together);
        }
        let stalled = rates(Meaning::Stalled).reduce(|a, b| a + b).filter(|rate| *rate > 0.0);
        formula::active(stalled?, 1.0)
    }

    fn by_misses(&self, context: Context) -> Estimate {
        let Some(cost) = context.cost else {
            return Estimate::unknown(
                "misses were counted, but the cost of a miss is unknown; give it with --cost CYCLES, or \
                 measure it: superpage tlb --save",
            );
        };
        let (data, fetch) = (self.misses(DATA, cost), self.misses(CODE, cost));
        let both = [data, fetch].into_iter().flatten();
        let of_walk = Evidence::new("cost of a walk, cycles", cost.walk, &cost.source);
        // Check the sum too, because each part alone may look plausible although the cost is too
        // high.
        if let Err(above) = formula::misses_times_cost(both.map(|part| part.cost).sum(), 1.0, 1.0) {
            return Estimate::unknown(above.to_string()).with_evidence([of_walk]);
        }
        let share = |part: Option<Misses>| part.and_then(|part| formula::active(part.cost, 1.0));
        let mut estimate =
            Estimate::from_parts(Method::PmuMissesTimesCost, share(data), share(fetch));
        if estimate.share.is_none() {
            return estimate;
        }
        if let Some(data) = data {
            estimate = self.without_uncounted(estimate, "misses of", &[data.of]);
        }
        if cost.is_of_cached_tables {
            estimate = estimate.without_bound().with_note(
                "the cost of a walk is of page tables in the caches, as `superpage tlb` measures it; those of much memory are \
                 not, and cost more",
            );
        }
        estimate.evidence.push(of_walk);
        if let Some(hit) = cost.second_level_hit {
            let name = "cost of a second-level hit, cycles";
            estimate.evidence.push(Evidence::new(name, hit, &cost.source));
        }
        if [data, fetch].into_iter().flatten().any(|part| part.of == Meaning::FirstLevelMisses) {
            estimate = estimate.with_note(
                "the kernel's generic events count page walks on Intel, but first-level misses on AMD \
                 and Arm: give the cost of what was counted",
            );
        }
        estimate
    }

    fn misses(&self, sides: &[Side], cost: &MissCost) -> Option<Misses> {
        let rate = |meaning| {
            let rates = sides.iter().filter_map(|side| self.rate(*side, meaning));
            rates.reduce(|a, b| a + b)
        };
        let hits = rate(Meaning::SecondLevelHits).or_else(|| rate(Meaning::HitsOfOneSize));
        let hits = hits.zip(cost.second_level_hit).map_or(0.0, |(rate, hit)| rate * hit);
        let walks = [Meaning::Walks, Meaning::WalksOfOneSize];
        if let Some((of, walks)) = walks.into_iter().find_map(|of| Some((of, rate(of)?))) {
            return Some(Misses { cost: walks * cost.walk + hits, of });
        }
        let of = Meaning::FirstLevelMisses;
        Some(Misses { cost: rate(of)? * cost.walk, of })
    }

    /// Number of events of this kind per cycle, preferably with cycles from the same group. An event that was counted
    /// in several groups is used once, because the counts estimate the same number.
    fn rate(&self, side: Side, meaning: Meaning) -> Option<f64> {
        let of_kind = self.usable.iter().filter(|(of, _)| *of == EventMeaning { side, meaning });
        let mut rates: Vec<(String, f64)> = Vec::new();
        for (_, count) in of_kind {
            let name = count.name();
            if rates.iter().any(|(seen, _)| *seen == name) {
                continue;
            }
            if let Some(mode) = self.in_mode_of_cycles(count)
                && let Some((value, group)) = self.in_mode(&name, mode)
                && let Some(cycles) = self.cycles_of(group, mode)
            {
                rates.push((name, value / cycles));
            }
        }
        let summed = rates.iter().map(|(_, rate)| rate).copied();
        // Do not add the counts of two names of the same event (walk_completed and
        // miss_causes_a_walk).
        match meaning {
            Meaning::WalksOfOneSize | Meaning::HitsOfOneSize => summed.reduce(|a, b| a + b),
            _ => summed.reduce(f64::max),
        }
        .filter(|rate| rate.is_finite())
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
            Some(Evidence { name, value: count.value?, counted: count.counted, source })
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
        let missing: Vec<&str> =
            counts().filter(|count| count.value.is_none()).map(|c| c.event.as_str()).collect();
        if !missing.is_empty() {
            notes.push(format!("not counted: {}", missing.join(", ")));
        }
        notes
    }
}

/// Cost of the misses of one side.
#[derive(Clone, Copy)]
struct Misses {
    cost: f64,
    /// Meaning of the events that counted the misses.
    of: Meaning,
}

#[cfg(test)]
mod tests;
