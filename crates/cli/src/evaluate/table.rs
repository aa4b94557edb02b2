//! An evaluation as text for people.

use experiment::evaluation::{Evaluation, Judged, Row};
use report::format::{known, percent};

use crate::pool::show::table;

/// The machine, a line for each arm, notes.
pub fn text(evaluation: &Evaluation) -> String {
    let judged = evaluation.judged();
    let mut text = String::new();
    if let Some(machine) = evaluation.machine() {
        text += &format!("{machine}\n\n");
        let header =
            ["application", "fastest", "arm", "verdict", "memory", "p99", "on superpages", "runs"];
        let rows = judged.iter().flat_map(rows).collect();
        text += &table(&header, rows, &[0, 1, 2, 3, 5]);
        text += "\nratios to the first arm, with their intervals; memory beyond its\n";
    }
    for line in judged.iter().flat_map(Judged::without_figures) {
        text += &format!("note: {line}\n");
    }
    for one in &evaluation.not_run {
        text += &format!("not run: {}: {}\n", one.name, one.why);
    }
    for one in evaluation.changed.iter().flatten() {
        text +=
            &format!("changed: {}, {}: {}, was {}\n", one.application, one.arm, one.new, one.old);
    }
    text
}

fn rows(one: &Judged) -> Vec<Vec<String>> {
    let fastest = one.advice().words();
    let row = |(index, row): (usize, &Row)| {
        let first = |text: &str| if index == 0 { text.to_string() } else { String::new() };
        vec![
            first(&one.application.name),
            first(&fastest),
            row.arm.clone(),
            row.verdict.cell(),
            row.memory_words(),
            row.p99_words(),
            known(row.coverage, percent),
            row.runs.to_string(),
        ]
    };
    one.rows.iter().enumerate().map(row).collect()
}
