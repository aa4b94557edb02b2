//! Parses JSON documents. Errors name the field: `workloads[0].designs[3].live.seconds`.

use serde::de::DeserializeOwned;

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
