//! `Reader`: a walk over the tables of a file, which notes what is wrong.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::text::{bare, guess, nearest, one_line};
use crate::{Field, Problem};

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

    /// The value of a key that must be there; `None` if it is missing or wrong, which is noted.
    pub fn required<T: Field>(&mut self, name: &'static str) -> Option<T> {
        let Frame { table, path, line, .. } = self.frame();
        if table.is_none_or(|table| !table.contains_key(name)) {
            let (line, key) = (*line, format!("{path}{name}"));
            self.frame().known.push(name);
            self.problem(line, key, format!("is missing: must be {}", T::allowed()));
            return None;
        }
        self.optional(name)
    }

    /// A table whose keys may be absent.
    pub fn table(&mut self, name: &'static str, keys: impl FnOnce(&mut Self)) {
        self.enter(name);
        keys(self);
        self.leave();
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

    /// Notes that something is wrong with the current table.
    pub fn problem_here(&mut self, what: impl Into<String>) {
        let frame = self.frame();
        let (line, key) = (frame.line, frame.path.trim_end_matches('.').to_string());
        self.problem(line, key, what.into());
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
        let Some(Frame { path, table, known, .. }) = self.frames.pop() else { return };
        for (key, _) in table.into_iter().flatten() {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                let at = self.line(Spanned::span(key).start);
                self.problem(at, format!("{path}{}", bare(name)), unknown(name, &known));
            }
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

fn unknown(name: &str, known: &[&str]) -> String {
    let near = guess(nearest(name, known.iter().copied()), "`");
    format!("unknown key{near} known keys: {}", known.join(", "))
}
