//! `Journal`: changes knobs, and undoes its changes.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fmt, fs};

use serde::{Deserialize, Serialize};
use units::Pid;

use super::knob::{JournalError, Knob};
use super::restore::{Outcome, Restoration};
use super::shared::Exclusive;
use super::{FILE, LOCK, canonical, restore, shared};
use crate::{Root, root, snapshot};

/// Maximum time to wait for the lock.
const MAX_WAIT: Duration = Duration::from_secs(3);

/// The only writer of knobs on the machine.
///
/// [`Journal::open`] takes the lock and first undoes a dead writer's changes; `set` changes knobs. [`Journal::restore`]
/// undoes the changes and removes the journal; dropping the journal does the same, even in a panic. [`Journal::keep`]
/// removes the journal and leaves the knobs.
#[derive(Debug)]
pub struct Journal {
    root: Root,
    path: PathBuf,
    file: File,
    /// Length in bytes of the file's complete lines.
    good_len: u64,
    changes: Vec<Change>,
    inherited: Vec<Restoration>,
    state: State,
    /// Shareable knobs that this journal holds exclusively.
    exclusive: Vec<Exclusive>,
    /// The last field: the lock is released only after the journal's file is removed.
    _lock: WriterLock,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Closed,
}

/// Result of writing a knob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// The requested value, canonical.
    pub asked: String,
    /// The value read back, canonical. The kernel may give a pool fewer pages than requested.
    pub got: String,
}

impl Written {
    /// Whether the knob has the requested value.
    pub fn is_full(&self) -> bool {
        self.asked == self.got
    }
}

/// A writer of knobs: [`Journal`], or a change to a shared knob.
pub trait KnobWriter {
    /// Sets `knob` to `value` and reads it back.
    ///
    /// # Errors
    /// Errors of the knob's file or of the journal's file.
    fn set(&mut self, knob: &Knob, value: &str) -> Result<Written, JournalError>;
}

impl KnobWriter for Journal {
    fn set(&mut self, knob: &Knob, value: &str) -> Result<Written, JournalError> {
        Journal::set(self, knob, value)
    }
}

impl Journal {
    /// Opens the journal in `dir` (created with mode 0700) for the knobs under `root`. First undoes the changes of a
    /// writer that died; see [`Journal::inherited`].
    pub fn open(dir: &Path, root: &Root) -> Result<Self, JournalError> {
        prepare(dir)?;
        let lock = WriterLock::wait(dir, MAX_WAIT, &|| true)?;
        let mut inherited = restore::recover(dir, root)?;
        inherited.extend(shared::recover_dead(dir, root)?);
        let path = dir.join(FILE);
        if path.symlink_metadata().is_ok() {
            let stuck = inherited.iter().find(|one| one.outcome.keeps_journal());
            let why = stuck.map_or_else(|| "it is there".to_string(), ToString::to_string);
            return Err(JournalError::LeftBehind { path, why });
        }
        let boot_id = root::word(root, snapshot::BOOT_ID)?;
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
            exclusive: Vec::new(),
            _lock: lock,
        };
        journal.append(&header)?;
        restore::sync_dir(dir)?;
        Ok(journal)
    }

    /// Changes undone when the journal was opened.
    pub fn inherited(&self) -> &[Restoration] {
        &self.inherited
    }

    /// Sets `knob` to `value`. The old value is on disk before the knob is written. Reads the new value back, records
    /// it and returns it. Does not write a knob that already has the value.
    pub fn set(&mut self, knob: &Knob, value: &str) -> Result<Written, JournalError> {
        let asked = canonical(value);
        knob.check(&asked)?;
        let mut old = knob.read(&self.root)?;
        if old == asked {
            return Ok(Written { asked, got: old });
        }
        knob.check(&old)?;
        if !self.exclusive.iter().any(|one| one.knob == *knob)
            && let Some(dir) = self.path.parent()
        {
            self.exclusive.extend(shared::take_exclusively(dir, &self.root, knob)?);
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
        // Read even after a failed write: a pool may have grown in part.
        let got = knob.read(&self.root)?;
        if let Some(change) = self.changes.last_mut() {
            change.got = Some(got.clone());
        }
        self.append(&Line::Wrote { seq, got: got.clone() })?;
        written.map(|()| Written { asked, got })
    }

    /// Undoes every change, last knob first, and returns the results. If a change could not be undone, the journal
    /// stays for [`super::restore_orphans`].
    pub fn restore(mut self) -> Vec<Restoration> {
        self.close()
    }

    /// Leaves the knobs as they are and forgets their old values.
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

    /// Appends one line and syncs it. Removes a partially written line again, so that the next line does not continue
    /// it.
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
            // Errors cannot be reported here; after a failure the journal stays for `superpage restore`.
            let _ = self.close();
        }
    }
}

// The journal's text: JSON lines, a versioned header first. The parser accepts untrusted bytes. See
// docs/decisions/settings.md#3.

/// The only format version.
const VERSION: u32 = 1;

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    superpage_journal: u32,
    pub boot_id: String,
    pub pid: i32,
    pub command: String,
}

/// Every other line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Line {
    /// The knob is about to be written. `old` and `asked` are canonical.
    Change { seq: u32, knob: Knob, old: String, asked: String },
    /// The knob was written and read back.
    Wrote { seq: u32, got: String },
}

/// One change, with the value read back if known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub seq: u32,
    pub knob: Knob,
    pub old: String,
    pub asked: String,
    pub got: Option<String>,
}

/// A line that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub line: usize,
    pub text: String,
    pub why: String,
    /// The line is incomplete: the writer died while writing the line, before it wrote the knob.
    pub half_written: bool,
}

