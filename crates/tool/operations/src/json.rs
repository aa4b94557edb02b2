//! Documents as JSON text.

use serde::Serialize;
use serde_json::Value;

use crate::Failure;

/// The text of a document whose first key is its schema.
///
/// # Errors
/// It has a value that JSON lacks.
pub fn json_text(schema: &str, body: Value) -> Result<String, Failure> {
    #[derive(Serialize)]
    struct Document<'a> {
        schema: &'a str,
        #[serde(flatten)]
        body: Value,
    }
    to_json(&Document { schema, body })
}

/// The text of a document.
///
/// # Errors
/// It has a value that JSON lacks.
pub fn to_json(document: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(document);
    Ok(text.map_err(|error| Failure::usage(format!("JSON: {error}")))? + "\n")
}
