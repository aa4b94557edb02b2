//! Formats documents as JSON text.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::Failure;

/// Formats a document as JSON text, with its schema as the first key.
///
/// # Errors
/// The document has a value that JSON cannot represent.
pub fn json_text(schema: &str, body: Value) -> Result<String, Failure> {
    let mut body = body;
    body["schema"] = schema.into();
    to_json(&SchemaFirst(&body))
}

/// A document that is written with its schema as the first key; the other keys follow in their order.
#[derive(Debug)]
pub struct SchemaFirst<'a>(pub &'a Value);

impl Serialize for SchemaFirst<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Some(all) = self.0.as_object() else { return self.0.serialize(to) };
        let mut map = to.serialize_map(Some(all.len()))?;
        let (first, rest): (Vec<_>, Vec<_>) = all.iter().partition(|(key, _)| *key == "schema");
        for (key, value) in first.into_iter().chain(rest) {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// Formats a document as JSON text.
///
/// # Errors
/// The document has a value that JSON cannot represent.
pub fn to_json(document: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(document);
    Ok(text.map_err(|error| Failure::usage(format!("JSON: {error}")))? + "\n")
}
