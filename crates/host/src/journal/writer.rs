//! `Journal`: changes knobs, and undoes what it changed.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::JournalError;
use super::knob::Knob;
use super::lock::{self, WriterLock};
use super::outcome::{Outcome, Restoration};
use super::record::{Change, Header, Line};
use super::restore;
use super::shared::{self, Alone};
use super::{FILE, canonical};
use crate::{Root, snapshot, text};

/// How long is waited for another change.
const MAX_WAIT: Duration = Duration::from_secs(3);

/// The machine's one writer of knobs.
///
/// Life: [`Journal::open`] takes the lock and first undoes what a dead writer left; `set` changes
/// knobs; [`Journal::restore`] undoes them and removes the journal, and so does dropping it, also
/// in a panic. [`Journal::keep`] removes the journal and leaves the knobs.
#[derive(Debug)]
pub struct Journal {
    root: Root,
    path: PathBuf,
    file: File,
    /// How much of the file is whole lines.
    good_len: u64,
    changes: Vec<Change>,
    inherited: Vec<Restoration>,
    state: State,
    /// Knobs that others could share, kept for this journal.
    alone: Vec<Alone>,
    /// Held until the very end: released after the journal's file is gone.
    _lock: WriterLock,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Closed,
}

/// What writing a knob came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// What was asked for, canonical.
    pub asked: String,
    /// What the knob said afterwards, canonical: a pool may give less.
    pub got: String,
}

impl Written {
    /// Whether all of it was got.
    pub fn is_full(&self) -> bool {
        self.asked == self.got
    }
}

/// Who may write knobs: [`Journal`], or within a change to a shared knob.
pub trait KnobWriter {
    /// Sets `knob` to `value` and reads it back.
    ///
    /// # Errors
    /// What the knob's file, or the journal's, says.
    fn set(&mut self, knob: &Knob, value: &str) -> Result<Written, JournalError>;
}

impl KnobWriter for Journal {
    fn set(&mut self, knob: &Knob, value: &str) -> Result<Written, JournalError> {
        Journal::set(self, knob, value)
    }
}

impl Journal {
    /// Opens the journal in `dir` (created with mode 0700) for the knobs under `root`. What a dead
    /// writer left is undone first; see [`Journal::inherited`].
    pub fn open(dir: &Path, root: &Root) -> Result<Self, JournalError> {
        lock::prepare(dir)?;
        let lock = WriterLock::wait(dir, MAX_WAIT, &|| true)?;
        let mut inherited = restore::recover(dir, root)?;
        inherited.extend(shared::recover_dead(dir, root)?);
        let path = dir.join(FILE);
        if path.symlink_metadata().is_ok() {
            let stuck = inherited.iter().find(|one| one.outcome.keeps_journal());
            let why = stuck.map_or_else(|| "it is there".to_string(), ToString::to_string);
            return Err(JournalError::LeftBehind { path, why });
        }
        let boot_id = text::word(root, snapshot::BOOT_ID)?;
        let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path);
        let file = file.map_err(|source| JournalError::io("create", &path, source))?;
        let pid = lock.holder.pid.map_or(0, |pid| pid.0);
        let header = Header::new(&boot_id, pid, &lock.holder.command);
        let mut journal = Self {
            root: root.clone(),
            path,
            file,
            good_len: 0,
            changes: Vec::new(),
            inherited,
            state: State::Open,
            alone: Vec::new(),
            _lock: lock,
        };
        journal.append(&header)?;
        restore::sync_dir(dir)?;
        Ok(journal)
    }

    /// What was undone when the journal was opened.
    pub fn inherited(&self) -> &[Restoration] {
        &self.inherited
    }

    /// Sets `knob` to `value`. The old value is on disk before the knob is written; what was got
    /// is read back, recorded and returned. A knob that has the value already is left alone.
    pub fn set(&mut self, knob: &Knob, value: &str) -> Result<Written, JournalError> {
        let asked = canonical(value);
        knob.check(&asked)?;
        let mut old = knob.read(&self.root)?;
        if old == asked {
            return Ok(Written { asked, got: old });
        }
        knob.check(&old)?;
        if !self.alone.iter().any(|alone| alone.knob == *knob)
            && let Some(dir) = self.path.parent()
        {
            self.alone.extend(shared::take_alone(dir, &self.root, knob)?);
            old = knob.read(&self.root)?;
            knob.check(&old)?;
        }
        let seq = self.changes.len() as u32 + 1;
        self.append(&Line::Change {
            seq,
            knob: knob.clone(),
            old: old.clone(),
            asked: asked.clone(),
        })?;
        self.changes.push(Change { seq, knob: knob.clone(), old, asked: asked.clone(), got: None });
        let written = knob.write(&self.root, &asked);
        // Also after a failure: a pool may have grown in part.
        let got = knob.read(&self.root)?;
        if let Some(change) = self.changes.last_mut() {
            change.got = Some(got.clone());
        }
        self.append(&Line::Wrote { seq, got: got.clone() })?;
        written.map(|()| Written { asked, got })
    }

    /// Undoes every change, last knob first, and says what came of each. If one failed, the
    /// journal stays for [`super::restore_orphans`].
    pub fn restore(mut self) -> Vec<Restoration> {
        self.close()
    }

    /// Leaves the knobs as they are and forgets what they were.
    pub fn keep(mut self) -> Result<(), JournalError> {
        self.state = State::Closed;
        restore::remove(&self.path)
    }

    fn close(&mut self) -> Vec<Restoration> {
        self.state = State::Closed;
        let mut done = restore::undo_all(&self.root, &self.changes);
        if !done.iter().any(|one| one.outcome.keeps_journal())
            && let Err(error) = restore::remove(&self.path)
        {
            done.push(Restoration {
                knob: None,
                outcome: Outcome::Failed { why: error.to_string() },
            });
        }
        done
    }

    /// Appends one line and syncs it. A line that could not be written whole is cut off again, so
    /// that the next one does not begin in the middle of it.
    fn append(&mut self, line: &impl Serialize) -> Result<(), JournalError> {
        let mut bytes = serde_json::to_vec(line)
            .map_err(|error| JournalError::io("write", &self.path, error.into()))?;
        bytes.push(b'\n');
        let written = self.file.write_all(&bytes).and_then(|()| self.file.sync_data());
        if let Err(source) = written {
            let _ = self.file.set_len(self.good_len);
            let _ = self.file.seek(SeekFrom::Start(self.good_len));
            return Err(JournalError::io("write", &self.path, source));
        }
        self.good_len += bytes.len() as u64;
        Ok(())
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if self.state == State::Open {
            // Nobody is left to hear of it; a failure leaves the journal for `superpage restore`.
            let _ = self.close();
        }
    }
}
