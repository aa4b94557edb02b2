//! A map as text. Pure.

use std::collections::HashMap;

use ::advise::Remedy;
use host::coverage::{MappingKind, Scanned};
use report::format::{self, count, percent, seconds};
use services::map::{CgroupMemory, ExplainedExtent, ProcessMap, Sampled, Share, sum};
use services::smaps::SmapsState;
use services::why::Machine;
use units::ByteSize;

use super::words;
use crate::advise::words as advise_words;
use crate::pool::show;

const NAME: usize = 48;

/// Mappings shown in one row: those of the same file or name, or unnamed ones side by side.
pub struct Row {
    /// First address of the first one.
    pub start: u64,
    /// Number of mappings.
    pub count: usize,
    pub name: String,
    pub kind: MappingKind,
    /// Bytes of address space.
    pub size: u64,
    pub pages: Scanned,
    pub reasons: Vec<Share>,
    /// Indices into the extents.
    pub extents: Vec<usize>,
}

impl Row {
    fn new(index: usize, extent: &ExplainedExtent) -> Self {
        Self {
            start: extent.mapping.start,
            count: 1,
            name: extent.mapping.name.clone(),
            kind: extent.kind,
            size: extent.mapping.len(),
            pages: extent.pages,
            reasons: extent.reasons.clone(),
            extents: vec![index],
        }
    }

    fn add(&mut self, index: usize, extent: &ExplainedExtent) {
        self.count += 1;
        self.size = self.size.saturating_add(extent.mapping.len());
        self.pages = self.pages.plus(extent.pages);
        self.reasons.extend(extent.reasons.iter().copied());
        self.extents.push(index);
    }

    /// Its name, or its first address.
    pub fn label(&self) -> String {
        match self.name.is_empty() {
            true => format!("{:#x}", self.start),
            false => self.name.clone(),
        }
    }

    /// The largest reasons for resident memory that superpages do not map; of memory without any, for the rest.
    pub fn why(&self) -> String {
        let off = || self.reasons.iter().filter(|share| !share.reason.is_on());
        let resident: Vec<&Share> = off().filter(|share| share.resident.bytes() > 0).collect();
        let named = |share: &&Share| format!("{} {}", words::reason(share.reason), share.resident);
        match resident.as_slice() {
            [] if self.pages.present.bytes() > 0 => "-".to_string(),
            [] => off().next().map_or("-".to_string(), |share| words::reason(share.reason)),
            [only] if only.resident == self.pages.present => words::reason(only.reason),
            all => {
                let most: Vec<String> = all.iter().take(2).map(named).collect();
                let more = if all.len() > 2 { ", …" } else { "" };
                format!("{}{more}", most.join(", "))
            }
        }
    }
}

/// Merges the mappings of a process; the row with the most resident memory first.
pub fn rows(map: &ProcessMap) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut named: HashMap<(&str, MappingKind), usize> = HashMap::new();
    // The last unnamed row, and where its last mapping ends.
    let mut unnamed: Option<(usize, u64)> = None;
    for (index, extent) in map.extents.iter().enumerate() {
        let (name, kind) = (extent.mapping.name.as_str(), extent.kind);
        let beside =
            unnamed.filter(|(row, end)| *end == extent.mapping.start && rows[*row].kind == kind);
        let same = match name.is_empty() {
            true => beside.map(|(row, _)| row),
            false => named.get(&(name, kind)).copied(),
        };
        let row = same.unwrap_or(rows.len());
        match rows.get_mut(row) {
            Some(row) => row.add(index, extent),
            None => rows.push(Row::new(index, extent)),
        }
        match name.is_empty() {
            true => unnamed = Some((row, extent.mapping.end)),
            false => {
                named.insert((name, kind), row);
            }
        }
    }
    for row in &mut rows {
        row.reasons = sum(std::mem::take(&mut row.reasons));
    }
    rows.sort_by_key(|row| std::cmp::Reverse((row.pages.present, row.pages.swapped, row.size)));
    rows
}

