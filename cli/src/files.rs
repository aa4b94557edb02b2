//! Files that the command writes: whole or not at all, and never over another unless told to.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::exit::Failure;

/// Writes beside the file and renames, so that a reader never sees half of it.
pub fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), Failure> {
    // Not a plain file (/dev/stderr, or a link that is to stay one): written through.
    if path.symlink_metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return fs::write(path, contents).map_err(|error| unwritable(path, &error));
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.tmp", sys::param::own_pid()));
    let written = fs::write(&beside, contents).and_then(|()| fs::rename(&beside, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&beside);
        unwritable(path, &error)
    })
}

/// Fails now rather than after minutes of work, if the file cannot be written.
pub fn check_writable(path: &Path) -> Result<(), Failure> {
    let existed = path.exists();
    let opened = fs::OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(|error| unwritable(path, &error))?;
    if !existed {
        let _ = fs::remove_file(path);
    }
    Ok(())
}

/// That a file would be written over which is not to be.
pub fn check_new(path: &Path, force: bool) -> Result<(), Failure> {
    let plain = path.symlink_metadata().is_ok_and(|metadata| metadata.is_file());
    if plain && !force {
        return Err(Failure::usage(format!(
            "{}: exists; choose another name, or --force to write over it",
            path.display()
        )));
    }
    check_writable(path)
}

/// That a file could not be written, and what to do.
pub fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    let remedy = match error.kind() {
        ErrorKind::NotFound => "; make the directory first",
        ErrorKind::PermissionDenied => "; choose a place you may write",
        _ => "",
    };
    Failure::usage(format!("{}: {error}{remedy}", path.display()))
}
