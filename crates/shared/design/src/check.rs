//! Validity rules of designs: ranges of numbers, and combinations that no machine could execute.
//!
//! The rules are tables of rows, in [`numbers`], [`mixes`], [`upkeep`] and [`conditions`]; a range that depends on no
//! other key is declared with its key ([`policy::rules`]). Unwise combinations are allowed, because the lab exists to
//! show their effects. Only designs that contradict themselves, or set keys without effect, are refused.

mod conditions;
mod mixes;
mod numbers;
mod predicates;
#[cfg(test)]
mod tests;
mod upkeep;
mod warnings;

use crate::write::{self, Entry};
use crate::{Design, Problem, Rules};
pub(crate) use conditions::{ASCENDING, is_ascending, reads_profile};

struct Rule {
    /// The keys of the rule; an error is reported at the first key.
    keys: &'static [&'static str],
    /// The text of the error.
    says: &'static str,
    /// Whether a design violates the rule.
    broken: fn(&Rules) -> bool,
}

/// Builds rules from rows: keys, error text, and when the rule is violated.
macro_rules! table {
    (|$rules:ident| $([$($key:expr),+] $says:expr => $broken:expr;)+) => {
        &[$(Rule { keys: &[$($key),+], says: $says, broken: |$rules| $broken }),+]
    };
}
use table;

fn rules() -> impl Iterator<Item = &'static Rule> {
    [numbers::RULES, mixes::RULES, upkeep::RULES, conditions::RULES].into_iter().flatten()
}

/// What a key needs of other keys, as the rules say.
pub(crate) fn needs(key: &str) -> impl Iterator<Item = &'static str> {
    let tables = [mixes::RULES, upkeep::RULES, conditions::RULES].into_iter().flatten();
    tables.filter(move |rule| rule.keys[0] == key).map(|rule| rule.says)
}

/// The range of a key's number where it depends on other keys.
pub(crate) fn range(key: &str) -> Option<&'static str> {
    let named = match key {
        "name" => return Some(NAME),
        "summary" => return Some(SUMMARY),
        _ => numbers::RULES.iter().find(|rule| rule.keys[0] == key),
    };
    named.map(|rule| rule.says)
}

/// Returns the warnings about a valid design.
pub(crate) fn warnings(design: &Design) -> Vec<Problem> {
    let rules = warnings::RULES.iter().filter(|rule| (rule.broken)(&design.rules));
    let entries = write::entries(design);
    let problem = |rule: &Rule| problem(&entries, design, rule.keys, rule.says, &|_| true);
    rules.map(problem).collect()
}

/// An error or warning about the first of `keys`: its value and the text. A text may speak of the pages of the design's
/// largest size. `is_set`: whether the design's author wrote a key. A default is wrong because of one of the other keys,
/// which is named.
fn problem(
    entries: &[Entry],
    design: &Design,
    keys: &[&str],
    says: &str,
    is_set: &dyn Fn(&str) -> bool,
) -> Problem {
    let of = |key: &str| entries.iter().find(|entry| entry.key == key);
    let key = keys[0];
    let cause = || keys.iter().filter(|key| is_set(key)).find_map(|key| of(key));
    let value = match of(key) {
        None => String::new(),
        Some(_) if key == "name" && !is_set(key) => "missing: ".to_string(),
        Some(entry) if is_set(key) => format!("{}: ", entry.value),
        Some(entry) => match cause() {
            Some(cause) => {
                format!("{} (default, beside {} = {}): ", entry.value, cause.key, cause.value)
            }
            None => format!("{} (default): ", entry.value),
        },
    };
    let what = value + &says.replace(PAGES, &pages_of(design));
    Problem { line: None, key: key.to_string(), what }
}

/// How the texts of rules speak of the pages of the largest size.
const PAGES: &str = "the pages of the largest of allocation.sizes (512 for 2M)";

/// The number of base pages in a design's largest size: `16, the pages of 64K`.
fn pages_of(design: &Design) -> String {
    if predicates::bad_sizes(&design.rules) {
        return PAGES.to_string();
    }
    let size = crate::Value::Size(predicates::largest(&design.rules)).to_string();
    format!("{}, the base pages of {}", predicates::pages(&design.rules), size.trim_matches('"'))
}

const NAME: &str = "must be lower-case letters, digits, dots and dashes, and begin with a letter";
const SUMMARY: &str = "must be one line, without control characters";

/// Returns an error for each violated rule, with the rule's keys. `is_set`: whether the design's author wrote a key.
/// Rules about invalid sizes and another key follow from the error of the sizes, and are left out.
pub(crate) fn broken(
    design: &Design,
    is_set: &dyn Fn(&str) -> bool,
) -> Vec<(&'static [&'static str], Problem)> {
    let entries = write::entries(design);
    let problem = |keys: &[&str], says: &str| problem(&entries, design, keys, says, is_set);
    let texts = [
        ("name", NAME, predicates::bad_name(&design.name)),
        ("summary", SUMMARY, design.summary.contains(char::is_control)),
    ];
    let texts = texts.into_iter().filter(|(.., is_bad)| *is_bad).map(|(key, says, _)| (key, says));
    let limits = entries.iter().filter_map(|Entry { key, limit, amount, .. }| {
        let (limit, amount) = ((*limit)?, (*amount)?);
        (amount < limit.min || amount > limit.max).then_some((key.as_str(), limit.says))
    });
    let single = texts.chain(limits).map(|(key, says)| (&[][..], problem(&[key], says)));
    let bad_sizes = predicates::bad_sizes(&design.rules);
    let follows =
        |rule: &&Rule| bad_sizes && rule.keys.len() > 1 && rule.keys.contains(&predicates::SIZES);
    let rules = rules().filter(|rule| (rule.broken)(&design.rules) && !follows(rule));
    single.chain(rules.map(|rule| (rule.keys, problem(rule.keys, rule.says)))).collect()
}

pub(crate) fn problems(design: &Design) -> Vec<Problem> {
    broken(design, &|_| true).into_iter().map(|(_, problem)| problem).collect()
}
