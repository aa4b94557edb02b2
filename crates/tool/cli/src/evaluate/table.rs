//! Formats an evaluation as text.

use experiment::evaluation::{Evaluation, Judged, Machine, Row, label_of};
use report::format::{known, percent};

use crate::pool::show::table;

/// Formats the machines, a line per arm, and notes.
pub fn text(evaluation: &Evaluation) -> String {
    let (judged, machines) = (evaluation.judged(), evaluation.machines());
    let several = machines.len() > 1;
    let mut text = String::new();
    for line in evaluation.machine_lines() {
        text += &format!("{line}\n");
    }
    if !machines.is_empty() {
        let mut header = vec![
            "application",
            "fastest",
            "arm",
            "verdict",
            "memory",
            "p99",
            "on superpages",
            "runs",
        ];
        let mut left = vec![0, 1, 2, 3, 5];
        if several {
            left.push(header.len());
            header.push("machine");
        }
        let rows = judged.iter().flat_map(|one| rows(one, &machines)).collect();
        text += &format!("\n{}", table(&header, rows, &left));
        text += "\nratios to the first arm, with their intervals; memory beyond its\n";
    }
    for line in judged.iter().flat_map(Judged::without_figures) {
        text += &format!("note: {line}\n");
    }
    for line in judged.iter().filter_map(Judged::to_decide) {
        text += &format!("note: {line}\n");
    }
    for one in &evaluation.applications {
        let told = one.comparison.neighbours.as_ref().and_then(host::Neighbours::line);
        text += &told.map_or(String::new(), |told| format!("note: {}: {told}\n", one.name));
    }
    let with_host = evaluation.has_several_hosts();
    for one in &evaluation.not_run {
        text += &format!("not run: {}\n", one.line(with_host));
    }
    for one in evaluation.changed.iter().flatten() {
        text += &format!("changed: {}\n", one.line());
    }
    text
}

fn rows(one: &Judged, machines: &[Machine]) -> Vec<Vec<String>> {
    let fastest = one.advice().words();
    let row = |(index, row): (usize, &Row)| {
        let first = |text: &str| if index == 0 { text.to_string() } else { String::new() };
        let mut cells = vec![
            first(&one.application.name),
            first(&fastest),
            row.arm.clone(),
            row.verdict.cell(),
            row.memory_words(),
            row.p99_words(),
            known(row.coverage, percent),
            row.runs.to_string(),
        ];
        if machines.len() > 1 {
            cells.push(first(label_of(machines, &one.application.name)));
        }
        cells
    };
    one.rows.iter().enumerate().map(row).collect()
}
