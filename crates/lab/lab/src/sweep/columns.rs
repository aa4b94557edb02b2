//! Converts reports to columns: one row per cell, and a column for every scalar. Time lines and phases are only in the
//! JSON.

use std::collections::HashMap;

use super::Hash;
use crate::analysis::{Figures, figures};
use crate::{Cell, End, Report};
use mm_sim::Cause;

/// A column; all columns of a table have the same length.
pub(super) struct Column {
    pub(super) name: String,
    pub(super) values: Values,
}

/// How a figure is read.
type Figure = fn(&Figures) -> Option<f64>;

/// Values of a column; `None` if the row has no value.
pub(super) enum Values {
    Text(Vec<String>),
    Whole(Vec<Option<u64>>),
    Real(Vec<Option<f64>>),
}

/// Returns all columns of these rows, in a fixed order.
pub(super) fn columns(rows: &[(Hash, &Report)]) -> Vec<Column> {
    let mut table = Table { rows, columns: Vec::new() };
    table.text("hash", |hash, _| hash.to_string());
    table.text("design", |_, report| report.cell.design.clone());
    table.text("machine", |_, report| report.cell.machine.clone());
    table.text("workload", |_, report| report.cell.workload.clone());
    table.text("fragmentation", |_, report| report.cell.fragmentation.clone());
    table.whole("memory_bytes", |report| Some(report.cell.memory_bytes));
    // Sweeps without divided memory keep their earlier columns.
    if rows.iter().any(|(_, report)| !report.memory_parts.is_empty()) {
        table.whole("nodes", |report| Some(report.cell.nodes_bytes.len().max(1) as u64));
        table.whole("movable_bytes", |report| Some(report.cell.movable_bytes));
    }
    table.whole("seed", |report| Some(report.cell.seed));
    table.text("end", |_, report| end(&report.end).to_string());
    table.whole("mhz", |report| Some(u64::from(report.mhz)));
    table.whole("wall_cycles", |report| Some(report.wall_cycles));
    table.real("seconds", |report| Some(report.seconds()));
    table.figures();
    for cause in Cause::ALL {
        let name = cause.name().replace('-', "_");
        table.whole(&format!("cycles_{name}"), move |report| Some(report.ledger[cause]));
        table.whole(&format!("background_{name}"), move |report| Some(report.background[cause]));
    }
    table.counters();
    table.whole("requests", |report| report.requests.as_ref().map(|requests| requests.count));
    table.real("request_mean_us", |report| report.requests.as_ref().map(|requests| requests.mean));
    table.real("request_p50_us", |report| report.requests.as_ref().map(|requests| requests.p50));
    table.real("request_p95_us", |report| report.requests.as_ref().map(|requests| requests.p95));
    table.real("request_p99_us", |report| report.requests.as_ref().map(|requests| requests.p99));
    table.real("request_p999_us", |report| report.requests.as_ref().map(|requests| requests.p999));
    table.real("request_max_us", |report| report.requests.as_ref().map(|requests| requests.max));
    table.columns
}

fn end(end: &End) -> &'static str {
    match end {
        End::Done => "done",
        End::OutOfMemory { .. } => "out-of-memory",
        End::Refused { .. } => "refused",
        End::Killed { .. } => "killed",
    }
}

struct Table<'a> {
    rows: &'a [(Hash, &'a Report)],
    columns: Vec<Column>,
}

impl Table<'_> {
    fn text(&mut self, name: &str, value: impl Fn(Hash, &Report) -> String) {
        let values = self.rows.iter().map(|(hash, report)| value(*hash, report)).collect();
        self.columns.push(Column { name: name.to_string(), values: Values::Text(values) });
    }

    fn whole(&mut self, name: &str, value: impl Fn(&Report) -> Option<u64>) {
        let values = self.rows.iter().map(|(_, report)| value(report)).collect();
        self.columns.push(Column { name: name.to_string(), values: Values::Whole(values) });
    }

    fn real(&mut self, name: &str, value: impl Fn(&Report) -> Option<f64>) {
        let values = self.rows.iter().map(|(_, report)| value(report)).collect();
        self.columns.push(Column { name: name.to_string(), values: Values::Real(values) });
    }

    /// Adds the figures that `lab compare` prints. The speed-up is over the design `base` in the same setting, if the
    /// sweep has that cell.
    fn figures(&mut self) {
        let setting = |cell: &Cell| {
            serde_json::to_string(&Cell { design: String::new(), ..cell.clone() })
                .unwrap_or_default()
        };
        let is_base = |report: &&Report| report.cell.design == "base";
        let bases: HashMap<String, &Report> = (self.rows.iter().map(|(_, report)| *report))
            .filter(is_base)
            .map(|report| (setting(&report.cell), report))
            .collect();
        let all: Vec<Figures> = (self.rows.iter())
            .map(|(_, report)| figures(report, bases.get(&setting(&report.cell)).copied()))
            .collect();
        let columns: [(&str, Figure); 8] = [
            ("speedup_over_base", |one| one.speedup),
            ("translation_share", |one| one.translation),
            ("faults_share", |one| one.faults),
            ("upkeep_share", |one| one.upkeep),
            ("coverage", |one| one.coverage),
            ("utilisation", |one| one.utilisation),
            ("bloat", |one| one.bloat),
            ("daemons_share", |one| one.daemons),
        ];
        for (name, of) in columns {
            let values = all.iter().map(of).collect();
            self.columns.push(Column { name: name.to_string(), values: Values::Real(values) });
        }
    }

    /// Adds one column per counter. The names come from the JSON, so a new counter becomes a column without change
    /// here.
    fn counters(&mut self) {
        let of = |report: &Report| match serde_json::to_value(&report.counters) {
            Ok(serde_json::Value::Object(map)) => map,
            _ => serde_json::Map::new(),
        };
        let maps: Vec<_> = self.rows.iter().map(|(_, report)| of(report)).collect();
        let names: Vec<String> = match serde_json::to_value(mm_sim::Counters::default()) {
            Ok(serde_json::Value::Object(map)) => map.keys().cloned().collect(),
            _ => Vec::new(),
        };
        for name in names {
            let value = |map: &serde_json::Map<_, serde_json::Value>| map.get(&name)?.as_u64();
            let values = maps.iter().map(value).collect();
            self.columns.push(Column { name, values: Values::Whole(values) });
        }
    }
}
