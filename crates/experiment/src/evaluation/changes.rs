//! What became of verdicts since an earlier evaluation.

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
}

impl Evaluation {
    /// The verdicts that are others than in `old`, of arms that both have: another word, or intervals that do not meet.
    pub fn changes_since(&self, old: &Self) -> Vec<Change> {
        let before = old.rows();
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
                application: new.application,
                arm: new.arm,
                old: old.cell(),
                new: new_cell,
            })
        });
        changed.collect()
    }
}
