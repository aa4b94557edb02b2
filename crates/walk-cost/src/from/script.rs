//! What `perf script` prints: a line a sample, or a line and its call chain. Columns depend on
//! options, so they are known by their shape: the time ends with a colon, the event after it too,
//! then come addresses, each with its symbol and file.

use std::collections::HashMap;
use std::io::BufRead;

use super::lines::Lines;
use super::spaces::Spaces;
use super::{FromError, Reading, number};
use crate::Count;
use crate::attribution::{Tally, UNKNOWN};

/// A file of samples has a handful of events.
const MAX_EVENTS: usize = 4096;

pub(super) fn read<R: BufRead>(mut lines: Lines<R>) -> Result<Reading, FromError> {
    let mut samples = Samples::default();
    let mut waiting: Option<Sample> = None;
    while let Some(line) = lines.next()? {
        if let Some(map) = parse_map(&line) {
            samples.spaces.map(map.pid, map.start, map.length, map.name);
            continue;
        }
        if let Some(sample) = parse(&line) {
            if let Some(before) = waiting.replace(sample) {
                samples.add(before);
            }
            continue;
        }
        // A call chain's first line is where the sample was taken.
        if let (Some(sample), Some(place)) = (&mut waiting, places(&line).into_iter().next())
            && line.starts_with(char::is_whitespace)
            && !sample.has_chain
        {
            sample.has_chain = true;
            sample.places.push(place);
        }
    }
    if let Some(last) = waiting {
        samples.add(last);
    }
    Ok(samples.finish(&lines.source()))
}

/// Whether the line is a sample.
pub(super) fn is_line(line: &str) -> bool {
    parse(line).is_some() || parse_map(line).is_some()
}

/// One sample.
#[derive(Debug, PartialEq)]
struct Sample {
    event: String,
    pid: Option<i32>,
    period: Option<f64>,
    /// The data's address, if there are two; the instruction's is the last.
    places: Vec<Place>,
    has_chain: bool,
}

/// An address with what perf says is there.
#[derive(Clone, Debug, PartialEq)]
struct Place {
    address: u64,
    symbol: Option<String>,
    file: Option<String>,
}

#[derive(Default)]
struct Samples {
    spaces: Spaces,
    events: HashMap<String, Tally>,
    order: Vec<String>,
    without_period: bool,
}

impl Samples {
    fn add(&mut self, sample: Sample) {
        if !self.events.contains_key(&sample.event) {
            if self.order.len() == MAX_EVENTS {
                return;
            }
            self.order.push(sample.event.clone());
        }
        let (data, code) = match sample.places.as_slice() {
            [data, .., code] => (Some(data), Some(code)),
            [only] => (None, Some(only)),
            [] => (None, None),
        };
        let mapping = data.filter(|data| data.address != 0).map(|data| {
            let told = data.file.as_deref().filter(|file| *file != "[unknown]");
            let recorded = sample.pid.and_then(|pid| self.spaces.name(pid, data.address));
            told.or(recorded).unwrap_or(UNKNOWN).to_string()
        });
        let symbol = code.and_then(|code| {
            let named = code.symbol.as_deref().filter(|name| *name != "[unknown]");
            named.or(code.file.as_deref())
        });
        self.without_period |= sample.period.is_none();
        let tally = self.events.entry(sample.event).or_default();
        tally.add(sample.period.unwrap_or(1.0), mapping.as_deref(), symbol.unwrap_or(UNKNOWN));
    }

    fn finish(mut self, source: &str) -> Reading {
        let mut reading = Reading::default();
        for event in self.order {
            let Some(tally) = self.events.remove(&event) else { continue };
            let source = format!("{} samples, {source}", tally.samples());
            let value = (!self.without_period).then(|| tally.events());
            let value = value.filter(|value| value.is_finite());
            reading.counts.push(Count {
                event: event.clone(),
                value,
                counted: None,
                group: 0,
                source,
            });
            reading.attributions.push(tally.finish(&event));
        }
        if self.without_period {
            reading.notes.push(
                "samples without their periods do not say how often an event happened; print them \
                 with -F +period"
                    .to_string(),
            );
        }
        reading
    }
}

