//! Why a knob could not be changed, or the journal not be kept.

use std::io;
use std::path::PathBuf;

use super::knob::{Knob, NotAKnob};
use super::lock::Holder;
use crate::ReadError;

/// What went wrong with a knob or the journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The path is none that the journal may write.
    #[error(transparent)]
    NotAKnob(#[from] NotAKnob),
    /// A value that no knob takes, or that could not be written back.
    #[error("{knob}: {value:?} {why}")]
    BadValue {
        /// The knob.
        knob: Knob,
        /// The value.
        value: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The kernel refused.
    #[error("cannot {doing} {}: {source}{}", path.display(), remedy(source))]
    Io {
        /// `read`, `write`, `create`, ...
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Another process holds the journal.
    #[error("{holder} is changing this machine's settings (it holds {}); wait until it ends",
        path.display())]
    Busy {
        /// Who.
        holder: Holder,
        /// The lock file.
        path: PathBuf,
    },
    /// An earlier journal is there and could not be undone.
    #[error("{} was left behind and could not be undone: {why}; run `superpage restore`, or remove \
            the file to leave its settings as they are", path.display())]
    LeftBehind {
        /// The journal.
        path: PathBuf,
        /// What stood in the way.
        why: String,
    },
    /// Others could put a journal there.
    #[error("{} is not a directory that only its owner can write; run `chmod 700` on it, \
        or name another journal directory", path.display())]
    OpenDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// This boot's id could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl JournalError {
    pub(super) fn io(doing: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { doing, path: path.into(), source }
    }

    /// Whether the file is not there.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "; run as root",
        io::ErrorKind::ReadOnlyFilesystem => {
            "; it is mounted read-only here (a container?): run on the host"
        }
        io::ErrorKind::NotFound => "; not supported by this kernel",
        io::ErrorKind::InvalidInput => "; the kernel does not take this value",
        _ => "",
    }
}
