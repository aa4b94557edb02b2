//! Output files of the command line; `-` is standard output.

use std::path::Path;

pub use operations::files::{
    LARGEST, OwnFile, WriteLock, check_distinct, check_new, check_outputs, is_stdout, text,
    unwritable,
};

use report::markup::visible;

use crate::exit::{self, Failure};

/// Prints `text`, or writes it without colours to the file `to`. If the write fails, `text` is printed.
pub fn deliver(to: Option<&Path>, force: bool, text: &str) -> Result<(), Failure> {
    let Some(path) = to.filter(|path| !is_stdout(path)) else { return exit::print(text) };
    write(path, force, plain(text)).or_else(|why| {
        exit::say(&format!("{why}; the result is printed"));
        exit::print(text)?;
        Err(why)
    })
}

/// Whether a result is written as JSON: by a flag, or because its file is named `*.json`.
pub fn is_json(flag: bool, to: Option<&Path>) -> bool {
    flag || to.is_some_and(|path| path.extension().is_some_and(|end| end == "json"))
}

/// The text without colours. JSON stays the same document: what would be removed with the colours is escaped.
fn plain(text: &str) -> String {
    anstream::adapter::strip_str(&visible(text)).to_string()
}

/// Writes a file atomically; for `-`, prints the contents.
pub fn write(path: &Path, force: bool, contents: impl AsRef<[u8]>) -> Result<(), Failure> {
    match is_stdout(path) {
        true => exit::print(&String::from_utf8_lossy(contents.as_ref())),
        false => operations::files::write(path, force, contents),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_every_character_when_colours_are_removed() {
        let all: String = ('\0'..=char::MAX).collect();
        let json = exit::to_json(&all).unwrap();
        assert_eq!(serde_json::from_str::<String>(&plain(&json)).unwrap(), all);
        assert_eq!(plain("\u{1b}[1mbold\u{1b}[0m\n"), "bold\n");
    }
}
