//! TOML to design: a walk over [`crate::schema`] that fills in what the file says and notes, with
//! its line, everything that is wrong with it.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::nearest;
use crate::field::Field;
use crate::schema::{self, Keys};
use crate::value::quoted;
use crate::{Design, DesignError, Problem, Profile, check, condition};
use policy::{Condition, Rule};

pub(crate) fn design(file: &str, text: &str) -> Result<Design, DesignError> {
    let mut design = Design::default();
    let mut problems = read(&mut design, text);
    if problems.is_empty() {
        return Ok(design);
    }
    problems.sort();
    Err(DesignError::File { file: file.to_string(), problems })
}

fn read(design: &mut Design, text: &str) -> Vec<Problem> {
    let mut lines = BTreeMap::new();
    let mut problems = walk(text, |reader| {
        schema::design(reader, design);
        lines = reader.lines.clone();
    });
    if problems.iter().any(|problem| problem.key.is_empty()) {
        return problems;
    }
    // Rules about a key that could not be read would judge its default.
    let unread: Vec<String> = problems.iter().map(|problem| problem.key.clone()).collect();
    for (rule, mut problem) in check::broken(design) {
        if rule.keys.iter().any(|key| unread.iter().any(|bad| concerns(bad, key))) {
            continue;
        }
        problem.line = Some(rule.keys.iter().find_map(|key| lines.get(*key)).copied().unwrap_or(1));
        problems.push(problem);
    }
    problems
}

/// Reads keys from a text; returns what is wrong with it.
fn walk(text: &str, keys: impl FnOnce(&mut Reader<'_>)) -> Vec<Problem> {
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        // What was recovered may be less than what was written: nothing else can be said of it.
        let problem = |error: &toml::de::Error| Problem {
            line: error.span().map(|span| line(text, span.start)),
            key: String::new(),
            what: format!("this is not TOML: {}", one_line(error.message())),
        };
        return errors.iter().map(problem).collect();
    }
    let mut reader = Reader {
        ends: text.match_indices('\n').map(|(at, _)| at).collect(),
        frames: vec![Frame { path: String::new(), table: Some(document.get_ref()), known: vec![] }],
        lines: BTreeMap::new(),
        problems: vec![],
    };
    keys(&mut reader);
    reader.leave();
    reader.problems
}

