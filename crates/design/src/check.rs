//! The rules that a design must keep: ranges of numbers, and mixes that no machine could carry out.
//!
//! They are tables, in [`numbers`], [`mixes`], [`upkeep`] and [`conditions`]. A mix that is merely unwise is allowed:
//! the laboratory is there to show it. What is refused contradicts itself, or sets a key that could
//! have no effect.
//!
//! Called by [`crate::read`] and [`Design::check`].

mod ask;
mod conditions;
mod mixes;
mod numbers;
#[cfg(test)]
mod tests;
mod upkeep;

use crate::{Design, Problem, write};
pub(crate) use conditions::{GOES_UP, goes_up, reads_profile};

/// One rule.
pub(crate) struct Rule {
    /// The keys it is about; the first is where a break of it is told.
    pub keys: &'static [&'static str],
    /// What is allowed.
    says: &'static str,
    /// Whether a design breaks it.
    broken: fn(&Design) -> bool,
}

const fn rule(
    keys: &'static [&'static str],
    says: &'static str,
    broken: fn(&Design) -> bool,
) -> Rule {
    Rule { keys, says, broken }
}

/// All rules.
fn rules() -> impl Iterator<Item = &'static Rule> {
    [numbers::RULES, mixes::RULES, upkeep::RULES, conditions::RULES].into_iter().flatten()
}

/// The rules that the design breaks, each with what to say.
pub(crate) fn broken(design: &Design) -> Vec<(&'static Rule, Problem)> {
    let pairs = write::pairs(design);
    let problem = |rule: &'static Rule| {
        let key = rule.keys[0];
        let value = pairs.iter().find(|(name, _)| name == key);
        let value = value.map_or(String::new(), |(_, value)| format!("{value}: "));
        (rule, Problem { line: None, key: key.to_string(), what: value + rule.says })
    };
    rules().filter(|rule| (rule.broken)(design)).map(problem).collect()
}

pub(crate) fn problems(design: &Design) -> Vec<Problem> {
    broken(design).into_iter().map(|(_, problem)| problem).collect()
}
