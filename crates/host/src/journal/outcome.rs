//! What came of undoing a change, as data and as one line.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::knob::Knob;
use super::lock::Holder;

/// What came of one knob, or of a journal as a whole (`knob` is `None`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restoration {
    /// The knob.
    pub knob: Option<Knob>,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of undoing a change. Values are canonical.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// Written back. `got` is what the knob said afterwards: a pool in use may not shrink.
    Restored {
        /// What it was until now.
        from: String,
        /// What it was before our first change.
        to: String,
        /// What it is.
        got: String,
    },
    /// It has its old value already.
    AlreadyRestored {
        /// The value.
        value: String,
    },
    /// Somebody else changed it after us: left alone.
    ChangedElsewhere {
        /// What we had set.
        ours: String,
        /// What it is.
        now: String,
        /// What it was before our first change.
        original: String,
    },
    /// This kernel no longer has the knob.
    Gone {
        /// What the kernel said.
        why: String,
    },
    /// The kernel refused; the journal is kept.
    Failed {
        /// What it said.
        why: String,
    },
    /// The journal's owner lives: left alone.
    OwnerAlive {
        /// The owner.
        holder: Holder,
    },
    /// A journal of another boot, which reset every knob: removed.
    OtherBoot {
        /// That boot's id.
        boot_id: String,
    },
    /// The writer died while writing this line, before it wrote the knob: nothing to undo.
    HalfWritten {
        /// The line's number, from 1.
        line: usize,
    },
    /// The line, or the whole journal (line 0), cannot be used; the journal is set aside as
    /// `journal.jsonl.rejected`.
    Rejected {
        /// The line's number, from 1; 0 for the whole journal.
        line: usize,
        /// The line's text, cut.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// Another version of superpage wrote it; kept.
    OtherVersion {
        /// That version's number of the format.
        version: u32,
    },
}

impl Restoration {
    /// Whether it is about what a dead owner left, not about one that lives.
    pub(super) fn is_of_the_dead(&self) -> bool {
        !matches!(self.outcome, Outcome::OwnerAlive { .. })
    }
}

impl Outcome {
    /// Whether the journal must stay, because a later attempt could succeed.
    pub(super) fn keeps_journal(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::OtherVersion { .. })
    }
}

impl fmt::Display for Restoration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.knob {
            Some(knob) => write!(f, "{knob}: ")?,
            None => write!(f, "journal: ")?,
        }
        match &self.outcome {
            Outcome::Restored { from, to, got } if to == got => write!(f, "{from} -> {to}"),
            Outcome::Restored { from, to, got } => {
                write!(f, "{from} -> {got} (requested {to}, the kernel set {got})")
            }
            Outcome::AlreadyRestored { value } => write!(f, "is {value} already"),
            Outcome::ChangedElsewhere { ours, now, original } => write!(
                f,
                "left at {now}: changed by another process from our {ours}; originally {original}"
            ),
            Outcome::Gone { why } | Outcome::Failed { why } => write!(f, "not restored: {why}"),
            Outcome::OwnerAlive { holder } => {
                write!(f, "skipped: its owner, {holder}, is still running")
            }
            Outcome::OtherBoot { boot_id } => {
                write!(
                    f,
                    "removed: written before a reboot (boot {boot_id}), which reset every setting"
                )
            }
            Outcome::HalfWritten { line } => {
                write!(f, "line {line} is half written: its setting had not been changed yet")
            }
            Outcome::Rejected { line: 0, why, .. } => write!(f, "set aside as unreadable: {why}"),
            Outcome::Rejected { line, text, why } => {
                write!(f, "line {line} is invalid: {why}: {text:?}")
            }
            Outcome::OtherVersion { version } => {
                write!(
                    f,
                    "kept: written by another version of superpage (format {version}); restore \
                     with that version"
                )
            }
        }
    }
}
