//! Reading and writing a knob's value. Private writing: only the journal may.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use super::error::JournalError;
use super::knob::Knob;
use crate::{Choice, Root, text};

/// No setting is longer.
const MAX_VALUE: usize = 256;

/// A value in the one form in which two readings can be compared: the word in brackets of
/// `always [madvise] never`, a number without leading zeroes, words with one space between them.
pub fn canonical(text: &str) -> String {
    if let Some(choice) = Choice::parse(text) {
        return choice.selected;
    }
    let words: Vec<String> = text
        .split_ascii_whitespace()
        .map(|word| word.parse::<u64>().map_or_else(|_| word.to_string(), |n| n.to_string()))
        .collect();
    words.join(" ")
}

impl Knob {
    /// Its value now, canonical. Of a hugetlb pool, the persistent pages: the file counts surplus
    /// pages too, which come and go by themselves and are no setting.
    pub fn read(&self, root: &Root) -> Result<String, JournalError> {
        let value = canonical(&self.raw(root)?);
        if let (Some(surplus), Ok(total)) = (self.surplus(), value.parse::<u64>())
            && let Ok(surplus) = text::number(root, &surplus)
        {
            return Ok(total.saturating_sub(surplus).to_string());
        }
        Ok(value)
    }

    fn raw(&self, root: &Root) -> Result<String, JournalError> {
        let path = root.path(self.path());
        let read = plain_file(&path).and_then(|()| {
            let mut bytes = Vec::new();
            fs::File::open(&path)?.take(4096).read_to_end(&mut bytes).map(|_| bytes)
        });
        let bytes = read.map_err(|source| JournalError::io("read", path, source))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(super) fn write(&self, root: &Root, value: &str) -> Result<(), JournalError> {
        let path = root.path(self.path());
        // The kernel takes a value in one write; it is never created, only written.
        let written = plain_file(&path).and_then(|()| {
            let mut file = OpenOptions::new().write(true).truncate(true).open(&path)?;
            file.write_all(format!("{value}\n").as_bytes())
        });
        written.map_err(|source| JournalError::io("write", path, source))
    }

    /// Whether `value` may be written, now or when it is restored.
    pub(super) fn check(&self, value: &str) -> Result<(), JournalError> {
        let bad = |why| JournalError::BadValue { knob: self.clone(), value: cut(value), why };
        if value.is_empty() || value.len() > MAX_VALUE {
            Err(bad("is empty or longer than any setting"))
        } else if value.bytes().any(|b| !(b.is_ascii_graphic() || b == b' ') || b == b'[') {
            Err(bad("is not a line of plain words or numbers"))
        } else {
            Ok(())
        }
    }
}

fn cut(value: &str) -> String {
    value.chars().take(120).collect()
}

/// Knobs are regular files; following a link would leave the list of knobs.
fn plain_file(path: &Path) -> io::Result<()> {
    let is_file = fs::symlink_metadata(path)?.is_file();
    if is_file { Ok(()) } else { Err(io::Error::other("it is not a regular file")) }
}
