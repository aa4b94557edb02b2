//! `Estimate`: the share of a program's time that went into address translation, and the method that found it.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::formula;

/// The cost of address translation for a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The method, or the reason why there is no number.
    pub method: Method,
    /// Share of the program's time spent on address translation beyond the first TLB level; `None` with
    /// [`Method::Unknown`].
    pub share: Option<Interval>,
    /// The part of `share` for loads and stores, if the method separates it.
    pub dtlb: Option<Interval>,
    /// The part of `share` for instruction fetches, if the method separates it.
    pub itlb: Option<Interval>,
    /// Whether the second-level TLB hits are in the upper bounds; `None` if the method does not tell walks from hits.
    #[serde(default)]
    pub hits: Option<Hits>,
    /// The possible gain from superpages.
    pub gain: Option<Gain>,
    /// Which cycles were counted; `None` if a file does not tell.
    pub scope: Option<Scope>,
    /// The counts behind the shares.
    pub evidence: Vec<Evidence>,
    /// Notes for the reader, one line each.
    pub notes: Vec<String>,
    /// Events that were not counted, by the figure that needs them.
    #[serde(default)]
    pub missing: Vec<Missing>,
    /// Commands that count everything, one for each processor that the counts may be of.
    #[serde(default)]
    pub recount: Vec<Recount>,
}

/// Whether an estimate has the second-level TLB hits in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hits {
    /// All hits, at their cost.
    Priced,
    /// Hits were counted, but their cost is unknown.
    Unpriced,
    /// Not all hits were counted.
    NotCounted,
}

/// The events that a figure lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The figure.
    pub figure: Figure,
    /// The microarchitecture whose events are named.
    pub processor: String,
    /// The events, as perf names them.
    pub events: Vec<String>,
}

/// A figure of an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// The share of the time.
    Share,
    /// The part for loads and stores.
    Data,
    /// The part for instruction fetches.
    Code,
    /// The largest speedup.
    Bound,
}

/// A command that counts what an estimate needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recount {
    /// The microarchitecture that has the events.
    pub processor: String,
    /// The command, without the program.
    pub command: String,
}

/// The method of an estimate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case")]
pub enum Method {
    /// Page-walk cycles counted by the CPU.
    PmuWalkCycles,
    /// Misses counted by the CPU, multiplied by a measured or given cost.
    PmuMissesTimesCost,
    /// Misses multiplied by their cost, and cycles, all given by the user.
    GivenMissesTimesCost,
    /// A recorded trace, simulated in a TLB model with a machine's costs.
    RecordedTrace,
    /// No method was possible.
    Unknown {
        /// The reason and the remedy, in one line.
        reason: String,
    },
}

/// Which of the program's cycles were counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// User mode only.
    User,
    /// User mode, and kernel mode while it works for the program.
    UserAndKernel,
}

/// The gain from eliminating address translation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// Share of the program's time that superpages are likely to save; see
    /// [`formula::WALK_EXPOSURE`].
    pub saved: Interval,
    /// Upper bound of the speedup (a ratio) if `share` dropped to zero. Covers only loads and stores if instruction
    /// fetches were not counted. `None` if the share is 1, if loads, stores or second-level hits were not counted or have no
    /// cost, or if misses were multiplied by a measured cost.
    pub speedup_at_most: Option<f64>,
}

/// One count that an estimate is based on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// The event's name in the CPU's manual, or the name of a given number.
    pub name: String,
    /// The count, scaled up for multiplexing.
    pub value: f64,
    /// Share of the time for which the counter ran. If below 1, `value` is extrapolated.
    pub counted: Option<f64>,
    /// Share of the cycles in whose parts of the run the event was not counted; `None` if there are no such parts.
    #[serde(default)]
    pub gap: Option<f64>,
    /// Origin of the number: a raw event, a file and line, a flag.
    pub source: String,
}

impl Method {
    /// The method's name in documents.
    pub fn name(&self) -> &'static str {
        match self {
            Self::PmuWalkCycles => "pmu-walk-cycles",
            Self::PmuMissesTimesCost => "pmu-misses-times-cost",
            Self::GivenMissesTimesCost => "given-misses-times-cost",
            Self::RecordedTrace => "recorded-trace",
            Self::Unknown { .. } => "unknown",
        }
    }

    /// The method as a phrase that follows a number.
    pub fn in_words(&self) -> &str {
        match self {
            Self::PmuWalkCycles => "page-walk cycles, counted by the processor",
            Self::PmuMissesTimesCost => {
                "TLB misses, counted by the processor, times the cost of one"
            }
            Self::GivenMissesTimesCost => "misses and cost given by the user",
            Self::RecordedTrace => "a recorded trace, with the costs of this machine",
            Self::Unknown { reason } => reason,
        }
    }
}

