//! An evaluation as text for people.

use experiment::evaluation::{Application, Evaluation, Row};
use experiment::verdict::Terms;
use report::format::{known, percent};

use crate::pool::show::table;

/// The machine, a line for each arm, notes.
pub fn text(evaluation: &Evaluation) -> String {
    let mut text = String::new();
    if let Some(machine) = evaluation.machine() {
        text += &format!("{machine}\n\n");
        let header =
            ["application", "fastest", "arm", "verdict", "memory", "p99", "on superpages", "runs"];
        let rows = evaluation.applications.iter().flat_map(rows).collect();
        text += &table(&header, rows, &[0, 1, 2, 3, 5]);
        text += "\nratios to the first arm, with their intervals; memory beyond its\n";
    }
    for one in &evaluation.applications {
        for row in one.rows().iter().filter(|row| row.verdict.ratio().is_none()) {
            let line = row.verdict.line(Terms::Speed);
            text += &format!("note: {}, {}: {line}\n", row.application, row.arm);
        }
        for arm in &one.comparison.left_out {
            text += &format!("note: {}, {} left out: {}\n", one.name, arm.name, arm.why);
        }
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

fn rows(application: &Application) -> Vec<Vec<String>> {
    let fastest = application.advice().words();
    let row = |(index, row): (usize, Row)| {
        let first = |text: &str| if index == 0 { text.to_string() } else { String::new() };
        vec![
            first(&application.name),
            first(&fastest),
            row.arm.clone(),
            row.verdict.cell(),
            row.memory_words(),
            row.p99_words(),
            known(row.coverage, percent),
            row.runs.to_string(),
        ]
    };
    application.rows().into_iter().enumerate().map(row).collect()
}
