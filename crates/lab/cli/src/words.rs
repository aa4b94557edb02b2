//! Formats reports and figures as text. Pure.

use lab::analysis::{Figures, end, explain, figures, speedup};
use lab::{End, MemoryPart, Report};
use mm_sim::Cause;
use report::format::{clipped, known};
use report::sig3::{self as three, percent};
use units::ByteSize;

use cli::table;

/// Legend of a comparison's columns, for its table and for --help.
pub const COLUMNS: &str = "\
translation, faults, upkeep: shares of the program's CPU cycles. Translation: second TLB and page
walks; faults: traps, zeroing, mapping, reading; upkeep: copying, compaction, reclaim, shootdowns,
locks, scans. coverage: resident memory on superpages, over time; bloat: pages resident for each one
touched; daemons: CPU time beside the program, of its time.";

/// Describes the experiment, without the design.
pub fn experiment(report: &Report) -> String {
    let cell = &report.cell;
    let memory = ByteSize(cell.memory_bytes);
    let kernel = report
        .kernel_bytes
        .map_or(String::new(), |kernel| format!(" ({} of it the kernel's)", ByteSize(kernel)));
    let swap = match cell.swap_bytes {
        0 => String::new(),
        swap => format!(", swap {}", ByteSize(swap)),
    };
    let nodes: Vec<ByteSize> = cell.nodes_bytes.iter().copied().map(ByteSize).collect();
    let divided = match divided(&nodes, ByteSize(cell.movable_bytes)) {
        none if none.is_empty() => none,
        divided => format!(", {divided}"),
    };
    format!(
        "{} on {}, {memory}{kernel}{divided}{swap}, fragmentation {}, seed {}\n",
        cell.workload, cell.machine, cell.fragmentation, cell.seed
    )
}

/// Describes how memory is divided: NUMA nodes, and memory for movable pages only.
pub fn divided(nodes: &[ByteSize], movable: ByteSize) -> String {
    let sizes = || nodes.iter().map(ByteSize::to_string).collect::<Vec<_>>().join(", ");
    let nodes = match nodes {
        [] | [_] => None,
        [first, rest @ ..] if rest.iter().all(|size| size == first) => {
            Some(format!("{} nodes of {first}", nodes.len()))
        }
        _ => Some(format!("nodes of {}", sizes())),
    };
    let movable = (movable > ByteSize(0)).then(|| format!("{movable} for movable pages only"));
    nodes.into_iter().chain(movable).collect::<Vec<_>>().join(", ")
}

/// Formats the use of each part of memory, if there are several.
fn parts(reports: &[&Report]) -> String {
    let several = reports.len() > 1;
    let row = |report: &Report, part: &MemoryPart| {
        let use_of = part.peak;
        let only = if use_of.movable_only { ", movable only" } else { "" };
        let numbers = [
            use_of.pages,
            use_of.unmovable_pages,
            use_of.pool_pages,
            use_of.movable_pages,
            use_of.free_pages,
            use_of.free_superpages,
            part.free_superpages_at_start,
        ];
        let design = several.then(|| report.cell.design.clone());
        let place = format!("node {}{only}", use_of.node);
        let numbers = numbers.iter().map(u64::to_string);
        design.into_iter().chain([place]).chain(numbers).collect()
    };
    let rows: Vec<Vec<String>> = reports
        .iter()
        .flat_map(|report| report.memory_parts.iter().map(|part| row(report, part)))
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let names = ["memory", "pages", "unmovable", "pool", "movable", "free", "superpages", "before"];
    let header: Vec<&str> = several.then_some("design").into_iter().chain(names).collect();
    let left: &[usize] = if several { &[0, 1] } else { &[0] };
    format!("\n{}{PARTS}", table(&header, rows, left))
}

/// Legend of the columns of memory parts.
const PARTS: &str = "\
pages when most were resident; superpages: those that could be taken from free memory then, and before the run\n";

