//! Removes a directory tree of any depth with two descriptors, and without paths longer than one
//! name.
//!
//! Each subdirectory is first moved up into the top directory, so every entry is at most one level below it.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, RawMode};
use rustix::io::Errno;

/// Number of attempts, because other processes may add entries meanwhile.
const TRIES: usize = 16;

/// Removes a directory that belongs to this user, with its contents. Does not follow symbolic links.
pub fn all(path: &Path) -> io::Result<()> {
    let top = open(rustix::fs::CWD, path)?;
    let mut number = 0;
    for _ in 0..TRIES {
        let mut waiting = names(&top)?;
        if waiting.is_empty() {
            break;
        }
        while let Some(name) = waiting.pop() {
            if rustix::fs::unlinkat(&top, &name, AtFlags::empty()).is_ok() {
                continue;
            }
            let directory = open(&top, &name)?;
            for inner in names(&directory)? {
                if unlink(&directory, &inner)? {
                    continue;
                }
                let lifted = move_up(&directory, &inner, &top, &mut number)?;
                waiting.push(lifted);
            }
            rustix::fs::unlinkat(&top, &name, AtFlags::REMOVEDIR)?;
        }
    }
    Ok(rustix::fs::rmdir(path)?)
}

/// Opens a directory and makes it writable for its owner.
fn open(at: impl AsFd, path: impl rustix::path::Arg + Copy) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(&at, path, flags, Mode::empty());
    let opened = open().or_else(|error| match error {
        Errno::ACCESS => {
            make_changeable(at.as_fd(), path)?;
            open()
        }
        error => Err(error),
    })?;
    // This fails for another user's directory; the removal then reports the error.
    let _ = rustix::fs::fchmod(&opened, Mode::RWXU);
    Ok(opened)
}

/// Changes the mode by path, for a directory that cannot be opened for lack of permission.
fn make_changeable(at: BorrowedFd, path: impl rustix::path::Arg) -> rustix::io::Result<()> {
    rustix::fs::chmodat(at, path, Mode::from_raw_mode(0o700 as RawMode), AtFlags::empty())
}

fn names(directory: &OwnedFd) -> io::Result<Vec<CString>> {
    let is_inner = |name: &CStr| name != c"." && name != c"..";
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if is_inner(entry.file_name()) {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

/// Unlinks a name; returns `false` if the name is a directory that is not empty.
fn unlink(directory: &OwnedFd, name: &CStr) -> io::Result<bool> {
    let as_file = rustix::fs::unlinkat(directory, name, AtFlags::empty());
    match as_file {
        Ok(()) => Ok(true),
        Err(Errno::ISDIR | Errno::PERM) => {
            match rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR) {
                Ok(()) => Ok(true),
                Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
                // The name is a file that cannot be unlinked, so return the error of the first
                // attempt.
                Err(Errno::NOTDIR) => as_file.map(|()| true).map_err(Into::into),
                Err(error) => Err(error.into()),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// Moves a directory into `top` under an unused name.
fn move_up(from: &OwnedFd, name: &CStr, top: &OwnedFd, number: &mut u64) -> io::Result<CString> {
    loop {
        *number += 1;
        let free = CString::new(format!(".{number}")).expect("digits");
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(from, name, top, &free, flags) {
            Ok(()) => return Ok(free),
            Err(Errno::EXIST) => {}
            // A rename changes the directory's `..` entry, which needs write permission on the directory itself.
            Err(Errno::ACCESS) => {
                make_changeable(from.as_fd(), name)?;
                rustix::fs::renameat(from, name, top, &free)?;
                return Ok(free);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_directory_is_removed_whatever_is_in_it() {
        let parent = tempfile::tempdir().unwrap();
        let kept = parent.path().join("kept");
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "x").unwrap();
        let path = parent.path().join("removed");
        fs::create_dir_all(path.join("a/b/c")).unwrap();
        fs::create_dir_all(path.join("a/.1/c")).unwrap();
        fs::create_dir_all(path.join(".1")).unwrap();
        for file in ["a/b/c/file", "a/.1/file", "file"] {
            fs::write(path.join(file), "x").unwrap();
        }
        symlink(&kept, path.join("a/link")).unwrap();
        symlink(&kept, path.join("link")).unwrap();
        for (closed, mode) in [("a/b/c", 0), ("a/b", 0o500), ("a", 0)] {
            fs::set_permissions(path.join(closed), fs::Permissions::from_mode(mode)).unwrap();
        }
        all(&path).unwrap();
        assert!(!path.exists());
        assert_eq!(fs::read(kept.join("file")).unwrap(), b"x");
    }

    #[test]
    fn directories_may_be_nested_deeper_than_there_are_descriptors_or_a_path_is_long() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("removed");
        fs::create_dir(&path).unwrap();
        let mut at = open(rustix::fs::CWD, &path).unwrap();
        for _ in 0..5_000 {
            rustix::fs::mkdirat(&at, c"nested", Mode::RWXU).unwrap();
            at = open(&at, c"nested").unwrap();
        }
        all(&path).unwrap();
        assert!(!path.exists());
    }
}