impl Estimate {
    /// Makes an unknown estimate with a reason.
    pub fn unknown(reason: impl Into<String>) -> Self {
        let method = Method::Unknown { reason: reason.into() };
        Self {
            method,
            share: None,
            dtlb: None,
            itlb: None,
            hits: None,
            gain: None,
            scope: None,
            evidence: Vec::new(),
            notes: Vec::new(),
            missing: Vec::new(),
            recount: Vec::new(),
        }
    }

    /// Makes an estimate from the shares of loads and stores and of instruction fetches. If one is missing, the
    /// estimate covers only the other, and a note says so. If both are missing, the estimate is unknown.
    pub fn from_parts(method: Method, dtlb: Option<Interval>, itlb: Option<Interval>) -> Self {
        let (share, left_out) = match (dtlb, itlb) {
            (Some(data), Some(fetches)) => (data.and(fetches), None),
            (Some(data), None) => (data, Some("instruction fetches are not included")),
            (None, Some(fetches)) => (fetches, Some("loads and stores are not included")),
            (None, None) => {
                return Self::unknown("neither data nor instruction TLB misses were counted");
            }
        };
        let notes = left_out.map(String::from).into_iter().collect();
        let estimate = Self { dtlb, itlb, notes, ..Self::of_share(method, share) };
        if dtlb.is_some() { estimate } else { estimate.without_bound() }
    }

    /// Makes an estimate whose method does not separate loads and stores from instruction fetches.
    pub fn of_share(method: Method, share: Interval) -> Self {
        let gain = Some(formula::gain(share));
        Self { method, share: Some(share), gain, ..Self::unknown("") }
    }

    /// Removes the upper bound of the speedup, because part of the translation cost is unknown.
    pub(crate) fn without_bound(mut self) -> Self {
        if let Some(gain) = &mut self.gain {
            gain.speedup_at_most = None;
        }
        self
    }

    /// Adds the cost of second-level TLB hits of loads and stores and of fetches. Out-of-order execution hides between none
    /// and all of a hit, so that only the upper bounds grow.
    pub(crate) fn with_hits(mut self, [data, code]: [Option<Interval>; 2]) -> Self {
        let add = |part: Option<Interval>, hits: Option<Interval>| match (part, hits) {
            (Some(part), Some(hits)) => Some(part.and(hits)),
            (part, _) => part,
        };
        let Some(hits) = [data, code].into_iter().flatten().reduce(Interval::and) else {
            return self;
        };
        self.dtlb = add(self.dtlb, data);
        self.itlb = add(self.itlb, code);
        self.share = add(self.share, Some(hits));
        if let (Some(gain), Some(share)) = (&mut self.gain, self.share) {
            let Interval { low, mid, high } = gain.saved;
            gain.saved = Interval { low, mid, high: (high + hits.high).min(1.0) };
            let of_share = formula::gain(share).speedup_at_most;
            gain.speedup_at_most = gain.speedup_at_most.and(of_share);
        }
        self
    }

    /// Adds evidence.
    pub fn with_evidence(mut self, evidence: impl IntoIterator<Item = Evidence>) -> Self {
        self.evidence.extend(evidence);
        self
    }

    /// Adds a note.
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Returns the reason if the estimate is unknown.
    pub fn reason(&self) -> Option<&str> {
        match &self.method {
            Method::Unknown { reason } => Some(reason),
            _ => None,
        }
    }
}

impl Evidence {
    /// Makes evidence of a number that was given, or counted without multiplexing.
    pub fn new(name: impl Into<String>, value: f64, source: impl Into<String>) -> Self {
        Self { name: name.into(), value, counted: None, gap: None, source: source.into() }
    }
}

// Interval: a share of a program's time between two bounds.

/// A share of time: lower bound, best estimate, upper bound. Always `0 <= low <= mid <= high <= 1`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Bounds", into = "Bounds")]
pub struct Interval {
    low: f64,
    mid: f64,
    high: f64,
}