/// Formats the full report of one run.
pub fn run(report: &Report) -> String {
    let mut text = format!("{}: {}", report.cell.design, experiment(report));
    let figures = figures(report, None);
    let counters = &report.counters;
    let made = figures.made;
    let pages = |pages: u64| pages.to_string();
    let facts = [
        ("time", three::seconds(figures.seconds)),
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
        ("walks", walks(report)),
        (
            "memory",
            format!(
                "{} pages resident at the peak, {} read or written by then{}",
                counters.resident_pages,
                known(counters.touched_pages, |pages| pages.to_string()),
                figures
                    .bloat
                    .map_or(String::new(), |bloat| { format!(" (bloat {})", three::ratio(bloat)) })
            ),
        ),
    ];
    for (name, fact) in facts {
        text += &format!("  {name:<11}{fact}\n");
    }
    if let Some(requests) = &report.requests {
        let time = |microseconds: f64| three::seconds(microseconds / 1e6);
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
    text += &parts(&[report]);
    text + &ends(&[report])
}

/// Formats the number of walks, and the cycles waited for them as shares of all cycles and of those outside the kernel.
fn walks(report: &Report) -> String {
    let (ledger, counters) = (&report.ledger, &report.counters);
    let waited = ledger[Cause::WalkBase] + ledger[Cause::WalkLarge];
    let user = ledger[Cause::Work] + ledger[Cause::SecondTlb] + waited;
    let share = |of: u64| known((of > 0).then(|| waited as f64 / of as f64), percent);
    let number = counters.walks_base + counters.walks_large;
    format!(
        "{number}, {} of all cycles, {} of those outside the kernel",
        share(ledger.total()),
        share(user)
    )
}

/// Formats the cycles by cause, of the program and of the daemons.
fn ledger(report: &Report) -> String {
    let whole = report.ledger.total();
    let row = |cause: Cause| {
        let (own, behind) = (report.ledger[cause], report.background[cause]);
        let share = (whole > 0).then(|| own as f64 / whole as f64);
        let behind = if behind > 0 { three::figure(behind as f64) } else { String::new() };
        (own > 0 || !behind.is_empty()).then(|| {
            vec![cause.name().to_string(), three::figure(own as f64), known(share, percent), behind]
        })
    };
    let rows = Cause::ALL.into_iter().filter_map(row).collect();
    format!("\n{}", table(&["cycles", "program", "share", "daemons"], rows, &[0]))
}

/// Formats several runs, one line each, compared with the first.
pub fn compare(reports: &[Report]) -> String {
    let Some(base) = reports.first() else { return String::new() };
    let all: Vec<Figures> = reports.iter().map(|report| figures(report, Some(base))).collect();
    let versus = format!("vs {}", clipped(&base.cell.design, 20));
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
            ended(three::seconds(one.seconds)),
            known(one.speedup, |speedup| format!("{}x", three::ratio(speedup))),
            known(one.translation, percent),
            known(one.faults, percent),
            known(one.upkeep, percent),
            one.superpages.to_string(),
            ended(known(one.coverage, percent)),
            known(one.bloat, three::ratio),
            known(one.daemons, percent),
        ];
        if requests {
            row.push(known(one.p99_microseconds, |p99| three::seconds(p99 / 1e6)));
        }
        row
    };
    let lines = table(&header, all.iter().map(row).collect(), &[0]);
    let bounds: Vec<&str> =
        reports.iter().filter(|one| one.bound).map(|one| one.cell.design.as_str()).collect();
    let bounds = match bounds.is_empty() {
        true => String::new(),
        false => format!("{}: a bound that no system reaches\n", bounds.join(", ")),
    };
    let all: Vec<&Report> = reports.iter().collect();
    let (parts, ends) = (parts(&all), ends(&all));
    format!("{}\n{lines}{parts}{ends}\n{bounds}{COLUMNS}\n", experiment(base))
}

/// Says which run did not complete, and why.
pub fn end_of(report: &Report) -> Option<String> {
    end(&report.end).map(|end| format!("{} {end}", report.cell.design))
}

/// Formats notes on incomplete runs, and what would let them complete.
fn ends(reports: &[&Report]) -> String {
    let line = |end: String| format!("* {end}; its figures are of the part it ran\n");
    let lines: String = reports.iter().copied().filter_map(end_of).map(line).collect();
    let is_full = |report: &&Report| matches!(report.end, End::OutOfMemory { .. });
    let remedy = match reports.iter().any(is_full) {
        true => "to run to the end where memory ran out: more --memory, or --swap\n",
        false => "",
    };
    if lines.is_empty() { lines } else { format!("\n{lines}{remedy}") }
}

/// Explains why the fastest system was faster than the first, and what held the others back.
pub fn why(reports: &[Report]) -> String {
    let judged = judged(reports);
    let Some((base, best)) = telling_pair(&judged) else {
        return "There are no two runs to explain.\n".to_string();
    };
    let mut text = explain(base, best).sentences.join("\n") + "\n";
    let best = if speedup(best, base).is_some_and(|speedup| speedup >= 1.0) { best } else { base };
    let told = |report: &&&Report| {
        ![base.cell.design.as_str(), best.cell.design.as_str()]
            .contains(&report.cell.design.as_str())
    };
    for other in judged.iter().filter(told) {
        // The first two sentences say which was faster, and where the cycles went.
        let sentences = explain(best, other).sentences;
        text += &format!("\n{}\n", sentences[..sentences.len().min(2)].join(" "));
    }
    text
}

/// Returns the reports of real systems, without unreachable bounds. If fewer than two reports would be left, returns
/// all of them.
fn judged(reports: &[Report]) -> Vec<&Report> {
    let systems: Vec<&Report> = reports.iter().filter(|report| !report.bound).collect();
    if systems.len() > 1 { systems } else { reports.iter().collect() }
}

/// Returns the pair that a reader of the table asks about: the first report and the fastest other, or the slowest if
/// the first is the fastest.
fn telling_pair<'a>(reports: &[&'a Report]) -> Option<(&'a Report, &'a Report)> {
    let base = *reports.first()?;
    let versus = |report: &&Report| speedup(report, base);
    let others = || reports[1..].iter().copied().filter(|report| versus(report).is_some());
    let order = |a: &&Report, b: &&Report| versus(a).partial_cmp(&versus(b)).expect("finite");
    let best = others().max_by(order)?;
    let slowest = || others().min_by(order);
    if versus(&best)? >= 1.0 { Some((base, best)) } else { Some((base, slowest()?)) }
}
