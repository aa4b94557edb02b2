//! Parses the program's own metric from its output.

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::stats::Better;

/// A metric and how to find it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricSpec {
    /// Name in tables.
    pub name: String,
    /// Unit of the values, if known.
    pub unit: Option<String>,
    /// The value is the first group of the last match; the whole match if there are no groups.
    pub regex: String,
    /// The better direction.
    pub better: Better,
}

/// A compiled metric.
#[derive(Clone, Debug)]
pub struct Metric {
    regex: Regex,
}

/// Why there is no value.
#[derive(Debug, thiserror::Error)]
pub enum MetricError {
    /// The pattern is invalid.
    #[error("metric regex `{0}` is not valid: {1}")]
    Pattern(String, String),
    /// Nothing matched.
    #[error("metric regex `{pattern}` does not match the program's output: {printed}")]
    NoMatch {
        /// The pattern.
        pattern: String,
        /// The beginning of the output.
        printed: String,
    },
    /// The match is not a positive number.
    #[error("metric regex `{pattern}` matched `{found}`, which is not a positive number")]
    NotANumber {
        /// The pattern.
        pattern: String,
        /// The match.
        found: String,
    },
}

impl Metric {
    /// Compiles the pattern for matching the whole output: `^` and `$` match at line ends.
    pub fn compile(pattern: &str) -> Result<Self, MetricError> {
        let line = |error: regex::Error| {
            MetricError::Pattern(pattern.to_string(), report::format::regex_reason(error))
        };
        let regex = regex::RegexBuilder::new(pattern).multi_line(true).build().map_err(line)?;
        Ok(Self { regex })
    }

    /// Returns the value in `printed`: the last match, because programs report progress before the result.
    pub fn find(&self, printed: &str) -> Result<f64, MetricError> {
        let pattern = || self.regex.as_str().to_string();
        let last = self.regex.captures_iter(printed).last().ok_or_else(|| {
            let start: String = printed.trim().chars().take(120).collect();
            let printed = if start.is_empty() { "nothing".into() } else { format!("{start:?}") };
            MetricError::NoMatch { pattern: pattern(), printed }
        })?;
        let found = last.iter().skip(1).flatten().next().unwrap_or(last.get(0).expect("group 0"));
        match without_groups(found.as_str().trim()).parse::<f64>() {
            // Accept only values that a document may hold.
            Ok(value) if (f64::MIN_POSITIVE..=units::MAX_FIGURE).contains(&value) => Ok(value),
            _ => Err(MetricError::NotANumber {
                pattern: pattern(),
                found: found.as_str().to_string(),
            }),
        }
    }
}

/// Removes the commas between groups of three digits. Any other comma stays and makes the number invalid: `9,75` is
/// from a language with decimal commas.
fn without_groups(text: &str) -> String {
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut groups = whole.split(',');
    let first = groups.next().unwrap_or_default().trim_start_matches(['+', '-']);
    let is_group =
        |group: &str| group.len() == 3 && group.bytes().all(|byte| byte.is_ascii_digit());
    let is_grouped = (1..=3).contains(&first.len()) && groups.all(is_group);
    if is_grouped { whole.replace(',', "") + rest } else { text.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(pattern: &str, printed: &str) -> Result<f64, MetricError> {
        Metric::compile(pattern)?.find(printed)
    }

    #[test]
    fn takes_the_group_of_the_last_match() {
        let printed = "rate: 12.5 op/s\nrate: 1,250.5 op/s\nlast 7";
        assert_eq!(find(r"rate: ([\d.,]+)", printed).unwrap(), 1250.5);
        assert_eq!(find(r"[\d.,]+", "1,234,567").unwrap(), 1234567.0);
        // Numbers with a decimal comma, or with an incomplete group.
        for strange in ["9,75", "1.234,5", "1234,567", "1,23,456", ",5"] {
            assert!(find(r"[\d.,]+", strange).is_err(), "{strange}");
        }
        assert!(find(r"[\d.,e]+", "9,7e5").is_err());
        assert_eq!(find(r"[\d]+$", printed).unwrap(), 7.0);
        assert_eq!(find(r"(x)?rate: (?:(\d+)\.5 )", printed).unwrap(), 12.0);
    }

    #[test]
    fn says_why_there_is_none() {
        let error = |pattern, printed| find(pattern, printed).unwrap_err().to_string();
        assert!(error("(", "").contains("`(` is not valid: unclosed group"));
        assert!(error("x", "").ends_with("program's output: nothing"));
        assert!(error("x", "no\nluck").contains("\"no\\nluck\""));
        for printed in ["v=none", "v=0", "v=-1", "v=inf", "v=NaN"] {
            assert!(error("v=(.*)", printed).contains("not a positive number"), "{printed}");
        }
    }
}
