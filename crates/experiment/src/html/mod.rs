//! A comparison as one page: verdicts, every run, ratios, memory, tables.
//!
//! Pure: the same document gives the same bytes. Self-contained: no script, nothing fetched. Everything is
//! written through `report`, which escapes. Each file here is one part of the page.

mod arms;
mod coverage;
mod headline;
pub(crate) mod machine;
mod memory;
mod order;
mod plans;
mod ratio;
mod runs;
mod samples;

use crate::analysis::Analysis;
use crate::document::Document;
use crate::sample::Sample;
use report::format;
use report::markup::el;
use report::{frame, marks};
use samples::Quantity;

/// The page.
pub fn page(document: &Document, analysis: &Analysis) -> String {
    let command = format::command(&document.command);
    let title = format!("superpage: {}", format::clipped(&command, 80));
    let body = el("body").add(marks::definitions()).add(headline::header(document, analysis));
    let wall = Quantity {
        id: "wall",
        name: "wall time",
        words: &format::seconds,
        unit: None,
        of: &|sample| Some(sample.wall_seconds),
    };
    let metrics = document.metrics().enumerate().map(|(index, metric)| {
        let id = if index == 0 { "metric".to_string() } else { format!("metric-{}", index + 1) };
        (metric, id, move |sample: &Sample| sample.metric_at(index))
    });
    let metrics: Vec<_> = metrics.collect();
    let metrics = metrics.iter().map(|(metric, id, of)| Quantity {
        id,
        name: &metric.name,
        words: &format::figure,
        unit: Some(metric.unit.as_deref().unwrap_or("")),
        of,
    });
    // What the comparison is about comes first.
    let mut quantities: Vec<Quantity> = std::iter::once(wall).chain(metrics).collect();
    if document.metric_is_primary {
        quantities.rotate_left(1);
    }
    let panels = quantities.iter().map(|of| samples::panels(document, analysis, of));
    let body = body
        .all(panels)
        .all(ratio::section(document, analysis))
        .add(memory::section(document))
        .add(arms::summaries(document, analysis))
        .add(plans::section(document))
        .add(machine::section(&document.machine))
        .add(runs::settings(document))
        .add(runs::all(document))
        .add(runs::footer(document));
    frame::page(title, &[frame::PAGE, include_str!("style.css")], body)
}
