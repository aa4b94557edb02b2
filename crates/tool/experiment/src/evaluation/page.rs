//! Formats an evaluation as one page: the advice for each application, every arm, omitted applications, the machine.

use super::{Application, Evaluation, Judged, Machine, Row, label_of};
use crate::document::Document;
use crate::html;
use crate::measure::Measure;
use crate::verdict::Verdict;
use report::format::{self, known};
use report::frame;
use report::markup::{Element, el};
use report::tables::{self, Cell};

/// Formats the page.
pub fn page(evaluation: &Evaluation) -> String {
    let head = el("header").add(el("h1").text("superpage evaluate"));
    let (machines, mut lines) = (evaluation.machines(), evaluation.machine_lines());
    if lines.is_empty() {
        lines.push("no application was compared".to_string());
    }
    let head = head.all(lines.iter().map(|line| el("p").text(line)));
    let head = head.add(el("p").class("small").text(course(evaluation)));
    let judged = evaluation.judged();
    let mut body = el("body").add(head).add(advice(&judged, &machines)).add(arms(&judged));
    let several = machines.len() > 1;
    body = body
        .all(changed(evaluation))
        .all(notes(&judged))
        .all(open(&judged))
        .all(disturbed(evaluation));
    body = body.all(left_out(evaluation));
    for machine in &machines {
        let Machine { label, applications, .. } = machine;
        if several {
            let of = format!("{label}: {}", applications.join(", "));
            body = body.add(el("h2").text(of));
        }
        body = body.add(html::machine::section(machine.snapshot));
    }
    let body = body.add(tables::sorting());
    frame::page("superpage evaluate", &[frame::PAGE, include_str!("style.css")], body)
}

fn course(evaluation: &Evaluation) -> String {
    let seconds = evaluation.applications.iter().map(|one| one.comparison.total_seconds()).sum();
    let began = evaluation.applications.iter().map(|one| one.comparison.began_unix_seconds).min();
    format!(
        "{}, {} of runs, from {}. Ratios are times faster than the reference, with their intervals; \
         memory is the peak beyond the reference's. Click a heading to sort.",
        format::counted(evaluation.applications.len() as u32, "application", "applications"),
        format::seconds(seconds),
        known(began, format::utc),
    )
}

fn class(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Faster(_) => "t faster",
        Verdict::Slower(_) => "t slower",
        Verdict::Same { .. } => "t",
        _ => "t open",
    }
}

fn verdict_cell(verdict: &Verdict) -> Cell {
    let key = verdict.ratio().map(|(speedup, _)| speedup);
    Cell { text: verdict.cell(), key, class: class(verdict) }
}

fn memory(row: &Row) -> Cell {
    Cell::number(row.memory_words(), row.more_bytes)
}

fn p99(row: &Row) -> Cell {
    let key = row.p99.as_ref().and_then(Verdict::ratio).map(|(speedup, _)| speedup);
    Cell { text: row.p99_words(), key, class: row.p99.as_ref().map_or("t", class) }
}

fn coverage(row: &Row) -> Cell {
    Cell::number(known(row.coverage, format::percent), row.coverage)
}

/// Formats the advice for each application, with its machine if there are several.
fn advice(judged: &[Judged], machines: &[Machine]) -> Element {
    let several = machines.len() > 1;
    let rows = judged.iter().map(|one| {
        let advice = one.advice();
        let Judged { application, .. } = one;
        let mut row = vec![Cell::words(&application.name), Cell::words(advice.words())];
        match &advice.best {
            Some(best) => {
                let quantity = quantity(&application.comparison, &best.quantity);
                row.extend([verdict_cell(&best.verdict), Cell::words(quantity)]);
                row.extend([memory(best), p99(best), coverage(best)]);
            }
            None => row.extend((0..5).map(|_| Cell::words(""))),
        }
        row.push(Cell::words(advice.slower.join(", ")));
        if several {
            row.push(Cell::words(label_of(machines, &application.name)));
        }
        row
    });
    let mut head = vec![
        ("application", "t"),
        ("fastest", "t"),
        ("verdict", "t"),
        ("of", "t"),
        ("memory", "n"),
        ("p99", "t"),
        ("on superpages", "n"),
        ("slower", "t"),
    ];
    head.extend(several.then_some(("machine", "t")));
    el("section").add(el("h2").text("Which pages for which application")).add(tables::sortable(
        "The fastest arm of each application",
        &head,
        rows.collect(),
    ))
}

fn quantity<'a>(document: &Document, measure: &'a Measure) -> &'a str {
    let is_load = *measure == Measure::Wall && document.service.is_some();
    if is_load { "time of the load" } else { measure.heading() }
}

fn arms(judged: &[Judged]) -> Element {
    let lines = |one: &Judged| -> Vec<Vec<Cell>> {
        let line = |row: &Row| {
            vec![
                Cell::words(&row.application),
                Cell::words(&row.arm),
                verdict_cell(&row.verdict),
                Cell::words(quantity(&one.application.comparison, &row.quantity)),
                memory(row),
                p99(row),
                coverage(row),
                Cell::number(row.runs.to_string(), Some(f64::from(row.runs))),
            ]
        };
        one.rows.iter().map(line).collect()
    };
    let head = [
        ("application", "t"),
        ("arm", "t"),
        ("verdict", "t"),
        ("of", "t"),
        ("memory", "n"),
        ("p99", "t"),
        ("on superpages", "n"),
        ("runs", "n"),
    ];
    let rows = judged.iter().flat_map(lines).collect();
    el("section").add(el("h2").text("Every arm")).add(tables::sortable(
        "Each arm against the reference",
        &head,
        rows,
    ))
}

fn changed(evaluation: &Evaluation) -> Option<Element> {
    let lines = evaluation.changed.iter().flatten().map(super::Change::line);
    list("Changed since the earlier evaluation", lines.collect())
}

fn notes(judged: &[Judged]) -> Option<Element> {
    list("Arms without figures", judged.iter().flat_map(Judged::without_figures).collect())
}

/// Formats how many more runs the open verdicts need.
fn open(judged: &[Judged]) -> Option<Element> {
    list("Open verdicts", judged.iter().filter_map(Judged::to_decide).collect())
}

/// Formats what other programs did during the runs.
fn disturbed(evaluation: &Evaluation) -> Option<Element> {
    let line = |one: &Application| {
        let line = one.comparison.neighbours.as_ref()?.line()?;
        Some(format!("{}: {line}", one.name))
    };
    list("Load by other programs", evaluation.applications.iter().filter_map(line).collect())
}

fn left_out(evaluation: &Evaluation) -> Option<Element> {
    let several = evaluation.has_several_hosts();
    let lines = evaluation.not_run.iter().map(|one| one.line(several));
    list("Not run", lines.collect())
}

fn list(heading: &str, lines: Vec<String>) -> Option<Element> {
    let items = || lines.iter().map(|line| el("li").text(line));
    let list = (!lines.is_empty()).then(|| el("ul").all(items()));
    list.map(|list| el("section").add(el("h2").text(heading)).add(list))
}
