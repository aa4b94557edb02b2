//! The counters of one run. All processes of a program with libsuperpage.so map them and add to them; this process
//! reads the totals.
//!
//! Another process that can shorten a mapped file can kill every process that touches it (SIGBUS). So the shared file
//! must be out of reach or of fixed size:
//!
//! - **A sealed memory file** (`F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL`) that this process holds. It has no name,
//!   and disappears with its last user even after a SIGKILL. It is opened as `/proc/PID/fd/N` of this process, which
//!   the kernel allows to every process that may trace this one. The program inherits no descriptor: each process maps
//!   the file when it starts and closes it at once. So forks, closed descriptors and a later change of user lose
//!   nothing, and an executed program opens the file anew by the path in its environment.
//! - **A directory for processes that may not open that file**: an executed program that became another user, gave up
//!   capabilities, or is in another user namespace. In the directory each user has one file, with mode 0600. Nobody
//!   else can list names in its parent (/run/superpage of root, mode 0711, or $XDG_RUNTIME_DIR, mode 0700). Its name
//!   has 128 random bits. It exists only where all this is possible.
//! - **A process that reaches neither** counts for itself alone; [`Mark::is_uncounted`] recognises such a process.
//!
//! Rejected: an inherited descriptor (programs see it, daemons close it); a socket that hands out descriptors (seccomp
//! filters kill for `socket`, and its name is in /proc/net/unix); System V memory (mode 0666, or lost after setuid);
//! one file for all users under a secret name (any user who knows the name can shorten it).
//! See docs/decisions/security.md#1.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use abi::Totals;
use host::process::{Maps, Sharing};
use host::{ReadError, Root};
use units::Pid;

const ROOT_DIRECTORY: &str = "/run/superpage";
const PREFIX: &str = "run-";
/// Maximum number of files read per directory. A program has one file for each user that it became.
const MAX_FILES: usize = 1024;

/// Why a run has no counters.
#[derive(Debug, thiserror::Error)]
pub enum CountersError {
    /// The memory file could not be created.
    #[error(transparent)]
    Sys(#[from] sys::SysError),
    /// The program could not open the memory file.
    #[error("/proc is not mounted, by which the program's processes would reach the counters")]
    NoProc,
}

/// The counters of a run; removed on drop.
#[derive(Debug)]
pub struct CounterFile {
    sealed: File,
    mark: Mark,
    beside: Option<Beside>,
}

/// Identifies processes that add to the counters.
#[derive(Clone, Debug)]
pub struct Mark {
    inode: u64,
    beside: Option<String>,
}

impl CounterFile {
    /// Creates empty counters.
    pub fn create() -> Result<Self, CountersError> {
        let sealed = File::from(sys::memfd::sealed("superpage-ledger", &abi::empty())?);
        // Open the file by its path, as the program does.
        let path = path_of(&sealed);
        let metadata = fs::metadata(&path).map_err(|_| CountersError::NoProc)?;
        let beside = Beside::create();
        let name = beside.as_ref().map(|beside| beside.path.display().to_string());
        let mark = Mark { inode: metadata.ino(), beside: name };
        Ok(Self { sealed, mark, beside })
    }

    /// Returns the environment variable for the program's processes: the path, the identity of the file, the directory.
    pub fn variable(&self) -> (String, String) {
        let mut value = format!("{}:{}", path_of(&self.sealed).display(), self.mark.inode);
        if let Some(path) = &self.mark.beside {
            value += &format!(":{path}");
        }
        (abi::environment::COUNTERS.to_string(), value)
    }

    /// Returns the current totals; `None` if they cannot be read.
    pub fn totals(&self) -> Option<Totals> {
        let mut bytes = [0; abi::BYTES];
        self.sealed.read_exact_at(&mut bytes, 0).ok()?;
        let mut totals = Totals::parse(&bytes)?;
        for more in self.beside.iter().flat_map(Beside::totals) {
            totals.add(&more);
        }
        Some(totals)
    }