/// `comm pid/tid [cpu] time: period event: address symbol (file) ...`
fn parse(line: &str) -> Option<Sample> {
    if line.contains("PERF_RECORD_") {
        return None;
    }
    let time = line.split_whitespace().position(is_time)?;
    // A program's name may hold spaces: what stands before the time is counted from there.
    let mut head = line.split_whitespace().skip(time.saturating_sub(2));
    let (before, last) = (head.next()?, head.next()?);
    let last = if time >= 2 && last.starts_with('[') { before } else { last };
    let pid = last.split('/').next().and_then(|pid| pid.parse().ok());
    let mut rest = after_words(line, time + 1)?;
    let first = rest.split_whitespace().next()?;
    let period = number::plain(first);
    if period.is_some() {
        rest = after_words(rest, 1)?;
    }
    let event = rest.split_whitespace().next()?.strip_suffix(':')?;
    event.starts_with(|c: char| c.is_ascii_alphabetic()).then_some(())?;
    let places = places(after_words(rest, 1).unwrap_or(""));
    Some(Sample { event: event.to_string(), pid, period, places, has_chain: false })
}

/// `1234.567890:`
fn is_time(word: &str) -> bool {
    let inside = word.strip_suffix(':').and_then(|time| time.split_once('.'));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    inside.is_some_and(|(seconds, fraction)| digits(seconds) && digits(fraction))
}

/// What follows the first `count` words.
fn after_words(text: &str, count: usize) -> Option<&str> {
    let mut rest = text.trim_start();
    for _ in 0..count {
        rest = rest[rest.find(char::is_whitespace)?..].trim_start();
    }
    Some(rest)
}

/// `5611a9b48060 [unknown] (//anon)     5611a9b07174 touch+0x1b (/tmp/t)`. At most the data's and
/// the instruction's; a data source (`68100142 |OP LOAD|...`) is passed over.
fn places(text: &str) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    let mut rest = text;
    while places.len() < 2 {
        rest = rest.trim_start();
        let Some(word) = rest.split_whitespace().next() else { break };
        let after = rest[word.len()..].trim_start();
        let address = hex(word).filter(|_| !after.starts_with('|'));
        rest = after;
        let Some(address) = address else { continue };
        // Up to the next address, or to the file in parentheses if one comes before it.
        let open = after.find(" (").or_else(|| after.starts_with('(').then_some(0));
        let (symbol, file, next) = match open {
            Some(open) if !holds_address(&after[..open]) => {
                let inside = after[open..].trim_start().trim_start_matches('(');
                let (file, next) = inside.split_once(')').unwrap_or((inside, ""));
                (after[..open].trim(), Some(file.to_string()), next)
            }
            _ => (after.split_whitespace().next().unwrap_or(""), None, after),
        };
        rest = next;
        let symbol = symbol.split("+0x").next().unwrap_or(symbol).trim();
        let symbol = (!symbol.is_empty() && hex(symbol).is_none()).then(|| symbol.to_string());
        places.push(Place { address, symbol, file });
    }
    places
}

fn holds_address(text: &str) -> bool {
    text.split_whitespace().any(|word| word.len() >= 8 && hex(word).is_some())
}

fn hex(word: &str) -> Option<u64> {
    let word = word.strip_prefix("0x").unwrap_or(word);
    let hex = !word.is_empty() && word.bytes().all(|b| b.is_ascii_hexdigit());
    hex.then(|| u64::from_str_radix(word, 16).ok()).flatten()
}

/// A mapping's record.
struct Map<'a> {
    pid: i32,
    start: u64,
    length: u64,
    name: &'a str,
}

/// `... PERF_RECORD_MMAP2 12009/12009: [0x7f00(0x21000) @ 0 00:00 0 0]: rw-p [stack]`
fn parse_map(line: &str) -> Option<Map<'_>> {
    let (_, rest) = line.split_once("PERF_RECORD_MMAP")?;
    let rest = rest.trim_start_matches('2').trim_start();
    let (pid, rest) = rest.split_once('/')?;
    let (range, rest) = rest.split_once('[')?.1.split_once(']')?;
    let (start, range) = range.split_once('(')?;
    let (length, _) = range.split_once(')')?;
    let name = rest.trim_start_matches(':').trim_start();
    // Protection, or `x`/`r` in the older record.
    let name = name.split_once(' ').map_or(name, |(_, name)| name);
    Some(Map { pid: pid.trim().parse().ok()?, start: hex(start)?, length: hex(length)?, name })
}
