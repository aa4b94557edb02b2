//! `OnlyManager`: one process manages a machine's processes at a time.
//!
//! The lock is flock(2) on a file that is never removed: the kernel releases it when the holder ends, also by SIGKILL,
//! and no file that is locked can be replaced by another one. See docs/decisions/manage.md#5.

use std::fs::{DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use units::Pid;

use crate::holder::{holder, write_own};

/// The machine's lock.
pub const LOCK: &str = "/run/superpage/manage.lock";
/// Mode of its directory.
const MODE: u32 = 0o711;
/// Time for which a process that only looks ([`check_unmanaged`]) may hold the lock.
const LOOKED_AT: Duration = Duration::from_millis(50);
/// Time between two attempts.
const STEP: Duration = Duration::from_millis(5);

/// The right to manage processes, until it is dropped or the process ends.
#[derive(Debug)]
pub struct OnlyManager {
    file: File,
}

/// Why the right was not got.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error(
        "{} manages this machine's processes; stop it, or act once with --once",
        holder.map_or("another process".to_string(), |pid| format!("process {pid}"))
    )]
    Held {
        /// The process; `None`: it has not written its pid yet.
        holder: Option<Pid>,
    },
    /// A comparison switches the memory of processes.
    #[error(
        "superpage compare switches the memory of a running service now; start the manager when it has ended"
    )]
    Comparing,
    /// The file cannot be used.
    #[error("cannot {doing} the lock {}: {source}{}", path.display(), remedy(source))]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

impl OnlyManager {
    /// Takes the lock of the file at `path`, usually [`LOCK`]. Makes its directory.
    ///
    /// # Errors
    /// Another process holds the lock, or the file cannot be used.
    pub fn new(path: &Path) -> Result<Self, LockError> {
        let mut file = create(path)?;
        let end = Instant::now() + LOOKED_AT;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < end => std::thread::sleep(STEP),
                Err(TryLockError::WouldBlock) => {
                    return Err(match file.try_lock_shared() {
                        Ok(()) => LockError::Comparing,
                        Err(_) => LockError::Held { holder: holder(&file) },
                    });
                }
                Err(TryLockError::Error(source)) => return Err(failed("take", path, source)),
            }
        }
        write_own(&mut file);
        Ok(Self { file })
    }
}

/// The right to switch the memory of processes, in which no manager starts. Several processes can have it.
#[derive(Debug)]
pub struct NoManager {
    file: File,
}

impl NoManager {
    /// Takes the lock of the file at `path`, shared. Makes its directory.
    ///
    /// # Errors
    /// A manager holds the lock, or the file cannot be used.
    pub fn new(path: &Path) -> Result<Self, LockError> {
        let file = create(path)?;
        share(&file, "take", path)?;
        Ok(Self { file })
    }
}

impl Drop for NoManager {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// Opens the file of the lock, and makes it and its directory. Readable by all: a second manager reads the pid of the first.
fn create(path: &Path) -> Result<File, LockError> {
    if let Some(directory) = path.parent() {
        make(directory).map_err(|source| failed("make the directory of", path, source))?;
    }
    let mut options = sys::trust::no_links();
    options.create(true).truncate(false).read(true).write(true).mode(0o644);
    options.open(path).map_err(|source| failed("open", path, source))
}

/// Takes the lock, shared.
fn share(file: &File, doing: &'static str, path: &Path) -> Result<(), LockError> {
    file.try_lock_shared().map_err(|error| match error {
        TryLockError::WouldBlock => LockError::Held { holder: holder(file) },
        TryLockError::Error(source) => failed(doing, path, source),
    })
}

fn failed(doing: &'static str, path: &Path, source: io::Error) -> LockError {
    LockError::Io { doing, path: path.to_path_buf(), source }
}

/// Looks whether a process manages the machine's processes. Writes nothing. Takes the lock, shared, for a moment.
///
/// # Errors
/// [`LockError::Held`] if one does, or the file cannot be read.
pub fn check_unmanaged(path: &Path) -> Result<(), LockError> {
    match File::open(path) {
        Ok(file) => share(&file, "look at", path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("open", path, error)),
    }
}

/// Unlocks explicitly: a child that another thread forked shares the open file description until it calls execve.
impl Drop for OnlyManager {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

fn remedy(source: &io::Error) -> &'static str {
    let is_denied = source.kind() == io::ErrorKind::PermissionDenied;
    match is_denied && sys::param::effective_user() != 0 {
        true => "; managing needs root",
        false => "",
    }
}

/// Makes the directory as other commands do that have files there: others may neither list nor fill it.
fn make(directory: &Path) -> io::Result<()> {
    sys::trust::check_as_root(directory)?;
    match DirBuilder::new().mode(MODE).create(directory) {
        // Restores the mode bits that the umask cleared.
        Ok(()) => std::fs::set_permissions(directory, Permissions::from_mode(MODE))?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    sys::trust::check_as_root(directory)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_second_manager_is_told_the_pid_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("superpage/manage.lock");
        let first = OnlyManager::new(&path).unwrap();
        let directory = std::fs::metadata(path.parent().unwrap()).unwrap();
        assert_eq!(directory.permissions().mode() & 0o7777, MODE);
        let error = OnlyManager::new(&path).unwrap_err();
        let own = sys::param::own_pid();
        assert!(matches!(error, LockError::Held { holder: Some(pid) } if pid == own));
        assert!(error.to_string().starts_with(&format!("process {own} manages")), "{error}");
        assert!(
            matches!(check_unmanaged(&path), Err(LockError::Held { holder: Some(pid) }) if pid == own)
        );
        assert!(matches!(NoManager::new(&path), Err(LockError::Held { .. })));
        drop(first);
        check_unmanaged(&path).unwrap();
        let comparisons = [NoManager::new(&path).unwrap(), NoManager::new(&path).unwrap()];
        assert!(matches!(OnlyManager::new(&path), Err(LockError::Comparing)));
        check_unmanaged(&path).unwrap();
        drop(comparisons);
        check_unmanaged(&dir.path().join("none")).unwrap();
        OnlyManager::new(&path).unwrap();
    }

    #[test]
    fn the_lock_of_a_killed_manager_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("manage.lock");
        // flock(1) that executes its program instead of forking: one process, which is killed while it holds the lock.
        let mut command = Command::new("flock");
        command.arg("--no-fork").arg(&path).args(["sh", "-c", "echo held; exec sleep 60"]);
        let Ok(mut child) = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn() else {
            return testkit::skipped!("no flock(1)");
        };
        let mut line = [0; 5];
        child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
        std::fs::write(&path, "12").unwrap();
        let error = OnlyManager::new(&path).unwrap_err();
        assert!(matches!(error, LockError::Held { holder: Some(Pid(12)) }), "{error}");
        for (text, expected) in [("", None), ("x", None), ("-3", None), ("99999999999", None)] {
            std::fs::write(&path, text).unwrap();
            let error = OnlyManager::new(&path).unwrap_err();
            assert!(matches!(error, LockError::Held { holder } if holder == expected), "{text}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        OnlyManager::new(&path).unwrap();
    }

    #[test]
    fn a_link_in_the_place_of_the_lock_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, target) = (dir.path().join("manage.lock"), dir.path().join("target"));
        std::fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        let error = OnlyManager::new(&path).unwrap_err();
        assert!(matches!(error, LockError::Io { doing: "open", .. }), "{error}");
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "precious");
    }
}