    /// Maps the words through which the program's processes make requests ([`abi::supply`]).
    pub(crate) fn words(&self) -> Result<sys::shared::SharedWords, sys::SysError> {
        sys::shared::SharedWords::map(&self.sealed, abi::WORDS)
    }

    /// Returns the mark that identifies the processes that use the counters.
    pub fn mark(&self) -> Mark {
        self.mark.clone()
    }
}

fn path_of(file: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", sys::param::own_pid(), file.as_raw_fd()).into()
}

impl Mark {
    /// Returns whether a process has loaded the library but does not add to this run's counters: it could not open
    /// them, or is about to. `None` if neither is mapped, because the process may be about to load the library.
    pub fn is_uncounted(&self, root: &Root, pid: Pid) -> Result<Option<bool>, ReadError> {
        let mut has_library = false;
        for mapping in Maps::open(root, pid)? {
            let mapping = mapping?;
            has_library |= mapping.name.contains("/libsuperpage.so");
            let is_sealed =
                mapping.inode == self.inode && mapping.name.starts_with("/memfd:superpage-ledger");
            let is_beside = self.beside.as_ref().is_some_and(|path| mapping.name.starts_with(path));
            if mapping.sharing == Sharing::Shared && (is_sealed || is_beside) {
                return Ok(Some(false));
            }
        }
        Ok(has_library.then_some(true))
    }
}

/// A directory in which each user has a file of counters.
#[derive(Debug)]
struct Beside {
    path: PathBuf,
    /// Locked during the run, so that a later run can recognize the leftovers of a killed one.
    _lock: File,
}

impl Beside {
    /// Creates the directory; `None` if there is no parent that only its owner can list.
    fn create() -> Option<Self> {
        let (base, mode) = match sys::param::effective_user() {
            0 => (PathBuf::from(ROOT_DIRECTORY), 0o711),
            _ => (PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?), 0o700),
        };
        Self::create_in(&base, mode)
    }

    fn create_in(base: &Path, mode: u32) -> Option<Self> {
        let root = sys::param::effective_user() == 0;
        if root && DirBuilder::new().mode(mode).create(base).is_ok() {
            // Restores the mode bits that the umask cleared.
            fs::set_permissions(base, Permissions::from_mode(mode)).ok()?;
        }
        let metadata = fs::symlink_metadata(base).ok()?;
        // Other users may neither list nor replace the directory.
        let is_ours = metadata.is_dir() && metadata.uid() == sys::param::effective_user();
        if !is_ours || metadata.mode() & 0o066 != 0 {
            return None;
        }
        let guard = open_directory(base)?;
        guard.lock().ok()?;
        clear_leftovers(base);
        let mut random = [0; 16];
        File::open("/dev/urandom").ok()?.read_exact(&mut random).ok()?;
        let path = base.join(format!("{PREFIX}{:032x}", u128::from_ne_bytes(random)));
        DirBuilder::new().mode(0o700).create(&path).ok()?;
        let lock = open_directory(&path)?;
        lock.try_lock().ok()?;
        // Other users may create files in root's directory, and open their own. They may not list it or remove files of
        // others.
        let mode = if root { 0o1733 } else { 0o700 };
        fs::set_permissions(&path, Permissions::from_mode(mode)).ok()?;
        Some(Self { path, _lock: lock })
    }