/// The serialized form, before it is checked.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Bounds {
    low: f64,
    mid: f64,
    high: f64,
}

impl Interval {
    /// Makes an interval; `None` unless the numbers are ascending and between 0 and 1 (and not
    /// NaN).
    pub fn new(low: f64, mid: f64, high: f64) -> Option<Self> {
        let ordered = 0.0 <= low && low <= mid && mid <= high && high <= 1.0;
        ordered.then_some(Self { low, mid, high })
    }

    /// Makes an interval of one exact share; `None` unless it is between 0 and 1.
    pub fn exactly(share: f64) -> Option<Self> {
        Self::new(share, share, share)
    }

    /// The lower bound, a share from 0 to 1.
    pub fn low(self) -> f64 {
        self.low
    }

    /// The best estimate, a share from 0 to 1.
    pub fn mid(self) -> f64 {
        self.mid
    }

    /// The upper bound, a share from 0 to 1.
    pub fn high(self) -> f64 {
        self.high
    }

    /// Combines two shares of the same time. The result is at least the larger share (full overlap), at most the sum
    /// (no overlap), most likely the sum, and never more than 1.
    pub fn and(self, other: Self) -> Self {
        Self {
            low: self.low.max(other.low),
            mid: (self.mid + other.mid).min(1.0),
            high: (self.high + other.high).min(1.0),
        }
    }

    /// Multiplies each bound by the corresponding bound of `factors`.
    pub fn scaled(self, factors: Self) -> Self {
        Self {
            low: self.low * factors.low,
            mid: self.mid * factors.mid,
            high: self.high * factors.high,
        }
    }
}

impl From<Interval> for Bounds {
    fn from(Interval { low, mid, high }: Interval) -> Self {
        Self { low, mid, high }
    }
}

impl TryFrom<Bounds> for Interval {
    type Error = String;

    fn try_from(Bounds { low, mid, high }: Bounds) -> Result<Self, String> {
        let why = || format!("{low}, {mid}, {high}: not shares of time in ascending order");
        Self::new(low, mid, high).ok_or_else(why)
    }
}

// Attribution: the samples of an event by the mapping of the data address, and by the function that made the access.

/// The samples of one event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attribution {
    /// The event's name as recorded.
    pub event: String,
    /// Number of samples.
    pub samples: u64,
    /// Number of samples with a data address.
    pub with_address: u64,
    /// Shares by mapping of the data address, largest first: a file's path, `[heap]`, `[stack]`, `//anon`, or
    /// `unknown`. Empty if no sample has an address.
    pub mappings: Vec<Share>,
    /// Shares by function, or by file if functions are unnamed, largest first.
    pub symbols: Vec<Share>,
}

/// The share of one mapping or function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Name of the mapping or function.
    pub name: String,
    /// Number of events that the samples of this mapping or function represent.
    pub events: f64,
    /// Share of all events, from 0 to 1.
    pub share: f64,
}

/// The name of an unresolved mapping or function.
pub(crate) const UNKNOWN: &str = "unknown";

/// Maximum number of names in a table; samples of further names are counted under `REST`.
const MAX_NAMES: usize = 1 << 16;
const REST: &str = "(others)";

/// Accumulates the samples of one event.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    samples: u64,
    with_address: u64,
    events: f64,
    mappings: HashMap<String, f64>,
    symbols: HashMap<String, f64>,
}

impl Tally {
    /// Adds a sample that represents `weight` events. `mapping` is `None` if the sample has no
    /// address.
    pub fn add(&mut self, weight: f64, mapping: Option<&str>, symbol: &str) {
        self.samples += 1;
        self.events += weight;
        if let Some(mapping) = mapping {
            self.with_address += 1;
            put(&mut self.mappings, mapping, weight);
        }
        put(&mut self.symbols, symbol, weight);
    }

    /// Adds samples without addresses, each of `weight` events.
    pub fn add_samples(&mut self, samples: u64, weight: f64, symbol: &str) {
        let events = samples as f64 * weight;
        self.samples = self.samples.saturating_add(samples);
        self.events += events;
        put(&mut self.symbols, symbol, events);
    }

    /// Number of events that the samples represent.
    pub fn events(&self) -> f64 {
        self.events
    }

