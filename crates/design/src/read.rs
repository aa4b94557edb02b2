//! TOML to design: a walk over [`crate::schema`] that fills in what the file says and notes, with
//! its line, everything that is wrong with it.

use std::collections::BTreeMap;

use toml_keys::{Found, Reader, line_of, problems, quoted};

use crate::field::Field;
use crate::schema::{self, Keys};
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
    let mut problems = problems(text, |reader| {
        schema::design(reader, design);
        lines = reader.lines().clone();
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

/// Whether trouble at `bad` leaves the value of `key` unread: it is the key, or a table above it.
fn concerns(bad: &str, key: &str) -> bool {
    key.strip_prefix(bad).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Only a profile: the keys of `[profile]`.
pub(crate) fn profile(file: &str, text: &str) -> Result<Profile, DesignError> {
    let mut profile = Profile::default();
    let mut problems = problems(text, |reader| schema::profile(reader, &mut profile));
    if problems.is_empty() && !check::goes_up(&profile.spans) {
        let (line, key) = (Some(line_of(text, "spans")), "spans".to_string());
        problems.push(Problem { line, key, what: check::GOES_UP.to_string() });
    }
    problems.sort();
    let file = file.to_string();
    if problems.is_empty() { Ok(profile) } else { Err(DesignError::File { file, problems }) }
}

/// As much of a text as a line has room for.
fn beginning(text: &str) -> String {
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_string(),
    }
}

impl Keys for Reader<'_> {
    fn key<T: Field>(&mut self, name: &'static str, value: &mut T) {
        if let Some(read) = self.optional_by(name, T::read) {
            *value = read;
        }
    }

    fn option<T: Field>(&mut self, name: &'static str, value: &mut Option<T>) {
        if let Some(read) = self.optional_by(name, T::read) {
            *value = Some(read);
        }
    }

    fn condition(&mut self, name: &'static str, rule: Rule, value: &mut Option<Condition>) {
        let read = self.optional_by(name, |found| {
            let text = String::read(found)?;
            condition::read(&text, rule)
                .map_err(|what| format!("{}: {what}", quoted(&beginning(&text))))
        });
        if read.is_some() {
            *value = read;
        }
    }

    fn only_with(&mut self, names: &[&'static str], other: &'static str) {
        for name in names {
            if let Some(Found { key, line, .. }) = self.find(name) {
                self.problem(line, key, format!("goes only with {other}"));
            }
        }
    }

    fn table(&mut self, name: &'static str, keys: impl FnOnce(&mut Self)) {
        Reader::table(self, name, keys);
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
