//! The prezeroing daemon: its settings, its engine, the blocks it leaves. Also the cost of counting resident pages.

use units::ByteSize;

use super::experiments::of;
use crate::memory::Memory;
use crate::prices::Prices;
use crate::{Experiment, FreeBlocks, Row, ScrubSettings, Stepping, ZeroedAhead, Zeroing, preset};

const SECOND: u64 = 1_000_000_000_000;

/// 4 GB on altix-8, which has 5.5 GB: later repetitions reuse freed pages.
fn full(threads: u32, settings: ScrubSettings) -> Experiment {
    let mut experiment = of("altix-8", "prezero", threads, ByteSize::gib(4));
    experiment.repetitions = 3;
    settings.apply(&mut experiment.kernel, &experiment.machine).unwrap();
    experiment
}

fn run(threads: u32, settings: ScrubSettings) -> (Row, ZeroedAhead) {
    let row = full(threads, settings).run(Stepping::Skip).unwrap();
    let ahead = row.zeroed_ahead.clone().unwrap();
    (row, ahead)
}

#[test]
fn the_daemon_rests_at_its_load() {
    let with = |load| ScrubSettings { load: Some(load), ..ScrubSettings::default() };
    let (_, works) = run(2, with(3));
    assert!(works.pages > 0 && works.cpu_seconds > 0.0, "{works:?}");
    // Two threads leave the daemon no CPU. Only pages zeroed before the run are found, on the three nodes that 4 GB
    // need.
    let (_, rests) = run(2, with(2));
    let frames = preset("altix-8").unwrap().node_memory.0 >> 14;
    assert_eq!((rests.pages, rests.cpu_seconds, rests.found_pages), (0, 0.0, 3 * frames));
    // With a load of 0 the daemon never runs, as without the patch.
    let (row, never) = run(2, with(0));
    assert_eq!((never.pages, never.found_pages), (0, 0));
    assert!(never.nodes.iter().all(|node| node.zeroed.iter().all(|count| *count == 0)));
    let mut baseline = of("altix-8", "baseline", 2, ByteSize::gib(4));
    baseline.repetitions = 3;
    let baseline = baseline.run(Stepping::Skip).unwrap();
    assert_eq!((row.wall_seconds, baseline.zeroed_ahead), (baseline.wall_seconds, None));
}

/// Returns the pages that are not zeroed after `freed` pages were freed and the daemons had ample time.
fn left(freed: u64, start: u8, stop: u8) -> u64 {
    let settings = ScrubSettings { start: Some(start), stop: Some(stop), ..Default::default() };
    let experiment = full(1, settings);
    let prices = Prices::new(&experiment);
    let mut memory = Memory::new(&experiment, &prices);
    memory.take(0, freed, 0, &prices);
    memory.give(0, freed, 0);
    memory.quiet(100 * SECOND, true);
    let blocks = &memory.blocks().unwrap()[0].not_zeroed;
    (0..).zip(blocks).map(|(order, count)| count << order).sum()
}

#[test]
fn zeroing_starts_with_a_block_and_goes_on_to_the_smallest() {
    // 300 pages are blocks of 256, 32, 8 and 4 pages.
    assert_eq!(left(300, 9, 0), 300);
    assert_eq!(left(300, 8, 8), 44);
    assert_eq!(left(300, 8, 4), 12);
    assert_eq!(left(300, 8, 3), 4);
    assert_eq!(left(300, 8, 2), 0);
    assert_eq!(left(300, 4, 4), 12);
}

