//! The lock that makes one writer on the machine: `flock` on a file in the journal's directory.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use units::Pid;

use super::LOCK;
use super::error::JournalError;

/// Who holds the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The process; `None` while it has not yet written its name down.
    pub pid: Option<Pid>,
    /// Its command line, at most 200 printable characters.
    pub command: String,
}

/// The lock, held until this is dropped or the process ends.
#[derive(Debug)]
pub(super) struct WriterLock {
    file: File,
    pub holder: Holder,
}

impl WriterLock {
    /// The same; waits so long for who has it, while `goes_on`. Most changes are short, and at boot several come at once.
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

    /// Takes the lock or says who has it.
    pub fn take(dir: &Path) -> Result<Self, JournalError> {
        let path = dir.join(LOCK);
        let io = |doing, source| JournalError::io(doing, &path, source);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true).mode(0o600);
        let mut file = options.open(&path).map_err(|source| io("open", source))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(JournalError::Busy { holder: Holder::written_in(file), path });
            }
            Err(TryLockError::Error(source)) => return Err(io("lock", source)),
        }
        let holder = Holder::this_process();
        let line = serde_json::to_vec(&holder).map_err(|error| io("write", error.into()))?;
        // It is only told to others: on a full disk too what was changed is put back.
        let _ = file.set_len(0).and_then(|()| file.write_all(&line));
        Ok(Self { file, holder })
    }
}

/// Unlocked, not only closed: a child that another thread has forked and that does not execute its program yet has the
/// same open file, which would keep the lock.
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

    fn written_in(file: File) -> Self {
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

/// Text from elsewhere as it may be shown on a terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).take(200).collect()
}

/// Makes the journal's directory, or makes sure that nobody else can write in the one there is.
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
