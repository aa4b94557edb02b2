//! The output of `perf stat`: text, CSV (`-x`) and JSON (`-j`), of perf 3 to 6, with and without intervals, repeats and
//! parts of the machine (tools/perf/util/stat-display.c, before Linux 4.19 tools/perf/builtin-stat.c). Each format has
//! a module that reads one line as a [`Row`]; [`Counters`] adds rows up.

mod counters;
mod csv;
mod json;
mod text;

use std::io::BufRead;

use counters::Counters;

use super::lines::Lines;
use super::number;
use super::reading::{Format, FromError, Reading};
use crate::Count;
use crate::events;

/// A line about one event.
#[derive(Debug, Default, PartialEq)]
struct Row {
    /// The event's name as printed.
    event: String,
    /// The count; `None` for `<not counted>` and `<not supported>`.
    value: Option<f64>,
    /// Share of the time for which the counter ran.
    counted: Option<f64>,
    /// Time of the interval, as printed; empty if the line is not of an interval.
    interval: String,
    /// CPU, core, die, cache, socket, node or thread; empty if the line covers all.
    place: String,
    /// Control group; empty if none is named.
    cgroup: String,
}

/// What a line is to a format.
#[derive(Debug, PartialEq)]
enum Line {
    Row(Row),
    /// The head of a report for people.
    Begin,
    /// The end of the counts of a report for people.
    End,
    /// A metric, a comment, or output of the program.
    Other,
    /// A line of this format that cannot be read.
    Broken,
}

/// The formats, with what one line of a file decides about the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Dialect {
    Text,
    /// The separator.
    Csv(char),
    Json,
}

impl Dialect {
    /// The format of a line that no other format has; `None` if it may be output of the program.
    pub fn of(line: &str) -> Option<Self> {
        if json::is_line(line) {
            return Some(Self::Json);
        }
        csv::separator(line).map(Self::Csv).or_else(|| text::is_line(line).then_some(Self::Text))
    }

    fn format(self) -> Format {
        match self {
            Self::Text => Format::Stat,
            Self::Csv(_) => Format::StatCsv,
            Self::Json => Format::StatJson,
        }
    }

    fn line(self, line: &str) -> Line {
        match self {
            Self::Text => text::line(line),
            Self::Csv(separator) => csv::line(line, separator),
            Self::Json => json::line(line),
        }
    }
}

const ROW: &str = "a count and its event, as perf stat prints them (metrics without counts, --metric-only, do not tell)";

/// Reads a file from its first line in `dialect` on.
pub(super) fn read<R: BufRead>(
    mut dialect: Dialect,
    first: String,
    mut lines: Lines<R>,
) -> Result<Reading, FromError> {
    let mut counters = Counters::default();
    // Programs' output is seldom CSV or JSON of perf's shape, but may be a number and a word.
    let mut in_report = dialect != Dialect::Text;
    // A line outside of reports that cannot be read. If a report follows, the line was the program's.
    let mut doubtful = None;
    let mut next = Some(first);
    while let Some(line) = next {
        // A count outside of reports may have been the program's.
        if dialect == Dialect::Text
            && counters.is_loose()
            && let Some(other) = Dialect::of(&line).filter(|other| *other != Dialect::Text)
        {
            (dialect, in_report, doubtful) = (other, true, None);
            counters = Counters::default();
        }
        if line.starts_with("# started on") && !counters.is_empty() {
            return Err(lines.several(lines.number()));
        }
        match dialect.line(&line) {
            Line::Row(row) => counters.add(row, in_report, &lines)?,
            Line::Begin if counters.has_report() => return Err(lines.several(lines.number())),
            Line::Begin => {
                (in_report, doubtful) = (true, None);
                counters.begin();
            }
            Line::End => in_report = false,
            Line::Other => {}
            Line::Broken if in_report || (counters.is_of_intervals() && is_of_interval(&line)) => {
                return Err(lines.bad(&line, ROW));
            }
            Line::Broken if is_about_tlb(&line) && doubtful.is_none() => {
                doubtful = Some(lines.bad(&line, ROW))
            }
            Line::Broken => {}
        }
        next = lines.next()?;
    }
    match doubtful {
        Some(error) if counters.is_loose() => Err(error),
        _ => Ok(Reading { format: dialect.format(), ..counters.finish(&lines)? }),
    }
}

fn is_of_interval(line: &str) -> bool {
    line.split_whitespace().next().is_some_and(is_time)
}

/// Whether the line begins as a count does and has an event that an estimate uses.
fn is_about_tlb(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with(|c: char| c.is_ascii_digit() || c == '<')
        && line.split_whitespace().any(is_known)
}

/// Whether an estimate uses the event.
fn is_known(event: &str) -> bool {
    let count = Count { event: event.to_string(), ..Count::default() };
    !event.is_empty() && (count.is_cycles() || events::meaning_of(&count.name(), None).is_some())
}

/// Splits the name of a part of the machine from the start of `text`: `CPU3`, `S0-D0-C1`, `N0`, `S0-D0-L3-ID0`.
fn place(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(text.len());
    let (place, rest) = text.split_at(end);
    let is_part = |part: &str| {
        let letters = part.trim_end_matches(|c: char| c.is_ascii_digit());
        let known = ["CPU", "S", "D", "C", "N", "CLS", "L", "ID"].contains(&letters);
        known && letters.len() < part.len()
    };
    place.split('-').all(is_part).then_some((place, rest))
}

/// Whether perf names CPUs alone, without the number of CPUs that a part has.
fn is_cpu(place: &str) -> bool {
    place.starts_with("CPU")
}

/// Whether this is the time of an interval: seconds with nine decimals, in every locale with a point.
fn is_time(text: &str) -> bool {
    let split = text.trim().split_once('.');
    split.is_some_and(|(seconds, decimals)| {
        number::is_digits(seconds) && decimals.len() == 9 && number::is_digits(decimals)
    })
}

/// Parses a share of time in percent, as `35.70` or `35,70`.
fn percent(text: &str) -> Option<f64> {
    let percent = number::decimal(text.trim().trim_end_matches('%'))?;
    (percent <= 100.0).then_some((percent * 100.0).round() / 1e4)
}
