//! Output for scripts: `NAME=value` lines in the style of libhugetlbfs' tlbmiss_cost.sh. Unmeasured values are omitted.

use std::fmt::Write;

use crate::agree::Cost;
use crate::backing::Verdict;
use crate::document::Calibration;

impl Calibration {
    /// Formats the lines. `TLB_MISS_COST` is the number of core cycles by which an access to a base page that misses
    /// all levels is slower than a first-level hit.
    pub fn to_variables(&self) -> String {
        let mut out = String::new();
        let mut line = |name: &str, value: Option<f64>| {
            if let Some(value) = value.filter(|value| value.is_finite()) {
                let _ = writeln!(out, "{name}={}", value.round());
            }
        };
        // A cost and its confidence interval.
        let mut cost = |name: &str, cost: Option<&Cost>| {
            let end = |of: fn((f64, f64)) -> f64| cost.and_then(|cost| cost.interval.map(of));
            line(name, cost.map(|cost| cost.cycles));
            line(&format!("{name}_LOW"), end(|(low, _)| low));
            line(&format!("{name}_HIGH"), end(|(_, high)| high));
        };
        let base = self.base();
        let level = |index: usize| base.and_then(|base| base.levels.get(index));
        cost("TLB_MISS_COST", base.and_then(|base| base.miss.as_ref()));
        cost("TLB_L2_HIT_COST", level(1).and_then(|level| level.hit.as_ref()));
        for size in self.sizes.iter().filter(|size| size.page != self.base_page) {
            cost(&format!("TLB_MISS_COST_{}K", size.page.bytes() >> 10), size.miss.as_ref());
        }
        let miss = base.and_then(|base| base.miss.as_ref()).map(|cost| cost.cycles);
        let hit = level(1).and_then(|level| level.hit.as_ref()).map(|cost| cost.cycles);
        let hertz = self.clock.core_mhz * 1e6;
        line("MISSES_COST_ONE_SECOND", miss.filter(|cycles| *cycles > 0.0).map(|it| hertz / it));
        let code = self.instructions.iter().find(|size| size.page == self.base_page);
        let code = code.and_then(|code| code.levels.first());
        for (number, level) in [("1", level(0)), ("2", level(1)), ("1I", code)] {
            let range = level.and_then(|level| level.range);
            let name = format!("TLB_L{number}_ENTRIES");
            line(&name, level.and_then(|level| level.entries.map(|entries| entries as f64)));
            line(&format!("{name}_LOW"), range.map(|(low, _)| low as f64));
            line(&format!("{name}_HIGH"), range.map(|(_, high)| high as f64));
        }
        line("TLB_WARNINGS", Some(self.warnings.len() as f64));
        line("TLB_CORE_MHZ", Some(self.clock.core_mhz));
        line("TLB_COUNTER_MHZ", self.clock.counter_mhz);
        // Print two decimals: rounding a few nanoseconds to an integer could lose up to a third.
        for (name, cycles) in [("TLB_MISS_COST_NS", miss), ("TLB_L2_HIT_COST_NS", hit)] {
            if let Some(ns) = cycles.map(|it| it * 1e9 / hertz).filter(|ns| ns.is_finite()) {
                let _ = writeln!(out, "{name}={ns:.2}");
            }
        }
        if let Some(backing) = &self.backing {
            let word = match backing.verdict {
                Verdict::Reaches => "reaches",
                Verdict::Fractured => "fractured",
                Verdict::Mixed => "mixed",
                Verdict::CannotTell => "cannot-tell",
            };
            let _ = writeln!(out, "TLB_SUPERPAGES={word}");
        }
        out
    }
}
