//! `perf stat -x SEP`: fields whose order depends on the options (perf-stat(1), "CSV FORMAT").
//! Leading fields name the interval and the part of the machine; the value is the first number
//! whose second neighbour is an event's name.

use std::io::BufRead;

use super::lines::Lines;
use super::sums::{Line, Sums};
use super::{FromError, Reading, number};

/// The separators that people use; a comma goes first.
const SEPARATORS: [char; 5] = [',', ';', '\t', '|', ':'];

pub(super) fn read<R: BufRead>(mut lines: Lines<R>) -> Result<Reading, FromError> {
    let mut sums = Sums::default();
    while let Some(line) = lines.next()? {
        if let Some(parsed) = SEPARATORS.iter().find_map(|separator| parse(&line, *separator)) {
            sums.add(Line { source: lines.source(), ..parsed });
        }
    }
    let (counts, notes) = sums.counts();
    Ok(Reading { counts, notes, ..Reading::default() })
}

/// Whether the line is one about an event.
pub(super) fn is_line(line: &str) -> bool {
    SEPARATORS.iter().any(|separator| parse(line, *separator).is_some())
}

fn parse(line: &str, separator: char) -> Option<Line> {
    if line.trim_start().starts_with('#') {
        return None;
    }
    let fields: Vec<&str> = line.split(separator).collect();
    // Interval, then a part and how many were added up in it: three fields at most.
    let at = (0..fields.len().min(4)).find(|at| is_value(&fields, *at))?;
    let after = &fields[at + 3..];
    // `-r N` puts the variance between.
    let after = match after.first() {
        Some(variance) if variance.ends_with('%') => &after[1..],
        _ => after,
    };
    let counted = after.get(1).and_then(|percent| number::plain(percent));
    Some(Line {
        event: fields[at + 2].trim().to_string(),
        value: number::plain(fields[at]),
        counted: counted.map(|percent| percent / 100.0),
        part: fields[..at].concat(),
        source: String::new(),
    })
}

/// `value`, `unit`, `event`: a number or its absence, no number, and what begins like a name.
fn is_value(fields: &[&str], at: usize) -> bool {
    let [value, unit, event, ..] = &fields[at..] else { return false };
    let counted = number::plain(value).is_some() || number::is_absent(value);
    let named = event.trim().starts_with(|c: char| c.is_ascii_alphabetic());
    counted && named && number::plain(unit).is_none()
}
