//! Each figure of a document that is read back has a quantity, so that a new field cannot lack one.
//!
//! The test reads the sources of types that derive Deserialize: a field that contains an `f64` must have
//! `deserialize_with`.

use std::fs;
use std::path::Path;

/// Types that derive Deserialize, but are read only from files that this process wrote.
const NOT_READ_BACK: [(&str, &str); 6] = [
    ("crates/tool/prediction/src/demand.rs", "computed from a trace"),
    ("crates/tool/prediction/src/prices.rs", "measured, and checked by Prices::check"),
    ("crates/tool/prediction/src/frames.rs", "measured, and checked by Near::check"),
    ("crates/tool/walk-cost/src/", "printed; shares are checked by Interval"),
    ("crates/shared/workload-streams/src/", "tables that are compiled in"),
    ("crates/shared/workload/src/", "printed by a child of this process"),
];

#[test]
fn figures_that_are_read_back_name_their_quantity() {
    let root = super::root();
    let (mut without, mut with) = (Vec::new(), 0);
    sources(&root.join("crates"), &mut |path, text| {
        let path = path.strip_prefix(&root).expect("below the root").display().to_string();
        if path.contains("/tests/") || NOT_READ_BACK.iter().any(|(it, _)| path.starts_with(it)) {
            return;
        }
        let (some, none) = figures(text);
        with += some;
        without.extend(none.into_iter().map(|field| format!("{path}: {field}")));
    });
    assert!(with > 60, "only {with} figures were found");
    assert!(without.is_empty(), "{} have no quantity:\n{}", without.len(), without.join("\n"));
}

#[test]
fn a_figure_without_a_quantity_is_found() {
    let of = |fields: &str| {
        figures(&format!("#[derive(Debug, Deserialize)]\npub struct Run {{\n{fields}\n}}\n"))
    };
    let one = |name: &str| (0, vec![format!("Run.{name}")]);
    assert_eq!(of("    pub seconds: f64,"), one("seconds"));
    assert_eq!(of("    /// In all.\n    pub(crate) all: Option<[f64; 2]>,"), one("all"));
    assert_eq!(of("    #[serde(deserialize_with = \"units::share\")]\n    at: f64,"), (1, vec![]));
    assert_eq!(of("    #[serde(skip)]\n    pub seconds: f64,"), (0, vec![]));
    assert_eq!(of("    pub pages: u64,"), (0, vec![]));
    assert_eq!(figures("#[derive(Serialize)]\npub struct Run {\n    at: f64,\n}\n"), (0, vec![]));
}

pub(super) fn sources(folder: &Path, each: &mut dyn FnMut(&Path, &str)) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, each);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            each(&path, &fs::read_to_string(&path).expect("a source"));
        }
    }
}

/// Returns the number of fields with a quantity, and the fields without one. Expects the formatting of rustfmt.
fn figures(text: &str) -> (usize, Vec<String>) {
    let (mut some, mut none) = (0, Vec::new());
    for part in text.split("#[derive(").skip(1) {
        let Some((derived, rest)) = part.split_once(")]") else { continue };
        let Some((head, body)) = rest.split_once("{\n") else { continue };
        let Some((_, name)) = head.split_once("struct ") else { continue };
        // A type that is converted from another, which checks its figures.
        let is_checked = head.contains("try_from") || head.contains("from = ");
        if !derived.contains("Deserialize") || is_checked || name.contains('\n') {
            continue;
        }
        let body = body.split("\n}").next().unwrap_or_default();
        let mut attributes = String::new();
        for line in body.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
            match line.split_once(": ") {
                Some((field, kind)) if !line.starts_with('#') && kind.contains("f64") => {
                    let field = field.rsplit(' ').next().unwrap_or(field);
                    match attributes.as_str() {
                        words if words.contains("deserialize_with") => some += 1,
                        words if words.contains("serde(skip)") => {}
                        _ => none.push(format!("{}.{field}", name.trim())),
                    }
                    attributes.clear();
                }
                Some(_) if !line.starts_with('#') => attributes.clear(),
                _ => attributes += line,
            }
        }
    }
    (some, none)
}
