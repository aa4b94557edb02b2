//! What `perf stat` prints for people. Lines that hold no count are passed over: the program's
//! own output may stand among them.

use std::io::BufRead;

use super::lines::Lines;
use super::sums::{Line, Sums};
use super::{FromError, Reading, number};

/// Units between value and event (tools/perf/util/stat-display.c and the software clocks).
const UNITS: [&str; 8] = ["msec", "nsec", "usec", "sec", "Joules", "MiB", "Bytes", "C"];

pub(super) fn read<R: BufRead>(mut lines: Lines<R>) -> Result<Reading, FromError> {
    let mut sums = Sums::default();
    let mut runs = 1u64;
    while let Some(line) = lines.next()? {
        if line.contains("Performance counter stats for") {
            // A second report in one file is a second run; its part keeps it apart.
            runs += 1;
        } else if let Some(parsed) = parse(&line) {
            let part = format!("{runs} {}", parsed.part);
            sums.add(Line { source: lines.source(), part, ..parsed });
        }
    }
    let (counts, mut notes) = sums.counts();
    if runs > 2 {
        notes.push(format!("{} reports of perf stat were added up", runs - 1));
    }
    Ok(Reading { counts, notes, ..Reading::default() })
}

/// Whether the line is one about an event.
pub(super) fn is_line(line: &str) -> bool {
    parse(line).is_some()
}

fn parse(line: &str) -> Option<Line> {
    // What follows `#` is a metric; `( +- 1.2% )` and `(83.33%)` stand after it or at the end.
    let counted = counted(line);
    let head = line.split('#').next().unwrap_or(line).trim();
    let (part, value, rest) = value(head)?;
    let mut words = rest.split_whitespace();
    let mut event = words.next()?;
    if UNITS.contains(&event) {
        event = words.next()?;
    }
    let is_name =
        event.starts_with(|c: char| c.is_ascii_alphabetic()) && !event.ends_with([',', '.', ';']);
    // `0.008 seconds time elapsed`, `0.0 seconds user` are no events; nor is a sentence.
    let rest_is_spread = words.next().is_none_or(|word| word.starts_with('('));
    (is_name && event != "seconds" && rest_is_spread).then(|| Line {
        event: event.to_string(),
        value,
        counted,
        part,
        source: String::new(),
    })
}

/// Leading interval or CPU, the value, and what follows it.
fn value(head: &str) -> Option<(String, Option<f64>, &str)> {
    for absent in ["<not counted>", "<not supported>"] {
        if let Some((part, rest)) = head.split_once(absent) {
            return Some((part.trim().to_string(), None, rest));
        }
    }
    let (first, rest) = head.split_once(char::is_whitespace)?;
    let rest = rest.trim_start();
    let second = rest.split_whitespace().next().unwrap_or("");
    match (number::grouped(first), number::grouped(second)) {
        // `-I`: the time stands before; `-A`: `CPU0`, or `S0 8`.
        (_, Some(value)) => {
            let after = rest[second.len()..].trim_start();
            Some((first.to_string(), Some(value), after))
        }
        (Some(value), None) => Some((String::new(), Some(value), rest)),
        (None, None) => None,
    }
}

/// `(83.33%)` at the end of the line: the share of the time the event was on a counter.
fn counted(line: &str) -> Option<f64> {
    let inside = line.trim_end().strip_suffix("%)")?.rsplit_once('(')?.1;
    Some(number::plain(inside)? / 100.0)
}
