//! The directory where the plugin finds the recorder's socket. A pipe in it, which the recorder alone holds open, says
//! that it lives: what a killed recorder leaves is removed by the next.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const PREFIX: &str = "superpage-record";
/// The pipe's name.
const ALIVE: &str = "alive";

/// See the module.
pub struct Scratch {
    pub directory: tempfile::TempDir,
    /// Nothing is ever written to it.
    _alive: File,
}

impl Scratch {
    /// A fresh one, of this user alone.
    pub fn new() -> io::Result<Self> {
        remove_left(&std::env::temp_dir());
        let directory = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(Permissions::from_mode(0o700))
            .tempdir()?;
        let path = directory.path().join(ALIVE);
        sys::fifo::make(&path)?;
        // For reading too: a pipe without a reader could not be opened yet.
        let alive = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Self { directory, _alive: alive })
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
        if is_own && is_left(&path.join(ALIVE)) {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

/// Whether nobody holds the pipe open: reading it would wait otherwise.
fn is_left(pipe: &Path) -> bool {
    let opened = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(pipe);
    opened.is_ok_and(|mut pipe| matches!(pipe.read(&mut [0]), Ok(0)))
}

/// open(2), x86.
const O_NONBLOCK: i32 = 0o4000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_killed_recorder_left_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let directory = parent.path().join(name);
            std::fs::create_dir(&directory).unwrap();
            sys::fifo::make(&directory.join(ALIVE)).unwrap();
            directory
        };
        let (left, used, other) = (make("superpage-recordA"), make("superpage-recordB"), make("x"));
        let alive = OpenOptions::new().read(true).write(true).open(used.join(ALIVE)).unwrap();
        remove_left(parent.path());
        assert_eq!((left.exists(), used.exists(), other.exists()), (false, true, true));
        drop(alive);
        remove_left(parent.path());
        assert!(!used.exists());
    }
}
