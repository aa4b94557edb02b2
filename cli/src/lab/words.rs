//! Reports and figures as text for people. Pure.

use drawing::words::{self, known, percent};
use lab::analysis::{Figures, end, figures, speedup};
use lab::{Cause, Cell, Report};
use units::ByteSize;

use crate::pool::show::table;

/// What was run, but for the design.
pub fn experiment(cell: &Cell) -> String {
    let memory = ByteSize(cell.memory_bytes);
    let Cell { workload, machine, fragmentation, seed, .. } = cell;
    format!("{workload} on {machine}, {memory}, fragmentation {fragmentation}, seed {seed}\n")
}

/// One run in full.
pub fn run(report: &Report) -> String {
    let mut text = format!("{}: {}", report.cell.design, experiment(&report.cell));
    let figures = figures(report, None);
    let counters = &report.counters;
    let made = figures.made;
    let pages = |pages: u64| pages.to_string();
    let facts = [
        ("time", words::seconds(figures.seconds)),
        ("accesses", pages(counters.accesses)),
        (
            "superpages",
            format!(
                "{} at most; made: {} at a fault, {} in place, {} by copying; {} demoted",
                figures.superpages, made.at_fault, made.in_place, made.by_copy, counters.demoted
            ),
        ),
        (
            "coverage",
            known(figures.coverage, |share| format!("{} of memory, over time", percent(share))),
        ),
        (
            "faults",
            format!(
                "{}, {} of a whole superpage, {} without the one they wanted",
                counters.faults, counters.superpage_faults, counters.fallbacks
            ),
        ),
        (
            "memory",
            format!(
                "{} pages resident at the peak, {} touched{}",
                counters.resident_pages,
                counters.touched_pages,
                figures.bloat.map_or(String::new(), |bloat| format!(" (bloat {bloat:.2})"))
            ),
        ),
    ];
    for (name, fact) in facts {
        text += &format!("  {name:<11}{fact}\n");
    }
    if let Some(requests) = &report.requests {
        let time = |microseconds: f64| words::seconds(microseconds / 1e6);
        text += &format!(
            "  requests   {}, mean {}, p50 {}, p95 {}, p99 {}, longest {}\n",
            requests.count,
            time(requests.mean),
            time(requests.p50),
            time(requests.p95),
            time(requests.p99),
            time(requests.max)
        );
    }
    text += &ledger(report);
    text + &ends([report])
}

/// Where the cycles went, the program's and the daemons'.
fn ledger(report: &Report) -> String {
    let whole = report.ledger.total();
    let row = |cause: Cause| {
        let (own, behind) = (report.ledger[cause], report.background[cause]);
        let share = (whole > 0).then(|| own as f64 / whole as f64);
        let behind = if behind > 0 { words::figure(behind as f64) } else { String::new() };
        (own > 0 || !behind.is_empty()).then(|| {
            vec![cause.name().to_string(), words::figure(own as f64), known(share, percent), behind]
        })
    };
    let rows = Cause::ALL.into_iter().filter_map(row).collect();
    format!("\n{}", table(&["cycles", "program", "share", "daemons"], rows, &[0]))
}

/// Several runs, a line each; the first is what the others are relative to.
pub fn compare(reports: &[Report]) -> String {
    let Some(base) = reports.first() else { return String::new() };
    let all: Vec<Figures> = reports.iter().map(|report| figures(report, Some(base))).collect();
    let versus = format!("vs {}", words::clipped(&base.cell.design, 20));
    let requests = all.iter().any(|one| one.p99_microseconds.is_some());
    let mut header = vec![
        "design",
        "time",
        &versus,
        "translation",
        "faults",
        "upkeep",
        "superpages",
        "coverage",
        "bloat",
        "daemons",
    ];
    if requests {
        header.push("p99");
    }
    let row = |one: &Figures| {
        let ended = |text: String| if one.finished { text } else { format!("{text}*") };
        let mut row = vec![
            one.design.clone(),
            ended(words::seconds(one.seconds)),
            known(one.speedup, |speedup| format!("{}x", words::ratio(speedup))),
            known(one.translation, percent),
            known(one.faults, percent),
            known(one.upkeep, percent),
            one.superpages.to_string(),
            known(one.coverage, percent),
            known(one.bloat, |bloat| format!("{bloat:.2}")),
            known(one.daemons, percent),
        ];
        if requests {
            row.push(known(one.p99_microseconds, |p99| words::seconds(p99 / 1e6)));
        }
        row
    };
    let lines = table(&header, all.iter().map(row).collect(), &[0]);
    format!("{}\n{lines}{}", experiment(&base.cell), ends(reports))
}

/// The runs that did not come to their end.
fn ends<'a>(reports: impl IntoIterator<Item = &'a Report>) -> String {
    let line = |report: &Report| {
        end(&report.end).map(|end| {
            format!("* {} {end}; its figures are of the part it ran\n", report.cell.design)
        })
    };
    let lines: String = reports.into_iter().filter_map(line).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

/// The first of the reports against the fastest other, or the slowest if it is itself the fastest:
/// the pair that a reader of the table asks about.
pub fn telling_pair(reports: &[Report]) -> Option<(&Report, &Report)> {
    let base = reports.first()?;
    let versus = |report: &&Report| speedup(report, base);
    let others = || reports[1..].iter().filter(|report| versus(report).is_some());
    let order = |a: &&Report, b: &&Report| versus(a).partial_cmp(&versus(b)).expect("finite");
    let best = others().max_by(order)?;
    let slower = || others().min_by(order);
    if versus(&best)? >= 1.0 { Some((base, best)) } else { Some((base, slower()?)) }
}