/// The line that sums up: `redis-server 1234: 3.1 GiB resident, 42 % on superpages; ...`.
pub fn summary(map: &ProcessMap) -> String {
    let name = format::name(&map.process.name, 20);
    let head = format!("{name} {}: {} resident", map.process.pid, map.pages.present);
    let Some(coverage) = map.coverage() else { return format!("{head}: nothing") };
    let head = format!("{head}, {} on superpages", percent(coverage));
    match map.largest_gap() {
        None => head,
        Some(share) => {
            let could: u64 = map
                .reasons
                .iter()
                .filter(|share| share.reason.could_be())
                .map(|share| share.resident.bytes())
                .sum();
            let why = words::reason(share.reason);
            match could == share.resident.bytes() {
                true => format!("{head}; {} more could be: {why}", share.resident),
                false => {
                    let all = ByteSize(could);
                    format!("{head}; {all} more could be, {} of it: {why}", share.resident)
                }
            }
        }
    }
}

/// What gives a program superpages for good.
pub fn remedies(all: &[Remedy]) -> String {
    match all.is_empty() {
        true => String::new(),
        false => format!("to change that:\n{}", advise_words::remedies(all, usize::MAX)),
    }
}

/// One process: summary, mappings, reasons, samples.
pub fn process(map: &ProcessMap, machine: &Machine, most: Option<usize>) -> String {
    let mut text = summary(map) + "\n";
    let free = match machine.free_superpages {
        Some(free) => format!("{} free superpages of {}", count(free as f64), map.superpage),
        None => "free superpages unknown".to_string(),
    };
    let thp = words::mode(machine.anonymous);
    text += &format!(
        "THP {thp}; {free}; scanned in {}, longest hold of the mmap lock {}",
        seconds(map.scan_seconds),
        seconds(map.longest_hold_seconds)
    );
    text += &smaps(&map.smaps);
    text += "\n\n";
    text += &mappings(map, most);
    text += "\n";
    text += &reasons(&map.reasons);
    text += &samples(map);
    text
}

fn smaps(state: &SmapsState) -> String {
    match state {
        SmapsState::NotRead { estimated } => format!(
            "; smaps not read, --smaps would hold the process's lock for {}",
            about(*estimated)
        ),
        SmapsState::TooDear { estimated, budget } => {
            let budget = seconds(*budget);
            format!("; smaps not read: {}, over the budget of {budget}", about(*estimated))
        }
        SmapsState::Read { estimated, longest, budget, over_budget } => {
            let over = match over_budget {
                true => format!(", over the budget of {}", seconds(*budget)),
                false => String::new(),
            };
            format!(
                "; smaps read, {} for its longest mapping (estimated {}){over}",
                seconds(*longest),
                about(*estimated)
            )
        }
        SmapsState::Failed { why } => format!("; smaps unknown: {why}"),
    }
}

/// Formats that smaps would exceed, or exceeded, the budget, for the process for which it takes longest. `None` if it exceeds
/// it for none.
pub fn over_budget(maps: &[ProcessMap]) -> Option<String> {
    let over = maps.iter().filter_map(|map| match map.smaps {
        SmapsState::TooDear { estimated, .. } => Some((map.process.pid, estimated, false)),
        SmapsState::Read { longest, over_budget: true, .. } => {
            Some((map.process.pid, longest, true))
        }
        _ => None,
    });
    let (pid, most, is_read) = over.max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(match is_read {
        true => format!(
            "smaps of process {pid} held its lock for up to {}, over --budget: the reader waited for a CPU, or the \
             estimate was too low",
            seconds(most)
        ),
        false => format!(
            "smaps of process {pid} would hold its lock for {}; --budget {:.0}ms allows it",
            about(most),
            (most * 1e3).ceil()
        ),
    })
}

/// An estimate with one or two digits, with `about`.
fn about(value: f64) -> String {
    match value {
        v if v < 1e-4 => "less than 0.1 ms".to_string(),
        v if v < 1e-2 => format!("about {:.1} ms", v * 1e3),
        v => format!("about {:.0} ms", v * 1e3),
    }
}

