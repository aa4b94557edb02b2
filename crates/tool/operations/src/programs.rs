//! Finds the programs that belong to superpage.

use std::path::{Path, PathBuf};

use crate::{Failure, facts};

/// File name of the laboratory's program.
pub const LABORATORY: &str = "superpage-lab";

/// Returns the file of `superpage`: this program, one next to it, or along PATH.
pub fn superpage() -> Result<PathBuf, Failure> {
    const OWN: &str = "superpage";
    let own = std::env::current_exe()
        .map_err(|error| Failure::usage(format!("our own program file: {error}")))?;
    if own.file_name().is_none_or(|name| name != LABORATORY) {
        return Ok(own);
    }
    find(OWN, Some(&own)).ok_or_else(|| {
        Failure::cannot(format!(
            "{OWN}: neither beside {} nor along PATH; put it there (cargo build --release -p {OWN})",
            own.display()
        ))
    })
}

/// Finds one of superpage's programs next to `own`, or along PATH.
pub fn find(program: &str, own: Option<&Path>) -> Option<PathBuf> {
    let beside = own.and_then(Path::parent).map(|directory| directory.join(program));
    beside.filter(|path| path.is_file()).or_else(|| {
        let search = facts::search_path();
        let found = launch::Program::find(program, &search).ok()?;
        Some(found.path)
    })
}
