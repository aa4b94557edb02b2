//! Undoes the changes of the caller's journal, or of a journal whose owner ended.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use serde::{Deserialize, Serialize};
use units::Pid;

use super::knob::{JournalError, Knob};
use super::writer::{Change, Fault, Holder, Parsed, WriterLock};
use super::{FILE, LOCK, shared, writer};
use crate::{Root, process, root, snapshot};

/// Maximum bytes of a journal. A journal holds a few hundred bytes per change.
const MAX_JOURNAL: u64 = 4 << 20;

/// Undoes the journal in `dir` if its owner is gone. Returns the result for each knob; an empty list if there is no
/// journal. Errors concern the directory and its files.
pub fn restore_orphans(dir: &Path, root: &Root) -> Result<Vec<Restoration>, JournalError> {
    // Without a journal there is nothing to undo: a missing directory is not an error for an unprivileged caller.
    let has_journal = is_there(&dir.join(FILE))? || is_there(&dir.join(LOCK))?;
    if !has_journal && !shared::is_used(dir)? {
        return Ok(Vec::new());
    }
    restore_while(dir, root, &|| true)
}

fn restore_while(
    dir: &Path,
    root: &Root,
    goes_on: &dyn Fn() -> bool,
) -> Result<Vec<Restoration>, JournalError> {
    writer::prepare(dir)?;
    let mut done = match WriterLock::take(dir) {
        Ok(_lock) => recover(dir, root)?,
        Err(JournalError::Busy { holder, .. }) => {
            vec![Restoration { knob: None, outcome: Outcome::OwnerAlive { holder } }]
        }
        Err(error) => return Err(error),
    };
    done.extend(shared::recover(dir, root, shared::MAX_WAIT, goes_on)?);
    Ok(done)
}

/// Undoes changes of dead owners in `dir`. Takes the lock only if there is a journal to inspect, so that other
/// processes seldom find the lock taken. If a process is changing a knob, waits for it while `goes_on` is true.
pub fn restore_dead(
    dir: &Path,
    root: &Root,
    goes_on: &dyn Fn() -> bool,
) -> Result<Vec<Restoration>, JournalError> {
    let done = match is_there(&dir.join(FILE))? {
        true => restore_while(dir, root, goes_on)?,
        false => shared::recover(dir, root, shared::MAX_WAIT, goes_on)?,
    };
    Ok(done.into_iter().filter(Restoration::is_orphaned).collect())
}

/// A setting that a superpage which no longer runs has changed and not restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// The setting.
    pub knob: Knob,
    /// The journal's file that says so.
    pub file: PathBuf,
}

/// Lists settings that [`restore_orphans`] would restore. Changes and locks nothing.
///
/// # Errors
/// The journal's directory or files cannot be read.
pub fn left_changed(dir: &Path, root: &Root) -> Result<Vec<Left>, JournalError> {
    let file = dir.join(FILE);
    let mut left = shared::left_changed(dir, root)?;
    if !is_there(&file)? {
        return Ok(left);
    }
    let read = |why: String| JournalError::io("read", &file, std::io::Error::other(why));
    let Some(bytes) = read_limited(&file).map_err(read)? else { return Ok(left) };
    if let Parsed::Journal { header, changes, .. } = writer::parse(&bytes)
        && header.boot_id == root::word(root, snapshot::BOOT_ID)?
        && !process::is_running(root, Pid(header.pid))
    {
        for change in changes {
            if left.iter().all(|one| one.knob != change.knob) {
                left.push(Left { knob: change.knob, file: file.clone() });
            }
        }
    }
    Ok(left)
}

/// Undoes the journal in `dir`. The caller must hold the lock.
pub(super) fn recover(dir: &Path, root: &Root) -> Result<Vec<Restoration>, JournalError> {
    let path = dir.join(FILE);
    let whole = |outcome| vec![Restoration { knob: None, outcome }];
    let rejected = |why: String| Outcome::Rejected { line: 0, text: String::new(), why };
    let bytes = match read_limited(&path) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(Vec::new()),
        Err(why) => return set_aside(dir).map(|()| whole(rejected(why))),
    };
    match writer::parse(&bytes) {
        Parsed::NeverBegun => remove(&path).map(|()| whole(Outcome::HalfWritten { line: 1 })),
        Parsed::NoHeader { why } => set_aside(dir).map(|()| whole(rejected(why))),
        Parsed::OtherVersion(version) => Ok(whole(Outcome::OtherVersion { version })),
        Parsed::Journal { header, changes, faults } => {
            if header.boot_id != root::word(root, snapshot::BOOT_ID)? {
                let boot_id = writer::printable(&header.boot_id);
                return remove(&path).map(|()| whole(Outcome::OtherBoot { boot_id }));
            }
            let mut done = undo_all(root, &changes);
            let damaged = faults.iter().any(|fault| !fault.half_written);
            done.extend(faults.into_iter().map(Fault::outcome));
            if done.iter().any(|one| one.outcome.keeps_journal()) {
                return Ok(done);
            }
            if damaged { set_aside(dir) } else { remove(&path) }.map(|()| done)
        }
    }
}

impl Fault {
    fn outcome(self) -> Restoration {
        let outcome = if self.half_written {
            Outcome::HalfWritten { line: self.line }
        } else {
            Outcome::Rejected { line: self.line, text: self.text, why: self.why }
        };
        Restoration { knob: None, outcome }
    }
}

/// All changes of one knob, to be undone together.
struct Undo<'a> {
    knob: &'a Knob,
    /// The value before our first change, or the value that another writer set between two of our changes.
    original: &'a str,
    last: &'a Change,
}

