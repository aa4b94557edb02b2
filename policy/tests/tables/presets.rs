//! Each preset is put to its table.

use design::designs;

use crate::dsl::{SCALE, Table};
use crate::{bounds, linux, reservations, scans};

/// The table of a preset.
pub fn table(preset: &str) -> Table {
    let tables = [bounds::table, linux::table, scans::table, reservations::table];
    tables.iter().find_map(|table| table(preset)).unwrap_or_default()
}

#[test]
fn every_preset_does_what_its_sources_say() {
    let mut wrong = Vec::new();
    for preset in designs::list() {
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
