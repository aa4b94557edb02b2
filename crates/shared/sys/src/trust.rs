//! Ownership checks: other users must not be able to change files that a command executes, trusts or writes to. See
//! docs/decisions/security.md#2.

use std::fmt;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::param;

/// Mode bits: write permission for group or others.
const BY_OTHERS: u32 = 0o022;
/// Mode bit: in a sticky directory (/tmp) other users can add entries but not change ours.
const STICKY: u32 = 0o1000;

/// A user other than root and the current user may change the file at a path.
#[derive(Debug)]
pub struct Untrusted {
    /// The path, or a directory above it.
    pub path: PathBuf,
    /// The owner, or the write permission that is too wide.
    pub what: String,
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}

/// Describes why a user other than root and the current user may change the file: the owner, or one of the mode bits
/// `bits`.
fn untrusted_writer(metadata: &Metadata, bits: u32) -> Option<String> {
    let (owner, mode) = (metadata.uid(), metadata.mode());
    if owner != 0 && owner != param::effective_user() {
        return Some(format!("it belongs to user {owner}"));
    }
    (mode & bits != 0).then(|| format!("others may write it (mode {:o})", mode & 0o7777))
}

/// Whether only root and the current user may change the file with this metadata.
pub fn is_ours(metadata: &Metadata) -> bool {
    untrusted_writer(metadata, BY_OTHERS).is_none()
}

/// Checks that only root and the current user can replace `path` or the target of its symbolic links. `path` need not
/// exist.
pub fn check(path: &Path) -> Result<(), Untrusted> {
    let is_there = path.canonicalize().is_ok();
    let there = path.ancestors().find_map(|ancestor| ancestor.canonicalize().ok());
    let untrusted = |path: &Path, what| Err(Untrusted { path: path.to_path_buf(), what });
    for (above, ancestor) in there.iter().flat_map(|there| there.ancestors()).enumerate() {
        let metadata = match ancestor.symlink_metadata() {
            Ok(metadata) => metadata,
            Err(error) => return untrusted(ancestor, format!("cannot be inspected: {error}")),
        };
        let is_above = above > 0 || !is_there;
        let is_sticky = is_above && metadata.mode() & STICKY != 0;
        let writer = untrusted_writer(&metadata, if is_sticky { 0 } else { BY_OTHERS });
        if let Some(what) = writer {
            return untrusted(ancestor, what);
        }
    }
    Ok(())
}

/// Like [`check`] if the current user is root; accepts any path for other users, whose directories may be
/// group-writable (umask 002).
pub fn check_as_root(path: &Path) -> io::Result<()> {
    if param::effective_user() != 0 {
        return Ok(());
    }
    check(path).map_err(|why| io::Error::new(io::ErrorKind::PermissionDenied, why.to_string()))
}

/// Creates a directory and its parents. As root, also checks that only root may write to them.
pub fn directory(path: &Path) -> io::Result<()> {
    // Check before creating anything in another user's directory.
    check_as_root(path)?;
    DirBuilder::new().recursive(true).mode(0o755).create(path)?;
    check_as_root(path)
}

/// Open options that refuse a symbolic link (O_NOFOLLOW).
pub fn no_links() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(libc::O_NOFOLLOW);
    options
}

/// Opens a regular file for reading; `None`: it is a pipe, a device or a directory. Never waits for the writer of a
/// pipe, also if the file is replaced by one meanwhile.
pub fn open_regular(path: &Path) -> io::Result<Option<File>> {
    // Opening a device may have effects, so look first.
    if !fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    open_without_waiting(path)
}

fn open_without_waiting(path: &Path) -> io::Result<Option<File>> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    Ok(file.metadata()?.is_file().then_some(file))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_others_may_write_is_not_trusted_nor_what_lies_below_it() {
        let base = tempfile::tempdir().unwrap();
        let (dir, below) = (base.path().join("d"), base.path().join("d/e/f"));
        directory(&below).unwrap();
        mode(&dir, 0o777);
        for path in [&dir, &below, &below.join("new")] {
            let why = check(path).unwrap_err().to_string();
            assert!(why.contains("/d: others may write it (mode 777)"), "{why}");
        }
        if param::effective_user() == 0 {
            assert!(directory(&dir.join("new")).is_err() && !dir.join("new").exists());
        }
        // Other users cannot rename our entries in a sticky directory.
        mode(&dir, 0o1777);
        check(&below).unwrap();
        check(&below.join("new")).unwrap();
        assert!(check(&dir).is_err());
        // For a symbolic link, the target is checked.
        mode(&dir, 0o770);
        let link = base.path().join("link");
        symlink(&below, &link).unwrap();
        assert!(check(&link).is_err());
        mode(&dir, 0o755);
        check(&link).unwrap();
    }

    #[test]
    fn root_does_not_trust_what_is_another_users() {
        testkit::require!(param::effective_user() == 0, "needs root");
        let base = tempfile::tempdir().unwrap();
        chown(base.path(), Some(65534), Some(65534)).unwrap();
        for path in [base.path().to_path_buf(), base.path().join("new")] {
            let why = check(&path).unwrap_err().to_string();
            assert!(why.contains("it belongs to user 65534"), "{why}");
        }
    }

    #[test]
    fn only_a_regular_file_is_opened_and_no_pipe_is_waited_for() {
        let base = tempfile::tempdir().unwrap();
        let (file, pipe) = (base.path().join("file"), base.path().join("pipe"));
        fs::write(&file, "text").unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let text = open_regular(&file).unwrap().map(|file| io::read_to_string(file).unwrap());
        assert_eq!(text.as_deref(), Some("text"));
        for other in [pipe.as_path(), base.path(), Path::new("/dev/null")] {
            assert!(open_regular(other).unwrap().is_none(), "{}", other.display());
        }
        // As if the pipe had replaced a file since the first look.
        assert!(open_without_waiting(&pipe).unwrap().is_none());
        let error = open_regular(&base.path().join("none")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn links_in_the_place_of_a_file_are_not_opened() {
        let base = tempfile::tempdir().unwrap();
        let (victim, link) = (base.path().join("victim"), base.path().join("link"));
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, &link).unwrap();
        assert!(no_links().write(true).create(true).truncate(true).open(&link).is_err());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        no_links().append(true).create(true).open(&victim).unwrap();
    }
}
