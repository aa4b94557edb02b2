//! Formats the calibration: a table of levels and costs, and its interpretation.

use report::format::UNKNOWN;
use tlb_probe::{Calibration, Cost, LevelReport, OnPages, SizeReport};
use units::ByteSize;

use crate::pool::show::table;

pub fn text(found: &Calibration) -> String {
    let mut out = head(found);
    out += &table(
        &["pages", "level", "entries", "by CPUID", "ways", "cycles (95 %)", "ns", ""],
        found
            .sizes
            .iter()
            .flat_map(|size| rows(found, size))
            .chain(found.instructions.iter().flat_map(|size| code_rows(found, size)))
            .collect(),
        &[0, 1, 7],
    );
    let saved: Vec<String> = found.walk_steps.iter().filter_map(step).collect();
    if !saved.is_empty() {
        out += &format!("\npage-walk caches (base pages): {}\n", saved.join("; "));
    }
    for far in found.nearer_accesses.iter().chain(&found.accesses) {
        let on = |on: OnPages| {
            format!("{:.1} ns on base pages, {:.1} on superpages", on.base_ns, on.superpage_ns)
        };
        out += &format!(
            "\nrandom accesses over {}: {}; that do not wait for each other: {}\n",
            ByteSize(far.bytes),
            on(far.dependent),
            on(far.independent)
        );
    }
    if let Some(backing) = &found.backing {
        out += &format!("\n{}\n", backing.words());
    }
    if found.sizes.iter().any(|size| size.levels.iter().any(|level| level.entries.is_none())) {
        out += "\nentries unknown: the largest footprint fits into the level\n";
    }
    if found.sizes.iter().any(|size| size.levels.iter().any(|level| !level.sharp)) {
        out += "\na level that misses ever more instead of all at once ends where misses cost a tenth of all they will; \
                in parentheses: from the first misses to where half of the accesses miss\n";
    }
    if !found.warnings.is_empty() {
        out += "\n";
    }
    for warning in &found.warnings {
        out += &format!("warning: {warning}\n");
    }
    for note in &found.notes {
        out += &format!("not measured: {note}\n");
    }
    out
}

fn head(found: &Calibration) -> String {
    let model = found.processor.model.as_deref().unwrap_or("unknown processor");
    let guest = match found.processor.guest {
        Some(true) => ", in a virtual machine",
        _ => "",
    };
    let clock = &found.clock;
    let mut out = format!("{model}{guest}; core at {:.0} MHz", clock.core_mhz);
    if let Some(counter) = clock.counter_mhz {
        out += &format!(", counter at {counter:.0} MHz");
    }
    let (low, high) = clock.seen_mhz;
    if high - low > 0.03 * clock.core_mhz {
        out += &format!(
            "\nthe clock moved between {low:.0} and {high:.0} MHz; {} chases were made again for it",
            clock.retried
        );
    }
    out + "\n\n"
}

fn rows(found: &Calibration, size: &SizeReport) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (index, level) in size.levels.iter().enumerate() {
        let ways = match (level.ways, level.entries) {
            (Some(ways), Some(entries)) if ways == entries => "all".to_string(),
            (Some(ways), _) => ways.to_string(),
            (None, _) => String::new(),
        };
        let [cycles, ns] = match index {
            0 => [
                format!("{:.1}", found.load_cycles),
                format!("{:.2}", found.nanoseconds(found.load_cycles)),
            ],
            _ => cost(found, level.hit.as_ref()),
        };
        let page = if index == 0 { size.page.to_string() } else { String::new() };
        let name = format!("L{}", index + 1);
        let said = found.said(size.page, index as u32 + 1);
        let said = said.map_or(String::new(), |entries| entries.to_string());
        let what = if index == 0 { "load that hits" } else { "hit" };
        rows.push(vec![page, name, entries(level), said, ways, cycles, ns, what.into()]);
    }
    let [cycles, ns] = cost(found, size.miss.as_ref());
    let agreed = size.miss.as_ref().is_none_or(|miss| miss.agreed);
    let at = size.miss_pages.map_or(String::new(), |pages| format!(" over {pages} pages"));
    let doubt = if agreed { "" } else { " (* its interval is wider than 10 % either way)" };
    let what = format!("miss in all levels{at}{doubt}");
    let blank = String::new;
    rows.push(vec![blank(), "walk".into(), blank(), blank(), blank(), cycles, ns, what]);
    rows
}

/// Returns rows for instructions: entries of the first level, and the cost of a jump that misses it.
fn code_rows(found: &Calibration, size: &SizeReport) -> Vec<Vec<String>> {
    let [first, rest @ ..] = &size.levels[..] else { return Vec::new() };
    let said = found.said_of_code(size.page).map_or(String::new(), |entries| entries.to_string());
    let hit = size.curve.first().map_or(f64::NAN, |point| point.spread);
    let (page, ns) = (format!("{}, code", size.page), found.nanoseconds(hit));
    let (hit, ns, blank) = (format!("{hit:.1}"), format!("{ns:.2}"), String::new);
    let first = vec![page, "L1".into(), entries(first), said, blank(), hit, ns, "jump".into()];
    let next = rest.first().map(|next| {
        let [cycles, ns] = cost(found, next.hit.as_ref());
        let what = "jump that misses L1 and hits the next level".into();
        vec![blank(), "next".into(), blank(), blank(), blank(), cycles, ns, what]
    });
    std::iter::once(first).chain(next).collect()
}

fn entries(level: &LevelReport) -> String {
    match (level.entries, level.range) {
        (None, _) => UNKNOWN.to_string(),
        (Some(entries), Some((low, high))) if low < high => format!("{entries} ({low}–{high})"),
        (Some(entries), _) => entries.to_string(),
    }
}

fn cost(found: &Calibration, cost: Option<&Cost>) -> [String; 2] {
    let Some(cost) = cost else { return [UNKNOWN.to_string(), UNKNOWN.to_string()] };
    let star = if cost.agreed { "" } else { "*" };
    let ns = found.nanoseconds(cost.cycles);
    let interval =
        cost.interval.map_or(String::new(), |(low, high)| format!(" ({low:.1}–{high:.1})"));
    [format!("+{:.1}{interval}{star}", cost.cycles), format!("{ns:.2}")]
}

fn step(step: &tlb_probe::Step) -> Option<String> {
    let (entries, cycles) = (step.entries?, step.cycles?);
    let level = ["", "", "PDE", "PDPTE", "PML4E"].get(step.reads as usize)?;
    Some(format!("{entries} {level}s, +{cycles:.0} cycles without"))
}
