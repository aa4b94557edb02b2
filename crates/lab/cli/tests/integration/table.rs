//! Several published tables at once: texts as of each alone, one document, and which names are refused.

use crate::common::{stderr, stdout};

use super::{fine, json, lab};

const ZEROING: &str = "quicksilver-zeroing";
const BUILD: &str = "quicksilver-build";

#[test]
fn several_tables_are_printed_in_order_as_each_alone() {
    let several = fine(&["table", BUILD, ZEROING]);
    assert!(several.starts_with("quicksilver-build: "), "{several}");
    assert!(several.ends_with(&format!("\n\n{}", fine(&["table", ZEROING]))), "{several}");
    let document = json(&["table", ZEROING, BUILD, "--json"]);
    assert_eq!(document["schema"], "superpage.lab.several-tables/1");
    let tables = document["tables"].as_array().expect("tables");
    let names: Vec<_> = tables.iter().map(|table| table["name"].as_str()).collect();
    assert_eq!(names, [Some(ZEROING), Some(BUILD)]);
    assert_eq!(tables[0], json(&["table", ZEROING, "--json"]));
    assert_eq!(tables[0]["schema"], "superpage.lab.table/1");
    for figure in tables[1]["rows"].as_array().expect("rows") {
        let name = figure["name"].as_str().expect("a name");
        assert!(several.contains(name), "{name}: {several}");
    }
}

#[test]
fn a_table_done_in_no_time_shows_no_progress() {
    let output = lab(&["table", ZEROING]);
    assert_eq!(stderr(&output), "");
    assert!(stdout(&output).starts_with("quicksilver-zeroing: "));
}
