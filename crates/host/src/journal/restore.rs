//! Undoing changes: of a journal at hand, or of one whose owner is gone.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;

use super::error::JournalError;
use super::knob::Knob;
use super::lock::{self, WriterLock};
use super::outcome::{Outcome, Restoration};
use super::record::{self, Change, Fault, Parsed};
use super::shared;
use super::{FILE, LOCK};
use crate::{Root, snapshot, text};

/// A journal holds a few hundred bytes for each change; what is longer is none.
const MAX_JOURNAL: u64 = 4 << 20;

/// Undoes the journal in `dir` if its owner is gone. Nothing there gives an empty list. Errors are
/// about the directory and the files in it; what came of each knob is in the list.
pub fn restore_orphans(dir: &Path, root: &Root) -> Result<Vec<Restoration>, JournalError> {
    // No journal, nothing to do: an unprivileged caller should not fail over a missing directory.
    // One that it may not look into is another matter: there may be changes to undo in it.
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
    lock::prepare(dir)?;
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

/// Undoes what dead owners left in `dir`. A lock is taken only where there is a journal to look into: who
/// opens one meanwhile is not to find it held. Who changes a knob is waited for while `goes_on`.
pub fn restore_dead(
    dir: &Path,
    root: &Root,
    goes_on: &dyn Fn() -> bool,
) -> Result<Vec<Restoration>, JournalError> {
    let done = match is_there(&dir.join(FILE))? {
        true => restore_while(dir, root, goes_on)?,
        false => shared::recover(dir, root, shared::MAX_WAIT, goes_on)?,
    };
    Ok(done.into_iter().filter(Restoration::is_of_the_dead).collect())
}

/// Undoes what lies in `dir`; the caller holds the lock.
pub(super) fn recover(dir: &Path, root: &Root) -> Result<Vec<Restoration>, JournalError> {
    let path = dir.join(FILE);
    let whole = |outcome| vec![Restoration { knob: None, outcome }];
    let rejected = |why: String| Outcome::Rejected { line: 0, text: String::new(), why };
    let bytes = match read_limited(&path) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(Vec::new()),
        Err(why) => return set_aside(dir).map(|()| whole(rejected(why))),
    };
    match record::parse(&bytes) {
        Parsed::NeverBegun => remove(&path).map(|()| whole(Outcome::HalfWritten { line: 1 })),
        Parsed::NoHeader { why } => set_aside(dir).map(|()| whole(rejected(why))),
        Parsed::OtherVersion(version) => Ok(whole(Outcome::OtherVersion { version })),
        Parsed::Journal { header, changes, faults } => {
            if header.boot_id != text::word(root, snapshot::BOOT_ID)? {
                let boot_id = lock::printable(&header.boot_id);
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

/// All changes of one knob as one.
struct Undo<'a> {
    knob: &'a Knob,
    /// What it was before our first change, or what somebody else set between two of ours.
    original: &'a str,
    last: &'a Change,
}

/// Undoes changes, last knob first. A knob changed twice is written back once, to its first value.
pub(super) fn undo_all(root: &Root, changes: &[Change]) -> Vec<Restoration> {
    let mut undos: Vec<Undo> = Vec::new();
    for change in changes {
        match undos.iter_mut().find(|undo| *undo.knob == change.knob) {
            None => {
                undos.push(Undo { knob: &change.knob, original: &change.old, last: change });
            }
            Some(undo) => {
                if !undo.last.left(&change.old) {
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
        let is_ours = |now: &str| now == original || self.last.left(now);
        let now = self.knob.read_twice(root, is_ours)?;
        if now == original {
            return Ok(Outcome::AlreadyRestored { value: now });
        }
        if !self.last.left(&now) {
            let ours = self.last.got.as_ref().unwrap_or(&self.last.asked).clone();
            return Ok(Outcome::ChangedElsewhere { ours, now, original });
        }
        self.knob.write(root, &original)?;
        let got = self.knob.read(root)?;
        Ok(Outcome::Restored { from: now, to: original, got })
    }
}

impl Change {
    /// Whether `value` is what this change left the knob at. Killed before the read-back, a pool
    /// may have stopped anywhere between the old and the new size.
    fn left(&self, value: &str) -> bool {
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

/// The journal's bytes; `None` if there is none; the reason if it cannot be one.
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
