//! Each preset is put to its table.

use design::designs;

use crate::dsl::{SCALE, Table};
use crate::{bounds, linux, reservations, scans};

/// Presets whose tables are in `policy/tests/successors`.
const SUCCESSORS: [&str; 4] = ["cbmm", "elastic", "hugescope", "trident"];

/// The presets that have their tables here.
pub fn presets() -> impl Iterator<Item = &'static designs::Preset> {
    designs::list().iter().filter(|preset| !SUCCESSORS.contains(&preset.name))
}

/// The table of a preset.
pub fn table(preset: &str) -> Table {
    let tables = [bounds::table, linux::table, scans::table, reservations::table];
    tables.iter().find_map(|table| table(preset)).unwrap_or_default()
}

/// What each table must have a line about: one of these words is in its `what`.
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

#[test]
fn every_table_has_every_topic() {
    for preset in presets() {
        let table = table(preset.name);
        for topic in TOPICS {
            let is_about = |what: &str| topic.iter().any(|words| what.contains(words));
            assert!(table.iter().any(|line| is_about(line.what)), "{}: {topic:?}", preset.name);
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
