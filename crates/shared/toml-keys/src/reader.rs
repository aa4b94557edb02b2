//! `Reader`: a walk over the tables of a file, which notes what is wrong.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::text::{bare, guess, nearest, one_line};
use crate::{Field, FileError, Problem};

/// Reads a file's text, if nothing is wrong with it.
///
/// # Errors
/// All that is wrong.
pub fn read<T>(
    file: impl Display,
    text: &str,
    keys: impl FnOnce(&mut Reader<'_>) -> T,
) -> Result<T, FileError> {
    let mut read = None;
    FileError::check(file, problems(text, |reader| read = Some(keys(reader))))?;
    Ok(read.expect("keys are read where the text is TOML"))
}

/// Reads a file into a type that says by itself how: of what is wrong, the first alone is told, and not always with
/// its key.
///
/// # Errors
/// What is wrong.
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

/// Reads a text; returns what is wrong with it. A text that is not TOML has no keys: `keys` is then not called, and
/// the problems' keys are empty.
pub fn problems(text: &str, keys: impl FnOnce(&mut Reader<'_>)) -> Vec<Problem> {
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        // What was recovered may be less than what was written: nothing else can be said of it.
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

/// The line of a key, from 1; else of the table that it is missing from, or the first.
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

/// How the problem of a missing key begins.
const MISSING: &str = "is missing";

/// The line of a byte, from 1.
fn line(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

/// The walk, in one of the tables.
pub struct Reader<'a> {
    /// Where each line ends.
    ends: Vec<usize>,
    /// The tables that are being read, outermost first.
    frames: Vec<Frame<'a>>,
    /// Where each key is that the file has.
    lines: BTreeMap<String, usize>,
    problems: Vec<Problem>,
}

/// A key that the file has.
pub struct Found<'a> {
    /// With its tables before it.
    pub key: String,
    /// From 1.
    pub line: usize,
    /// What is written there.
    pub value: &'a DeValue<'a>,
}

struct Frame<'a> {
    /// `mapping.scan.`, with the last dot.
    path: String,
    /// Where it begins.
    line: usize,
    /// None if the file does not have it: then all its keys have their defaults.
    table: Option<&'a DeTable<'a>>,
    /// The keys it may have.
    known: Vec<&'static str>,
}

impl<'a> Reader<'a> {
    /// The value of a key that may be absent; `None` too if it is wrong, which is noted.
    pub fn optional<T: Field>(&mut self, name: &'static str) -> Option<T> {
        self.optional_by(name, T::read)
    }

    /// The same, read by a function.
    pub fn optional_by<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<T> {
        let found = self.find(name)?;
        let read = read(found.value);
        read.map_err(|what| self.problem(found.line, found.key, what)).ok()
    }

    /// The value of a key that must be there, if its table is; `None` if it is missing or wrong, which is noted.
    pub fn required<T: Field>(&mut self, name: &'static str) -> Option<T> {
        self.miss(name, || format!("must be {}", T::allowed()));
        self.optional(name)
    }

    /// The same; the default where it is missing or wrong.
    pub fn must<T: Field + Default>(&mut self, name: &'static str) -> T {
        self.required(name).unwrap_or_default()
    }

    /// A number that must be there and lie in a range; the least where it is missing or wrong.
    pub fn within<T: Field + Display + PartialOrd + Copy>(
        &mut self,
        name: &'static str,
        range: RangeInclusive<T>,
    ) -> T {
        let (least, most) = (*range.start(), *range.end());
        self.miss(name, || format!("must be from {least} to {most}"));
        self.optional_within(name, range).unwrap_or(least)
    }

    /// A number that may be absent and lies in a range.
    pub fn optional_within<T: Field + Display + PartialOrd + Copy>(
        &mut self,
        name: &'static str,
        range: RangeInclusive<T>,
    ) -> Option<T> {
        self.optional_by(name, |value| match T::read(value)? {
            number if range.contains(&number) => Ok(number),
            number => Err(format!(
                "{number} is out of range: must be from {} to {}",
                range.start(),
                range.end()
            )),
        })
    }

    /// A table whose keys may be absent.
    pub fn table(&mut self, name: &'static str, keys: impl FnOnce(&mut Self)) {
        self.enter(name);
        keys(self);
        self.leave();
    }

    /// A table that must be there.
    pub fn required_table<T>(
        &mut self,
        name: &'static str,
        keys: impl FnOnce(&mut Self) -> T,
    ) -> T {
        self.miss(name, || "write it and its keys, as a table".to_string());
        self.enter(name);
        let read = keys(self);
        self.leave();
        read
    }

    /// A table that may be absent.
    pub fn optional_table<T>(
        &mut self,
        name: &'static str,
        keys: impl FnOnce(&mut Self) -> T,
    ) -> Option<T> {
        let read = self.enter(name).then(|| keys(self));
        self.leave();
        read
    }

    /// Tables of one name, `[[name]]`: `keys` is called for each.
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

    /// A key's place and value, if the file has it. Whoever asks knows the key.
    pub fn find(&mut self, name: &'static str) -> Option<Found<'a>> {
        let frame = self.frame();
        frame.known.push(name);
        let path = format!("{}{name}", frame.path);
        let (key, value) = frame.table?.get_key_value(name)?;
        let line = self.line(key.span().start);
        self.lines.insert(path.clone(), line);
        Some(Found { key: path, line, value: value.get_ref() })
    }

    /// Notes that something is wrong.
    pub fn problem(&mut self, line: usize, key: String, what: String) {
        self.problems.push(Problem { line: Some(line), key, what });
    }

    /// Whether nothing is wrong so far: rules over several keys would judge defaults.
    pub fn is_good(&self) -> bool {
        self.problems.is_empty()
    }

    /// Notes that something is wrong with the current table.
    pub fn problem_here(&mut self, what: impl Into<String>) {
        let frame = self.frame();
        let (line, key) = (frame.line, frame.path.trim_end_matches('.').to_string());
        self.problem(line, key, what.into());
    }

    /// Notes that a key is missing from the current table, if it is.
    fn miss(&mut self, name: &'static str, allowed: impl FnOnce() -> String) {
        let Frame { table, path, line, .. } = self.frame();
        if table.is_some_and(|table| !table.contains_key(name)) {
            let (line, key) = (*line, format!("{path}{name}"));
            self.problem(line, key, format!("{MISSING}: {}", allowed()));
        }
    }

    /// Where each key is that was found so far.
    pub fn lines(&self) -> &BTreeMap<String, usize> {
        &self.lines
    }

    /// Goes into a table. False if the file does not have it. To be followed by [`Reader::leave`].
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

    /// Leaves a table: its keys that nobody asked for are mistakes.
    pub fn leave(&mut self) {
        let Some(Frame { path, line, table, known }) = self.frames.pop() else { return };
        for (key, _) in table.into_iter().flatten() {
            let name: &str = key.get_ref();
            if known.contains(&name) {
                continue;
            }
            let near = nearest(name, known.iter().copied());
            if let Some(near) = near {
                // It is there, misspelt: one mistake, not two.
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

    /// The line of a byte, from 1.
    fn line(&self, at: usize) -> usize {
        1 + self.ends.partition_point(|&end| end < at)
    }
}
