//! `Reader`: reads the tables of a file and collects errors.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::text::{bare, guess, nearest, one_line};
use crate::{Field, FileError, Problem};

/// Reads a file's text.
///
/// # Errors
/// All errors in the text.
pub fn read<T>(
    file: impl Display,
    text: &str,
    keys: impl FnOnce(&mut Reader<'_>) -> T,
) -> Result<T, FileError> {
    let mut read = None;
    FileError::check(file, problems(text, |reader| read = Some(keys(reader))))?;
    Ok(read.expect("keys are read where the text is TOML"))
}

/// Reads a file with the type's `Deserialize`. Reports only the first error, and not always its key.
///
/// # Errors
/// The first error.
pub fn deserialize<T: DeserializeOwned>(file: impl Display, text: &str) -> Result<T, FileError> {
    toml::from_str(text).map_err(|error| FileError {
        file: file.to_string(),
        problems: vec![Problem {
            line: Some(error.span().map_or(1, |span| line(text, span.start))),
            key: String::new(),
            what: one_line(error.message()),
        }],
    })
}

/// Reads a text with `keys` and returns all errors. If the text is not TOML, does not call `keys`; the errors then have
/// empty keys.
pub fn problems(text: &str, keys: impl FnOnce(&mut Reader<'_>)) -> Vec<Problem> {
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        // The recovered document may be incomplete, so report only the syntax errors.
        let problem = |error: &toml::de::Error| Problem {
            line: error.span().map(|span| line(text, span.start)),
            key: String::new(),
            what: format!("invalid TOML: {}", one_line(error.message())),
        };
        return errors.iter().map(problem).collect();
    }
    let table = Some(document.get_ref());
    let mut reader = Reader {
        ends: text.match_indices('\n').map(|(at, _)| at).collect(),
        frames: vec![Frame { path: String::new(), line: 1, table, known: vec![] }],
        lines: BTreeMap::new(),
        problems: vec![],
    };
    keys(&mut reader);
    reader.leave();
    reader.problems
}

/// Returns the line number of a key, from 1. If the key is missing: the line of its table, or 1.
pub fn line_of(text: &str, key: &str) -> usize {
    let (document, _) = DeTable::parse_recoverable(text);
    let (mut table, mut found) = (Some(document.get_ref()), 1);
    for name in key.split('.') {
        let Some((key, value)) = table.and_then(|table| table.get_key_value(name)) else { break };
        found = line(text, key.span().start);
        table = value.get_ref().as_table();
    }
    found
}

/// First words of the error for a missing key.
const MISSING: &str = "is missing";

/// Line number of a byte offset, from 1.
fn line(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

/// Reads the keys of tables, and collects errors.
pub struct Reader<'a> {
    /// Byte offsets of the line ends.
    ends: Vec<usize>,
    /// The tables being read, outermost first.
    frames: Vec<Frame<'a>>,
    /// Line of each key found.
    lines: BTreeMap<String, usize>,
    problems: Vec<Problem>,
}

/// A key found in the file.
pub struct Found<'a> {
    /// The key with its table prefix.
    pub key: String,
    /// Line number, from 1.
    pub line: usize,
    /// Its value.
    pub value: &'a DeValue<'a>,
}

struct Frame<'a> {
    /// Prefix of the table's keys: `mapping.scan.`.
    path: String,
    /// Line number where the table starts.
    line: usize,
    /// `None` if the table is missing; all its keys then have their defaults.
    table: Option<&'a DeTable<'a>>,
    /// The keys that the caller has asked for.
    known: Vec<&'static str>,
}

impl<'a> Reader<'a> {
    /// Reads an optional key; `None` if it is missing or invalid. Records an invalid value as an
    /// error.
    pub fn optional<T: Field>(&mut self, name: &'static str) -> Option<T> {
        self.optional_by(name, T::read)
    }

    /// Like [`Self::optional`], with a custom parser.
    pub fn optional_by<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<T> {
        let found = self.find(name)?;
        let read = read(found.value);
        read.map_err(|what| self.problem(found.line, found.key, what)).ok()
    }

    /// Reads a key that is required if its table is present. Records an error and returns `None` if it is missing or
    /// invalid.
    pub fn required<T: Field>(&mut self, name: &'static str) -> Option<T> {
        self.require(name, || format!("must be {}", T::allowed()));
        self.optional(name)
    }

    /// Like [`Self::required`], but returns the type's default if the key is missing or invalid.
    pub fn must<T: Field + Default>(&mut self, name: &'static str) -> T {
        self.required(name).unwrap_or_default()
    }

    /// Reads a required number within a range. Returns the minimum of the range if the key is
    /// missing or invalid.
    pub fn within<T: Field + Display + PartialOrd + Copy>(
        &mut self,
        name: &'static str,
        range: RangeInclusive<T>,
    ) -> T {
        let (least, most) = (*range.start(), *range.end());
        self.require(name, || format!("must be from {least} to {most}"));
        self.optional_within(name, range).unwrap_or(least)
    }

    /// Reads an optional number within a range.
    pub fn optional_within<T: Field + Display + PartialOrd + Copy>(
        &mut self,
        name: &'static str,
        range: RangeInclusive<T>,
    ) -> Option<T> {
        self.optional_shown_within(name, range, T::to_string)
    }

