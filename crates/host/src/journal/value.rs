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
        let value = || self.raw(root).map(|text| canonical(&text));
        match self.surplus() {
            Some(surplus) => persistent(value, || text::number(root, &surplus).ok()),
            None => value(),
        }
    }

    /// Its value, read once more where it is not what was `expected`: of a pool two files say it, and pages come
    /// and go between the looks.
    pub(super) fn read_twice(
        &self,
        root: &Root,
        expected: impl Fn(&str) -> bool,
    ) -> Result<String, JournalError> {
        let value = self.read(root)?;
        if expected(&value) { Ok(value) } else { self.read(root) }
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

/// A pool's pages without its surplus ones, if both are known. The surplus is read before and after: a page that came or
/// went in between would count as a change of the pool.
fn persistent<E>(
    total: impl Fn() -> Result<String, E>,
    surplus: impl Fn() -> Option<u64>,
) -> Result<String, E> {
    const LOOKS: u32 = 8;
    let (mut before, mut looks) = (surplus(), 0);
    loop {
        let (value, after) = (total()?, surplus());
        looks += 1;
        if before == after || looks == LOOKS {
            let pages = value.parse::<u64>().ok().zip(after);
            let pages = pages.map(|(total, surplus)| total.saturating_sub(surplus).to_string());
            return Ok(pages.unwrap_or(value));
        }
        before = after;
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_page_that_goes_between_the_looks_is_no_change() {
        let pages = |totals: &[&str], surplus: &[Option<u64>]| {
            let next = |from: &RefCell<std::vec::IntoIter<String>>| from.borrow_mut().next();
            let totals: Vec<String> = totals.iter().map(ToString::to_string).collect();
            let totals = RefCell::new(totals.into_iter());
            let surplus = RefCell::new(surplus.iter().copied().cycle());
            let total = || next(&totals).ok_or("looked too often");
            persistent(total, || surplus.borrow_mut().next().flatten())
        };
        assert_eq!(pages(&["15"], &[Some(5), Some(5)]), Ok("10".to_string()));
        // Five pages of 15 are freed after the first look at both, or come.
        assert_eq!(pages(&["15", "10"], &[Some(5), Some(0), Some(0)]), Ok("10".to_string()));
        assert_eq!(pages(&["10", "15"], &[Some(0), Some(5), Some(5)]), Ok("10".to_string()));
        // A kernel that does not tell, or never the same.
        assert_eq!(pages(&["15"], &[None]), Ok("15".to_string()));
        assert_eq!(pages(&["never"], &[Some(1)]), Ok("never".to_string()));
        assert_eq!(pages(&["15"; 8], &[Some(1), Some(2)]), Ok("14".to_string()));
    }
}
