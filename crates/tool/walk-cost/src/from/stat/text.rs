//! `perf stat` for people: `[time] [part [cpus]] count [unit] event [cgroup] [# metric] [( +- percent )] [(percent)]`.
//! Widths are not relied on, because mails and pages change them.

use super::super::number::{self, grouped};
use super::{Line, Row, is_cpu, is_known, is_time, percent, place};

/// Units that perf prints; the events of an estimate have none.
const UNITS: [&str; 14] = [
    "msec", "ns", "Joules", "Watts", "Bytes", "bytes", "KiB", "MiB", "GiB", "B", "C", "%", "/sec",
    "Unknown",
];

/// Whether the line is of perf: a head, or an event that is known.
pub(super) fn is_line(line: &str) -> bool {
    is_head(line) || is_head_of_intervals(line) || row(line).is_some_and(|row| is_known(&row.event))
}

fn is_head(line: &str) -> bool {
    line.trim_start().starts_with("Performance counter stats for ")
}

fn is_head_of_intervals(line: &str) -> bool {
    let mut words = line.trim_start_matches(['#', ' ']).split_whitespace();
    line.starts_with('#') && words.next() == Some("time")
}

pub(super) fn line(line: &str) -> Line {
    let text = line.trim();
    if is_head(text) {
        return Line::Begin;
    }
    // Measurements of each run stand before the end (--table).
    if text.contains("seconds time elapsed") || text.contains("Table of individual measurements") {
        return Line::End;
    }
    let is_usage = text.ends_with(" seconds user") || text.ends_with(" seconds sys");
    if text.is_empty() || text.starts_with('#') || is_usage {
        return Line::Other;
    }
    if let Some(row) = row(text) {
        return Line::Row(row);
    }
    // A metric has the place of its event, but no count.
    let (head, metric) = text.split_once('#').unwrap_or((text, ""));
    let head = after_place(after_time(head).1).1;
    let is_metric =
        !metric.is_empty() && !head.starts_with(|c: char| c.is_ascii_digit() || c == '<');
    if is_metric { Line::Other } else { Line::Broken }
}

fn row(line: &str) -> Option<Row> {
    let (interval, rest) = after_time(line.trim());
    let mut row = Row { interval: interval.to_string(), ..Row::default() };
    let (mut name, mut rest) = after_place(rest);
    if !name.is_empty() && !is_cpu(name) {
        rest = after_cpus(rest)?;
    }
    if name.is_empty() && count(rest).is_none() {
        // `comm-pid` of --per-thread; the name of a thread may have spaces.
        let mut ends = rest.match_indices(' ').map(|(end, _)| rest.split_at(end));
        (name, rest) = ends.find(|(name, rest)| {
            let pid = name.rsplit_once('-').map(|(_, pid)| pid);
            pid.is_some_and(number::is_digits) && count(rest.trim_start()).is_some()
        })?;
    }
    row.place = name.to_string();
    let (value, after) = count(rest.trim_start())?;
    row.value = value;
    let (shown, share) = without_shares(after.trim_start());
    row.counted = share;
    let shown = shown.split_once(" #").map_or(shown, |(event, _)| event);
    let mut words = shown.split_whitespace().peekable();
    let first = words.next()?;
    row.event = match words.peek() {
        Some(_) if UNITS.contains(&first) => words.next()?.to_string(),
        _ => first.to_string(),
    };
    if !row.event.starts_with(|c: char| c.is_ascii_alphabetic()) || row.event.ends_with(':') {
        return None;
    }
    // perf before 4.19 has the unit of clocks behind the event; perf names the kind of cores of a merged event there.
    let rest: Vec<&str> = words.filter(|word| *word != "(msec)").collect();
    match rest.as_slice() {
        [] => {}
        [kind] if kind.starts_with("[cpu_") => {
            row.event = format!("{}/{}/", kind.trim_matches(['[', ']']), row.event);
        }
        [cgroup] => row.cgroup = cgroup.to_string(),
        _ => return None,
    }
    Some(row)
}

/// Splits the time of an interval from the start of a line.
fn after_time(line: &str) -> (&str, &str) {
    let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    if is_time(first) { (first, rest.trim_start()) } else { ("", line) }
}

fn after_place(line: &str) -> (&str, &str) {
    let found = place(line).filter(|(_, rest)| rest.starts_with(char::is_whitespace));
    found.map_or(("", line), |(name, rest)| (name, rest.trim_start()))
}