fn mappings(map: &ProcessMap, most: Option<usize>) -> String {
    let rows = match most {
        Some(_) => rows(map),
        None => map.extents.iter().enumerate().map(|(at, extent)| Row::new(at, extent)).collect(),
    };
    let (shown, rest) = rows.split_at(most.unwrap_or(rows.len()).min(rows.len()));
    let mut cells: Vec<Vec<String>> = shown.iter().map(|row| cells(row, most.is_none())).collect();
    if !rest.is_empty() {
        let pages = rest.iter().map(|row| row.pages).fold(Scanned::default(), Scanned::plus);
        let size = rest.iter().map(|row| row.size).fold(0, u64::saturating_add);
        let name = format!("{} more (--all)", rest.len());
        cells.push(vec![
            name,
            String::new(),
            ByteSize(size).to_string(),
            pages.present.to_string(),
            on_superpages(&pages),
            pages.swapped.to_string(),
            String::new(),
        ]);
    }
    let header = ["mapping", "kind", "size", "resident", "superpages", "swap", "why not"];
    show::table(&header, cells, &[0, 1, 6])
}

fn cells(row: &Row, is_single: bool) -> Vec<String> {
    let mut name = format::name(&row.label(), NAME);
    if is_single && !row.name.is_empty() {
        name = format!("{:#x} {name}", row.start);
    }
    if row.count > 1 {
        name = format!("{name} ({})", row.count);
    }
    vec![
        name,
        words::kind(row.kind).to_string(),
        ByteSize(row.size).to_string(),
        row.pages.present.to_string(),
        on_superpages(&row.pages),
        row.pages.swapped.to_string(),
        row.why(),
    ]
}

/// The share on superpages; `-` if nothing is resident.
pub fn on_superpages(pages: &Scanned) -> String {
    match pages.present.bytes() {
        0 => "-".to_string(),
        all => percent(pages.huge.bytes() as f64 / all as f64),
    }
}

/// Resident memory by reason.
fn reasons(shares: &[Share]) -> String {
    let shown = shares.iter().filter(|share| share.resident.bytes() + share.swapped.bytes() > 0);
    let rows = shown.map(|share| {
        vec![
            share.resident.to_string(),
            share.swapped.to_string(),
            words::reason(share.reason),
            words::remedy(share.reason).unwrap_or_default(),
        ]
    });
    show::table(&["resident", "swap", "memory", "what decides"], rows.collect(), &[2, 3])
}

fn samples(map: &ProcessMap) -> String {
    let mut text = String::new();
    match &map.waste {
        None => {}
        Some(Sampled::Unknown { why }) => text += &format!("zero-filled: unknown: {why}\n"),
        Some(Sampled::Read(waste)) if waste.superpage_bytes.bytes() == 0 => {
            text += "zero-filled: 0 B, there are no superpages\n";
        }
        Some(Sampled::Read(waste)) => {
            let all = waste.superpage_bytes.bytes() as f64;
            let (low, high) = interval(waste.zero, waste.sampled);
            let wasted = format::known(waste.wasted, |bytes| bytes.to_string());
            text += &format!(
                "zero-filled: about {wasted} of {} in superpages (95 %: {} to {}), from {} base pages \
                 read, seed {}\n",
                waste.superpage_bytes,
                format::bytes(low * all),
                format::bytes(high * all),
                waste.sampled,
                waste.seed
            );
        }
    }
    match &map.folios {
        None => {}
        Some(Sampled::Unknown { why }) => text += &format!("folios: unknown: {why}\n"),
        Some(Sampled::Read(sizes)) => {
            let each = sizes.sizes.iter().map(|(size, pages)| {
                let share = f64::from(*pages) / f64::from(sizes.sampled.max(1));
                format!("{} {size}", percent(share))
            });
            let each: Vec<String> = each.collect();
            text += &format!(
                "folios behind {} in base-sized entries: {}, from {} pages sampled ({} lost), seed {}\n",
                sizes.base_bytes,
                if each.is_empty() { "unknown".to_string() } else { each.join(", ") },
                sizes.sampled,
                sizes.lost,
                sizes.seed
            );
        }
    }
    text
}