    /// The same for a value that `shown` prints.
    pub fn optional_shown_within<T: Field + PartialOrd + Copy>(
        &mut self,
        name: &'static str,
        range: RangeInclusive<T>,
        shown: impl Fn(&T) -> String,
    ) -> Option<T> {
        self.optional_by(name, |value| match T::read(value)? {
            value if range.contains(&value) => Ok(value),
            value => Err(format!(
                "{} is out of range: must be from {} to {}",
                shown(&value),
                shown(range.start()),
                shown(range.end())
            )),
        })
    }

    /// Reads a table. `keys` is called even if the table is missing; then all its keys are missing.
    pub fn table(&mut self, name: &'static str, keys: impl FnOnce(&mut Self)) {
        self.enter(name);
        keys(self);
        self.leave();
    }

    /// Reads a required table.
    pub fn required_table<T>(
        &mut self,
        name: &'static str,
        keys: impl FnOnce(&mut Self) -> T,
    ) -> T {
        self.require(name, || "write it and its keys, as a table".to_string());
        self.enter(name);
        let read = keys(self);
        self.leave();
        read
    }

    /// Reads an optional table.
    pub fn optional_table<T>(
        &mut self,
        name: &'static str,
        keys: impl FnOnce(&mut Self) -> T,
    ) -> Option<T> {
        let read = self.enter(name).then(|| keys(self));
        self.leave();
        read
    }

    /// Reads an array of tables, `[[name]]`: calls `keys` for each table.
    pub fn tables(&mut self, name: &'static str, mut keys: impl FnMut(&mut Self)) {
        let Some(Found { key, line, value }) = self.find(name) else { return };
        let tables =
            value.as_array().filter(|list| list.iter().all(|one| one.get_ref().is_table()));
        let Some(tables) = tables else {
            return self.problem(
                line,
                key.clone(),
                format!("must be tables: write [[{key}]] and keys below"),
            );
        };
        for one in tables {
            let (path, line) = (format!("{key}."), self.line(one.span().start));
            self.frames.push(Frame { path, line, table: one.get_ref().as_table(), known: vec![] });
            keys(self);
            self.leave();
        }
    }

    /// Finds a key of the current table, and marks it as known.
    pub fn find(&mut self, name: &'static str) -> Option<Found<'a>> {
        let frame = self.frame();
        if !frame.known.contains(&name) {
            frame.known.push(name);
        }
        let path = format!("{}{name}", frame.path);
        let (key, value) = frame.table?.get_key_value(name)?;
        let line = self.line(key.span().start);
        self.lines.insert(path.clone(), line);
        Some(Found { key: path, line, value: value.get_ref() })
    }

    /// Records an error.
    pub fn problem(&mut self, line: usize, key: String, what: String) {
        self.problems.push(Problem { line: Some(line), key, what });
    }

    /// Whether no error was recorded. After an error, checks of several keys together could see defaults.
    pub fn is_good(&self) -> bool {
        self.problems.is_empty()
    }

    /// Records an error about the current table.
    pub fn problem_here(&mut self, what: impl Into<String>) {
        let frame = self.frame();
        let (line, key) = (frame.line, frame.path.trim_end_matches('.').to_string());
        self.problem(line, key, what.into());
    }

    /// Line number where the current table starts.
    pub fn line_here(&mut self) -> usize {
        self.frame().line
    }

    /// Records an error if the key is missing from the current table.
    fn require(&mut self, name: &'static str, allowed: impl FnOnce() -> String) {
        let Frame { table, path, line, .. } = self.frame();
        if table.is_some_and(|table| !table.contains_key(name)) {
            let (line, key) = (*line, format!("{path}{name}"));
            self.problem(line, key, format!("{MISSING}: {}", allowed()));
        }
    }

    /// Line number of each key found so far.
    pub fn lines(&self) -> &BTreeMap<String, usize> {
        &self.lines
    }

    /// Enters a table; returns false if it is missing. Must be followed by [`Reader::leave`].
    pub fn enter(&mut self, name: &'static str) -> bool {
        let found = self.find(name);
        let (path, mut line) = (format!("{}{name}.", self.frame().path), self.frame().line);
        let mut table = None;
        if let Some(found) = found {
            (table, line) = (found.value.as_table(), found.line);
            if table.is_none() {
                let what = format!("expected a table: write [{}] and its keys below", found.key);
                self.problem(found.line, found.key, what);
            }
        }
        self.frames.push(Frame { path, line, table, known: vec![] });
        table.is_some()
    }

    /// Leaves a table, and records its unknown keys as errors.
    pub fn leave(&mut self) {
        let Some(Frame { path, line, table, known }) = self.frames.pop() else { return };
        for (key, _) in table.into_iter().flatten() {
            let name: &str = key.get_ref();
            if known.contains(&name) {
                continue;
            }
            let near = nearest(name, known.iter().copied());
            if let Some(near) = near {
                // A required key is misspelt: report it only as unknown, not also as missing.
                let (line, key) = (Some(line), format!("{path}{near}"));
                let is_this = |one: &Problem| one.line == line && one.key == key;
                self.problems.retain(|one| !(is_this(one) && one.what.starts_with(MISSING)));
            }
            let near = guess(near, "`");
            let what = format!("unknown key{near} known keys: {}", known.join(", "));
            let at = self.line(Spanned::span(key).start);
            self.problem(at, format!("{path}{}", bare(name)), what);
        }
    }

    fn frame(&mut self) -> &mut Frame<'a> {
        self.frames.last_mut().expect("the outermost is left last")
    }

    /// Line number of a byte offset, from 1.
    fn line(&self, at: usize) -> usize {
        1 + self.ends.partition_point(|&end| end < at)
    }
}
