//! Formats documents as JSON text.

use serde::Serialize;
use serde_json::Value;

use crate::Failure;

/// Formats a document as JSON text, with its schema as the first key.
///
/// # Errors
/// The document has a value that JSON cannot represent.
pub fn json_text(schema: &str, body: Value) -> Result<String, Failure> {
    #[derive(Serialize)]
    struct Document<'a> {
        schema: &'a str,
        #[serde(flatten)]
        body: Value,
    }
    to_json(&Document { schema, body })
}

/// Formats a document as JSON text.
///
/// # Errors
/// The document has a value that JSON cannot represent.
pub fn to_json(document: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(document);
    Ok(text.map_err(|error| Failure::usage(format!("JSON: {error}")))? + "\n")
}
