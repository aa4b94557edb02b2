//! Measures how fast streams are generated (the dev profile is optimised too): `cargo run -p superpage-workload-streams
//! --example streams [-- SPEC...]`. Each stream is read for about two seconds of CPU time (other programs may run),
//! starting at its last phase.

use superpage_workload_streams::{Setup, catalog};
use trace::{Block, Event};

fn main() {
    let specs = std::env::args().skip(1).collect::<Vec<_>>();
    let specs = match specs.is_empty() {
        true => catalog().map(|entry| entry.name.to_string()).collect(),
        false => specs,
    };
    println!("{:<40} {:>10} {:>12} {:>14}", "stream", "superpages", "M records/s", "M accesses/s");
    for spec in specs {
        match measure(&spec) {
            Ok((superpages, records, accesses)) => {
                println!("{spec:<40} {superpages:>10} {records:>12.0} {accesses:>14.0}");
            }
            Err(error) => println!("{spec:<40} {error}"),
        }
    }
}

/// CPU time of this process in nanoseconds.
fn on_cpu() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or_default()
}

fn measure(spec: &str) -> Result<(u64, f64, f64), Box<dyn std::error::Error>> {
    let (description, mut stream) = spec.parse::<Setup>()?.build()?;
    let mut block = Block::default();
    let last = description.phases.last().copied().unwrap_or_default();
    let begins = |block: &Block| {
        block.events.iter().any(|(_, event)| matches!(event, Event::Phase(name) if name == last))
    };
    while stream.next(&mut block)? && !begins(&block) {}
    let (mut records, mut accesses, mut blocks, start) = (0u64, 0u64, 0u64, on_cpu());
    let passed = || on_cpu().saturating_sub(start).max(1);
    while (!blocks.is_multiple_of(64) || passed() < 2_000_000_000) && stream.next(&mut block)? {
        records += block.accesses.len() as u64;
        accesses += block.total();
        blocks += 1;
    }
    let nanoseconds = passed() as f64;
    let rate = |count: u64| count as f64 * 1e3 / nanoseconds;
    Ok((description.superpages, rate(records), rate(accesses)))
}