/// Whether trouble at `bad` leaves the value of `key` unread: it is the key, or a table above it.
fn concerns(bad: &str, key: &str) -> bool {
    key.strip_prefix(bad).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The line of a key, from 1; else of the table that it is missing from, or the first.
pub(crate) fn line_of(text: &str, key: &str) -> usize {
    let (document, _) = DeTable::parse_recoverable(text);
    let (mut table, mut found) = (Some(document.get_ref()), 1);
    for name in key.split('.') {
        let Some((key, value)) = table.and_then(|table| table.get_key_value(name)) else { break };
        found = line(text, key.span().start);
        table = value.get_ref().as_table();
    }
    found
}

/// Only a profile: the keys of `[profile]`.
pub(crate) fn profile(file: &str, text: &str) -> Result<Profile, DesignError> {
    let mut profile = Profile::default();
    let mut problems = walk(text, |reader| schema::profile(reader, &mut profile));
    if problems.is_empty() && !check::goes_up(&profile.spans) {
        let (line, key) = (Some(line_of(text, "spans")), "spans".to_string());
        problems.push(Problem { line, key, what: check::GOES_UP.to_string() });
    }
    problems.sort();
    let file = file.to_string();
    if problems.is_empty() { Ok(profile) } else { Err(DesignError::File { file, problems }) }
}

/// The line of a byte, from 1.
fn line(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

/// As much of a text as a line has room for.
fn beginning(text: &str) -> String {
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_string(),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

struct Reader<'a> {
    /// Where each line ends.
    ends: Vec<usize>,
    /// The tables that are being read, outermost first.
    frames: Vec<Frame<'a>>,
    /// Where each key is that the file has.
    lines: BTreeMap<String, usize>,
    problems: Vec<Problem>,
}

struct Frame<'a> {
    /// `mapping.scan.`, with the last dot.
    path: String,
    /// None if the file does not have it: then all its keys have their defaults.
    table: Option<&'a DeTable<'a>>,
    /// The keys it may have.
    known: Vec<&'static str>,
}

impl<'a> Reader<'a> {
    fn frame(&mut self) -> &mut Frame<'a> {
        self.frames.last_mut().expect("the outermost is left last")
    }

    /// The value of a key of the current table, if the file has it.
    fn value(&mut self, name: &'static str) -> Option<(String, usize, &'a DeValue<'a>)> {
        let frame = self.frame();
        frame.known.push(name);
        let path = format!("{}{name}", frame.path);
        let (key, value) = frame.table?.get_key_value(name)?;
        let line = self.line(key.span().start);
        self.lines.insert(path.clone(), line);
        Some((path, line, value.get_ref()))
    }

    /// The line of a byte, from 1.
    fn line(&self, at: usize) -> usize {
        1 + self.ends.partition_point(|&end| end < at)
    }

    fn problem(&mut self, line: usize, key: String, what: String) {
        self.problems.push(Problem { line: Some(line), key, what });
    }

    fn enter(&mut self, name: &'static str) -> bool {
        let found = self.value(name);
        let path = format!("{}{name}.", self.frame().path);
        let mut table = None;
        if let Some((key, line, value)) = found {
            table = value.as_table();
            if table.is_none() {
                let what = format!("is no table: write [{key}] and its keys below");
                self.problem(line, key, what);
            }
        }
        self.frames.push(Frame { path, table, known: vec![] });
        table.is_some()
    }

    fn leave(&mut self) {
        let Some(Frame { path, table, known }) = self.frames.pop() else { return };
        for (key, _) in table.into_iter().flatten() {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                let at = self.line(Spanned::span(key).start);
                self.problem(at, format!("{path}{}", bare(name)), unknown(name, &known));
            }
        }
    }
}

fn unknown(name: &str, known: &[&str]) -> String {
    let near = nearest(name, known.iter().copied());
    let near = near.map_or(String::new(), |near| format!(" (`{near}`?)"));
    format!("there is no such key{near}; known here are {}", known.join(", "))
}

/// A key as it has to be written.
fn bare(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.is_empty() && name.chars().all(plain) { name.to_string() } else { quoted(name) }
}

impl Keys for Reader<'_> {
    fn key<T: Field>(&mut self, name: &'static str, value: &mut T) {
        let Some((key, line, found)) = self.value(name) else { return };
        match T::read(found) {
            Ok(read) => *value = read,
            Err(what) => self.problem(line, key, what),
        }
    }

    fn option<T: Field>(&mut self, name: &'static str, value: &mut Option<T>) {
        let Some((key, line, found)) = self.value(name) else { return };
        match T::read(found) {
            Ok(read) => *value = Some(read),
            Err(what) => self.problem(line, key, what),
        }
    }

    fn condition(&mut self, name: &'static str, rule: Rule, value: &mut Option<Condition>) {
        let Some((key, line, found)) = self.value(name) else { return };
        let read = String::read(found).and_then(|text| {
            condition::read(&text, rule)
                .map_err(|what| format!("{}: {what}", quoted(&beginning(&text))))
        });
        match read {
            Ok(read) => *value = Some(read),
            Err(what) => self.problem(line, key, what),
        }
    }

    fn only_with(&mut self, names: &[&'static str], other: &'static str) {
        for name in names {
            if let Some((key, line, _)) = self.value(name) {
                self.problem(line, key, format!("goes only with {other}"));
            }
        }
    }

    fn table(&mut self, name: &'static str, keys: impl FnOnce(&mut Self)) {
        self.enter(name);
        keys(self);
        self.leave();
    }

    fn optional_table<T>(
        &mut self,
        name: &'static str,
        value: &mut Option<T>,
        fresh: T,
        keys: impl FnOnce(&mut Self, &mut T),
    ) {
        if self.enter(name) {
            keys(self, value.insert(fresh));
        }
        self.leave();
    }
}
