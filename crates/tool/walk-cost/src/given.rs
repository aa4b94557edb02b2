//! Misses, their cost and cycles from other measurements: flags, or a file of `key = value`. As in LWN "Huge pages"
//! part 5, the numbers may be samples of a profiler, each of which represents a number of events.

use crate::{Estimate, Evidence, Method, formula};

/// Numbers given by the user.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Given {
    /// Number of TLB misses, or of samples of them.
    pub misses: Option<f64>,
    /// Number of misses of loads and stores, if known separately.
    pub dtlb_misses: Option<f64>,
    /// Number of misses of instruction fetches, if known separately.
    pub itlb_misses: Option<f64>,
    /// Number of misses per sample; 1 if the numbers are misses.
    pub miss_period: Option<f64>,
    /// Cycles per miss.
    pub cost: Option<f64>,
    /// Nanoseconds per miss; needs `mhz`.
    pub cost_ns: Option<f64>,
    /// Clock in MHz at which `cost_ns` was measured.
    pub mhz: Option<f64>,
    /// Number of page-walk cycles, or of samples of them. Divided by the misses, it gives the cost
    /// of a miss.
    pub walk_cycles: Option<f64>,
    /// Number of walk cycles per sample; 1 if `walk_cycles` is in cycles.
    pub walk_period: Option<f64>,
    /// Number of cycles, or of samples of them.
    pub cycles: Option<f64>,
    /// Number of cycles per sample; 1 if `cycles` is in cycles.
    pub cycle_period: Option<f64>,
}

/// Accessor of the field that a key sets.
type FieldAccessor = fn(&mut Given) -> &mut Option<f64>;

/// All keys and their fields.
pub const KEYS: [(&str, FieldAccessor); 11] = [
    ("misses", |given| &mut given.misses),
    ("dtlb_misses", |given| &mut given.dtlb_misses),
    ("itlb_misses", |given| &mut given.itlb_misses),
    ("miss_period", |given| &mut given.miss_period),
    ("cost", |given| &mut given.cost),
    ("cost_ns", |given| &mut given.cost_ns),
    ("mhz", |given| &mut given.mhz),
    ("walk_cycles", |given| &mut given.walk_cycles),
    ("walk_period", |given| &mut given.walk_period),
    ("cycles", |given| &mut given.cycles),
    ("cycle_period", |given| &mut given.cycle_period),
];

impl Given {
    /// Fills missing numbers from `other`.
    pub fn or(mut self, mut other: Self) -> Self {
        for (_, field) in KEYS {
            let value = field(&mut self).or(*field(&mut other));
            *field(&mut self) = value;
        }
        self
    }

    /// Whether no number is given.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Cycles per miss, from the cycles of all walks (LWN "Huge pages" part 5, section 2.3).
    fn cost_by_walks(&self) -> Option<f64> {
        let parts = [self.dtlb_misses, self.itlb_misses];
        let misses = self.misses.or_else(|| parts.into_iter().flatten().reduce(|a, b| a + b))?;
        let misses = misses * self.miss_period.unwrap_or(1.0);
        let walks = self.walk_cycles? * self.walk_period.unwrap_or(1.0);
        (misses > 0.0).then_some(walks / misses)
    }

    /// Computes the estimate. If a number is missing or wrong, the estimate is unknown and names
    /// that number.
    pub fn estimate(&self) -> Estimate {
        let negative = KEYS.iter().find(|(_, field)| {
            field(&mut self.clone()).is_some_and(|value| !value.is_finite() || value < 0.0)
        });
        if let Some((key, _)) = negative {
            return Estimate::unknown(format!("{key} must be a number of at least 0"));
        }
        let costs = [self.cost, self.cost_ns, self.walk_cycles];
        if costs.into_iter().flatten().count() > 1 {
            return Estimate::unknown("give one of cost, cost_ns and walk_cycles");
        }
        let by_walks = self.cost_by_walks();
        let estimate = self.of_shares(by_walks);
        let given = KEYS.into_iter().filter_map(|(key, field)| {
            Some(Evidence::new(key, (*field(&mut self.clone()))?, "given"))
        });
        let found =
            by_walks.map(|cost| Evidence::new("cost of a miss", cost, "walk_cycles / misses"));
        estimate.with_evidence(given.chain(found).collect::<Vec<_>>())
    }

