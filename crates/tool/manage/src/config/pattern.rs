//! `Glob`: shell patterns for names of units, commands and cgroups.

use std::fmt;

use regex::Regex;
use toml_keys::{DeValue, Field};

/// A shell pattern: `*` is any text without a slash, `**` any text, `?` one character other than a slash. Other
/// characters stand for themselves. The pattern is met by the whole text.
#[derive(Debug, Clone)]
pub struct Glob {
    text: String,
    regex: Regex,
}

impl Glob {
    /// Parses a pattern.
    ///
    /// # Errors
    /// The pattern is empty, has control characters or is too long.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("is empty: must be a name, in which * stands for any text".to_string());
        }
        if text.chars().any(char::is_control) {
            return Err("has a control character: no name matches it".to_string());
        }
        let mut regex = String::from("^");
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let (part, length) = match first {
                '*' if rest.starts_with("**") => (".*".to_string(), 2),
                '*' => ("[^/]*".to_string(), 1),
                '?' => ("[^/]".to_string(), 1),
                _ => (regex::escape(first.encode_utf8(&mut [0; 4])), first.len_utf8()),
            };
            regex += &part;
            rest = &rest[length..];
        }
        regex.push('$');
        let regex = Regex::new(&regex).map_err(|_| "is too long a pattern".to_string())?;
        Ok(Self { text: text.to_string(), regex })
    }

    /// Whether the pattern is met by the whole text.
    pub fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// Whether the pattern has no `*` and no `?`.
    pub fn is_plain(&self) -> bool {
        !self.text.contains(['*', '?'])
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Field for Glob {
    fn allowed() -> String {
        "a name in quotes, in which * stands for any text".to_string()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        Self::new(&String::read(value).map_err(|_| toml_keys::wrong(value, &Self::allowed()))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_ends_at_a_slash_and_two_do_not() {
        for (pattern, text, expected) in [
            ("redis.service", "redis.service", true),
            ("redis.service", "redis-service", false),
            ("redis", "redis.service", false),
            ("postgresql@*.service", "postgresql@15-main.service", true),
            ("*", "a/b", false),
            ("**", "a/b", true),
            ("/kubepods*/**/x", "/kubepods.slice/a/b/x", true),
            ("/kubepods/*", "/kubepods/a/b", false),
            ("?.service", "a.service", true),
            ("?.service", "/.service", false),
            ("?", "ä", true),
            ("a(b|c)+", "a(b|c)+", true),
            ("a(b|c)+", "abc", false),
        ] {
            assert_eq!(Glob::new(pattern).unwrap().is_match(text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_pattern_that_nothing_matches_is_refused() {
        for pattern in ["", "a\0b", "a\nb"] {
            Glob::new(pattern).unwrap_err();
        }
        Glob::new(&"*a".repeat(1 << 19)).unwrap_err();
    }
}
