//! `perf stat -j`: one flat object per line, since perf 6.0. perf writes it with printf: numbers have the locale's
//! decimal comma, may be `nan`, and some versions forget a comma between members, so that it is not always JSON.

use super::super::number;
use super::{Line, Row, percent};

/// Members that name a part of the machine.
const PLACES: [&str; 8] = ["cpu", "core", "cluster", "cache", "die", "socket", "node", "thread"];

pub(super) fn is_line(line: &str) -> bool {
    line.trim_start().starts_with('{') && line.contains("\"counter-value\"")
}

pub(super) fn line(line: &str) -> Line {
    let text = line.trim();
    if !is_line(text) {
        return Line::Other;
    }
    let Some(members) = members(text) else { return Line::Broken };
    let member = |name: &str| members.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
    let (Some(event), Some(printed)) = (member("event"), member("counter-value")) else {
        return Line::Broken;
    };
    let value = number::decimal(printed);
    if value.is_none() && !number::is_absent(printed) {
        return Line::Broken;
    }
    let cpu = |name: &str, value: &str| match name {
        "cpu" => format!("CPU{value}"),
        _ => value.to_string(),
    };
    let place: Vec<String> =
        PLACES.into_iter().filter_map(|name| Some(cpu(name, member(name)?))).collect();
    Line::Row(Row {
        event: event.to_string(),
        value,
        counted: member("pcnt-running").and_then(percent),
        interval: member("interval").unwrap_or_default().to_string(),
        place: place.join(" "),
        cgroup: member("cgroup").unwrap_or_default().to_string(),
    })
}

/// The names and values of an object without nested values. perf escapes nothing.
fn members(text: &str) -> Option<Vec<(&str, &str)>> {
    let mut rest = text.strip_prefix('{')?;
    let mut members = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        if let Some(after) = rest.strip_prefix('}') {
            // More objects or the comma of an array may follow.
            return after.trim_matches([' ', ',', ']']).is_empty().then_some(members);
        }
        let (key, after) = rest.strip_prefix('"')?.split_once('"')?;
        let after = after.trim_start().strip_prefix(':')?.trim_start();
        let (value, after) = match after.strip_prefix('"') {
            Some(string) => string.split_once('"')?,
            // A decimal comma is followed by a digit, a member's by a space or a quote.
            None => {
                let mut commas = after.match_indices([',', '}']);
                let is_end = |at: usize| !after[at + 1..].starts_with(|c: char| c.is_ascii_digit());
                let end = commas.find(|(at, mark)| *mark == "}" || is_end(*at))?.0;
                (after[..end].trim(), &after[end..])
            }
        };
        members.push((key, value));
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_printf_writes_is_read() {
        let german = r#"{"counter-value" : "0,465034", "unit" : "msec", "event" : "task-clock", "event-runtime" : 465034, "pcnt-running" : 66,67, "metric-value" : nan, "metric-unit" : "CPUs utilized"}"#;
        let row = Row {
            event: "task-clock".into(),
            value: Some(0.465034),
            counted: Some(0.6667),
            ..Row::default()
        };
        assert_eq!(line(german), Line::Row(row));
        // perf 6.1 with --percore: no comma after the core.
        let core = r#"{"core" : "S0-D0-C1""counter-value" : "7.000000", "event" : "cycles"},"#;
        let Line::Row(row) = line(core) else { panic!() };
        assert_eq!((row.place.as_str(), row.value), ("S0-D0-C1", Some(7.0)));
        assert_eq!(
            line(r#"{"metric-value" : "0.8", "metric-unit" : "insn per cycle"}"#),
            Line::Other
        );
        for broken in [&german[..90], r#"{"counter-value" : "many", "event" : "cycles"}"#] {
            assert_eq!(line(broken), Line::Broken, "{broken}");
        }
    }
}
