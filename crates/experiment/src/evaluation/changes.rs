//! What became of verdicts since an earlier evaluation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Evaluation;

/// A verdict that is another one than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The application's name.
    pub application: String,
    /// The arm's.
    pub arm: String,
    /// The verdict before, in words.
    pub old: String,
    /// Now.
    pub new: String,
    /// The kinds of machine of both, where they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<Kinds>,
}

/// Two kinds of machine, each in a line: CPUs, memory, kernel and THP setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kinds {
    /// Before.
    pub old: String,
    /// Now.
    pub new: String,
}

impl Change {
    /// In a line.
    pub fn line(&self) -> String {
        let Self { application, arm, old, new, kinds } = self;
        let kinds = kinds.as_ref().map_or(String::new(), |Kinds { old, new }| {
            format!("; of another kind of machine: {new}, was {old}")
        });
        format!("{application}, {arm}: {new}, was {old}{kinds}")
    }
}

impl Evaluation {
    /// The verdicts that are others than in `old`, of arms that both have: another word, or intervals that do not meet.
    pub fn changes_since(&self, old: &Self) -> Vec<Change> {
        let (before, other_kinds) = (old.rows(), self.other_kinds(old));
        let changed = self.rows().into_iter().filter_map(|new| {
            let is_same =
                |row: &&super::Row| (&row.application, &row.arm) == (&new.application, &new.arm);
            let old = before.iter().find(is_same)?;
            let spans =
                [old, &new].map(|row| row.verdict.ratio().and_then(|(_, interval)| interval));
            let apart = match spans {
                [Some(a), Some(b)] => a.high < b.low || b.high < a.low,
                _ => false,
            };
            let (old, new_cell) = (&old.verdict, new.verdict.cell());
            (old.word() != new.verdict.word() || apart).then(|| Change {
                kinds: other_kinds.get(new.application.as_str()).cloned(),
                application: new.application,
                arm: new.arm,
                old: old.cell(),
                new: new_cell,
            })
        });
        changed.collect()
    }

    /// The applications that both have, of machines of different kinds.
    pub fn other_kinds(&self, old: &Self) -> BTreeMap<&str, Kinds> {
        let other = |one: &'_ super::Application| {
            let old = old.applications.iter().find(|it| it.name == one.name)?;
            let kinds = Kinds { old: old.kind(), new: one.kind() };
            (kinds.old != kinds.new).then_some(kinds)
        };
        let applications = self.applications.iter();
        applications.filter_map(|one| Some((one.name.as_str(), other(one)?))).collect()
    }
}
