//! The directory where the plugin finds the recorder's socket. The recorder holds its lock (flock) as long as it lives:
//! what a killed recorder leaves, at whatever moment, is removed by the next.

use std::fs::{File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

const PREFIX: &str = "superpage-record";

/// See the module.
pub struct Scratch {
    pub directory: tempfile::TempDir,
    _lock: File,
}

impl Scratch {
    /// A fresh one, of this user alone.
    pub fn new() -> io::Result<Self> {
        let parent = std::env::temp_dir();
        remove_left(&parent);
        loop {
            let mode = Permissions::from_mode(0o700);
            let directory =
                tempfile::Builder::new().prefix(PREFIX).permissions(mode).tempdir_in(&parent)?;
            // Another recorder that finds it before it is locked removes it: then there is another try.
            match lock(directory.path()) {
                Ok(lock) => return Ok(Self { directory, _lock: lock }),
                Err(error) if is_taken(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotFound)
}

/// Locks a directory, which must still be there afterwards.
fn lock(path: &Path) -> io::Result<File> {
    let directory = File::open(path)?;
    match directory.try_lock() {
        Ok(()) => {}
        // A filesystem without such locks: nobody can take it for left.
        Err(TryLockError::Error(_)) => return Ok(directory),
        Err(error @ TryLockError::WouldBlock) => return Err(error.into()),
    }
    match std::fs::symlink_metadata(path)?.ino() == directory.metadata()?.ino() {
        true => Ok(directory),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Removes the directories of recorders that were killed.
fn remove_left(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let is_own = name.to_string_lossy().starts_with(PREFIX)
            && entry
                .metadata()
                .is_ok_and(|it| it.is_dir() && it.uid() == sys::param::effective_user());
        if is_own && File::open(&path).is_ok_and(|directory| directory.try_lock().is_ok()) {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_killed_recorder_left_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let directory = parent.path().join(name);
            std::fs::create_dir(&directory).unwrap();
            directory
        };
        // One was killed before it had put anything there.
        let (left, empty) = (make("superpage-recordA"), make("superpage-recordB"));
        let (used, other) = (make("superpage-recordC"), make("x"));
        std::fs::write(left.join("frames"), "").unwrap();
        let alive = lock(&used).unwrap();
        assert!(is_taken(&lock(&used).unwrap_err()));
        remove_left(parent.path());
        let is_there = [&left, &empty, &used, &other].map(|it| it.exists());
        assert_eq!(is_there, [false, false, true, true]);
        alive.unlock().unwrap(); // a child of another test may have it too
        drop(alive);
        remove_left(parent.path());
        assert!(!used.exists());
        assert!(is_taken(&lock(&used).unwrap_err()));
    }
}