/// Undoes changes, last knob first. A knob that was changed twice is restored once, to its first value.
pub(super) fn undo_all(root: &Root, changes: &[Change]) -> Vec<Restoration> {
    let mut undos: Vec<Undo> = Vec::new();
    for change in changes {
        match undos.iter_mut().find(|undo| *undo.knob == change.knob) {
            None => {
                undos.push(Undo { knob: &change.knob, original: &change.old, last: change });
            }
            Some(undo) => {
                if !undo.last.is_last_written(&change.old) {
                    undo.original = &change.old;
                }
                undo.last = change;
            }
        }
    }
    let restoration = |undo: &Undo| Restoration {
        knob: Some(undo.knob.clone()),
        outcome: undo.run(root).unwrap_or_else(|error| match error.is_gone() {
            true => Outcome::Gone { why: error.to_string() },
            false => Outcome::Failed { why: error.to_string() },
        }),
    };
    undos.iter().rev().map(restoration).collect()
}

impl Undo<'_> {
    fn run(&self, root: &Root) -> Result<Outcome, JournalError> {
        let original = self.original.to_string();
        let is_ours = |now: &str| now == original || self.last.is_last_written(now);
        let now = self.knob.read_twice(root, is_ours)?;
        if now == original {
            return Ok(Outcome::AlreadyRestored { value: now });
        }
        if !self.last.is_last_written(&now) {
            let ours = self.last.got.as_ref().unwrap_or(&self.last.asked).clone();
            return Ok(Outcome::ChangedElsewhere { ours, now, original });
        }
        self.knob.write(root, &original)?;
        let got = self.knob.read(root)?;
        Ok(Outcome::Restored { from: now, to: original, got })
    }
}

impl Change {
    /// Whether the knob's `value` is the result of this change. If the writer was killed before it read the knob back,
    /// a pool may have any size between the old and the new one.
    fn is_last_written(&self, value: &str) -> bool {
        let number = |text: &str| text.parse::<u64>().ok();
        match (&self.got, number(&self.old), number(&self.asked), number(value)) {
            (Some(got), ..) => got == value,
            (None, Some(old), Some(asked), Some(value)) if self.knob.surplus().is_some() => {
                (old.min(asked)..=old.max(asked)).contains(&value)
            }
            (None, ..) => self.asked == value,
        }
    }
}

fn is_there(path: &Path) -> Result<bool, JournalError> {
    path.try_exists().map_err(|source| JournalError::io("look for", path, source))
}

/// Reads the journal's bytes. `None` if there is no journal; an error says why the file is invalid.
fn read_limited(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        metadata => metadata.map_err(|error| error.to_string())?,
    };
    if !metadata.is_file() {
        return Err("it is not a regular file".into());
    }
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|f| f.take(MAX_JOURNAL + 1).read_to_end(&mut bytes));
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_JOURNAL {
        return Err(format!("it is longer than {MAX_JOURNAL} bytes"));
    }
    Ok(Some(bytes))
}

pub(super) fn remove(path: &Path) -> Result<(), JournalError> {
    fs::remove_file(path).map_err(|source| JournalError::io("remove", path, source))?;
    path.parent().map_or(Ok(()), sync_dir)
}

fn set_aside(dir: &Path) -> Result<(), JournalError> {
    let path = dir.join(FILE);
    fs::rename(&path, dir.join(format!("{FILE}.rejected")))
        .map_err(|source| JournalError::io("set aside", path, source))?;
    sync_dir(dir)
}

pub(super) fn sync_dir(dir: &Path) -> Result<(), JournalError> {
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|source| JournalError::io("sync", dir, source))
}

// Results of undoing changes, as data and as one line.

/// The result for one knob, or for a journal as a whole (`knob` is `None`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restoration {
    /// The knob.
    pub knob: Option<Knob>,
    /// The result.
    pub outcome: Outcome,
}

/// The result of undoing a change. Values are canonical.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// The old value was written. `got` differs from it if a pool in use could not shrink.
    Restored {
        /// The value before the restore.
        from: String,
        /// The value before our first change.
        to: String,
        /// The value read back.
        got: String,
    },
    /// The knob already has its old value.
    AlreadyRestored {
        /// The value.
        value: String,
    },
    /// Another writer changed the knob after us: not restored.
    ChangedElsewhere {
        /// The value that we set.
        ours: String,
        /// The current value.
        now: String,
        /// The value before our first change.
        original: String,
    },
    /// This kernel no longer has the knob.
    Gone {
        /// The kernel's error.
        why: String,
    },
    /// The kernel refused; the journal is kept.
    Failed {
        /// The kernel's error.
        why: String,
    },
    /// The journal's owner is alive, so nothing was restored.
    OwnerAlive {
        /// The owner.
        holder: Holder,
    },
    /// The journal is of another boot, and a boot resets every knob. The journal was removed.
    OtherBoot {
        /// The id of that boot.
        boot_id: String,
    },
    /// The writer died while writing this line, before it wrote the knob: nothing to undo.
    HalfWritten {
        /// Line number, from 1.
        line: usize,
    },
    /// The line, or the whole journal (line 0), is unusable. The journal was renamed to
    /// `journal.jsonl.rejected`.
    Rejected {
        /// Line number, from 1; 0 for the whole journal.
        line: usize,
        /// The line's text, truncated.
        text: String,
        /// The reason.
        why: String,
    },
    /// Another version of superpage wrote the journal, which was kept.
    OtherVersion {
        /// Format version of that journal.
        version: u32,
    },
}

impl Restoration {
    /// Whether the result concerns changes of an owner that ended.
    pub(super) fn is_orphaned(&self) -> bool {
        !matches!(self.outcome, Outcome::OwnerAlive { .. })
    }
}

impl Outcome {
    /// Whether the journal must stay because a later restore could succeed.
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
