//! Output files of the command line; `-` is standard output.

use std::path::Path;

pub use operations::files::{
    LARGEST, OwnFile, WriteLock, check_new, check_outputs, is_stdout, text, unwritable,
};

use crate::exit::{self, Failure};

/// Prints `text`, or writes it without colours to the file `to`. If the write fails, `text` is printed.
pub fn deliver(to: Option<&Path>, force: bool, text: &str) -> Result<(), Failure> {
    let Some(path) = to.filter(|path| !is_stdout(path)) else { return exit::print(text) };
    write(path, force, anstream::adapter::strip_str(text).to_string()).or_else(|why| {
        exit::say(&format!("{why}; the result is printed"));
        exit::print(text)?;
        Err(why)
    })
}

/// Writes a file atomically; for `-`, prints the contents.
pub fn write(path: &Path, force: bool, contents: impl AsRef<[u8]>) -> Result<(), Failure> {
    match is_stdout(path) {
        true => exit::print(&String::from_utf8_lossy(contents.as_ref())),
        false => operations::files::write(path, force, contents),
    }
}