    fn totals(&self) -> Vec<Totals> {
        let Ok(entries) = fs::read_dir(&self.path) else { return Vec::new() };
        entries.flatten().take(MAX_FILES).filter_map(|entry| read(&entry.path())).collect()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Reads one user's file; `None` if it has no counters, because any user who knows the directory may put files there.
fn read(path: &Path) -> Option<Totals> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.open(path).ok()?;
    let metadata = file.metadata().ok()?;
    if !metadata.is_file() || metadata.len() != abi::BYTES as u64 {
        return None;
    }
    let mut bytes = [0; abi::BYTES];
    file.read_exact_at(&mut bytes, 0).ok()?;
    Totals::parse(&bytes)
}

fn is_random(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Removes leftovers of killed runs. The caller holds the lock of `base`.
fn clear_leftovers(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        // Skip other names: users may keep files in this directory.
        let name = entry.file_name();
        let is_run =
            name.to_str().and_then(|name| name.strip_prefix(PREFIX)).is_some_and(is_random);
        if is_run && open_directory(&entry.path()).is_some_and(|lock| lock.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn open_directory(path: &Path) -> Option<File> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags).open(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn private() -> tempfile::TempDir {
        let mode = Permissions::from_mode(0o711);
        tempfile::Builder::new().permissions(mode).tempdir().unwrap()
    }

    #[test]
    fn it_can_be_neither_shortened_nor_lengthened_nor_unsealed() {
        let counters = CounterFile::create().unwrap();
        let (_, value) = counters.variable();
        let path = value.split(':').next().unwrap();
        let opened = OpenOptions::new().read(true).write(true).open(path).unwrap();
        for length in [0, 1, 1 << 20] {
            let refused = opened.set_len(length).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EPERM), "{length}");
        }
        assert_eq!(opened.metadata().unwrap().len(), abi::BYTES as u64);
        opened.write_all_at(&7u64.to_ne_bytes(), abi::forks() as u64 * 8).unwrap();
        assert_eq!(counters.totals().unwrap().forks(), 7);
    }

    #[test]
    fn files_of_other_users_are_added_and_what_is_no_ledger_is_not() {
        let base = private();
        let beside = Beside::create_in(base.path(), 0o700).unwrap();
        let mut bytes = abi::empty();
        bytes[abi::processes() * 8] = 3;
        for name in ["1", "2"] {
            fs::write(beside.path.join(name), bytes).unwrap();
        }
        fs::write(beside.path.join("short"), &bytes[..16]).unwrap();
        fs::create_dir(beside.path.join("directory")).unwrap();
        std::os::unix::fs::symlink("1", beside.path.join("link")).unwrap();
        let found: Vec<u64> = beside.totals().iter().map(Totals::processes).collect();
        assert_eq!(found, [3, 3]);
        let path = beside.path.clone();
        drop(beside);
        assert!(!path.exists());
    }

    #[test]
    fn a_killed_runs_directory_goes_with_the_next_and_a_running_ones_stays() {
        let base = private();
        let left = base.path().join("run-0123456789abcdef0123456789abcdef");
        fs::create_dir(&left).unwrap();
        fs::write(left.join("0"), "x").unwrap();
        // Keep directories whose names only begin like ours: users may keep things there.
        let others = ["other", "run-2024", "run-0123456789abcdef0123456789abcdeX"];
        let others = others.map(|name| base.path().join(name));
        others.iter().for_each(|other| fs::create_dir(other).unwrap());
        let running = Beside::create_in(base.path(), 0o700).unwrap();
        let second = Beside::create_in(base.path(), 0o700).unwrap();
        assert!(!left.exists() && others.iter().all(|other| other.exists()));
        assert!(running.path.exists() && second.path.exists());
    }

    #[test]
    fn a_place_that_others_can_list_or_write_is_not_used() {
        let base = private();
        for (mode, is_used) in [(0o711, true), (0o700, true), (0o755, false), (0o733, false)] {
            fs::set_permissions(base.path(), Permissions::from_mode(mode)).unwrap();
            let made = Beside::create_in(base.path(), 0o700);
            assert_eq!(made.is_some(), is_used, "{mode:o}");
        }
        let link = base.path().join("link");
        std::os::unix::fs::symlink("/tmp", &link).unwrap();
        assert!(Beside::create_in(&link, 0o700).is_none());
    }
}
