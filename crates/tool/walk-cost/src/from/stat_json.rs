//! `perf stat -j`: one JSON object per line (tools/perf/util/stat-display.c). Other lines are output of the program,
//! which writes to the same standard error.

use std::io::BufRead;

use super::lines::Lines;
use super::number;
use super::reading::{FromError, Reading};
use super::sums::{Line, Sums};

/// JSON keys that distinguish parts of a total.
const PARTS: [&str; 8] = ["interval", "cpu", "core", "die", "socket", "node", "thread", "cluster"];

pub(super) fn read<R: BufRead>(mut lines: Lines<R>) -> Result<Reading, FromError> {
    let mut sums = Sums::default();
    while let Some(line) = lines.next()? {
        let text = line.trim_start();
        if !text.starts_with('{') {
            continue;
        }
        let object: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(text).map_err(|_| lines.bad(text, "an object of perf stat -j"))?;
        let word = |key: &str| object.get(key).and_then(|value| value.as_str());
        let number_of = |key: &str| {
            let value = object.get(key)?;
            value.as_f64().or_else(|| number::plain(value.as_str()?))
        };
        // Metrics without an event (`perf stat -M`) have no counter value.
        let (Some(event), Some(printed)) = (word("event"), object.get("counter-value")) else {
            continue;
        };
        let absent = printed.as_str().is_some_and(number::is_absent);
        let value = number_of("counter-value");
        if value.is_none() && !absent {
            return Err(lines.bad(text, "a number in counter-value"));
        }
        let part = PARTS.iter().filter_map(|key| object.get(*key)).map(|value| format!("{value} "));
        sums.add(Line {
            event: event.to_string(),
            value,
            counted: number_of("pcnt-running").map(|percent| percent / 100.0),
            part: part.collect(),
            source: lines.source(),
        });
    }
    let (counts, notes) = sums.counts();
    Ok(Reading { counts, notes, ..Reading::default() })
}
