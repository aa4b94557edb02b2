//! Writes output files atomically, and never over another file without --force.
//! See docs/decisions/security.md#3.

use std::ffi::OsString;
use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use units::ByteSize;

use crate::Failure;

/// Maximum bytes of a file named on the command line, so that a wrong name does not fill memory.
pub const LARGEST: u64 = 16 << 20;

/// Returns whether the path means standard output (`-`).
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Writes a temporary file in the same directory and renames it, so that readers never see half a file and a killed
/// command damages no file. Without `force`, a file that appeared since [`check_new`] is not replaced: the temporary
/// file stays, and the error names it.
pub fn write(path: &Path, force: bool, contents: impl AsRef<[u8]>) -> Result<(), Failure> {
    let failed = |error: io::Error| unwritable(path, &error);
    let target = match Place::from_path(path)? {
        // No file can be created next to /dev/stderr or a pipe.
        Place::Device => {
            let mut file = OpenOptions::new().append(true).open(path).map_err(failed)?;
            return file.write_all(contents.as_ref()).map_err(failed);
        }
        Place::File(_) if !force => path.to_path_buf(),
        Place::File(target) | Place::New(target) => target,
    };
    let mut file = beside(&target).map_err(failed)?;
    if !force {
        file.write_all(contents.as_ref()).map_err(failed)?;
        return file.persist_noclobber(&target).map(drop).map_err(|error| {
            match error.error.kind() {
                ErrorKind::AlreadyExists => target_appeared(path, error.file),
                _ => failed(error.error),
            }
        });
    }
    if let Ok(old) = fs::metadata(&target) {
        keep_owner(file.as_file(), &old).map_err(failed)?;
    }
    file.write_all(contents.as_ref()).map_err(failed)?;
    file.persist(&target).map(drop).map_err(|error| failed(error.error))
}

/// Gives a new file the owner and the mode of the old one: a file that root overwrites keeps its owner.
fn keep_owner(file: &fs::File, old: &fs::Metadata) -> io::Result<()> {
    if fchown(file, Some(old.uid()), Some(old.gid())).is_err() {
        let _ = fchown(file, None, Some(old.gid()));
    }
    file.set_permissions(old.permissions())
}

/// A file that a command rewrites while it runs, and that starts with the same bytes each time. Another file at the path,
/// also one that appears between two writes, is never replaced: a link, a pipe or a device is refused and not opened.
#[derive(Debug, Clone, Copy)]
pub struct OwnFile<'a> {
    /// Its path.
    pub path: &'a Path,
    /// What it starts with.
    pub start: &'a [u8],
    /// What it holds, for errors: `metrics of superpage`.
    pub holds: &'a str,
}

impl OwnFile<'_> {
    /// Fails early if the file cannot be written, or is another.
    pub fn check(&self) -> Result<(), Failure> {
        if self.path.as_os_str().is_empty() {
            return Err(Failure::usage("empty file name; give a name"));
        }
        self.old()?;
        beside(self.path).map(drop).map_err(|error| unwritable(self.path, &error))
    }

    /// Replaces the file by renaming, so that readers never see half of it.
    pub fn write(&self, contents: impl AsRef<[u8]>) -> Result<(), Failure> {
        let failed = |error: io::Error| unwritable(self.path, &error);
        let old = self.old()?;
        let mut file = beside(self.path).map_err(failed)?;
        file.write_all(contents.as_ref()).map_err(failed)?;
        let written = match old {
            Some(old) => {
                keep_owner(file.as_file(), &old).map_err(failed)?;
                // The rename replaces a link that was put there meanwhile, not its target.
                file.persist(self.path)
            }
            None => file.persist_noclobber(self.path),
        };
        written.map(drop).map_err(|error| failed(error.error))
    }

    /// The file that will be replaced; `None`: there is none.
    fn old(&self) -> Result<Option<fs::Metadata>, Failure> {
        let failed = |error: io::Error| unwritable(self.path, &error);
        let refused = |why: &str| {
            let why = format!("{}: {why}; choose another name", self.path.display());
            Err(Failure::usage(why))
        };
        match self.path.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
            Ok(it) if it.is_symlink() => return refused("is a symbolic link"),
            Ok(it) if it.is_dir() => return Err(failed(ErrorKind::IsADirectory.into())),
            Ok(it) if !it.is_file() => return refused("is no regular file"),
            Ok(_) => {}
        }
        // A pipe that was put there meanwhile must not block the open. Open for writing too: a file without
        // write permission is not replaced.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(self.path);
        let file = file.map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return refused("is no regular file");
        }
        let mut start = Vec::new();
        file.take(self.start.len() as u64).read_to_end(&mut start).map_err(failed)?;
        match start.is_empty() || start == self.start {
            true => Ok(Some(metadata)),
            false => refused(&format!("exists and holds no {}", self.holds)),
        }
    }
}

