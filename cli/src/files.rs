//! Files that the command writes: whole or not at all, and never over another unless told to. Where a
//! file may be named, `-` is standard output.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::exit::{self, Failure};

/// Whether what was named as a file is standard output.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Prints text, or writes it to the file that was named instead, which gets no colours.
pub fn deliver(to: Option<&Path>, text: &str) -> Result<(), Failure> {
    match to.filter(|path| !is_stdout(path)) {
        None => exit::print(text),
        Some(path) => write(path, anstream::adapter::strip_str(text).to_string()),
    }
}

/// Writes beside the file and renames, so that a reader never sees half of it.
pub fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), Failure> {
    if is_stdout(path) {
        return exit::print(&String::from_utf8_lossy(contents.as_ref()));
    }
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
    if is_stdout(path) {
        return Ok(());
    }
    if path.as_os_str().is_empty() {
        return Err(Failure::usage("a file's name is empty; give one, or - for standard output"));
    }
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

/// Fails now rather than after minutes, if what is printed, or the picture that the flag `drawn_by` asks for,
/// cannot be written, would be written over another file, or both into one.
pub fn check_outputs(
    output: Option<&Path>,
    drawn_by: &str,
    picture: Option<&Path>,
    force: bool,
) -> Result<(), Failure> {
    for path in output.iter().chain(&picture) {
        check_new(path, force)?;
    }
    if output.is_some() && output == picture {
        return Err(Failure::usage(format!("--output and {drawn_by} name the same file")));
    }
    Ok(())
}

/// That a file could not be written, and what to do.
pub fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    let remedy = match error.kind() {
        ErrorKind::NotFound => "; make the directory first",
        ErrorKind::PermissionDenied => "; choose a place you may write",
        ErrorKind::IsADirectory => "; name a file in it",
        ErrorKind::StorageFull => "; make room, or choose another place",
        _ => "; choose another place",
    };
    Failure::usage(format!("{}: {error}{remedy}", path.display()))
}
