//! Tests readers of documents: replaces each number of a document by an invalid value; the reader must refuse the
//! result.

use std::collections::BTreeMap;

use serde_json::Value;

/// Number of numbers changed per field, because the elements of a list are alike. The nightly set
/// changes all.
const EACH: usize = 2;

/// A change to a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Replaced by -1.
    Negative,
    /// Replaced by 1e300.
    Huge,
    /// The number is replaced by the text `"nan"`.
    Words,
    /// The number is replaced by `null`.
    Null,
    /// The number's field is removed. List elements are not removed, because a shorter list may be valid.
    Absent,
}

/// Changes of some fields that give another valid document.
#[derive(Debug, Clone, Copy)]
pub struct Legitimate {
    /// The changes.
    pub changes: &'static [Change],
    /// Patterns of fields, such as `samples[].exit_code`; a `*` at either end matches anything.
    pub fields: &'static [&'static str],
    /// Why the changed document is valid.
    pub why: &'static str,
}

/// Counts of changed and refused documents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refused {
    /// Number of numbers that were changed.
    pub figures: usize,
    /// Number of those for which the reader refuses both -1 and 1e300.
    pub guarded: usize,
    /// Number of changed documents.
    pub changed: usize,
    /// Number of changed documents that the reader refused.
    pub refused: usize,
}

impl Change {
    const ALL: [Self; 5] = [Self::Negative, Self::Huge, Self::Words, Self::Null, Self::Absent];

    fn value(self) -> Option<Value> {
        match self {
            Self::Negative => Some(Value::from(-1)),
            Self::Huge => Some(Value::from(1e300)),
            Self::Words => Some(Value::from("nan")),
            Self::Null => Some(Value::Null),
            Self::Absent => None,
        }
    }
}

impl Legitimate {
    fn holds(&self, change: Change, field: &str) -> bool {
        let is = |pattern: &str| match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
            (Some(_), Some(_)) => field.contains(pattern.trim_matches('*')),
            (Some(end), None) => field.ends_with(end),
            (None, Some(start)) => field.starts_with(start),
            (None, None) => field == pattern,
        };
        self.changes.contains(&change) && self.fields.iter().any(|pattern| is(pattern))
    }
}

/// Changes each number of a document in each way, and passes the result to `read`. The error of `read` must be one line
/// that names the field or its parent.
///
/// # Panics
/// `read` refuses the original document, accepts an invalid one, or returns an error that names no field; or an entry
/// of `legitimate` matches no change.
pub fn refused(
    document: &str,
    legitimate: &[Legitimate],
    read: impl Fn(&str) -> Result<(), String>,
) -> Refused {
    let mut root: Value = serde_json::from_str(document).expect("JSON");
    assert_eq!(read(&root.to_string()), Ok(()), "the document itself");
    let mut places = Vec::new();
    figures(&root, String::new(), &mut places);
    let mut seen = BTreeMap::<String, usize>::new();
    places.retain(|pointer| {
        let count = seen.entry(field(&root, pointer)).or_default();
        *count += 1;
        crate::is_nightly() || *count <= EACH
    });
    let (mut count, mut wrong) = (Refused::default(), Vec::new());
    let mut used = vec![false; legitimate.len()];
    for pointer in &places {
        let field = field(&root, pointer);
        count.figures += 1;
        let mut is_guarded = true;
        for change in Change::ALL {
            let Some(text) = changed(&mut root, pointer, change) else { continue };
            let answer = read(&text);
            count.changed += 1;
            count.refused += usize::from(answer.is_err());
            is_guarded &= answer.is_err() || !matches!(change, Change::Negative | Change::Huge);
            let may = legitimate.iter().position(|one| one.holds(change, &field));
            match (answer, may) {
                (Ok(()), None) => wrong.push(format!("{field}: {change:?} is read")),
                (Ok(()), Some(at)) => used[at] = true,
                (Err(why), _) if !is_named(&why, &field) => {
                    wrong.push(format!("{field}: {change:?}: {why}"));
                }
                (Err(_), _) => {}
            }
        }
        count.guarded += usize::from(is_guarded);
    }
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "{} of {count:?}:\n{}", wrong.len(), wrong.join("\n"));
    for (one, used) in legitimate.iter().zip(used) {
        assert!(used, "no figure is so any more: {one:?}");
    }
    count
}

/// Whether the error is one line that names the field or its parent.
fn is_named(why: &str, field: &str) -> bool {
    let mut names = field.rsplit('.').map(|name| name.trim_end_matches("[]"));
    why.lines().count() == 1 && names.by_ref().take(2).any(|name| why.contains(name))
}

/// Collects JSON pointers of all numbers.
fn figures(value: &Value, pointer: String, places: &mut Vec<String>) {
    match value {
        Value::Number(_) => places.push(pointer),
        Value::Array(all) => {
            for (index, one) in all.iter().enumerate() {
                figures(one, format!("{pointer}/{index}"), places);
            }
        }
        Value::Object(all) => {
            for (key, one) in all {
                let key = key.replace('~', "~0").replace('/', "~1");
                figures(one, format!("{pointer}/{key}"), places);
            }
        }
        _ => {}
    }
}

/// Converts `/samples/3/exit_code` to `samples[].exit_code`.
fn field(root: &Value, pointer: &str) -> String {
    let mut field = String::new();
    let mut parent = root;
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        match parent {
            Value::Array(all) => {
                field += "[]";
                parent = &all[part.parse::<usize>().expect("an index")];
            }
            _ => {
                // Treat a map by page size or node as a list.
                let is_number = part.bytes().all(|byte| byte.is_ascii_digit());
                let dot = if field.is_empty() || is_number { "" } else { "." };
                field += dot;
                field += if is_number { "[]" } else { &part };
                parent = &parent[&part];
            }
        }
    }
    field
}

/// Returns the document with one number changed, and leaves `root` unchanged. `None` if the change would remove a list
/// element.
fn changed(root: &mut Value, pointer: &str, change: Change) -> Option<String> {
    let (parent, name) = pointer.rsplit_once('/').expect("a figure is in something");
    let name = name.replace("~1", "/").replace("~0", "~");
    let parent = root.pointer_mut(parent).expect("it was found");
    if change.value().is_none() && parent.is_array() {
        return None;
    }
    let kept = parent.clone();
    match (change.value(), &mut *parent) {
        (Some(value), Value::Array(all)) => all[name.parse::<usize>().expect("an index")] = value,
        (Some(value), all) => all[&name] = value,
        (None, all) => drop(all.as_object_mut()?.remove(&name)),
    }
    let parent = pointer.rsplit_once('/').expect("a figure is in something").0;
    let text = root.to_string();
    *root.pointer_mut(parent).expect("it was found") = kept;
    Some(text)
}