/// Keeps the temporary file because the target appeared meanwhile. Returns the error that names it.
fn target_appeared(path: &Path, file: NamedTempFile) -> Failure {
    let kept = file.keep().map(|(_, kept)| kept.display().to_string());
    let kept = kept.unwrap_or_else(|error| format!("nowhere ({})", error.error));
    Failure::usage(format!(
        "{}: appeared while this ran, and is not overwritten without --force; the result is in {kept}",
        path.display()
    ))
}

/// An exclusive lock on a file that one process rewrites repeatedly. The lock is on the hidden file `.NAME.lock` next
/// to it, because [`write()`] replaces the file itself.
#[derive(Debug)]
pub struct WriteLock {
    path: PathBuf,
    file: fs::File,
}

impl WriteLock {
    /// Takes the lock.
    ///
    /// # Errors
    /// Another process holds the lock, or the lock file cannot be created.
    pub fn new(path: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| unwritable(path, &error);
        let name = path.file_name().ok_or_else(|| failed(ErrorKind::IsADirectory.into()))?;
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(".lock");
        let beside = path.with_file_name(hidden);
        loop {
            let file = sys::trust::no_links().create(true).append(true).open(&beside);
            let file = file.map_err(failed)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(Failure::usage(format!(
                        "{}: another evaluation writes it; wait for it, or name another file",
                        path.display()
                    )));
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            // The previous holder may have removed the lock file between open and lock.
            let of = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
            let (ours, there) = (file.metadata().map_err(failed)?, fs::metadata(&beside));
            if there.is_ok_and(|there| of(there) == of(ours)) {
                return Ok(Self { path: beside, file });
            }
        }
    }
}

impl Drop for WriteLock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        // Unlock explicitly: a child process being spawned may hold a copy of the descriptor.
        let _ = self.file.unlock();
    }
}

/// What a path refers to.
enum Place {
    /// A device, pipe or socket.
    Device,
    /// An existing file, with symbolic links resolved.
    File(PathBuf),
    /// A file that does not exist.
    New(PathBuf),
}

impl Place {
    fn from_path(path: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| unwritable(path, &error);
        match fs::metadata(path) {
            Ok(_) if is_descriptor(path) => Ok(Self::Device),
            Ok(metadata) if metadata.is_dir() => Err(failed(ErrorKind::IsADirectory.into())),
            Ok(metadata) if !metadata.is_file() => Ok(Self::Device),
            Ok(_) => {
                // Open the path as given first, so that the kernel's symlink protection for /tmp applies.
                OpenOptions::new().write(true).open(path).map_err(failed)?;
                Ok(Self::File(fs::canonicalize(path).map_err(failed)?))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if path.symlink_metadata().is_ok() {
                    let why = format!("{}: a dangling symbolic link; remove it", path.display());
                    return Err(Failure::usage(why));
                }
                Ok(Self::New(path.to_path_buf()))
            }
            Err(error) => Err(failed(error)),
        }
    }
}

/// Returns whether the path names one of our open descriptors. /dev/stdout may be a regular file, and must not be
/// replaced.
fn is_descriptor(path: &Path) -> bool {
    let parent = path.parent().and_then(|parent| fs::canonicalize(parent).ok());
    parent.is_some_and(|parent| parent == Path::new("/dev") || parent.starts_with("/proc"))
}

/// Creates a temporary file in the same directory, exclusively.
fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let name = path.file_name().ok_or(ErrorKind::IsADirectory)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut prefix = OsString::from(".");
    prefix.push(name);
    tempfile::Builder::new()
        .prefix(&prefix)
        .suffix(".part")
        // The umask still applies, so the file gets the usual mode of new files.
        .permissions(fs::Permissions::from_mode(0o666))
        .tempfile_in(directory.unwrap_or(Path::new(".")))
}

/// Fails early if the file cannot be written, or exists and may not be overwritten.
pub fn check_new(path: &Path, force: bool) -> Result<(), Failure> {
    if is_stdout(path) {
        return Ok(());
    }
    if path.as_os_str().is_empty() {
        return Err(Failure::usage("empty file name; give a name, or - for standard output"));
    }
    let target = match Place::from_path(path)? {
        Place::Device => {
            // Opening a pipe would block until it has a reader, so it is opened when the output is ready.
            let is_pipe = fs::metadata(path).is_ok_and(|it| it.file_type().is_fifo());
            if !is_pipe {
                let opened = OpenOptions::new().append(true).open(path);
                opened.map_err(|error| unwritable(path, &error))?;
            }
            return Ok(());
        }
        Place::File(_) if !force => {
            return Err(Failure::usage(format!(
                "{}: exists; choose another name, or use --force to overwrite it",
                path.display()
            )));
        }
        Place::File(target) | Place::New(target) => target,
    };
    beside(&target).map(drop).map_err(|error| unwritable(path, &error))
}

