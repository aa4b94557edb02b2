//! The one answer of this room: how much of a program's time went into translating addresses, and
//! which method says so. Made by the methods, shown by `cli`.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::formula;

/// What translating addresses costs a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// What made the numbers, or why there are none.
    pub method: Method,
    /// The share of the program's time in which an address was being translated beyond the first
    /// level of the TLB; unknown where the method says so.
    pub share: Option<Interval>,
    /// The part of it for loads and stores, where the method tells it apart.
    pub dtlb: Option<Interval>,
    /// The part of it for instruction fetches, where the method tells it apart.
    pub itlb: Option<Interval>,
    /// What no more translating would gain.
    pub gain: Option<Gain>,
    /// Which of the program's cycles were counted; unknown where a file does not say.
    pub scope: Option<Scope>,
    /// The counts that the shares were computed from.
    pub evidence: Vec<Evidence>,
    /// What a reader should know about them, a line each.
    pub notes: Vec<String>,
}

/// What made an estimate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "kebab-case")]
pub enum Method {
    /// The processor counted the cycles of its page walks.
    PmuWalkCycles,
    /// The processor counted misses; what one costs was measured or given.
    PmuMissesTimesCost,
    /// Misses, their cost and the cycles were given.
    GivenMissesTimesCost,
    /// A recorded trace was run through a model of the TLB with the costs of a machine.
    RecordedTrace,
    /// None could.
    Unknown {
        /// Why, and what would help, in one line.
        reason: String,
    },
}

/// Which of the program's cycles were counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The program's own.
    User,
    /// The program's own and the kernel's on its behalf.
    UserAndKernel,
}

/// What no more translating would gain.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The share of the time that superpages are likely to give back: [`formula::WALK_EXPOSURE`].
    pub saved: Interval,
    /// How many times as fast the program can become at most by what the share is of: where instruction fetches are not
    /// known, by loads and stores alone. None if it does nothing but translate, where loads or stores were not counted,
    /// or where misses are priced by a measured cost.
    pub speedup_at_most: Option<f64>,
}

/// One count that an estimate rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// The event's name as its processor's manual has it, or the name of a given number.
    pub name: String,
    /// How often it happened, corrected for the time it was not counted.
    pub value: f64,
    /// The share of the time it was really counted: below 1 the value is an extrapolation.
    pub counted: Option<f64>,
    /// Where the number comes from: a raw event, a file and line, a flag.
    pub source: String,
}

impl Method {
    /// Its name, as it stands in documents.
    pub fn name(&self) -> &'static str {
        match self {
            Self::PmuWalkCycles => "pmu-walk-cycles",
            Self::PmuMissesTimesCost => "pmu-misses-times-cost",
            Self::GivenMissesTimesCost => "given-misses-times-cost",
            Self::RecordedTrace => "recorded-trace",
            Self::Unknown { .. } => "unknown",
        }
    }

    /// What it did, in words that follow a number.
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
    /// That it is not known, and why.
    pub fn unknown(reason: impl Into<String>) -> Self {
        let method = Method::Unknown { reason: reason.into() };
        Self {
            method,
            share: None,
            dtlb: None,
            itlb: None,
            gain: None,
            scope: None,
            evidence: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// An estimate from its two parts; the share is both together. A part that is not known is
    /// left out of the share, and a note says so. Without any it is unknown.
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

    /// An estimate whose method does not tell loads and stores from instruction fetches.
    pub fn of_share(method: Method, share: Interval) -> Self {
        let gain = Some(formula::gain(share));
        Self { method, share: Some(share), gain, ..Self::unknown("") }
    }

    /// Without a largest speedup: there is more to translate than is known.
    pub(crate) fn without_bound(mut self) -> Self {
        if let Some(gain) = &mut self.gain {
            gain.speedup_at_most = None;
        }
        self
    }

    /// With what it rests on.
    pub fn with_evidence(mut self, evidence: impl IntoIterator<Item = Evidence>) -> Self {
        self.evidence.extend(evidence);
        self
    }

    /// With one more line for the reader.
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Why there is no number, if there is none.
    pub fn reason(&self) -> Option<&str> {
        match &self.method {
            Method::Unknown { reason } => Some(reason),
            _ => None,
        }
    }
}

impl Evidence {
    /// A number that was wholly counted, or given.
    pub fn new(name: impl Into<String>, value: f64, source: impl Into<String>) -> Self {
        Self { name: name.into(), value, counted: None, source: source.into() }
    }
}

// A share of a program's time, known between two bounds. Made by every method, read by all.

/// A share of time: at least `low`, at most `high`, most likely `mid`. Always
/// `0 <= low <= mid <= high <= 1`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Bounds", into = "Bounds")]
pub struct Interval {
    low: f64,
    mid: f64,
    high: f64,
}

/// The three numbers as they stand in documents, unchecked.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Bounds {
    low: f64,
    mid: f64,
    high: f64,
}

