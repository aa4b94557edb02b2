//! `misses=9492000 cost=563 cycles=29953650000`: numbers with keys, one or several per line; TOML syntax is accepted.
//! The keys are [`crate::GIVEN_KEYS`].

use std::io::BufRead;

use super::lines::Lines;
use super::number;
use super::reading::{FromError, Reading};
use crate::GIVEN_KEYS;

pub(super) const EXPECTED: &str = "`key = number` with misses, dtlb_misses, itlb_misses, miss_period, cost, \
                        cost_ns, mhz, walk_cycles, walk_period, cycles or cycle_period";

pub(super) fn read<R: BufRead>(first: String, mut lines: Lines<R>) -> Result<Reading, FromError> {
    let mut reading = Reading::default();
    let mut next = Some(first);
    while let Some(line) = next {
        let text = line.split('#').next().unwrap_or("").trim();
        // Ignore TOML table headers.
        let is_pairs = !text.is_empty() && !text.starts_with('[');
        let found = if is_pairs { pairs(text) } else { Some(Vec::new()) };
        for (key, value) in found.ok_or_else(|| lines.bad(text, EXPECTED))? {
            // Users write this file by hand, so an unknown key is a mistake.
            let field = GIVEN_KEYS.iter().find(|(name, _)| *name == key);
            let (_, field) = field.ok_or_else(|| lines.bad(text, EXPECTED))?;
            let old = field(&mut reading.given).replace(value);
            if old.is_some() {
                return Err(lines.bad(text, "each key once"));
            }
        }
        next = lines.next()?;
    }
    Ok(reading)
}

/// Whether the line has this format. The keys may be unknown.
pub(super) fn is_line(line: &str) -> bool {
    let text = line.split('#').next().unwrap_or("").trim();
    let key = text.split('=').next().unwrap_or("").trim();
    let named = !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    named && text.contains('=')
}

/// Whether the line's first key is one of [`GIVEN_KEYS`]; other keys may be output of a measured program.
pub(super) fn is_known(line: &str) -> bool {
    let key = line.split('=').next().unwrap_or("").trim();
    GIVEN_KEYS.iter().any(|(name, _)| *name == key)
}

fn pairs(text: &str) -> Option<Vec<(String, f64)>> {
    // Spaces around `=` do not separate pairs: `a = 1` equals `a=1`.
    let mut rest = text;
    let mut pairs = Vec::new();
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=')?;
        let after = after.trim_start();
        let end = after.find([' ', '\t', ',', ';']).unwrap_or(after.len());
        let (value, after) = after.split_at(end);
        pairs.push((key.trim().to_string(), number::plain(&value.replace('_', ""))?));
        rest = after.trim_start_matches([' ', '\t', ',', ';']);
    }
    Some(pairs)
}