/// Reads text of at most `most` bytes, so that a disk or /dev/zero gives an error. Errors name the expected input as
/// `wanted`.
pub fn text(path: &Path, most: u64, wanted: &str) -> Result<String, Failure> {
    let shown = path.display();
    let failed = |error: io::Error| Failure::usage(format!("{shown}: {error}; give {wanted}"));
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(failed)?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > most {
        let most = ByteSize(most);
        return Err(Failure::usage(format!("{shown}: more than {most}; give {wanted}")));
    }
    String::from_utf8(bytes)
        .map_err(|_| Failure::usage(format!("{shown}: not text (UTF-8); give {wanted}")))
}

/// Fails early if the output file, or the picture of the flag `drawn_by`, cannot be written or would overwrite a file,
/// or if both are the same file.
pub fn check_outputs(
    output: Option<&Path>,
    drawn_by: &str,
    picture: Option<&Path>,
    force: bool,
) -> Result<(), Failure> {
    let pair = [output.map(|path| ("--output", path)), picture.map(|path| (drawn_by, path))];
    check_distinct(&pair.into_iter().flatten().collect::<Vec<_>>(), force)
}

/// Fails early if an output cannot be written or would overwrite a file, or if two outputs are one file or both standard
/// output. Each output comes with its flag.
pub fn check_distinct(outputs: &[(&str, &Path)], force: bool) -> Result<(), Failure> {
    for (index, (flag, path)) in outputs.iter().enumerate() {
        let is_same = |other: &&(&str, &Path)| is_same_file(other.1, path);
        if let Some((before, _)) = outputs[..index].iter().find(is_same) {
            let what = match is_stdout(path) {
                true => "both go to standard output; write one to a file",
                false => "name the same file",
            };
            return Err(Failure::usage(format!("{before} and {flag} {what}")));
        }
    }
    outputs.iter().try_for_each(|(_, path)| check_new(path, force))
}

/// Whether two names mean one file, which need not exist yet.
fn is_same_file(one: &Path, other: &Path) -> bool {
    if is_stdout(one) || is_stdout(other) {
        return is_stdout(one) && is_stdout(other);
    }
    // The file itself may be new; its directory is not.
    let full = |path: &Path| {
        let name = path.file_name()?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        Some(fs::canonicalize(parent.unwrap_or(Path::new("."))).ok()?.join(name))
    };
    one == other || full(one).is_some_and(|one| Some(one) == full(other))
}

