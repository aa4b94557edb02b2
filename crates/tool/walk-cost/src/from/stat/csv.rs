//! `perf stat -x SEPARATOR`: `[time,][part,[cpus,]]count,unit,event[,cgroup][,+- percent],time,percent,metric…`. perf
//! before 4.2 ends a line after the event, perf before 3.15 has no unit.

use super::super::number;
use super::{Line, Row, is_cpu, is_known, is_time, percent, place};

/// Characters that separate, in the order in which they are tried.
const SEPARATORS: [char; 12] = [';', '|', '\t', ',', '^', '~', '@', '!', '&', '#', ':', ' '];

/// The separator of a line that perf wrote; `None` if the line is not CSV.
pub(super) fn separator(line: &str) -> Option<char> {
    SEPARATORS.into_iter().find(|separator| {
        // The event's running time must follow, because other programs write numbers with commas too.
        let row = line.contains(*separator).then(|| row(line, *separator)).flatten();
        row.is_some_and(|row| row.counted.is_some() || (*separator != ' ' && is_known(&row.event)))
    })
}

pub(super) fn line(line: &str, separator: char) -> Line {
    match row(line, separator) {
        // Words of a metric that spaces separate look like an event.
        Some(row) if separator != ' ' || row.counted.is_some() => Line::Row(row),
        Some(_) => Line::Other,
        // Metrics follow the separators of an event's columns.
        None if line.trim_start().starts_with('#') || is_metric(line, separator) => Line::Other,
        None if line.split(separator).any(is_known) => Line::Broken,
        None => Line::Other,
    }
}

fn is_metric(line: &str, separator: char) -> bool {
    line.contains(&String::from(separator).repeat(3)) && !line.split(separator).any(is_known)
}

fn row(line: &str, separator: char) -> Option<Row> {
    // perf indents times.
    let line = line.trim_start_matches(' ');
    // Most lines of other programs end here.
    let first = line.split(separator).next()?.trim();
    let is_count = first.starts_with(|c: char| c.is_ascii_digit() || c == '<');
    if !is_count && first != "summary" && !first.ends_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let mut fields = fields(line.trim_end_matches(' '), separator).into_iter().peekable();
    let mut row = Row::default();
    if fields.peek().is_some_and(|field| is_time(field)) {
        row.interval = fields.next()?.trim().to_string();
    } else if fields.peek().is_some_and(|field| field.trim() == "summary") {
        fields.next();
    }
    let fields: Vec<String> = fields.collect();
    // A part of the machine is followed by the number of its CPUs, unless the event was counted per core.
    let at = |at: usize| fields.get(at).map_or("", |field| field.trim());
    let is_value = |text: &str| number::is_absent(text) || number::decimal(text).is_some();
    let value_at = match place(at(0)).filter(|(_, rest)| rest.is_empty()) {
        Some((name, _)) if is_cpu(name) || !is_value(at(2)) => 1,
        Some(_) => 2,
        None if is_value(at(0)) => 0,
        // `comm-pid` of --per-thread.
        None if at(0).rsplit_once('-').is_some_and(|(_, pid)| pid.parse::<u32>().is_ok()) => 1,
        None => return None,
    };
    if value_at > 0 {
        row.place = at(0).to_string();
    }
    let value = at(value_at);
    row.value = number::decimal(value);
    if row.value.is_none() && !number::is_absent(value) {
        return None;
    }
    // perf before 3.15 has the event where the unit is now.
    let has_unit = !is_known(at(value_at + 1));
    row.event = at(value_at + 1 + usize::from(has_unit)).to_string();
    let is_named = row.event.starts_with(|c: char| c.is_ascii_alphabetic());
    if !is_named || is_value(at(value_at + 1)) {
        return None;
    }
    let rest = fields.get(value_at + 2 + usize::from(has_unit)..).unwrap_or_default();
    let mut rest: Vec<&str> = rest.iter().map(|field| field.trim()).collect();
    if rest
        .first()
        .is_some_and(|field| !is_value(field) && !field.ends_with('%') && !field.is_empty())
    {
        row.cgroup = rest.remove(0).to_string();
    }
    // `+-` of repeats; in a locale with decimal commas, two fields.
    if rest.first().is_some_and(|field| field.ends_with('%')) {
        rest.remove(0);
    } else if rest.get(1).is_some_and(|field| field.ends_with('%')) {
        rest.drain(..2);
    }
    let is_time = rest.first().is_some_and(|time| time.parse::<u64>().is_ok());
    let share = rest.get(1).filter(|_| is_time).and_then(|share| {
        let decimals = rest.get(2).filter(|decimals| !share.contains('.') && decimals.len() == 2);
        percent(&decimals.map_or(share.to_string(), |decimals| format!("{share}.{decimals}")))
    });
    row.counted = share;
    Some(row)
}

