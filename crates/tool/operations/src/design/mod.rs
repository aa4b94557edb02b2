//! Finds superpage designs named on the command line, and runs programs under them.

mod as_live;
mod carried;
pub mod recipe;

use std::path::Path;

use ::design::{Design, designs};

pub use as_live::as_live;
pub use carried::{Carried, Carriers, EXECUTORS};

use crate::{Failure, files};

/// A design named on the command line.
pub struct Named {
    /// The preset's name, or the file's path.
    pub label: String,
    /// Path of the design's file; `None` for a preset.
    pub file: Option<String>,
    /// The design's TOML text with comments.
    pub text: String,
    /// The parsed design.
    pub design: Design,
}

/// Finds a design by name or alias, or reads a file. A word is a file if it has a slash, ends in `.toml`, or names an
/// existing file and no preset.
pub fn load(word: &str) -> Result<Named, Failure> {
    let looks_like_file = word.contains('/') || word.ends_with(".toml");
    let preset = designs::preset(word);
    let preset = match preset {
        Ok(preset) if !looks_like_file => preset,
        Err(error) if !looks_like_file && !Path::new(word).is_file() => {
            return Err(Failure::usage(format!("{error}; or give a file")));
        }
        _ => {
            let text = text(word)?;
            let design = Design::from_toml(word, &text)?;
            let file = Some(word.to_string());
            return Ok(Named { label: word.to_string(), file, text, design });
        }
    };
    let (label, text) = (preset.name.to_string(), preset.text.to_string());
    Ok(Named { label, file: None, text, design: preset.design()? })
}

const MAX_BYTES: u64 = 1 << 20;

/// Reads the text of a design file.
///
/// # Errors
/// The file cannot be read.
pub fn text(file: &str) -> Result<String, Failure> {
    if file.is_empty() {
        return Err(Failure::usage("empty file name; give a design file"));
    }
    files::text(Path::new(file), MAX_BYTES, "a design file")
}
