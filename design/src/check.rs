//! The rules that a design must keep.

use crate::{Design, Problem, write};

/// One rule.
pub(crate) struct Rule {
    /// The keys it is about; the first is where a break of it is told.
    pub keys: &'static [&'static str],
    /// What is allowed.
    pub says: &'static str,
    /// Whether a design breaks it.
    pub broken: fn(&Design) -> bool,
}

const RULES: &[Rule] = &[];

/// The rules that the design breaks, each with what to say.
pub(crate) fn broken(design: &Design) -> Vec<(&'static Rule, Problem)> {
    let pairs = write::pairs(design);
    let value = |key: &str| pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value);
    let problem = |rule: &'static Rule| {
        let key = rule.keys[0].to_string();
        let what = match value(&key) {
            Some(value) => format!("{value}: {}", rule.says),
            None => rule.says.to_string(),
        };
        (rule, Problem { line: None, key, what })
    };
    RULES.iter().filter(|rule| (rule.broken)(design)).map(problem).collect()
}

pub(crate) fn problems(design: &Design) -> Vec<Problem> {
    broken(design).into_iter().map(|(_, problem)| problem).collect()
}
