//! Saves benchmark results as costs of the machine `this`, if its file format has a key for them.
//! See docs/decisions/bench.md#1.

use ::workload::zero::Stores;
use experiment::bench::{Document, Row};
use experiment::zeroing::{UNIT, Way, Zeroing};
use machine::{CostLine, Machine, costs_marked, with_costs};

use crate::Failure;
use crate::this_machine;

/// Fails early if no cost could be saved.
pub fn check(latency: bool) -> Result<(), Failure> {
    if latency {
        return Err(Failure::usage(
            "--latency makes touching slower, so its costs are not saved: leave \
            out --latency or --save",
        ));
    }
    this_machine::read().map(|_| ())
}

/// A key of the file, its value, and how it was measured.
type Cost = (&'static str, String, &'static str);

/// Saves the costs of zeroing. Returns a message about them.
pub fn of_zero(zeroing: &Zeroing) -> Result<String, Failure> {
    keep(zero_costs(zeroing))
}

/// Saves the costs of faults and zeroing. Returns a message about them. Fault costs come only from rows in which one
/// thread touched one line of each page without bursts.
pub fn of_touch(document: &Document, zeroing: &Zeroing) -> Result<String, Failure> {
    let mut costs = zero_costs(zeroing);
    // Subtract the kernel's zeroing, which is a separate cost.
    let zeroed = system(zeroing).map(|way| way.cold[0]);
    let per_page = |row: &Row| Some(1e9 / row.summary.as_ref()?.rate.median);
    let row = |name: &str| {
        let is_it = |row: &&Row| row.cell.arm == name && row.cell.threads == 1;
        document.rows.iter().find(is_it).and_then(per_page)
    };
    let page = sys::param::page_size().bytes() as f64;
    let unit = UNIT as f64 / page;
    let superpage = crate::facts::superpage(&document.machine);
    let pages = superpage.map_or(unit, |size| size.bytes() as f64 / page);
    let without = |fault: f64, pages: f64| {
        zeroed.map(|zeroed| fault - zeroed / unit * pages).filter(|left| *left > 0.0)
    };
    if let Some(cost) = row("base").and_then(|fault| without(fault, 1.0)) {
        costs.push((
            "fault-base",
            format!("{cost:.0}"),
            "touch: arm base, less rep stosb's zeroing",
        ));
    }
    if let Some(cost) = row("thp").and_then(|fault| without(fault * pages, pages)) {
        costs.push(("fault-superpage", format!("{cost:.0}"), "touch: arm thp, less the zeroing"));
    }
    keep(costs)
}

/// Returns the measurements of the kernel's own zeroing.
fn system(zeroing: &Zeroing) -> Option<&Way> {
    zeroing.best(Stores::System)
}

fn zero_costs(zeroing: &Zeroing) -> Vec<Cost> {
    let value = |way: &Way| {
        let times: Vec<String> = way.cold.iter().map(|ns| format!("{:.1}", ns / 1e3)).collect();
        format!("[{}]", times.join(", "))
    };
    let temporal = system(zeroing).map(|way| {
        ("zero.temporal", value(way), "zero: as the kernel does it, memory in no cache")
    });
    let past = zeroing.best(Stores::NonTemporal).map(|way| {
        ("zero.non-temporal", value(way), "zero: the widest stores, memory in no cache")
    });
    temporal.into_iter().chain(past).collect()
}

const KEYS: [&str; 4] = ["fault-base", "fault-superpage", "zero.temporal", "zero.non-temporal"];

fn keep(costs: Vec<Cost>) -> Result<String, Failure> {
    let (shown, text) = this_machine::read()?;
    let keys: Vec<&str> = costs.iter().map(|(key, ..)| *key).collect();
    let line = |(key, value, how): &Cost| -> CostLine {
        (key.to_string(), format!("{value}   # {} {how}", this_machine::BENCH))
    };
    let text = with_costs(&text, &costs.iter().map(line).collect::<Vec<_>>());
    // A file written by hand may not suit the line-based edit: parse the result.
    Machine::from_toml(&text, &shown).map_err(Failure::usage)?;
    if costs_marked(&text, this_machine::BENCH).len() < costs.len() {
        let why = "its [costs] are not one per line; write it again with: superpage tlb --save";
        return Err(Failure::usage(format!("{shown}: {why}")));
    }
    let path = this_machine::write(&text)?;
    let stayed: Vec<&str> = KEYS.into_iter().filter(|key| !keys.contains(key)).collect();
    let stayed = match stayed.is_empty() {
        true => String::new(),
        false => format!("; not measured and unchanged: {}", stayed.join(", ")),
    };
    let path = path.display();
    Ok(format!("saved in {path}: {}{stayed}; all other costs are unchanged", keys.join(", ")))
}
