//! How fast streams are made: `cargo run --release -p superpage-lab --example streams [-- SPEC...]`.
//! Each is read for about two seconds, after its first phase if it has several.

use std::time::{Duration, Instant};

use superpage_lab::workloads::{Setup, catalog};
use trace::{Block, Event};

fn main() {
    let specs = std::env::args().skip(1).collect::<Vec<_>>();
    let specs = match specs.is_empty() {
        true => catalog().map(|entry| entry.name.to_string()).collect(),
        false => specs,
    };
    println!("{:<40} {:>12} {:>14}", "stream", "M records/s", "M accesses/s");
    for spec in specs {
        match measure(&spec) {
            Ok((records, accesses)) => println!("{spec:<40} {records:>12.0} {accesses:>14.0}"),
            Err(error) => println!("{spec:<40} {error}"),
        }
    }
}

fn measure(spec: &str) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let (description, mut stream) = spec.parse::<Setup>()?.build()?;
    let mut block = Block::default();
    let last = description.phases.last().copied().unwrap_or_default();
    let begins = |block: &Block| {
        block.events.iter().any(|(_, event)| matches!(event, Event::Phase(name) if name == last))
    };
    while stream.next(&mut block)? && !begins(&block) {}
    let (mut records, mut accesses, start) = (0, 0, Instant::now());
    while start.elapsed() < Duration::from_secs(2) && stream.next(&mut block)? {
        records += block.accesses.len() as u64;
        accesses += block.total();
    }
    let rate = |count: u64| count as f64 / start.elapsed().as_secs_f64() / 1e6;
    Ok((rate(records), rate(accesses)))
}