    /// Computes the shares of time; unknown if a number is missing.
    fn of_shares(&self, by_walks: Option<f64>) -> Estimate {
        let in_ns = self.cost_ns.zip(self.mhz);
        let in_ns = in_ns.and_then(|(ns, mhz)| formula::ns_to_cycles(ns, mhz));
        let cost = self.cost.or(in_ns).or(by_walks);
        let (Some(cost), Some(cycles)) = (cost, self.cycles) else {
            let missing = match cost {
                Some(_) => "cycles",
                None if self.cost_ns.is_some() => "mhz, the clock of cost_ns,",
                None if self.walk_cycles.is_some() => "misses (more than 0), beside walk_cycles,",
                None => "cost",
            };
            return Estimate::unknown(format!(
                "{missing} is missing; misses, cost (of one miss, in cycles; or walk_cycles, of all) and \
                 cycles are needed"
            ));
        };
        let cycles = cycles * self.cycle_period.unwrap_or(1.0);
        if cycles <= 0.0 {
            return Estimate::unknown("cycles must be above 0");
        }
        let parts = self.dtlb_misses.or(self.itlb_misses);
        if self.misses.is_some() && parts.is_some() {
            return Estimate::unknown("give either misses, or dtlb_misses and itlb_misses");
        }
        let priced = |misses: f64| {
            formula::misses_times_cost(misses * self.miss_period.unwrap_or(1.0), cost, cycles)
        };
        let given = [self.misses, self.dtlb_misses, self.itlb_misses].into_iter().flatten();
        // Check the sum too, because each part alone may look plausible although the cost is too
        // high.
        if let Err(above) = priced(given.sum()) {
            return Estimate::unknown(above.to_string());
        }
        let part = |misses: Option<f64>| priced(misses?).ok().flatten();
        let method = Method::GivenMissesTimesCost;
        match (part(self.misses), part(self.dtlb_misses), part(self.itlb_misses)) {
            (Some(share), ..) => Estimate::of_share(method, share),
            (None, None, None) => {
                Estimate::unknown("misses are missing: misses, or dtlb_misses and itlb_misses")
            }
            (None, data, fetch) => Estimate::from_parts(method, data, fetch),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(given: Given) -> String {
        format!("{:.2}", given.estimate().share.unwrap().mid() * 100.0)
    }

    /// LWN "Huge pages" part 5, section 2.5: the prediction for STREAM on a PPC970MP.
    #[test]
    fn the_worked_example_of_lwn_is_reproduced() {
        let given = Given {
            misses: Some(9492.0),
            miss_period: Some(1000.0),
            cost: Some(563.0),
            cycles: Some(599_073.0),
            cycle_period: Some(50_000.0),
            ..Given::default()
        };
        assert_eq!(percent(given), "17.84");
        let estimate = given.estimate();
        assert_eq!(estimate.method, Method::GivenMissesTimesCost);
        assert_eq!(estimate.evidence.len(), 5);
        assert_eq!(format!("{:.3}", estimate.gain.unwrap().speedup_at_most.unwrap()), "1.217");
    }

    #[test]
    fn what_is_missing_or_wrong_is_said() {
        let whole =
            Given { misses: Some(1.0), cost: Some(2.0), cycles: Some(100.0), ..Given::default() };
        assert_eq!(percent(whole), "2.00");
        for (given, word) in [
            (Given { misses: None, ..whole }, "misses are missing"),
            (Given { cost: None, ..whole }, "cost is missing"),
            (Given { cost: None, cost_ns: Some(8.8), ..whole }, "mhz"),
            (Given { cycles: None, ..whole }, "cycles is missing"),
            (Given { cycles: Some(0.0), ..whole }, "must be above 0"),
            (Given { cost: Some(-1.0), ..whole }, "cost must be"),
            (Given { cost: Some(f64::NAN), ..whole }, "cost must be"),
            (Given { dtlb_misses: Some(1.0), ..whole }, "give either misses"),
            (Given { walk_cycles: Some(1.0), ..whole }, "give one of cost"),
            (Given { cost: Some(150.0), ..whole }, "would take 150 % of all cycles"),
            (
                Given { misses: None, dtlb_misses: Some(30.0), itlb_misses: Some(30.0), ..whole },
                "would take 120 % of all cycles",
            ),
        ] {
            let estimate = given.estimate();
            assert!(estimate.reason().is_some_and(|why| why.contains(word)), "{estimate:?}");
            assert_eq!(estimate.share, None);
        }
    }

    /// The same article, section 2.3: one run counts walk cycles, another counts misses.
    #[test]
    fn the_cost_of_a_miss_is_walk_cycles_over_misses() {
        let given = Given {
            misses: Some(9_644_000.0),
            walk_cycles: Some(543_702.0),
            walk_period: Some(10_000.0),
            ..Given::default()
        };
        let cost = |given: Given| {
            let estimate = given.estimate();
            let found = estimate.evidence.iter().find(|it| it.name == "cost of a miss");
            found.map(|it| format!("{:.1}", it.value))
        };
        // The cost is known, but without the program's cycles there is no share.
        assert_eq!(cost(given).as_deref(), Some("563.8"));
        assert!(given.estimate().reason().is_some_and(|why| why.contains("cycles is missing")));
        assert_eq!(percent(Given { cycles: Some(5_437_020_000.0 * 4.0), ..given }), "25.00");
        let parts = Given { misses: None, dtlb_misses: Some(1.0), itlb_misses: Some(3.0), ..given };
        assert_eq!(cost(Given { walk_cycles: Some(0.01), ..parts }).as_deref(), Some("25.0"));
        let none = Given { misses: Some(0.0), ..given };
        assert!(none.estimate().reason().is_some_and(|why| why.contains("more than 0")));
    }

    #[test]
    fn a_cost_in_nanoseconds_needs_the_clock() {
        let given = Given {
            misses: Some(1e6),
            cost_ns: Some(8.8),
            mhz: Some(2160.0),
            cycles: Some(1e9),
            ..Given::default()
        };
        assert_eq!(percent(given), "1.90");
    }

    #[test]
    fn parts_are_kept_apart() {
        let given = Given {
            dtlb_misses: Some(1e6),
            itlb_misses: Some(2e6),
            cost: Some(30.0),
            cycles: Some(1e9),
            ..Given::default()
        };
        let estimate = given.estimate();
        let mid = |share: Option<crate::Interval>| (share.unwrap().mid() * 1000.0).round();
        assert_eq!(
            (mid(estimate.dtlb), mid(estimate.itlb), mid(estimate.share)),
            (30.0, 60.0, 90.0)
        );
    }
}
