//! What two designs do differently, key by key.

use crate::{Design, Value, write};

/// A key whose value differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The key, with its tables before it: `preparation.fill-at`.
    pub key: String,
    /// Its value in the first design; none if it is off there.
    pub a: Option<Value>,
    /// Its value in the second.
    pub b: Option<Value>,
}

/// The keys that differ, in the order of the five events. Names and summaries are not compared.
pub fn diff(a: &Design, b: &Design) -> Vec<Difference> {
    let (a, b) = (write::pairs(a), write::pairs(b));
    let mut differences = Vec::new();
    let mut rest = b.as_slice();
    for (key, value) in a {
        let Some(at) = rest.iter().position(|(other, _)| *other == key) else {
            differences.push(Difference { key, a: Some(value), b: None });
            continue;
        };
        // Both are in the schema's order: what the second has before this key, the first has not.
        differences.extend(rest[..at].iter().map(only_b));
        if rest[at].1 != value {
            differences.push(Difference { key, a: Some(value), b: Some(rest[at].1.clone()) });
        }
        rest = &rest[at + 1..];
    }
    differences.extend(rest.iter().map(only_b));
    differences.retain(|one| one.key != "name" && one.key != "summary");
    differences
}

fn only_b((key, value): &(String, Value)) -> Difference {
    Difference { key: key.clone(), a: None, b: Some(value.clone()) }
}
