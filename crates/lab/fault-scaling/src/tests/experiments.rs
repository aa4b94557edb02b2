//! Random small experiments for the tests.

use proptest::prelude::*;
use units::ByteSize;

use crate::{Experiment, Patches, Placement, ScrubSettings, Starting, Touches, Zeroing, preset};

/// Patches, one choice per row: all combinations are valid.
const CHOICES: [&[&str]; 5] = [
    &["", "atomic-pte", "split-ptl"],
    &["", "per-vma"],
    &["", "rss-atomic", "rss-split", "rss-on-demand"],
    &["", "prefault=1", "prefault", "superpage=64K"],
    &["", "ticket-lock", "queued-lock", "numa-lock"],
];

/// An experiment on a small machine with few threads and pages. Its nodes may run out of memory.
pub fn any() -> impl Strategy<Value = Experiment> {
    let places = (0..3usize, 0..2usize, 0..4usize, 0..4usize, 0..4usize, proptest::bool::ANY);
    let shape = (1..=3u32, 0..4u32, 20..400u64, 1..4u32);
    let touches = prop_oneof![
        Just(Touches::ALL),
        (1..20u32, 1..40u32).prop_map(|(run, gap)| Touches { run, gap }),
    ];
    let daemon = (0..=2u8, prop_oneof![Just(99), 0..=24u32], proptest::bool::ANY);
    let of = (places, 1..=24u32, 1..=40u64, shape, touches, daemon);
    of.prop_map(|(places, threads, pages, shape, touches, daemon)| {
        let chosen = [places.0, places.1, places.2, places.3, places.4];
        let names: Vec<&str> = CHOICES
            .iter()
            .zip(chosen)
            .map(|(choices, index)| choices[index])
            .chain(places.5.then_some("prezero"))
            .filter(|name| !name.is_empty())
            .collect();
        let names = if names.is_empty() { "baseline".to_string() } else { names.join(",") };
        let patches: Patches = names.parse().expect("patches");
        let (per_node, kind, node_pages, repetitions) = shape;
        let mut machine = preset("altix-128").expect("a machine");
        machine.cpus = if threads == 1 { 1 } else { 24 };
        machine.cpus_per_node = per_node;
        machine.placement = [Placement::Spread, Placement::Packed][kind as usize % 2];
        machine.starting = [Starting::Together, Starting::Pulled][kind as usize / 2];
        // Starting a thread takes as long as some faults, so starts and faults overlap.
        machine.costs.thread = 100_000_000;
        machine.table_entries = 32;
        machine.list_pages = 8;
        // The daemon's smallest block is the smallest one that the engine takes; a CPU zeroes smaller ones.
        (machine.scrub.order, machine.scrub.stop_order) = (2, 2);
        let pages = pages * u64::from(threads) * 4;
        let nodes = u64::from(machine.cpus.div_ceil(per_node));
        // The machine has enough memory in total, but not always on each node.
        let least = pages.div_ceil(nodes) + 64;
        machine.node_memory = ByteSize((least + node_pages) * machine.base_page.0);
        let mut kernel = patches.kernel(&machine);
        let (stop, load, is_engine) = daemon;
        let by = if is_engine { Zeroing::Bte } else { Zeroing::Cpu };
        let settings = ScrubSettings { start: None, stop: Some(stop), load: Some(load), by };
        settings.apply(&mut kernel, &machine).expect("a daemon");
        let size = ByteSize(pages * machine.base_page.0);
        Experiment { machine, kernel, threads, size, repetitions, cache_lines: 1, touches }
    })
}

/// Returns an experiment of the published kind on a built-in machine.
pub fn of(machine: &str, patches: &str, threads: u32, size: ByteSize) -> Experiment {
    let machine = preset(machine).expect("a machine");
    let patches: Patches = patches.parse().expect("patches");
    let kernel = patches.kernel(&machine);
    let touches = Touches::ALL;
    Experiment { machine, kernel, threads, size, repetitions: 1, cache_lines: 1, touches }
}
