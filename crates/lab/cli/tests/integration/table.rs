//! Several published tables in one command: each text is the same as alone, the output is one document, and some names
//! are refused.

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

#[test]
fn csv_has_a_line_for_each_cell() {
    let csv = fine(&["table", BUILD, ZEROING, "--csv"]);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "table,row,column,role,published,simulated");
    let document = json(&["table", BUILD, ZEROING, "--json"]);
    let tables = document["tables"].as_array().unwrap().iter();
    let rows = tables.flat_map(|table| table["rows"].as_array().unwrap());
    let cells: Vec<_> = rows.flat_map(|row| row["cells"].as_array().unwrap()).collect();
    assert_eq!(lines.len(), 1 + cells.len(), "{csv}");
    for (line, cell) in lines[1..].iter().zip(cells) {
        let ends = [&cell["published"], &cell["simulated"]].map(|figure| figure.as_f64());
        let ends = ends.map(|figure| figure.map_or(String::new(), |figure| figure.to_string()));
        let role = cell["role"].as_str().unwrap();
        let end = format!("\"{role}\",{}", ends.join(","));
        assert!(line.ends_with(&end), "{line} does not end in {end}");
    }
    let refused = lab(&["table", "--csv"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("name tables, or all"), "{}", stderr(&refused));
}
