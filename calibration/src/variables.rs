//! What scripts read: `NAME=value` lines, as libhugetlbfs' tlbmiss_cost.sh printed one. What was not measured is
//! not there.

use std::fmt::Write;

use crate::backing::Verdict;
use crate::document::Calibration;

impl Calibration {
    /// The lines. `TLB_MISS_COST` is what an access costs beyond a hit of the first level when no level has its
    /// translation, in cycles of the core, for base pages.
    pub fn to_variables(&self) -> String {
        let mut out = String::new();
        let mut line = |name: &str, value: Option<f64>| {
            if let Some(value) = value.filter(|value| value.is_finite()) {
                let _ = writeln!(out, "{name}={}", value.round());
            }
        };
        let base = self.base();
        let level = |index: usize| base.and_then(|base| base.levels.get(index));
        let miss = |index: usize| self.sizes.get(index)?.miss.as_ref().map(|miss| miss.cycles);
        let entries = |index| level(index)?.entries.map(|entries| entries as f64);
        line("TLB_MISS_COST", base.and_then(|base| Some(base.miss.as_ref()?.cycles)));
        let hit = level(1).and_then(|level| level.hit.as_ref()).map(|hit| hit.cycles);
        line("TLB_L2_HIT_COST", hit);
        line("TLB_L1_ENTRIES", entries(0));
        line("TLB_L2_ENTRIES", entries(1));
        for (index, size) in self.sizes.iter().enumerate() {
            if size.page != self.base_page {
                line(&format!("TLB_MISS_COST_{}K", size.page.bytes() >> 10), miss(index));
            }
        }
        line("TLB_CORE_MHZ", Some(self.clock.core_mhz));
        line("TLB_COUNTER_MHZ", self.clock.counter_mhz);
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
