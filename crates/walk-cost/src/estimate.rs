//! The one answer of this room: how much of a program's time went into translating addresses, and
//! which method says so. Made by the methods, shown by `cli`.

use serde::{Deserialize, Serialize};

use crate::{Interval, formula};

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
