//! From counts to an estimate: which of the counted events say most, and what they say together.
//! Pure; called for live counters and for files alike.

use crate::count::{Count, MissCost};
use crate::events::{self, Meaning, Says, Side, Table};
use crate::{Estimate, Evidence, Interval, Method, Scope, formula};

/// Cycles under which a count says nothing of a program: starting one (exec, the dynamic loader)
/// takes about a million (inferred from 0.5 ms of `/bin/true` at 2 to 4 GHz).
pub const MIN_CYCLES: f64 = 1e6;

/// What the counts alone do not say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context<'a> {
    /// The processor's table, if it is known whose counts these are.
    pub table: Option<&'static Table>,
    /// What a miss costs there, if that is known.
    pub cost: Option<&'a MissCost>,
}

/// The estimate these counts allow; unknown, with the reason, where they allow none.
pub fn interpret(counts: &[Count], context: Context) -> Estimate {
    let counted = Counted::sort(counts, context);
    let estimate = counted.estimate(context);
    let mut estimate = estimate.with_evidence(counted.evidence());
    estimate.scope = counted.scope();
    let note = context.table.and_then(|table| table.note).filter(|_| !counted.said.is_empty());
    estimate.notes.extend(note.map(String::from));
    estimate.notes.extend(counted.notes());
    estimate
}

const DATA: &[Side] = &[Side::Load, Side::Store, Side::Data];
const CODE: &[Side] = &[Side::Fetch];

/// The counts that say something, by what they say.
struct Counted<'a> {
    cycles: Vec<&'a Count>,
    said: Vec<(Says, &'a Count)>,
}

impl<'a> Counted<'a> {
    fn sort(counts: &'a [Count], context: Context) -> Self {
        let (cycles, others): (Vec<&Count>, Vec<&Count>) =
            counts.iter().partition(|count| count.is_cycles());
        let says = |count: &'a Count| Some((events::says(&count.name(), context.table)?, count));
        Self { cycles, said: others.into_iter().filter_map(says).collect() }
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
        if self.said.iter().all(|(_, count)| count.value.is_none()) {
            return Estimate::unknown(
                "no TLB event was counted; count walk cycles or misses together with cycles",
            );
        }
        self.by_walk_cycles(context).unwrap_or_else(|| self.by_misses(context))
    }

