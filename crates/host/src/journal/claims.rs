//! The files of a shared knob: `state`, which is replaced as a whole, and `share-PID-N` for each holder.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};

use super::error::JournalError;
use super::lock::Holder;
use super::shared::Claim;
use crate::{Root, snapshot, text};

const STATE: &str = "state";
/// What the name of a holder's file begins with.
pub const SHARE: &str = "share-";

/// What was found, and what was last written. Values of the knob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub superpage_share: u32,
    pub boot_id: String,
    pub found: u64,
    pub old: u64,
    pub asked: u64,
    /// `None`: about to be written, or its writer died in the midst of it.
    pub got: Option<u64>,
    /// Of a pool on several nodes, the pages of each when it was found.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<u32, u64>,
}

impl State {
    /// Whether `now` is what the last change left: killed before the read-back, a pool may have stopped
    /// anywhere between the old and the new size.
    pub fn left(&self, now: u64) -> bool {
        let (low, high) = (self.old.min(self.asked), self.old.max(self.asked));
        self.got.map_or((low..=high).contains(&now), |got| got == now)
    }

    /// What is written there; nothing if it is of another boot, which reset the knob, or cannot be read: a
    /// state is replaced as a whole, so that is not ours.
    pub fn read(dir: &Path, root: &Root) -> Result<Option<Self>, JournalError> {
        let path = dir.join(STATE);
        let file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|source| JournalError::io("open", &path, source))?,
        };
        let mut bytes = Vec::new();
        let read = file.take(4096).read_to_end(&mut bytes);
        read.map_err(|source| JournalError::io("read", &path, source))?;
        let state = serde_json::from_slice::<Self>(&bytes).ok();
        let boot_id = text::word(root, snapshot::BOOT_ID)?;
        Ok(state.filter(|state| state.superpage_share == 1 && state.boot_id == boot_id))
    }

    /// Replaces it as a whole. It is not synced: it must outlive its writer, however that ends, but not the machine,
    /// which forgets the knobs too.
    pub fn put(&self, dir: &Path) -> Result<(), JournalError> {
        let (path, new) = (dir.join(STATE), dir.join("state.new"));
        let written = || {
            let mut options = OpenOptions::new();
            let mut file =
                options.create(true).truncate(true).write(true).mode(0o600).open(&new)?;
            file.write_all(&serde_json::to_vec(self)?)?;
            fs::rename(&new, &path)
        };
        written().map_err(|source| JournalError::io("write", &path, source))
    }

    pub fn remove(dir: &Path) -> Result<(), JournalError> {
        let path = dir.join(STATE);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(JournalError::io("remove", path, error))
            }
            _ => Ok(()),
        }
    }
}

/// What a share's file says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wanted {
    pub holder: Holder,
    pub want: Claim,
}

impl Wanted {
    pub fn read(file: File) -> Option<Self> {
        let mut bytes = Vec::new();
        file.take(4096).read_to_end(&mut bytes).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// Makes the one in a file want nothing any more. Its holder may be gone meanwhile.
    pub fn annul(path: &Path) -> Result<(), JournalError> {
        let io = |source| JournalError::io("write", path, source);
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            file => file.map_err(io)?,
        };
        let Some(wanted) = Self::read(file.try_clone().map_err(io)?) else { return Ok(()) };
        let wanted = Self { want: Claim::Plus(0), ..wanted };
        write_over(&file, &wanted).map_err(io)
    }
}

/// In place: the lock is the file's.
fn write_over(file: &File, wanted: &Wanted) -> std::io::Result<()> {
    let bytes = serde_json::to_vec(wanted)?;
    file.set_len(0)?;
    file.write_all_at(&bytes, 0)
}

/// One holder's file, locked by it.
#[derive(Debug)]
pub struct Share {
    pub path: PathBuf,
    pub file: File,
    pub holder: Holder,
    pub want: Claim,
}

impl Share {
    /// The caller holds the place's lock, so nobody takes the file for a dead holder's before it is locked.
    pub fn create(dir: &Path, holder: &Holder, want: Claim) -> Result<Self, JournalError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let pid = holder.pid.map_or(0, |pid| pid.0);
        let path = dir.join(format!("{SHARE}{pid}-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        let mut options = OpenOptions::new();
        let file = options.create_new(true).read(true).write(true).mode(0o600).open(&path);
        let file = file.map_err(|source| JournalError::io("create", &path, source))?;
        file.lock().map_err(|source| JournalError::io("lock", &path, source))?;
        let mut share = Self { path, file, holder: holder.clone(), want };
        share.rewrite(want)?;
        Ok(share)
    }

    /// Only the holder and who holds the place's lock look at it.
    pub fn rewrite(&mut self, want: Claim) -> Result<(), JournalError> {
        self.want = want;
        let wanted = Wanted { holder: self.holder.clone(), want };
        let written = write_over(&self.file, &wanted);
        written.map_err(|source| JournalError::io("write", &self.path, source))
    }

    pub fn remove(self) -> Result<(), JournalError> {
        fs::remove_file(&self.path).map_err(|source| JournalError::io("remove", self.path, source))
    }
}
