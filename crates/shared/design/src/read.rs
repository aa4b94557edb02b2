//! Reads a design from TOML: walks over [`crate::schema`], fills in the values, and records every error with its line.

use std::collections::BTreeMap;

use toml_keys::{Found, Reader, line_of, problems};

use crate::{Design, DesignError, Problem, Profile, check, field, schema};
use policy::table::{Keys, Limit, Slot, Table};

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
        schema::design(&mut Filled(reader), design);
        lines = reader.lines().clone();
    });
    if problems.iter().any(|problem| problem.key.is_empty()) {
        return problems;
    }
    // Skip rules about keys that could not be parsed: the rules would see the keys' defaults.
    let unread: Vec<String> = problems.iter().map(|problem| problem.key.clone()).collect();
    for (others, mut problem) in check::broken(design, &|key| lines.contains_key(key)) {
        let keys = || [problem.key.as_str()].into_iter().chain(others.iter().copied());
        if keys().any(|key| unread.iter().any(|bad| concerns(bad, key))) {
            continue;
        }
        problem.line = Some(keys().find_map(|key| lines.get(key)).copied().unwrap_or(1));
        problems.push(problem);
    }
    problems
}

/// Whether an error at key `bad` leaves `key` unset: `bad` is `key` itself, or a table that
/// contains it.
fn concerns(bad: &str, key: &str) -> bool {
    key.strip_prefix(bad).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Parses a profile alone: the keys of `[profile]`.
pub(crate) fn profile(file: &str, text: &str) -> Result<Profile, DesignError> {
    let mut profile = Profile::default();
    let mut problems = problems(text, |reader| profile.keys(&mut Filled(reader)));
    if problems.is_empty() && !check::is_ascending(&profile.spans) {
        let (line, key) = (Some(line_of(text, "spans")), "spans".to_string());
        problems.push(Problem { line, key, what: check::ASCENDING.to_string() });
    }
    problems.sort();
    let file = file.to_string();
    if problems.is_empty() { Ok(profile) } else { Err(DesignError::File { file, problems }) }
}

/// Fills in values from a file.
struct Filled<'a, 'b>(&'a mut Reader<'b>);

impl Keys for Filled<'_, '_> {
    fn key(&mut self, name: &'static str, _: Option<Limit>, slot: Slot<'_>) {
        let Some(Found { key, line, value }) = self.0.find(name) else { return };
        if let Err(what) = field::read(&key, slot, value) {
            self.0.problem(line, key, what);
        }
    }

    fn only_with(&mut self, names: &[&'static str], other: &'static str) {
        for name in names {
            if let Some(Found { key, line, .. }) = self.0.find(name) {
                self.0.problem(line, key, format!("goes only with {other}"));
            }
        }
    }

    fn enter(&mut self, name: &'static str, _: bool) -> bool {
        self.0.enter(name)
    }

    fn leave(&mut self) {
        self.0.leave();
    }
}
