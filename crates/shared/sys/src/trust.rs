//! Whom a file or directory may be trusted to belong to: what a command executes, takes for its own or writes into must not be
//! another user's to change. See docs/decisions/security.md#2.

use std::fmt;
use std::fs::{DirBuilder, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::param;

/// Others may write to it.
const BY_OTHERS: u32 = 0o022;
/// In a sticky directory (/tmp) others can add names, and change none of ours.
const STICKY: u32 = 0o1000;

/// Another user than this one and root may change what is at a path.
#[derive(Debug)]
pub struct Untrusted {
    /// The path, or a directory above it.
    pub path: PathBuf,
    /// Whose it is, or who may write it.
    pub what: String,
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}

/// Who else than this user and root owns what has this metadata, or may change it by one of these bits of its mode.
fn intruder(metadata: &Metadata, bits: u32) -> Option<String> {
    let (owner, mode) = (metadata.uid(), metadata.mode());
    if owner != 0 && owner != param::effective_user() {
        return Some(format!("it belongs to user {owner}"));
    }
    (mode & bits != 0).then(|| format!("others may write it (mode {:o})", mode & 0o7777))
}

/// Whether only this user and root may change what has this metadata.
pub fn is_ours(metadata: &Metadata) -> bool {
    intruder(metadata, BY_OTHERS).is_none()
}

/// Checks that no user but this one and root can replace `path`, which may not exist yet, or what it leads to.
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
        let intruder = intruder(&metadata, if is_sticky { 0 } else { BY_OTHERS });
        if let Some(what) = intruder {
            return untrusted(ancestor, what);
        }
    }
    Ok(())
}

/// The same for root, who has most to lose; an ordinary user's directories may well be those of a group (umask 002).
pub fn check_as_root(path: &Path) -> io::Result<()> {
    if param::effective_user() != 0 {
        return Ok(());
    }
    check(path).map_err(|why| io::Error::new(io::ErrorKind::PermissionDenied, why.to_string()))
}

/// Makes a directory, with those above it; for root one that only root may write to.
pub fn directory(path: &Path) -> io::Result<()> {
    // Before anything is made in another's.
    check_as_root(path)?;
    DirBuilder::new().recursive(true).mode(0o755).create(path)?;
    check_as_root(path)
}

/// Options that open no link that lies in the place of a file.
pub fn no_links() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(libc::O_NOFOLLOW);
    options
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
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
        // Of a sticky one what lies in it, which others cannot rename.
        mode(&dir, 0o1777);
        check(&below).unwrap();
        check(&below.join("new")).unwrap();
        assert!(check(&dir).is_err());
        // Through a link it is where that leads.
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