/// Result of parsing a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Parsed {
    /// Empty, or only part of a header: the writer had not written any knob.
    NeverBegun,
    /// No valid header.
    NoHeader { why: String },
    /// A journal of another version.
    OtherVersion(u32),
    /// A journal, perhaps with faulty lines.
    Journal { header: Header, changes: Vec<Change>, faults: Vec<Fault> },
}

impl Header {
    pub fn new(boot_id: &str, pid: i32, command: &str) -> Self {
        let (boot_id, command) = (boot_id.to_string(), command.to_string());
        Self { superpage_journal: VERSION, boot_id, pid, command }
    }
}

pub(super) fn parse(bytes: &[u8]) -> Parsed {
    #[derive(Deserialize)]
    struct Opening {
        superpage_journal: u32,
    }
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').enumerate();
    let Some((_, first)) = lines.next() else { return Parsed::NeverBegun };
    match serde_json::from_slice::<Opening>(first) {
        Ok(opening) if opening.superpage_journal != VERSION => {
            return Parsed::OtherVersion(opening.superpage_journal);
        }
        Err(_) if !first.ends_with(b"\n") && first.starts_with(b"{") => return Parsed::NeverBegun,
        _ => {}
    }
    let header: Header = match serde_json::from_slice(first) {
        Ok(header) => header,
        Err(error) => return Parsed::NoHeader { why: printable(&error.to_string()) },
    };
    let (mut changes, mut faults) = (Vec::<Change>::new(), Vec::new());
    for (index, line) in lines.filter(|(_, line)| !line.trim_ascii().is_empty()) {
        if let Err(why) = read_line(line, &mut changes) {
            let half_written = !line.ends_with(b"\n");
            let text = printable(&String::from_utf8_lossy(line));
            faults.push(Fault { line: index + 1, text, why: printable(&why), half_written });
        }
    }
    Parsed::Journal { header, changes, faults }
}

fn read_line(line: &[u8], changes: &mut Vec<Change>) -> Result<(), String> {
    match serde_json::from_slice(line).map_err(|error| error.to_string())? {
        Line::Change { seq, knob, old, asked } => {
            knob.check(&old).and_then(|()| knob.check(&asked)).map_err(|e| e.to_string())?;
            changes.push(Change { seq, knob, old, asked, got: None });
        }
        Line::Wrote { seq, got } => {
            let change = changes.iter_mut().rev().find(|change| change.seq == seq);
            change.ok_or("it belongs to no change before it")?.got = Some(got);
        }
    }
    Ok(())
}

// The lock for the only writer on the machine: `flock` on a file in the journal's directory.

/// The process that holds the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Process ID; `None` while the holder has not written it yet.
    pub pid: Option<Pid>,
    /// The holder's command line, at most 200 printable characters.
    pub command: String,
}

/// The lock, held until this is dropped or the process ends.
#[derive(Debug)]
pub(super) struct WriterLock {
    file: File,
    pub holder: Holder,
}

impl WriterLock {
    /// Takes the lock. If another process holds the lock, waits up to `most`, while `goes_on` is true: most changes are
    /// short, and several commands may start together at boot.
    pub fn wait(
        dir: &Path,
        most: Duration,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Self, JournalError> {
        let until = Instant::now() + most;
        loop {
            match Self::take(dir) {
                Err(JournalError::Busy { .. }) if Instant::now() < until && goes_on() => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                taken => return taken,
            }
        }
    }

    /// Takes the lock, or fails with the process that holds it.
    pub fn take(dir: &Path) -> Result<Self, JournalError> {
        let path = dir.join(LOCK);
        let io = |doing, source| JournalError::io(doing, &path, source);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true).mode(0o600);
        let mut file = options.open(&path).map_err(|source| io("open", source))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(JournalError::Busy { holder: Holder::read_from(file), path });
            }
            Err(TryLockError::Error(source)) => return Err(io("lock", source)),
        }
        let holder = Holder::this_process();
        let line = serde_json::to_vec(&holder).map_err(|error| io("write", error.into()))?;
        // The holder's name is only for messages. A full disk must not prevent a restore.
        let _ = file.set_len(0).and_then(|()| file.write_all(&line));
        Ok(Self { file, holder })
    }
}

/// Unlocks explicitly. A child that another thread forked shares the open file description until it calls exec, and
/// would keep the lock.
impl Drop for WriterLock {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl Holder {
    fn this_process() -> Self {
        let line = fs::read("/proc/self/cmdline").unwrap_or_default();
        let text = String::from_utf8_lossy(&line).replace('\0', " ");
        Self { pid: Some(sys::param::own_pid()), command: printable(text.trim_end()) }
    }

    fn read_from(file: File) -> Self {
        let mut text = String::new();
        let _ = file.take(4096).read_to_string(&mut text);
        let unknown = Self { pid: None, command: String::new() };
        let holder: Self = serde_json::from_str(&text).unwrap_or(unknown);
        Self { command: printable(&holder.command), ..holder }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "{pid:?} ({})", self.command),
            None => write!(f, "another process"),
        }
    }
}

/// Makes untrusted text safe for a terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).take(200).collect()
}

/// Makes the journal's directory. If the directory exists, checks that only its owner can write to
/// it.
pub(super) fn prepare(dir: &Path) -> Result<(), JournalError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|source| JournalError::io("create", dir, source))?;
    let metadata = fs::metadata(dir).map_err(|source| JournalError::io("open", dir, source))?;
    match sys::trust::is_ours(&metadata) {
        true => Ok(()),
        false => Err(JournalError::OpenDirectory { path: dir.to_owned() }),
    }
}
