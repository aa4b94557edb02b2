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
    let (base, thp) = (row("base"), row("thp").map(|fault| fault * pages));
    let split = |zeroed: f64| split(zeroed / unit, base, thp, pages);
    if let Some(Split { zeroed, base, superpage }) = zeroed.map(split) {
        let how = "touch: arm base, less the zeroing of a page";
        costs.extend(base.map(|cost| ("fault-base", format!("{cost:.0}"), how)));
        let how = "touch: arm thp, less the zeroing";
        costs.extend(superpage.map(|cost| ("fault-superpage", format!("{cost:.0}"), how)));
        if let (Some(zeroed), Some(way)) = (zeroed, system(zeroing)) {
            let mut cold = way.cold.clone();
            cold[0] = zeroed * unit;
            let how = "touch: a superpage's fault less a base page's, zero: memory in no cache";
            costs.retain(|(key, ..)| *key != "zero.temporal");
            costs.push(("zero.temporal", microseconds(&cold), how));
        }
    }
    keep(costs)
}

/// Nanoseconds of faults without zeroing, and of zeroing a base page if the faults decide.
#[derive(Debug, PartialEq)]
struct Split {
    zeroed: Option<f64>,
    base: Option<f64>,
    superpage: Option<f64>,
}

/// Splits the times of faults for a base page and for a superpage of `pages` into trap and zeroing. `zeroed`: of one
/// page, by user code. The kernel may zero a superpage faster than that. Then both faults are taken to have the same
/// trap, and the rest is zeroing.
fn split(zeroed: f64, base: Option<f64>, superpage: Option<f64>, pages: f64) -> Split {
    let positive = |left: f64| Some(left).filter(|left| *left > 0.0);
    let trap = base.and_then(|base| positive(base - zeroed));
    let left = superpage.map(|superpage| superpage - zeroed * pages);
    match (base, superpage, left) {
        (Some(base), Some(superpage), Some(left)) if left < trap.unwrap_or(0.0) => {
            let zeroed = (superpage - base) / (pages - 1.0);
            let trap = positive(base - zeroed);
            Split { zeroed: positive(zeroed), base: trap, superpage: trap }
        }
        _ => Split { zeroed: None, base: trap, superpage: left.and_then(positive) },
    }
}

/// Returns the measurements of the kernel's own zeroing.
fn system(zeroing: &Zeroing) -> Option<&Way> {
    zeroing.best(Stores::System)
}

/// Writes nanoseconds for 2 MiB as a machine file has them.
fn microseconds(times: &[f64]) -> String {
    let times: Vec<String> = times.iter().map(|ns| format!("{:.1}", ns / 1e3)).collect();
    format!("[{}]", times.join(", "))
}

fn zero_costs(zeroing: &Zeroing) -> Vec<Cost> {
    let temporal = system(zeroing).map(|way| {
        (
            "zero.temporal",
            microseconds(&way.cold),
            "zero: as the kernel does it, memory in no cache",
        )
    });
    let past = zeroing.best(Stores::NonTemporal).map(|way| {
        (
            "zero.non-temporal",
            microseconds(&way.cold),
            "zero: the widest stores, memory in no cache",
        )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_split_into_trap_and_zeroing() {
        // 1,200 ns a page, 110 us a superpage, 0.19 us of zeroing a page: 13 us are the superpage's own.
        let found = split(190.0, Some(1200.0), Some(110_280.0), 512.0);
        assert_eq!(found, Split { zeroed: None, base: Some(1010.0), superpage: Some(13_000.0) });
        assert_eq!(split(190.0, Some(1200.0), None, 512.0).superpage, None);
        // A superpage's fault takes less than the zeroing by user code: both faults have the same trap.
        let found = split(190.0, Some(1200.0), Some(90_115.0), 512.0);
        let Split { zeroed: Some(zeroed), base: Some(base), superpage: Some(superpage) } = found
        else {
            panic!("{found:?}");
        };
        assert!((zeroed - 174.0).abs() < 0.1 && base == superpage, "{zeroed} {base} {superpage}");
        assert!((base + zeroed - 1200.0).abs() < 1e-6, "{base}");
        assert!((superpage + 512.0 * zeroed - 90_115.0).abs() < 1e-6);
    }
}
