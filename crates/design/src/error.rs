//! What can be wrong with a design: where it is, what it is, what would be right.

use std::fmt;

/// Why there is no design.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DesignError {
    /// A file that is no design; all that is wrong with it, one line each, by line.
    #[error("{}", lines(file, problems))]
    File {
        /// What the caller called it.
        file: String,
        /// At least one.
        problems: Vec<Problem>,
    },
    /// No preset has this name.
    #[error("`{name}` is no design{}; known are {}", guess(*nearest), known.join(", "))]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// The one that is spelt most like it, if it is near.
        nearest: Option<&'static str>,
        /// The names there are.
        known: Vec<&'static str>,
    },
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The line, from 1; unknown where the design is no file.
    pub line: Option<usize>,
    /// The key, with its tables before it: `mapping.scan.every`. Empty for syntax.
    pub key: String,
    /// What is wrong, and what is allowed.
    pub what: String,
}

impl Problem {
    /// As a line, after the file's name if it has one.
    pub fn in_file(&self, file: &str) -> String {
        match self.line {
            Some(line) => format!("{file}:{line}: {self}"),
            None => format!("{file}: {self}"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => f.write_str(&self.what),
            key => write!(f, "{key}: {}", self.what),
        }
    }
}

fn guess(nearest: Option<&str>) -> String {
    nearest.map_or(String::new(), |near| format!(" (`{near}`?)"))
}

fn lines(file: &str, problems: &[Problem]) -> String {
    problems.iter().map(|problem| problem.in_file(file)).collect::<Vec<_>>().join("\n")
}

/// The candidate that is spelt most like `word`, if a third of its letters or fewer differ.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = |candidate: &&str| distance(word, candidate);
    let best = candidates.into_iter().min_by_key(near)?;
    (distance(word, best) <= best.len().div_ceil(3)).then_some(best)
}

/// Levenshtein's distance, row by row.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for j in 0..b.len() {
            let change = diagonal + usize::from(letter != b[j]);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name() {
        let names = ["linux-4.3", "linux-6", "ingens", "freebsd"];
        assert_eq!(nearest("ingnes", names), Some("ingens"));
        assert_eq!(nearest("linux-5", names), Some("linux-6"));
        assert_eq!(nearest("windows", names), None);
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn distances() {
        for (a, b, steps) in [("", "abc", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)] {
            assert_eq!((distance(a, b), distance(b, a)), (steps, steps));
        }
    }
}
