//! Sums over the lines of one event in `perf stat` output.

use std::collections::HashMap;

use crate::Count;

/// A line about an event.
pub(super) struct Line {
    /// Event name as printed.
    pub event: String,
    /// Count; `None` for `<not counted>`.
    pub value: Option<f64>,
    /// Share of the time for which the counter ran.
    pub counted: Option<f64>,
    /// The part of the total that the line covers: interval, CPU, socket, kind of core. Parts are
    /// added up.
    pub part: String,
    /// Location of the line.
    pub source: String,
}

/// Sums by event. If an event is printed several times for one part, it was counted in several groups. Each count
/// estimates the same number, so their mean is used. The numbers of events and parts are limited, so that a hostile
/// file cannot exhaust memory.
#[derive(Default)]
pub(super) struct Sums {
    events: Vec<Event>,
    parts: usize,
    overflow: bool,
}

struct Event {
    name: String,
    source: String,
    /// For each part, the sum of the counts and the number of lines.
    parts: HashMap<String, (f64, u32)>,
    /// Sum of the lines' shares of time, and their number.
    counted: (f64, u32),
}

const MAX_EVENTS: usize = 4096;
const MAX_PARTS: usize = 1 << 20;

impl Sums {
    pub fn add(&mut self, mut line: Line) {
        // On hybrid CPUs, the two kinds of cores are parts of one run.
        for kind in ["cpu_core", "cpu_atom"] {
            if let Some(rest) = line.event.strip_prefix(kind).filter(|rest| rest.starts_with('/')) {
                line.event = format!("cpu{rest}");
                line.part.push_str(kind);
                break;
            }
        }
        let known = self.events.iter().position(|event| event.name == line.event);
        if known.is_none() && self.events.len() == MAX_EVENTS || self.parts == MAX_PARTS {
            self.overflow = true;
            return;
        }
        let index = known.unwrap_or_else(|| {
            let (parts, counted) = (HashMap::new(), (0.0, 0));
            self.events.push(Event { name: line.event, source: line.source, parts, counted });
            self.events.len() - 1
        });
        let event = &mut self.events[index];
        let Some(value) = line.value else { return };
        let part = event.parts.entry(line.part).or_insert_with(|| {
            self.parts += 1;
            (0.0, 0)
        });
        *part = (part.0 + value, part.1 + 1);
        if let Some(counted) = line.counted {
            event.counted = (event.counted.0 + counted, event.counted.1 + 1);
        }
    }

    /// Returns the counts in order of first appearance, and notes.
    pub fn counts(self) -> (Vec<Count>, Vec<String>) {
        let counts = self.events.into_iter().map(Event::count).collect();
        let note = "the file has too many events or intervals; the rest was ignored";
        (counts, self.overflow.then(|| note.to_string()).into_iter().collect())
    }
}

impl Event {
    fn count(self) -> Count {
        let source = match self.parts.len() {
            0 | 1 => self.source,
            parts => format!("{} and on, the sum of {parts}", self.source),
        };
        // Sort the means, so that the sum does not depend on the map's order.
        let mut means: Vec<f64> =
            self.parts.values().map(|(sum, lines)| sum / f64::from(*lines)).collect();
        means.sort_by(f64::total_cmp);
        let value = (!means.is_empty()).then(|| means.iter().sum::<f64>());
        let value = value.filter(|value| value.is_finite());
        let counted = (self.counted.1 > 0).then(|| self.counted.0 / f64::from(self.counted.1));
        Count { event: self.name, value, counted, group: 0, source }
    }
}