/// Splits a line at the separator, but not within the slashes of `pmu/term,term/`, nor at the space of `<not counted>`.
fn fields(line: &str, separator: char) -> Vec<String> {
    let mut fields: Vec<String> = Vec::new();
    let mut open_until = None;
    for field in line.split(separator) {
        match (fields.last_mut(), open_until) {
            (Some(last), Some(end)) => {
                last.push(separator);
                last.push_str(field);
                open_until = Some(end).filter(|end| !field.contains(*end));
            }
            _ => {
                let is_term = field.matches('/').count() == 1
                    && !field.starts_with('/')
                    && field.contains('=');
                open_until = (field == "<not").then_some('>').or(is_term.then_some('/'));
                fields.push(field.to_string());
            }
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (String, Option<f64>, Option<f64>, String, String, String) {
        let separator = separator(text).unwrap_or_else(|| panic!("no separator: {text}"));
        let Line::Row(row) = line(text, separator) else { panic!("{text}") };
        (row.event, row.value, row.counted, row.interval, row.place, row.cgroup)
    }

    #[test]
    fn every_arrangement_of_columns() {
        let both = Some(0.357);
        for (text, counted, interval, place, cgroup) in [
            ("5,,cycles,5456700000,35.70,3.043,GHz", both, "", "", ""),
            ("5||cycles|5456700000|35.70|3.043|GHz", both, "", "", ""),
            ("5;;cycles;5456700000;35,70;3,043;GHz", both, "", "", ""),
            ("5\t\tcycles\t5456700000\t35.70\t\t", both, "", "", ""),
            ("5  cycles 5456700000 35.70 3.043 GHz", both, "", "", ""),
            ("5,,cycles,5456700000,35,70,3,043,GHz", both, "", "", ""),
            ("5,,cycles,0.25%,5456700000,35.70,3.043,GHz", both, "", "", ""),
            ("5,,cycles,0,25%,5456700000,35,70,3,043,GHz", both, "", "", ""),
            ("     1.006223197,5,,cycles,5456700000,35.70,,", both, "1.006223197", "", ""),
            ("1.006223197,CPU1,5,,cycles,5456700000,35.70,,", both, "1.006223197", "CPU1", ""),
            ("S0-D0-C1,2,5,,cycles,5456700000,35.70,,", both, "", "S0-D0-C1", ""),
            ("S0-C1,2,5,,cycles,5456700000,35.70", both, "", "S0-C1", ""),
            ("S0-D0-C1,5,,cycles,5456700000,35.70,,", both, "", "S0-D0-C1", ""),
            ("S0-D0-L3-ID0,8,5,,cycles,5456700000,35.70,,", both, "", "S0-D0-L3-ID0", ""),
            ("N1,8,5,,cycles,5456700000,35.70,,", both, "", "N1", ""),
            ("my app-417,5,,cycles,5456700000,35.70,,", both, "", "my app-417", ""),
            ("         summary,5,,cycles,5456700000,35.70,,", both, "", "", ""),
            ("5,,cycles,/a/b,5456700000,35.70,,", both, "", "", "/a/b"),
            ("5,,cycles,web,0.10%,5456700000,35.70,,", both, "", "", "web"),
            ("     1.006223197 CPU1 5  cycles 5456700000 35.70  ", both, "1.006223197", "CPU1", ""),
            ("5,,cycles", None, "", "", ""),
            ("5,cycles", None, "", "", ""),
        ] {
            let expected = (
                "cycles".to_string(),
                Some(5.0),
                counted,
                interval.into(),
                place.into(),
                cgroup.into(),
            );
            assert_eq!(read(text), expected, "{text}");
        }
        let raw = read("5,,cpu/event=0x8,umask=0x10,name=WALKS/u,100,100.00,,");
        assert_eq!((raw.0.as_str(), raw.1), ("cpu/event=0x8,umask=0x10,name=WALKS/u", Some(5.0)));
        for absent in ["CPU1,<not counted>,,cycles,0,0.00,,", "CPU1 <not counted>  cycles 0 0.00  "]
        {
            let absent = read(absent);
            assert_eq!((absent.0.as_str(), absent.1, absent.2), ("cycles", None, Some(0.0)));
        }
        assert_eq!(line("      0.89 stalled cycles per insn", ' '), Line::Other);
        assert_eq!(line("CPU0,,,,,,0.89,stalled cycles per insn", ','), Line::Other);
        assert_eq!(line("5x,,cycles,5456700000,35.70,,", ','), Line::Broken);
    }

    #[test]
    fn other_files_of_numbers_are_not_of_perf() {
        for text in [
            "1,2,3",
            "a,b",
            "12:30:00",
            "5 6 7",
            "10.0,foo,bar",
            "",
            ",,,",
            "cycles,5",
            "1000 cycles a second",
        ] {
            assert_eq!(separator(text), None, "{text}");
        }
    }
}
