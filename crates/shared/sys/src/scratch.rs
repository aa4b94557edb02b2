//! Temporary directories below TMPDIR, for a command or the programs it runs. The owner locks each directory (flock)
//! while using it. A directory that a killed command left is unlocked, so the next command or `superpage restore`
//! removes it. See docs/decisions/security.md#5.

use std::fs::{DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::param;
use crate::user::User;

mod remove;

const PREFIX: &str = "superpage-run-";

/// A temporary directory, removed on drop.
#[derive(Debug)]
pub struct Scratch {
    /// The directory to use: `made`, or a directory inside `made` that belongs to another user.
    path: PathBuf,
    made: PathBuf,
    /// `None` once the directory is removed.
    lock: Option<File>,
}

/// A directory that could not be removed.
#[derive(Debug)]
pub struct Left {
    /// Its path.
    pub path: PathBuf,
    /// The error of the removal.
    pub why: io::Error,
}

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} could not be removed: {}; remove it by hand", self.path.display(), self.why)
    }
}

impl std::error::Error for Left {}

impl Scratch {
    /// Makes an empty directory that only `user` can access; `None`: only the current user.
    ///
    /// # Errors
    /// The directory cannot be created, or its owner cannot be changed.
    pub fn new(user: Option<&User>) -> io::Result<Self> {
        let parent = std::env::temp_dir();
        // Ignore failures: these directories are other runs', and `superpage restore` reports them.
        let _ = remove_left(&parent);
        let mut scratch = Self::in_parent(&parent)?;
        if let Some(user) = user {
            // The locked outer directory stays the current user's, so that the next command may
            // remove it.
            std::fs::set_permissions(&scratch.made, Permissions::from_mode(0o711))?;
            scratch.path.push("dir");
            DirBuilder::new().mode(0o700).create(&scratch.path)?;
            std::os::unix::fs::lchown(&scratch.path, Some(user.id), Some(user.group))?;
        }
        Ok(scratch)
    }

    fn in_parent(parent: &Path) -> io::Result<Self> {
        let mut number = 0;
        loop {
            let made = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
            number += 1;
            match DirBuilder::new().mode(0o700).create(&made) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            }
            // Another command may find and remove the directory before we lock it. Then try again.
            match lock(&made) {
                Ok(lock) => return Ok(Self { path: made.clone(), made, lock: Some(lock) }),
                Err(error) if is_taken(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the directory with its contents.
    ///
    /// # Errors
    /// This user may not remove part of the contents.
    pub fn close(mut self) -> Result<(), Left> {
        self.remove()
    }

    fn remove(&mut self) -> Result<(), Left> {
        match self.lock.take() {
            Some(_lock) => removed(&self.made),
            None => Ok(()),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

fn removed(path: &Path) -> Result<(), Left> {
    remove::all(path).map_err(|why| Left { path: path.to_path_buf(), why })
}

fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotFound)
}

/// Locks a directory, then checks that the path still leads to this directory.
fn lock(path: &Path) -> io::Result<File> {
    let directory = File::open(path)?;
    match directory.try_lock() {
        Ok(()) => {}
        // The file system has no flock, so no other command can lock and remove the directory
        // either.
        Err(TryLockError::Error(_)) => return Ok(directory),
        Err(error @ TryLockError::WouldBlock) => return Err(error.into()),
    }
    match std::fs::symlink_metadata(path)?.ino() == directory.metadata()?.ino() {
        true => Ok(directory),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Removes directories in `parent` that killed commands of this user left. Returns the path of each, or the error.
pub fn remove_left(parent: &Path) -> Vec<Result<PathBuf, Left>> {
    let mut done = Vec::new();
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let is_own = name.to_string_lossy().starts_with(PREFIX)
            && entry.metadata().is_ok_and(|it| it.is_dir() && it.uid() == param::effective_user());
        if is_own && File::open(&path).is_ok_and(|directory| directory.try_lock().is_ok()) {
            done.push(removed(&path).map(|()| path));
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_killed_command_left_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let directory = parent.path().join(name);
            std::fs::create_dir(&directory).unwrap();
            directory
        };
        // `empty` stands for a command that was killed before it wrote anything.
        let (left, empty) = (make("superpage-run-1-0"), make("superpage-run-2-0"));
        let (used, other) = (make("superpage-run-3-0"), make("x"));
        std::fs::write(left.join("frames"), "").unwrap();
        let alive = lock(&used).unwrap();
        assert!(is_taken(&lock(&used).unwrap_err()));
        let mut removed: Vec<_> =
            remove_left(parent.path()).into_iter().map(Result::unwrap).collect();
        removed.sort();
        assert_eq!(removed, [&left, &empty].map(Clone::clone));
        let is_there = [&left, &empty, &used, &other].map(|it| it.exists());
        assert_eq!(is_there, [false, false, true, true]);
        alive.unlock().unwrap(); // a child of another test may have inherited it
        drop(alive);
        remove_left(parent.path());
        assert!(!used.exists());
        assert!(is_taken(&lock(&used).unwrap_err()));
    }

    #[test]
    fn only_its_user_can_look_into_it() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::in_parent(parent.path()).unwrap();
        assert_eq!(scratch.path().metadata().unwrap().mode() & 0o7777, 0o700);
        let path = scratch.path().to_path_buf();
        scratch.close().unwrap();
        assert!(!path.exists());
    }
}