/// Wilson's 95 % interval of a share, from 0 to 1.
fn interval(hits: u32, of: u32) -> (f64, f64) {
    const Z: f64 = 1.959_964;
    if of == 0 {
        return (0.0, 1.0);
    }
    let (n, p) = (f64::from(of), f64::from(hits) / f64::from(of));
    let scale = 1.0 + Z * Z / n;
    let middle = (p + Z * Z / (2.0 * n)) / scale;
    let half = Z / scale * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    ((middle - half).max(0.0), (middle + half).min(1.0))
}

/// Several processes, one row each; the largest first.
pub fn processes(maps: &[ProcessMap], most: Option<usize>) -> String {
    let mut sorted: Vec<&ProcessMap> = maps.iter().collect();
    sorted.sort_by_key(|map| std::cmp::Reverse(map.pages.present));
    let shown = most.unwrap_or(sorted.len()).min(sorted.len());
    let rows = sorted[..shown].iter().map(|map| {
        let gap = map.largest_gap();
        vec![
            map.process.pid.to_string(),
            format::name(&map.process.name, 20),
            map.pages.present.to_string(),
            on_superpages(&map.pages),
            gap.map_or("-".to_string(), |share| share.resident.to_string()),
            gap.map_or("-".to_string(), |share| words::reason(share.reason)),
        ]
    });
    let header = ["pid", "program", "resident", "superpages", "could be", "why not"];
    let mut text = show::table(&header, rows.collect(), &[1, 5]);
    if shown < sorted.len() {
        text += &format!("{} more (--all)\n", sorted.len() - shown);
    }
    text += "memory that processes share is counted in each; `superpage map PID` shows one\n";
    text
}

/// What a cgroup counts, in a line.
pub fn cgroup(memory: &CgroupMemory) -> String {
    let of = |what: &str, all: Option<ByteSize>, huge: Option<ByteSize>| {
        let all_text = format::known(all, |all| all.to_string());
        let share = match (all, huge) {
            (Some(all), _) if all.bytes() == 0 => return format!("{what} 0 B"),
            (Some(all), Some(huge)) => {
                let share = huge.bytes() as f64 / all.bytes() as f64;
                format!("{} in superpages", percent(share))
            }
            _ => "superpages unknown".to_string(),
        };
        format!("{what} {all_text} ({share})")
    };
    let parts = [
        of("anonymous", memory.anonymous, memory.anonymous_huge),
        of("shared", memory.shared, memory.shared_huge),
        of("files", memory.file, memory.file_huge),
    ];
    let path = if memory.path.is_empty() { "/" } else { &memory.path };
    format!("cgroup {}: {}\n", format::name(path, 60), parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_wilsons() {
        // Published: 10 of 20 gives 0.299 to 0.701; 0 of 20 gives 0 to 0.161.
        let (low, high) = interval(10, 20);
        assert!((low - 0.299).abs() < 1e-3 && (high - 0.701).abs() < 1e-3, "{low} {high}");
        let (low, high) = interval(0, 20);
        assert!(low == 0.0 && (high - 0.161).abs() < 1e-3, "{low} {high}");
        assert_eq!(interval(0, 0), (0.0, 1.0));
    }

    #[test]
    fn the_largest_excess_of_the_budget_is_told() {
        let with = |smaps| ProcessMap { smaps, ..super::super::picture::tests::large(1) };
        let read = |longest, over_budget| {
            with(SmapsState::Read { estimated: 0.006, longest, budget: 0.05, over_budget })
        };
        assert_eq!(over_budget(&[read(0.049, false)]), None);
        let text = over_budget(&[read(0.01, false), read(0.07, true)]).unwrap();
        assert!(text.contains("held its lock for up to 70.00 ms, over --budget"), "{text}");
        let dear = with(SmapsState::TooDear { estimated: 0.0702, budget: 0.05 });
        let text = over_budget(&[read(0.07, true), dear]).unwrap();
        assert!(
            text.contains("would hold its lock for about 70 ms; --budget 71ms allows"),
            "{text}"
        );
    }

    #[test]
    fn estimates_have_few_digits() {
        let texts = [0.0, 0.00321, 0.0301, 1.5].map(about);
        assert_eq!(texts, ["less than 0.1 ms", "about 3.2 ms", "about 30 ms", "about 1500 ms"]);
    }
}
