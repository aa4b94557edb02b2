//! Parses JSON documents. Errors name the field: `workloads[0].designs[3].live.seconds`.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// What is wrong with a text that is no JSON.
#[derive(Debug)]
pub enum NotJson {
    /// No bytes, or blanks only.
    Empty,
    /// The JSON ends early.
    Truncated(serde_json::Error),
    /// Other text.
    Other(serde_json::Error),
}

impl fmt::Display for NotJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("empty"),
            Self::Truncated(error) => write!(f, "truncated: {error}"),
            Self::Other(error) => write!(f, "no JSON: {error}"),
        }
    }
}

/// Parses JSON of unknown fields, e.g. to find its schema.
///
/// # Errors
/// It is no JSON.
pub fn json(text: &str) -> Result<Value, NotJson> {
    if text.trim().is_empty() {
        return Err(NotJson::Empty);
    }
    serde_json::from_str(text).map_err(|error| match error.is_eof() {
        true => NotJson::Truncated(error),
        false => NotJson::Other(error),
    })
}

/// Parses a document.
///
/// # Errors
/// One line that names the first missing or invalid field and the reason, or the position of
/// invalid JSON.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let mut json = serde_json::Deserializer::from_str(text);
    let read = serde_path_to_error::deserialize(&mut json);
    let read = read.map_err(|error| {
        let field = error.path().to_string();
        let why = error.into_inner().to_string();
        line(&if field == "." { why } else { format!("{field}: {why}") })
    })?;
    json.end().map_err(|error| line(&error.to_string()))?;
    Ok(read)
}

/// Removes control characters, which the document may have put into the message.
fn line(text: &str) -> String {
    text.chars().map(|one| if one.is_control() { '?' } else { one }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    struct Part {
        #[serde(deserialize_with = "units::seconds")]
        #[expect(dead_code, reason = "read only")]
        seconds: f64,
    }

    #[derive(Debug, serde::Deserialize)]
    struct Whole {
        #[expect(dead_code, reason = "read only")]
        parts: Vec<Part>,
    }

    #[test]
    fn what_is_no_json_is_empty_or_ends_early_or_is_other_text() {
        assert_eq!(json("{\"a\": 1}").unwrap()["a"], 1);
        assert!(matches!(json(" \n"), Err(NotJson::Empty)));
        for early in ["{\"a\": [1, 2", "\"text"] {
            assert!(matches!(json(early), Err(NotJson::Truncated(_))), "{early}");
        }
        for other in ["<!DOCTYPE html>", "{} {}", "arm,runs"] {
            assert!(matches!(json(other), Err(NotJson::Other(_))), "{other}");
        }
    }

    #[test]
    fn a_fault_is_named_by_its_field() {
        let refused = |text: &str| read::<Whole>(text).unwrap_err();
        assert!(read::<Whole>(r#"{"parts":[{"seconds":0}]}"#).is_ok());
        for (text, why) in [
            (r#"{"parts":[{"seconds":0},{"seconds":-1}]}"#, "parts[1].seconds: -1: expected 0 to "),
            (r#"{"parts":[{}]}"#, "parts[0]: missing field `seconds` at line 1"),
            ("{}", "missing field `parts` at line 1"),
            (r#"{"parts":[]} {}"#, "trailing characters at line 1"),
            (r#"{"parts":[],"parts":[]}"#, "duplicate field `parts` at line 1"),
        ] {
            assert!(refused(text).starts_with(why), "{text}: {}", refused(text));
        }
        assert_eq!(refused("{\"parts\":\n").lines().count(), 1);
    }
}