    /// Number of samples.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Converts the sums into sorted shares.
    pub fn finish(self, event: &str) -> Attribution {
        Attribution {
            event: event.to_string(),
            samples: self.samples,
            with_address: self.with_address,
            mappings: shares(self.mappings),
            symbols: shares(self.symbols),
        }
    }
}

fn put(table: &mut HashMap<String, f64>, name: &str, weight: f64) {
    if let Some(sum) = table.get_mut(name) {
        *sum += weight;
        return;
    }
    let name = if table.len() < MAX_NAMES { name } else { REST };
    *table.entry(name.to_string()).or_default() += weight;
}

fn shares(table: HashMap<String, f64>) -> Vec<Share> {
    let mut rows: Vec<(String, f64)> = table.into_iter().collect();
    // Sort the largest first, and equal counts by name, for a deterministic order.
    rows.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let all: f64 = rows.iter().map(|(_, events)| events).sum();
    let share = |events: f64| if all > 0.0 { events / all } else { 0.0 };
    rows.into_iter().map(|(name, events)| Share { name, events, share: share(events) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_has_no_number_anywhere() {
        let unknown = Estimate::from_parts(Method::PmuWalkCycles, None, None);
        assert!(unknown.reason().is_some());
        let json = serde_json::to_value(&unknown).unwrap();
        assert!(json["share"].is_null() && json["gain"].is_null() && json["dtlb"].is_null());
        assert_eq!(json["method"]["name"], "unknown");
    }

    #[test]
    fn a_part_that_is_missing_is_told() {
        let data = Interval::exactly(0.1);
        let estimate = Estimate::from_parts(Method::PmuWalkCycles, data, None);
        assert_eq!(estimate.share, data);
        assert_eq!(estimate.notes.len(), 1);
        assert!(serde_json::to_value(&estimate).unwrap()["itlb"].is_null());
        assert!(estimate.gain.unwrap().speedup_at_most.is_some());
        let fetches = Estimate::from_parts(Method::PmuWalkCycles, None, data);
        assert_eq!(fetches.gain.unwrap().speedup_at_most, None, "most is loads and stores");
    }

    #[test]
    fn names_of_methods_are_those_of_documents() {
        let reason = String::from("x");
        for method in [
            Method::PmuWalkCycles,
            Method::PmuMissesTimesCost,
            Method::GivenMissesTimesCost,
            Method::RecordedTrace,
            Method::Unknown { reason },
        ] {
            assert_eq!(serde_json::to_value(&method).unwrap()["name"], method.name());
        }
    }
}

#[cfg(test)]
mod interval_tests {
    use proptest::prelude::*;

    use super::*;

    fn interval() -> impl Strategy<Value = Interval> {
        [0.0..=1.0f64, 0.0..=1.0, 0.0..=1.0].prop_map(|mut bounds| {
            bounds.sort_by(f64::total_cmp);
            Interval::new(bounds[0], bounds[1], bounds[2]).unwrap()
        })
    }

    proptest! {
        #[test]
        fn every_operation_keeps_the_order(a in interval(), b in interval()) {
            for made in [a.and(b), a.scaled(b)] {
                prop_assert!(Interval::new(made.low, made.mid, made.high).is_some(), "{made:?}");
            }
        }

        #[test]
        fn two_shares_together_are_no_less_than_either(a in interval(), b in interval()) {
            let both = a.and(b);
            prop_assert!(both.low >= a.low.max(b.low));
            prop_assert!(both.mid >= a.mid.max(b.mid));
            prop_assert!(both.high >= a.high.max(b.high));
            prop_assert_eq!(both, b.and(a));
        }

        #[test]
        fn documents_bring_back_the_same(a in interval()) {
            let text = serde_json::to_string(&a).unwrap();
            prop_assert_eq!(serde_json::from_str::<Interval>(&text).unwrap(), a);
        }
    }

    #[test]
    fn what_is_no_share_is_refused() {
        for (low, mid, high) in
            [(0.2, 0.1, 0.3), (0.0, 0.0, 1.1), (-0.1, 0.0, 0.0), (f64::NAN, 0.5, 0.6)]
        {
            assert_eq!(Interval::new(low, mid, high), None);
        }
        let wrong = r#"{"low":0.5,"mid":0.4,"high":0.6}"#;
        assert!(serde_json::from_str::<Interval>(wrong).is_err());
    }
}
