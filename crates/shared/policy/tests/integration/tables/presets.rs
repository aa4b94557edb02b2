//! Tests each preset with its table.

use design::designs;

use super::dsl::{SCALE, Table};
use super::{bounds, linux, reservations, scans, successors};

/// Designs that have conditions, or three sizes.
pub const SUCCESSORS: [&str; 4] = ["cbmm", "elastic", "hugescope", "trident"];

/// Returns all presets.
pub fn presets() -> impl Iterator<Item = &'static designs::Preset> {
    designs::list().iter()
}

/// Returns the table of a preset.
pub fn table(preset: &str) -> Table {
    let tables =
        [bounds::table, linux::table, scans::table, reservations::table, successors::table];
    tables.iter().find_map(|table| table(preset)).unwrap_or_default()
}

/// Topics that each table must cover: a line's `what` must contain one of these words.
const TOPICS: [&[&str]; 17] = [
    &["first fault: a read"],
    &["first fault: a write"],
    &["n-th page"],
    &["sequential faults"],
    &["unmapped in part"],
    &["unmapped whole"],
    &["protected in part"],
    &["clean write"],
    &["a fork"],
    &["after a fork"],
    &["inactive", "no daemon"],
    &["no base page"],
    &["no free superpage", "none free", "no superpage"],
    &["advised against"],
    &["idle time", "nothing scans, zeroes", "no daemon"],
    &["next candidate", "nothing scans", "no daemon"],
    &["in a pass", "8 regions", "budget of a pass", "nothing scans", "no daemon"],
];

/// Further topics for the tables of these presets.
const OWN_TOPICS: [(&str, &[&str]); 4] = [
    ("cbmm", &["border", "profile"]),
    ("elastic", &["border", "sampled misses", "smaller size"]),
    ("hugescope", &["border", "skew"]),
    ("trident", &["three sizes", "the mapping, 2 MiB", "a size is missing"]),
];

#[test]
fn every_table_has_every_topic() {
    let is_about = |table: &Table, words: &str| table.iter().any(|line| line.what.contains(words));
    for preset in presets() {
        let table = table(preset.name);
        for topic in TOPICS {
            let has = topic.iter().any(|words| is_about(&table, words));
            assert!(has, "{}: {topic:?}", preset.name);
        }
    }
    for (preset, topics) in OWN_TOPICS {
        for words in topics {
            assert!(is_about(&table(preset), words), "{preset}: {words}");
        }
    }
}

#[test]
fn every_preset_does_what_its_sources_say() {
    let mut wrong = Vec::new();
    for preset in presets() {
        let design = preset.design().expect("presets are good");
        let table = table(preset.name);
        assert!(table.len() >= 40, "{}: {} lines", preset.name, table.len());
        for line in &table {
            assert!(line.source.len() > 10, "{}: {} has no source", preset.name, line.what);
            let checked = line.check(&mut design.policy(SCALE));
            wrong.extend(checked.err().map(|wrong| format!("{}: {wrong}", preset.name)));
        }
        println!("{}: {} lines", preset.name, table.len());
    }
    assert!(wrong.is_empty(), "{} lines are wrong:\n{}", wrong.len(), wrong.join("\n"));
}