#[test]
fn the_engine_zeroes_without_a_cpu() {
    let by = |by| run(8, ScrubSettings { by, ..ScrubSettings::default() });
    let ((_, cpu), (_, engine)) = (by(Zeroing::Cpu), by(Zeroing::Bte));
    // Every CPU has a thread, so daemons on CPUs zero only while the first thread unmaps.
    assert!(engine.pages > cpu.pages && engine.found_pages > cpu.found_pages);
    assert!(cpu.cpu_seconds > 1.0 && engine.cpu_seconds == 0.0, "{cpu:?} {engine:?}");
    // With one thread zeroing by the CPU is faster: a CPU zeroes 16 KiB in 9.8 us, and the engine takes 32.8 us at its
    // 500 MB/s.
    let alone = |by| run(1, ScrubSettings { by, ..ScrubSettings::default() }).0.wall_seconds;
    assert!(alone(Zeroing::Bte) > alone(Zeroing::Cpu));
    // A CPU zeroes the blocks below 64 KiB, which the engine refuses.
    let small = ScrubSettings { stop: Some(0), by: Zeroing::Bte, ..Default::default() };
    let (_, mixed) = run(8, small);
    assert!(mixed.cpu_seconds < cpu.cpu_seconds / 10.0, "{mixed:?}");
}

#[test]
fn the_engine_leaves_threads_their_cpus() {
    let daemons = |by| {
        let experiment = full(1, ScrubSettings { by, ..ScrubSettings::default() });
        let prices = Prices::new(&experiment);
        let mut memory = Memory::new(&experiment, &prices);
        memory.take(0, 1024, 0, &prices);
        memory.give(0, 1024, 0);
        memory.daemons()[0]
    };
    assert!(daemons(Zeroing::Cpu) && !daemons(Zeroing::Bte));
}

#[test]
fn blocks_are_as_large_as_their_number_allows() {
    let free = FreeBlocks::new(5 + 3 * 1024, 0);
    assert_eq!(free.not_zeroed, [1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3]);
    assert_eq!(free.zeroed, [0; 11]);
}

#[test]
fn settings_that_mean_nothing_have_one_line() {
    let wrong = |machine: &str, settings: ScrubSettings| {
        let mut experiment = of(machine, "prezero", 1, ByteSize::mib(64));
        settings.apply(&mut experiment.kernel, &experiment.machine).unwrap_err().to_string()
    };
    let none = ScrubSettings::default();
    assert_eq!(
        wrong("altix-8", ScrubSettings { start: Some(11), ..none }),
        "--scrub-start 11: expected an order of 0 to 10"
    );
    assert_eq!(
        wrong("altix-8", ScrubSettings { start: Some(2), stop: Some(3), ..none }),
        "--scrub-stop 3: expected at most 2, the order at which it starts"
    );
    let bte = ScrubSettings { by: Zeroing::Bte, ..none };
    assert!(wrong("i386-up", bte).starts_with("--zeroing bte: i386-up has no block transfer"));
    let small = wrong("altix-8", ScrubSettings { start: Some(1), ..bte });
    assert!(small.contains("64 KiB to 4 MiB, and the largest here has 32 KiB"), "{small}");
}

/// By hand: one cache line for each of 8 threads; one of these lines is the reader's and one its neighbour's. 65,536
/// entries of 8 bytes fill 8,192 lines.
#[test]
fn who_does_not_count_pays_at_the_read() {
    let row = |patches: &str, threads| {
        of("altix-8", patches, threads, ByteSize::gib(1)).run(Stepping::Skip).unwrap()
    };
    let costs = preset("altix-8").unwrap().costs;
    let (line, near, far) = (costs.line, costs.transfer_near, costs.transfer);
    let reads = |patches: &str, threads| row(patches, threads).resident_read_seconds * 1e12;
    let near_enough = |value: f64, wanted: u64| (value - wanted as f64).abs() < 1.0;
    assert!(near_enough(reads("rss-atomic", 8), far));
    assert!(near_enough(reads("rss-split", 8), line + near + 6 * far));
    assert!(near_enough(reads("rss-on-demand", 8), 1024 * (line + near + 6 * far)));
    assert!(near_enough(reads("rss-on-demand", 1), 8192 * line));
    assert_eq!(row("rss-split", 8).resident_count_seconds, 0.0);
    assert!(row("rss-atomic", 8).resident_count_seconds > 0.0);
    // A fault neither updates a shared line nor waits for one.
    let fast = |patches: &str| row(patches, 8).wall_seconds;
    assert_eq!(fast("atomic-pte,rss-on-demand"), fast("atomic-pte,rss-split"));
    assert!(fast("atomic-pte,rss-on-demand") < fast("atomic-pte"));
}
