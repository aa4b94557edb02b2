//! Whose misses they are: samples of an event by the mapping that the data lies in and by the
//! function that touched it. Made by the readers of samples, shown by `cli`.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// The samples of one event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attribution {
    /// The event as it was recorded.
    pub event: String,
    /// How many samples.
    pub samples: u64,
    /// How many of them say which address was touched.
    pub with_address: u64,
    /// By mapping of the data, largest first: a file's path, `[heap]`, `[stack]`, `//anon`, or
    /// `unknown`. Empty if no sample has an address.
    pub mappings: Vec<Share>,
    /// By function, or file where functions are not named, largest first.
    pub symbols: Vec<Share>,
}

/// One mapping's or function's part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Which.
    pub name: String,
    /// Events that its samples stand for.
    pub events: f64,
    /// Of the whole.
    pub share: f64,
}

/// A name that could not be found.
pub(crate) const UNKNOWN: &str = "unknown";

/// No table is longer; the rest goes under one name.
const MAX_NAMES: usize = 1 << 16;
const REST: &str = "(others)";

/// Gathers samples of one event.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    samples: u64,
    with_address: u64,
    events: f64,
    mappings: HashMap<String, f64>,
    symbols: HashMap<String, f64>,
}

impl Tally {
    /// A sample that stands for `weight` events; `mapping` where it has an address.
    pub fn add(&mut self, weight: f64, mapping: Option<&str>, symbol: &str) {
        self.samples += 1;
        self.events += weight;
        if let Some(mapping) = mapping {
            self.with_address += 1;
            put(&mut self.mappings, mapping, weight);
        }
        put(&mut self.symbols, symbol, weight);
    }

    /// How many events the samples stand for.
    pub fn events(&self) -> f64 {
        self.events
    }

    /// How many samples there are.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The finished tables.
    pub fn finish(self, event: &str) -> Attribution {
        Attribution {
            event: event.to_string(),
            samples: self.samples,
            with_address: self.with_address,
            mappings: shares(self.mappings),
            symbols: shares(self.symbols),
        }
    }
}

fn put(table: &mut HashMap<String, f64>, name: &str, weight: f64) {
    if let Some(sum) = table.get_mut(name) {
        *sum += weight;
        return;
    }
    let name = if table.len() < MAX_NAMES { name } else { REST };
    *table.entry(name.to_string()).or_default() += weight;
}

fn shares(table: HashMap<String, f64>) -> Vec<Share> {
    let mut rows: Vec<(String, f64)> = table.into_iter().collect();
    // Largest first, and by name where equal, so that every reading gives one order.
    rows.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let all: f64 = rows.iter().map(|(_, events)| events).sum();
    let share = |events: f64| if all > 0.0 { events / all } else { 0.0 };
    rows.into_iter().map(|(name, events)| Share { name, events, share: share(events) }).collect()
}
