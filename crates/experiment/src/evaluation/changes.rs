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
    /// The verdicts of `old` that are others now, another word or intervals that do not meet, or are missing: of the
    /// applications that this evaluation names. And of how many verdicts.
    pub fn changes_since(&self, old: &Self) -> (Vec<Change>, usize) {
        let (now, other_kinds) = (self.rows(), self.other_kinds(old));
        let (mut changes, mut of) = (Vec::new(), 0);
        for old in old.rows() {
            let is_same =
                |row: &&super::Row| (&row.application, &row.arm) == (&old.application, &old.arm);
            let new = match now.iter().find(is_same) {
                Some(new) => {
                    let spans = [&old, new].map(|row| row.verdict.ratio().and_then(|(_, it)| it));
                    let apart = match spans {
                        [Some(a), Some(b)] => a.high < b.low || b.high < a.low,
                        _ => false,
                    };
                    let is_other = old.verdict.word() != new.verdict.word() || apart;
                    is_other.then(|| new.verdict.cell())
                }
                None => match self.why_missing(&old) {
                    Some(why) => Some(why),
                    None => continue, // it was not asked for
                },
            };
            of += 1;
            let kinds = other_kinds.get(old.application.as_str()).cloned();
            changes.extend(new.map(|new| {
                let super::Row { application, arm, verdict, .. } = old;
                Change { application, arm, old: verdict.cell(), new, kinds }
            }));
        }
        (changes, of)
    }

    /// Why there is no such verdict, in words; `None`: the application is not in this evaluation.
    fn why_missing(&self, old: &super::Row) -> Option<String> {
        if let Some(one) = self.not_run.iter().find(|one| one.name == old.application) {
            return Some(format!("not run: {}", one.why));
        }
        let one = self.applications.iter().find(|one| one.name == old.application)?;
        let left_out = one.comparison.left_out.iter().find(|arm| arm.name == old.arm);
        Some(match left_out {
            Some(arm) => format!("left out: {}", arm.why),
            None => "no such arm".to_string(),
        })
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
