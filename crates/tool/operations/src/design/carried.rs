//! Says which executor carries out which key of a design, by asking for every preset what `run --design` would do.

use std::collections::BTreeSet;

use design::{Design, designs};
use launch::Executor;
use policy::{LaunchPages, Scale};
use serde::Serialize;

use super::recipe::{Bearing, HANDLED_KEYS, IN_FORCE, Instead, Kernel, RuleNote, from_design};

/// How an executor carries out a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carried {
    /// As the design says.
    Yes,
    /// superpage acts, by another mechanism.
    OtherMeans,
    /// The kernel's own rule holds; a difference is named before the program starts.
    Kernel,
    /// Nothing acts; named before the program starts.
    No,
    /// The design is refused, or called approximate (`--approximate`).
    Refused,
}

impl Carried {
    /// The word for tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::OtherMeans => "by other means",
            Self::Kernel => "the kernel's rule",
            Self::No => "no",
            Self::Refused => "refused",
        }
    }
}

/// The executors of `run --design`, as in `--executor`.
pub const EXECUTORS: [Executor; 3] = [Executor::Collapse, Executor::InPlace, Executor::Pool];

/// What the executors do with the keys of the presets, so that each key is asked of once.
pub struct Carriers {
    /// For each executor, each preset that it has, with its keys that differ from the defaults, and what it does.
    asked: Vec<(Executor, Vec<Asked>)>,
}

/// What an executor does with a preset.
struct Asked {
    /// The keys that the preset says, other than the defaults.
    said: BTreeSet<String>,
    /// Every key that it has.
    has: BTreeSet<String>,
    /// Whether superpage makes the superpages, beside the program or in it.
    is_ours: bool,
    /// `None`: the preset is refused.
    notes: Option<Vec<RuleNote>>,
}

impl Carriers {
    /// Asks for every preset.
    pub fn new() -> Self {
        let presets: Vec<Design> =
            designs::list().iter().filter_map(|preset| preset.design().ok()).collect();
        let of = |executor: Executor| {
            let asked = presets.iter().filter_map(|design| Asked::new(design, executor));
            (executor, asked.collect())
        };
        Self { asked: EXECUTORS.map(of).into() }
    }

    /// How an executor carries out a key: by the kind of design that has it, so there may be several.
    pub fn of(&self, key: &str, executor: Executor) -> Vec<Carried> {
        let asked = self.asked.iter().find(|(one, _)| *one == executor);
        let asked = asked.map_or(&[][..], |(_, asked)| asked);
        let pick = |has: fn(&Asked) -> &BTreeSet<String>| -> BTreeSet<Carried> {
            asked.iter().filter(|one| has(one).contains(key)).map(|one| one.carries(key)).collect()
        };
        let mut found = pick(|one| &one.said);
        if found.is_empty() {
            found = pick(|one| &one.has);
        }
        if found.is_empty() {
            found.extend([if is_handled(key) { Carried::Yes } else { Carried::Kernel }]);
        }
        if found.len() > 1 {
            // Other keys of those designs are why they are refused.
            found.remove(&Carried::Refused);
        }
        found.into_iter().collect()
    }
}

impl Default for Carriers {
    fn default() -> Self {
        Self::new()
    }
}

impl Asked {
    /// `None`: the executor is not for such designs.
    fn new(design: &Design, executor: Executor) -> Option<Self> {
        let answer = from_design(design, executor, Kernel::usual());
        if answer.is_err() && !executor.is_usual() {
            return None;
        }
        let defaults = Design::default().keys();
        let keys = design.keys();
        let is_said = |pair: &&(String, design::Value)| !defaults.contains(pair);
        // A table is carried as its keys are.
        let names = |(key, _): &(String, design::Value)| {
            let tables = key.match_indices('.').map(|(at, _)| key[..at].to_string());
            tables.chain([key.clone()]).collect::<Vec<_>>()
        };
        let pages = design.policy(Scale::X86).launch().pages;
        Some(Self {
            said: keys.iter().filter(is_said).flat_map(names).collect(),
            has: keys.iter().flat_map(names).collect(),
            is_ours: pages == LaunchPages::OwnKernel,
            notes: answer.ok().map(|(_, notes)| notes),
        })
    }

    fn carries(&self, key: &str) -> Carried {
        let Some(notes) = &self.notes else { return Carried::Refused };
        let is_of = |rule: &str| {
            let rule = rule.trim_matches(['[', ']']);
            key.strip_prefix(rule).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let note = notes.iter().find(|note| note.rule.split(", ").any(is_of));
        match note {
            Some(note) if note.bearing == Bearing::Whether => Carried::Refused,
            Some(note) => match note.instead {
                Instead::Superpage => Carried::OtherMeans,
                Instead::Kernel => Carried::Kernel,
                Instead::Nothing => Carried::No,
            },
            None if self.is_ours && is_in_force(key) || is_handled(key) => Carried::Yes,
            None => Carried::Kernel,
        }
    }
}

fn is_in_force(key: &str) -> bool {
    IN_FORCE.iter().any(|ours| key.starts_with(ours.trim_end_matches('.')))
}

fn is_handled(key: &str) -> bool {
    let is_of_file = ["name", "summary"].contains(&key);
    is_of_file || HANDLED_KEYS.iter().any(|ours| key.starts_with(ours.trim_end_matches('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_carried_as_run_says() {
        let carriers = Carriers::new();
        let of = |key| carriers.of(key, Executor::Collapse);
        assert_eq!(of("allocation.when"), [Carried::Refused]);
        assert_eq!(of("memory.grouping"), [Carried::Kernel]);
        assert!(of("mapping.scan.every").contains(&Carried::OtherMeans));
        assert!(of("preparation.fill-at").contains(&Carried::OtherMeans));
        assert_eq!(of("unmapping.clean-write"), [Carried::Yes]);
        assert_eq!(carriers.of("mapping.when", Executor::Pool)[0], Carried::OtherMeans);
        // Every key has an answer of every executor.
        for help in design::reference() {
            for executor in EXECUTORS {
                assert!(!carriers.of(&help.key, executor).is_empty(), "{}", help.key);
            }
        }
    }
}
