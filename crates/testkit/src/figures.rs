//! Figures of documents that are read back: each is made one that cannot be, and the reader must refuse the document.

use std::collections::BTreeMap;

use serde_json::Value;

/// So many figures of a field are changed: those of lists are alike. In the nightly set all are.
const EACH: usize = 2;

/// What becomes of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// -1.
    Negative,
    /// 1e300.
    Huge,
    /// `"nan"`, which is also no number.
    Words,
    /// `null`.
    Null,
    /// Its field is not there. Elements of lists stay: a shorter list is another list.
    Absent,
}

/// Changes of some fields that make another document, not a damaged one.
#[derive(Debug, Clone, Copy)]
pub struct Legitimate {
    /// The changes.
    pub changes: &'static [Change],
    /// Fields, as `samples[].exit_code`; a `*` at either end stands for anything.
    pub fields: &'static [&'static str],
    /// Why.
    pub why: &'static str,
}

/// How many documents were refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refused {
    /// Fields with a figure, each element of a list for itself.
    pub figures: usize,
    /// Of these, those that may be neither -1 nor 1e300.
    pub guarded: usize,
    /// Changed documents.
    pub changed: usize,
    /// Of these, refused.
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

/// Changes each figure of a document in each way and has it read. Of a document that is refused the reader says why in one
/// line, which names the field or what the field is in.
///
/// # Panics
/// The document itself is refused; a changed one is read that should not be, or the message is another; an entry of
/// `legitimate` holds for none.
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

/// In one line that has the field's name, or that of what it is in.
fn is_named(why: &str, field: &str) -> bool {
    let mut names = field.rsplit('.').map(|name| name.trim_end_matches("[]"));
    why.lines().count() == 1 && names.by_ref().take(2).any(|name| why.contains(name))
}

/// JSON pointers of all numbers.
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

/// `/samples/3/exit_code` as `samples[].exit_code`.
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
                // A map by page size or node is a list.
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

/// The document with one figure changed; the root is left as it was. `None`: not of an element of a list.
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