/// Skips the number of CPUs before the count, which the lines of --percore lack. `2 422` may be one count in a locale with
/// spaces: perf leaves two spaces before a count, and after it. If a mail has made all spaces single, the line is not
/// readable.
fn after_cpus(line: &str) -> Option<&str> {
    let end = line.find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
    let (cpus, rest) = line.split_at(end);
    let after = rest.trim_start();
    if cpus.is_empty() || count(after).is_none() {
        return Some(line);
    }
    let (whole, behind) = grouped(line)?;
    if rest.len() - after.len() > 1 || whole.to_string() == cpus {
        return Some(after);
    }
    behind.starts_with("  ").then_some(line)
}

/// Splits the count from the start of a line; the count may be absent.
fn count(line: &str) -> Option<(Option<f64>, &str)> {
    let absent = number::ABSENT.iter().find_map(|absent| line.strip_prefix(absent));
    absent
        .map(|rest| (None, rest))
        .or_else(|| grouped(line).map(|(value, rest)| (Some(value), rest)))
}

/// Splits the deviation of repeats and the share of time from the end of a line: `( +-  0.25% )  (35.62%)`, `[35.62%]`,
/// `(scaled from 35.62%)`.
fn without_shares(line: &str) -> (&str, Option<f64>) {
    let (mut line, mut share) = (line.trim_end(), None);
    while let Some(inside) = line.strip_suffix([')', ']']) {
        let Some((before, inside)) = inside.rsplit_once(['(', '[']) else { break };
        let Some(number) = inside.trim().strip_suffix('%') else { break };
        if !number.contains("+-") {
            let number = number.trim().trim_start_matches("scaled from ");
            let Some(found) = percent(number) else { break };
            share = Some(found);
        }
        line = before.trim_end();
    }
    (line, share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arrangement_of_columns() {
        for (text, event, value, counted, at) in [
            (
                "  8,143,619,771      cycles    #    3.043 GHz    ( +-  0.25% )  (35.62%)",
                "cycles",
                8_143_619_771.0,
                Some(0.3562),
                "",
            ),
            (
                "  8143619771 cycles  #  3.043 GHz  [35.62%]",
                "cycles",
                8_143_619_771.0,
                Some(0.3562),
                "",
            ),
            (
                "  8143619771  cycles  #  3043.0 M/sec  (scaled from 66.67%)",
                "cycles",
                8_143_619_771.0,
                Some(0.6667),
                "",
            ),
            (
                "     30 426 868 109      cycles:u        (66,67%)",
                "cycles:u",
                30_426_868_109.0,
                Some(0.6667),
                "",
            ),
            (
                "   1.006223197  CPU0  85,144,535   dTLB-loads",
                "dTLB-loads",
                85_144_535.0,
                None,
                "1.006223197 CPU0",
            ),
            (
                "S0-D0-C1           2       1,466      cycles  #   14.462 K/sec",
                "cycles",
                1466.0,
                None,
                " S0-D0-C1",
            ),
            ("S0        4     <not supported>      cycles", "cycles", f64::NAN, None, " S0"),
            ("S1        2     30 426 868      cycles", "cycles", 30_426_868.0, None, " S1"),
            ("S0-D0-C1  30 426 868      cycles", "cycles", 30_426_868.0, None, " S0-D0-C1"),
            ("S0 2 5422 cycles", "cycles", 5422.0, None, " S0"),
            (
                "   Web Content-4117     1,234      cycles",
                "cycles",
                1234.0,
                None,
                " Web Content-4117",
            ),
            (
                "      116.00 msec task-clock       #    1.028 CPUs utilized",
                "task-clock",
                116.0,
                None,
                "",
            ),
            ("  8008.478891      cpu-clock (msec)", "cpu-clock", 8008.478891, None, ""),
            ("  12   cycles [cpu_core]", "cpu_core/cycles/", 12.0, None, ""),
            ("  12   cycles   /user.slice", "cycles", 12.0, None, ""),
        ] {
            let Line::Row(row) = line(text) else { panic!("{text}: {:?}", line(text)) };
            let place = format!("{} {}", row.interval, row.place);
            let found = (
                row.event.as_str(),
                row.value.unwrap_or(f64::NAN).to_bits(),
                row.counted,
                place.trim_end(),
            );
            assert_eq!(found, (event, value.to_bits(), counted, at), "{text}");
        }
        // 2 CPUs with 422 events, or 2422 events per core?
        assert_eq!(line("S0 2 422 cycles"), Line::Broken);
        for other in [
            "",
            "#  time  counts unit events",
            "CPU0    #  0.89 stalled cycles per insn",
            "  TopdownL1 (cpu_core)  #  12.3 %  tma",
        ] {
            assert_eq!(line(other), Line::Other, "{other}");
        }
        for broken in
            ["8,143,61x,771   cycles", "insn per cycle", "8,143  cycles  a b", "12,34,5 cycles"]
        {
            assert_eq!(line(broken), Line::Broken, "{broken}");
        }
    }
}
