//! Unit tests of the library's parts, which are compiled into this program at the root. The whole library cannot be a
//! test program, because its malloc would replace the test's.
//!
//! Pure tier.

#![allow(
    dead_code,
    missing_docs,
    unused_imports,
    reason = "modules of the library, of which a part is used"
)]

#[path = "../src/copies.rs"]
mod copies;
#[path = "../src/environment.rs"]
mod environment;
#[path = "../src/files.rs"]
mod files;
#[path = "../src/filter.rs"]
mod filter;
#[path = "../src/limits.rs"]
mod limits;
#[path = "../src/loaded.rs"]
mod loaded;
#[path = "../src/maps.rs"]
mod maps;
#[path = "../src/message.rs"]
mod message;
#[path = "../src/raw.rs"]
mod raw;
#[path = "../src/settings.rs"]
mod settings;
#[path = "../src/heap/slots.rs"]
mod slots;
#[path = "../src/heap/spans.rs"]
mod spans;
#[path = "../src/text.rs"]
mod text;
#[path = "../src/prepare/zero.rs"]
mod zero;

/// Each file of the library with unit tests is compiled into this program, because no other test program runs these tests.
#[test]
fn no_unit_test_of_the_library_is_left_out() {
    fn with_tests(directory: &std::path::Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(directory).expect("a directory of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                with_tests(&path, found);
            } else if std::fs::read_to_string(&path).expect("a source").contains("#[test]") {
                found.push(path.to_str().expect("UTF-8").to_string());
            }
        }
    }
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let mut found = Vec::new();
    with_tests(source.as_ref(), &mut found);
    assert!(found.len() >= 5, "{found:?}");
    for path in &found {
        let name = path.strip_prefix(source).expect("below");
        let line = format!("#[path = \"../src{name}\"]\n");
        assert!(include_str!("units.rs").contains(&line), "{name} is not built into this program");
    }
}