/// Returns the error that a file could not be written, with a remedy.
pub fn unwritable(path: &Path, error: &io::Error) -> Failure {
    let remedy = match error.kind() {
        ErrorKind::NotFound => "; create the directory first",
        ErrorKind::PermissionDenied => "; choose a directory that you may write to",
        ErrorKind::IsADirectory => "; name a file in it",
        ErrorKind::StorageFull => "; free some space, or choose another directory",
        _ => "; choose another file",
    };
    // The error ends with the name of the temporary file: drop it.
    let error = error.to_string();
    let error = error.split(" at path ").next().unwrap_or_default();
    Failure::usage(format!("{}: {error}{remedy}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_exists_is_written_over_only_by_force_and_nothing_is_left_beside() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        check_new(&path, false).unwrap();
        assert!(!path.exists());
        write(&path, true, "one").unwrap();
        let refused = check_new(&path, false).unwrap_err().to_string();
        assert!(refused.contains("exists") && refused.contains("--force"), "{refused}");
        check_new(&path, true).unwrap();
        write(&path, true, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(names(directory.path()), ["x"]);
        // The file keeps its owner's restrictive mode.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        write(&path, true, "three").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_appears_meanwhile_is_not_written_over_and_nothing_is_lost() {
        let directory = tempfile::tempdir().unwrap();
        let (victim, path) = (directory.path().join("victim"), directory.path().join("x"));
        write(&victim, false, "precious").unwrap();
        let plant: [&dyn Fn(); 2] =
            [&|| drop(fs::write(&path, "theirs")), &|| symlink(&victim, &path).unwrap()];
        for plant in plant {
            check_new(&path, false).unwrap();
            plant();
            let refused = write(&path, false, "ours").unwrap_err().to_string();
            assert!(refused.contains("x: appeared while this ran"), "{refused}");
            let kept = refused.rsplit(' ').next().unwrap();
            assert_eq!(fs::read_to_string(kept).unwrap(), "ours");
            assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
            fs::remove_file(kept).unwrap();
            fs::remove_file(&path).unwrap();
        }
        assert_eq!(names(directory.path()), ["victim"]);
    }

    #[test]
    fn one_process_at_a_time_writes_a_file_again_and_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        let first = WriteLock::new(&path).unwrap();
        write(&path, true, "one").unwrap();
        let refused = WriteLock::new(&path).unwrap_err().to_string();
        assert!(refused.contains("another evaluation writes it"), "{refused}");
        drop(first);
        assert_eq!(names(directory.path()), ["x"]);
        // Concurrent holders exclude each other.
        let inside = std::sync::atomic::AtomicU32::new(0);
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        if let Ok(lock) = WriteLock::new(&path) {
                            assert_eq!(inside.fetch_add(1, relaxed), 0);
                            inside.fetch_sub(1, relaxed);
                            drop(lock);
                        }
                    }
                });
            }
        });
        assert_eq!(names(directory.path()), ["x"]);
    }

    #[test]
    fn a_link_stays_one_and_one_that_leads_nowhere_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        symlink("file", &link).unwrap();
        for outcome in [check_new(&link, true), write(&link, true, "one")] {
            assert!(outcome.unwrap_err().to_string().contains("dangling"));
        }
        assert!(!file.exists());
        write(&file, true, "one").unwrap();
        assert!(check_new(&link, false).unwrap_err().to_string().contains("--force"));
        write(&link, true, "two").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("file"));
    }

    #[test]
    fn a_file_that_is_rewritten_is_never_another() {
        let directory = tempfile::tempdir().unwrap();
        let (victim, path) = (directory.path().join("victim"), directory.path().join("x"));
        let own = OwnFile { path: &path, start: b"# ours", holds: "text of ours" };
        own.check().unwrap();
        own.write("# ours 1").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        own.write("# ours 2").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "# ours 2");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        // A link to a file of ours is refused too: what it leads to may change.
        fs::write(&victim, "# ours, precious").unwrap();
        let pipe = || assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let swaps: [(&dyn Fn(), &str); 5] = [
            (&|| symlink(&victim, &path).unwrap(), "is a symbolic link"),
            (&|| symlink("nowhere", &path).unwrap(), "is a symbolic link"),
            (&pipe, "is no regular file"),
            (&|| fs::write(&path, "theirs").unwrap(), "exists and holds no text of ours"),
            (&|| symlink("/dev/null", &path).unwrap(), "is a symbolic link"),
        ];
        for (swap, why) in swaps {
            fs::remove_file(&path).unwrap();
            swap();
            for outcome in [own.check(), own.write("# ours 3")] {
                let refused = outcome.unwrap_err().to_string();
                assert!(refused.contains(&format!("x: {why}; choose another name")), "{refused}");
            }
            assert_eq!(fs::read_to_string(&victim).unwrap(), "# ours, precious");
            assert_eq!(names(directory.path()), ["victim", "x"]);
        }
    }

    #[test]
    fn devices_and_pipes_are_written_through() {
        let through = |path: &Path, text: &str| {
            check_new(path, false).unwrap();
            write(path, false, text).unwrap();
        };
        through(Path::new("/dev/null"), "nowhere");
        // Write through the path of an own descriptor, such as /dev/stderr, which may be another user's terminal.
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("x");
        fs::write(&file, "one ").unwrap();
        let open = OpenOptions::new().append(true).open(&file).unwrap();
        for named in ["/proc/self/fd", "/dev/fd"] {
            through(&Path::new(named).join(open.as_raw_fd().to_string()), "more ");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "one more more ");
        assert_eq!(names(directory.path()), ["x"]);
        let pipe = directory.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        through(&pipe, "piped");
        assert_eq!(reader.join().unwrap(), "piped");
        assert_eq!(names(directory.path()), ["pipe", "x"]);
        let refused = check_new(Path::new("/"), true).unwrap_err().to_string();
        assert!(refused.contains("directory"), "{refused}");
    }

    #[test]
    fn text_without_end_is_refused() {
        let refused = |path: &Path| text(path, 1 << 10, "a design").unwrap_err().to_string();
        let zero = refused(Path::new("/dev/zero"));
        assert!(zero.contains("more than 1 KiB; give a design"), "{zero}");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        write(&path, true, [0xff; 4]).unwrap();
        assert!(refused(&path).contains("not text"));
        write(&path, true, [b'x'; 1 << 10]).unwrap();
        assert_eq!(text(&path, 1 << 10, "a design").unwrap().len(), 1 << 10);
    }
}