    /// From cycles of walks, where the processor counts them.
    fn by_walk_cycles(&self, context: Context) -> Option<Estimate> {
        // Unknown walkers: four, the most of any table here, so that the lower bound holds.
        let walkers = context.table.map_or(4, |table| table.walkers);
        let (data, fetch) = (self.busy(DATA, walkers), self.busy(CODE, walkers));
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
        for (side, what) in [(Side::Load, "loads"), (Side::Store, "stores")] {
            let counted = |side| {
                [Meaning::Active, Meaning::Outstanding]
                    .iter()
                    .any(|meaning| self.rate(side, *meaning).is_some())
            };
            if data.is_some() && !counted(side) && !counted(Side::Data) {
                estimate = estimate.with_note(format!("walks for {what} were not counted"));
            }
        }
        for (sides, name) in [(DATA, "cycles of a data walk"), (CODE, "cycles of a code walk")] {
            let found = self.of_a_walk(sides);
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

    /// How long a walk for one of these took: the cycles of walks that overlap are summed where the processor sums
    /// them, else those in which any was under way, which is less.
    fn of_a_walk(&self, sides: &[Side]) -> Option<(f64, &'static str)> {
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

    /// The time in which a walk for one of these was under way.
    fn busy(&self, sides: &[Side], walkers: u32) -> Option<Interval> {
        let rates = |meaning| sides.iter().filter_map(move |side| self.rate(*side, meaning));
        let active = rates(Meaning::Active).filter_map(|rate| formula::active(rate, 1.0));
        if let Some(together) = active.reduce(Interval::and) {
            return Some(together);
        }
        let sum = rates(Meaning::Outstanding).reduce(|a, b| a + b);
        // A core that does not have the event counts zero of it, even while it walks.
        let walks = rates(Meaning::Walks).sum::<f64>() > 0.0;
        let sum = sum.filter(|sum| *sum > 0.0 || !walks);
        if let Some(sum) = sum {
            return formula::outstanding(sum, 1.0, walkers);
        }
        let stalled = rates(Meaning::Stalled).reduce(|a, b| a + b).filter(|rate| *rate > 0.0);
        formula::active(stalled?, 1.0)
    }

    /// From misses times what one costs.
    fn by_misses(&self, context: Context) -> Estimate {
        let Some(cost) = context.cost else {
            return Estimate::unknown(
                "misses were counted, but the cost of a miss is unknown; give it with --cost CYCLES, or \
                 measure it: superpage tlb --save",
            );
        };
        let (data, fetch) = (self.misses(DATA, cost), self.misses(CODE, cost));
        let share = |part: Option<Misses>| part.and_then(|part| formula::active(part.cost, 1.0));
        let mut estimate =
            Estimate::from_parts(Method::PmuMissesTimesCost, share(data), share(fetch));
        if estimate.share.is_none() {
            return estimate;
        }
        if cost.is_of_cached_tables {
            if let Some(gain) = &mut estimate.gain {
                gain.speedup_at_most = None;
            }
            estimate = estimate.with_note(
                "the cost of a walk is of page tables in the caches, as `superpage tlb` measures it; those of much memory are \
                 not, and cost more",
            );
        }
        estimate.evidence.push(Evidence::new("cost of a walk, cycles", cost.walk, &cost.source));
        if let Some(hit) = cost.second_level_hit {
            let name = "cost of a second-level hit, cycles";
            estimate.evidence.push(Evidence::new(name, hit, &cost.source));
        }
        if [data, fetch].into_iter().flatten().any(|part| part.of_first_level) {
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
        let walks = rate(Meaning::Walks).or_else(|| rate(Meaning::WalksOfOneSize));
        let hits = rate(Meaning::SecondLevelHits).or_else(|| rate(Meaning::HitsOfOneSize));
        let hits = hits.zip(cost.second_level_hit).map_or(0.0, |(rate, hit)| rate * hit);
        match walks {
            Some(walks) => Some(Misses { cost: walks * cost.walk + hits, of_first_level: false }),
            None => {
                let misses = rate(Meaning::FirstLevelMisses)?;
                Some(Misses { cost: misses * cost.walk, of_first_level: true })
            }
        }
    }

    /// Events of this kind per cycle, the cycles being those of the same group where it has them.
    /// An event that was counted in several groups is taken once: they are estimates of one number.
    fn rate(&self, side: Side, meaning: Meaning) -> Option<f64> {
        let of_kind = self.said.iter().filter(|(says, _)| *says == Says { side, meaning });
        let mut rates: Vec<(String, f64)> = Vec::new();
        for (_, count) in of_kind {
            let (Some(value), Some(cycles)) = (count.value, self.cycles_of(count)) else {
                continue;
            };
            let name = count.name();
            if rates.iter().all(|(seen, _)| *seen != name) {
                rates.push((name, value / cycles));
            }
        }
        let summed = rates.iter().map(|(_, rate)| rate).copied();
        // Two names of one thing (walk_completed and miss_causes_a_walk) are not added either.
        match meaning {
            Meaning::WalksOfOneSize | Meaning::HitsOfOneSize => summed.reduce(|a, b| a + b),
            _ => summed.reduce(f64::max),
        }
        .filter(|rate| rate.is_finite())
    }

    fn has(&self, meaning: Meaning) -> bool {
        self.said.iter().any(|(says, count)| says.meaning == meaning && count.value.is_some())
    }

    fn cycles_of(&self, count: &Count) -> Option<f64> {
        let known = || self.cycles.iter().filter(|cycles| cycles.value.is_some());
        let own = known().find(|cycles| cycles.group == count.group);
        own.or_else(|| known().next())?.value.filter(|cycles| *cycles > 0.0)
    }

    fn scope(&self) -> Option<Scope> {
        let counts =
            || self.said.iter().map(|(_, count)| *count).chain(self.cycles.iter().copied());
        match (counts().any(Count::is_user_only), counts().all(Count::is_user_only)) {
            (true, true) => Some(Scope::User),
            (false, _) if counts().next().is_some() => Some(Scope::UserAndKernel),
            _ => None,
        }
    }

    fn evidence(&self) -> impl Iterator<Item = Evidence> {
        let counts = self.cycles.iter().copied().chain(self.said.iter().map(|(_, count)| *count));
        counts.filter_map(|count| {
            let (name, source) = (count.event.clone(), count.source.clone());
            Some(Evidence { name, value: count.value?, counted: count.counted, source })
        })
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let counts =
            || self.said.iter().map(|(_, count)| *count).chain(self.cycles.iter().copied());
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

/// What the misses of one part cost per cycle.
#[derive(Clone, Copy)]
struct Misses {
    cost: f64,
    of_first_level: bool,
}

#[cfg(test)]
mod tests;