impl Interval {
    /// `None` unless the numbers are shares in this order; NaN is no share.
    pub fn new(low: f64, mid: f64, high: f64) -> Option<Self> {
        let ordered = 0.0 <= low && low <= mid && mid <= high && high <= 1.0;
        ordered.then_some(Self { low, mid, high })
    }

    /// A share that is known exactly. `None` unless it is one.
    pub fn exactly(share: f64) -> Option<Self> {
        Self::new(share, share, share)
    }

    /// At least this.
    pub fn low(self) -> f64 {
        self.low
    }

    /// Most likely this.
    pub fn mid(self) -> f64 {
        self.mid
    }

    /// At most this.
    pub fn high(self) -> f64 {
        self.high
    }

    /// Both shares of one time together: at least the larger (they may overlap wholly), at most
    /// the sum (not at all), most likely the sum; never more than the whole.
    pub fn and(self, other: Self) -> Self {
        Self {
            low: self.low.max(other.low),
            mid: (self.mid + other.mid).min(1.0),
            high: (self.high + other.high).min(1.0),
        }
    }

    /// Each bound times its own factor; factors are shares in ascending order.
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

// Whose misses they are: samples of an event by the mapping that the data lies in and by the
// function that touched it. Made by the readers of samples, shown by `cli`.

/// The samples of one event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attribution {
    /// The event as it was recorded.
    pub event: String,
    /// How many samples.
    pub samples: u64,
    /// How many of them say which address was touched.
    pub with_address: u64,
    /// By mapping of the data, largest first: a file's path, `[heap]`, `[stack]`, `//anon`, or
    /// `unknown`. Empty if no sample has an address.
    pub mappings: Vec<Share>,
    /// By function, or file where functions are not named, largest first.
    pub symbols: Vec<Share>,
}

/// One mapping's or function's part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Which.
    pub name: String,
    /// Events that its samples stand for.
    pub events: f64,
    /// Of the whole.
    pub share: f64,
}

/// A name that could not be found.
pub(crate) const UNKNOWN: &str = "unknown";

/// No table is longer; the rest goes under one name.
const MAX_NAMES: usize = 1 << 16;
const REST: &str = "(others)";

/// Gathers samples of one event.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    samples: u64,
    with_address: u64,
    events: f64,
    mappings: HashMap<String, f64>,
    symbols: HashMap<String, f64>,
}

impl Tally {
    /// A sample that stands for `weight` events; `mapping` where it has an address.
    pub fn add(&mut self, weight: f64, mapping: Option<&str>, symbol: &str) {
        self.samples += 1;
        self.events += weight;
        if let Some(mapping) = mapping {
            self.with_address += 1;
            put(&mut self.mappings, mapping, weight);
        }
        put(&mut self.symbols, symbol, weight);
    }

    /// How many events the samples stand for.
    pub fn events(&self) -> f64 {
        self.events
    }

    /// How many samples there are.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The finished tables.
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
    // Largest first, and by name where equal, so that every reading gives one order.
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
