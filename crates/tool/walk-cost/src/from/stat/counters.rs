//! `Counters`: adds up the rows of a report. An event's total is the sum of its parts (intervals, CPUs, cores, threads,
//! kinds of cores). A part in which cycles were counted and the event was not is a [`Gap`] of the event: perf prints
//! `<not counted>` for it, or no line if the file is cut off. A part without cycles is in no share;
//! a note names it.

use std::collections::HashMap;
use std::io::BufRead;

use super::super::lines::Lines;
use super::super::reading::{FromError, Reading};
use super::{Row, is_known};
use crate::count::{Count, Gap};

/// What a row's count is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Scope {
    /// Outside of any report.
    Loose,
    /// An interval of the run.
    Interval,
    /// The whole run.
    Total,
}

#[derive(Default)]
pub(super) struct Counters {
    /// Names of events without the kind of core, in order of appearance, with the place of the first.
    events: Vec<(String, String)>,
    parts: Vec<String>,
    part_numbers: HashMap<String, usize>,
    cells: HashMap<(Scope, usize, usize), Cell>,
    has_report: bool,
    cgroup: Option<String>,
    last_interval: f64,
    /// Number of the first line about an event and part that had a line before; 0: none.
    first_again: u64,
}

/// The lines about one event in one part. If there are several, the event was counted in several groups, each of which
/// estimates the same number, and the mean is taken.
#[derive(Clone, Copy, Default)]
struct Cell {
    lines: u32,
    values: u32,
    sum: f64,
    shares: u32,
    share: f64,
}

impl Cell {
    fn value(&self) -> Option<f64> {
        (self.values > 0).then(|| self.sum / f64::from(self.values))
    }
}

const MAX_EVENTS: usize = 4096;
const MAX_CELLS: usize = 1 << 18;
/// perf's counters have 64 bits.
const MAX_COUNT: f64 = u64::MAX as f64;

const FEWER: &str =
    "at most 262,144 counts, of 4096 events; print longer intervals, or fewer events";
const ONE_CGROUP: &str =
    "one control group a file, because the groups' counts may contain each other";
const SMALLER: &str = "a count of at most 64 bits";

impl Counters {
    /// Begins a report: rows before it were the program's, unless they are intervals.
    pub fn begin(&mut self) {
        self.has_report = true;
        self.cells.retain(|(scope, ..), _| *scope == Scope::Interval);
    }

    /// Whether a report that is not of intervals has begun.
    pub fn has_report(&self) -> bool {
        self.has_report
    }

    /// Whether no row was read.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Whether every row so far may be output of the program.
    pub fn is_loose(&self) -> bool {
        !self.has_report && !self.is_of_intervals()
    }

    /// Whether an interval was read.
    pub fn is_of_intervals(&self) -> bool {
        self.last_interval > 0.0
    }

    pub fn add<R: BufRead>(
        &mut self,
        row: Row,
        in_report: bool,
        lines: &Lines<R>,
    ) -> Result<(), FromError> {
        let bad = |expected| Err(lines.bad(&row.event, expected));
        let scope = match (row.interval.is_empty(), in_report) {
            (false, _) => Scope::Interval,
            (true, true) => Scope::Total,
            (true, false) => Scope::Loose,
        };
        if scope == Scope::Interval {
            // The time of intervals begins anew with each run.
            let time = row.interval.parse().unwrap_or(0.0);
            if time < self.last_interval {
                return Err(lines.several(lines.number()));
            }
            self.last_interval = time;
        }
        let refused = if row.value.is_some_and(|value| value > MAX_COUNT) {
            Some(SMALLER)
        } else if scope == Scope::Loose {
            // A word behind an event may be the program's.
            (!row.cgroup.is_empty()).then_some(ONE_CGROUP)
        } else {
            let cgroup = self.cgroup.get_or_insert_with(|| row.cgroup.clone());
            (cgroup != &row.cgroup).then_some(ONE_CGROUP)
        };
        match refused {
            Some(expected) if scope != Scope::Loose => return bad(expected),
            Some(_) => return Ok(()),
            None => {}
        }
        let (event, kind) = without_kind(&row.event);
        let interval = match row.interval.as_str() {
            "" => String::new(),
            time => format!("interval {time}"),
        };
        let names = [interval.as_str(), row.place.as_str(), kind];
        let part = names.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>().join(", ");
        let event_number = self.events.iter().position(|(name, _)| *name == event);
        let event_number = event_number.unwrap_or_else(|| {
            self.events.push((event, lines.source()));
            self.events.len() - 1
        });
        let next = self.parts.len();
        let part_number = *self.part_numbers.entry(part).or_insert_with_key(|part| {
            self.parts.push(part.clone());
            next
        });
        let cell = self.cells.entry((scope, event_number, part_number)).or_default();
        cell.lines += 1;
        if cell.lines == 2 && self.first_again == 0 {
            self.first_again = lines.number();
        }
        if let Some(value) = row.value {
            cell.values += 1;
            cell.sum += value;
            if let Some(share) = row.counted {
                cell.shares += 1;
                cell.share += share;
            }
        }
        if self.cells.len() > MAX_CELLS || self.events.len() > MAX_EVENTS {
            return bad(FEWER);
        }
        Ok(())
    }

