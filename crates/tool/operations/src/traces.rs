//! Opens traces for operations.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use trace::{Info, Reader, TraceError};

use crate::reporter::say;

/// Opens a trace. A truncated trace is read up to the cut, with a warning once per file.
///
/// # Errors
/// The file cannot be read, or is not a trace.
pub fn open(path: &Path) -> Result<Reader, TraceError> {
    static SAID: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let reader = Reader::open(path)?;
    if let Some(cut) = reader.info().cut
        && SAID.lock().is_ok_and(|mut said| said.insert(path.to_path_buf()))
    {
        let what = cut_in_words(cut, reader.info());
        say(&format!("warning: {}: {what}", path.display()));
    }
    Ok(reader)
}

/// Says where a trace was cut, and how much is readable.
fn cut_in_words(at: u64, info: &Info) -> String {
    format!(
        "truncated at byte {at} of {}: {} accesses before it can be read, without checksums (was the \
         writer killed?)",
        info.length, info.totals.accesses
    )
}