    /// The counts in order of appearance, with what was not counted.
    pub fn finish<R: BufRead>(mut self, lines: &Lines<R>) -> Result<Reading, FromError> {
        // The summary of --summary covers the same run as the intervals.
        let scopes: Vec<Scope> = [Scope::Total, Scope::Interval, Scope::Loose]
            .into_iter()
            .filter(|one| self.cells.keys().any(|(scope, ..)| scope == one))
            .collect();
        let Some(scope) = scopes.first().copied() else { return Err(lines.unknown()) };
        let mut notes = Vec::new();
        if scope == Scope::Total && scopes.contains(&Scope::Interval) {
            notes.push("the summary was read, not the intervals before it".to_string());
        }
        self.cells.retain(|(of, ..), _| *of == scope);
        if self.cells.len() > 1 && self.cells.values().all(|cell| cell.lines > 1) {
            return Err(lines.several(self.first_again));
        }
        // The cells of each event, by part, in the order of the file.
        let mut rows: Vec<Vec<(usize, Cell)>> = vec![Vec::new(); self.events.len()];
        for ((_, event, part), cell) in &self.cells {
            rows[*event].push((*part, *cell));
        }
        for row in &mut rows {
            row.sort_by_key(|(part, _)| *part);
        }
        let name = |event: usize| self.events[event].0.clone();
        let of_event = |event: usize| Count { event: name(event), ..Count::default() };
        let seen = || (0..rows.len()).filter(|event| !rows[*event].is_empty());
        let cycles: Vec<usize> = seen().filter(|event| of_event(*event).is_cycles()).collect();
        let mut counts = Vec::new();
        for event in seen() {
            let mode = of_event(event).mode();
            let of_mode = cycles.iter().find(|cycles| of_event(**cycles).mode() == mode);
            let base = of_mode.or(cycles.first()).copied().filter(|base| *base != event);
            let (count, left_out) =
                self.count(event, &rows[event], base.map(|base| rows[base].as_slice()));
            if left_out > 0 && is_known(&count.event) {
                notes.push(format!(
                    "{} was counted in {left_out} {} without cycles, which are left out",
                    count.event,
                    if left_out == 1 { "part" } else { "parts" }
                ));
            }
            counts.push(count);
        }
        let idle =
            |event: usize| rows[event].iter().filter(|(_, cell)| cell.value().is_none()).count();
        if let Some(cycles) = cycles.first()
            && (1..rows[*cycles].len()).contains(&idle(*cycles))
        {
            notes.push(format!(
                "cycles were not counted in {} of {} parts: the program did not run, or no counter was free; the \
                 shares are of the other parts",
                idle(*cycles),
                rows[*cycles].len()
            ));
        }
        Ok(Reading { counts, notes, ..Reading::default() })
    }

    /// Sums an event over the parts in which `base`, the cycles, were counted. Also returns the number of parts left
    /// out.
    fn count(
        &self,
        event: usize,
        cells: &[(usize, Cell)],
        base: Option<&[(usize, Cell)]>,
    ) -> (Count, usize) {
        let mut count = Count { event: self.events[event].0.clone(), ..Count::default() };
        let known = |cells: &[(usize, Cell)]| -> Vec<(usize, f64)> {
            cells.iter().filter_map(|(part, cell)| Some((*part, cell.value()?))).collect()
        };
        let mut own = known(cells);
        let all = own.len();
        if let Some(base) = base.map(known).filter(|base| !base.is_empty()) {
            let mut of_part: HashMap<usize, f64> = base.iter().copied().collect();
            own.retain(|(part, _)| of_part.remove(part).is_some());
            let total: f64 = base.iter().map(|(_, cycles)| cycles).sum();
            let missing: f64 = base.iter().filter_map(|(part, _)| of_part.get(part)).sum();
            let first = base.iter().find(|(part, _)| of_part.contains_key(part));
            if let Some((first, _)) = first.filter(|_| !own.is_empty() && missing > 0.0) {
                count.gap = Some(Gap {
                    cycles: missing / total,
                    parts: (of_part.len(), base.len()),
                    first: self.parts[*first].clone(),
                });
            }
        }
        count.value = (!own.is_empty()).then(|| own.iter().map(|(_, value)| value).sum());
        let shares: (f64, u32) = cells
            .iter()
            .fold((0.0, 0), |(sum, number), (_, cell)| (sum + cell.share, number + cell.shares));
        count.counted = (shares.1 > 0).then(|| shares.0 / f64::from(shares.1));
        let source = &self.events[event].1;
        count.source = match own.len() {
            0 | 1 => source.clone(),
            parts => format!("{source} and on, the sum of {parts}"),
        };
        (count, all - own.len())
    }
}

/// Splits the kind of core of a hybrid CPU from an event's name: the kinds are parts of one run.
fn without_kind(event: &str) -> (String, &str) {
    for kind in ["cpu_core", "cpu_atom", "cpu_lowpower"] {
        if let Some(rest) = event.strip_prefix(kind).filter(|rest| rest.starts_with('/')) {
            return (format!("cpu{rest}"), kind);
        }
    }
    (event.to_string(), "")
}
