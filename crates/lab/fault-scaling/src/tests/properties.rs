//! Properties that hold for all experiments.

use proptest::prelude::*;
use units::ByteSize;

use super::experiments::{any, of};
use crate::prices::Prices;
use crate::{Experiment, FaultsError, Patch, Patches, Placement, Stepping, Touches, rows};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::cases(100) as u32))]

    #[test]
    fn pages_that_are_touched_are_mapped_and_time_adds_up(experiment in any()) {
        let row = experiment.run(Stepping::Skip).unwrap();
        let pages = experiment.size.0 / experiment.machine.base_page.0;
        let (run, gap) = (u64::from(experiment.touches.run), u64::from(experiment.touches.gap));
        let touched = (0..pages).filter(|page| page % (run + gap) < run).count() as u64;
        prop_assert_eq!(row.pages, touched * u64::from(experiment.repetitions));
        prop_assert!(row.faults <= row.pages && row.faults > 0);
        if experiment.kernel.superpage.is_none() {
            // A prefault batch is at most as long as the pages touched in order before it.
            prop_assert!(row.wasted_pages <= row.pages);
            prop_assert!(row.wasted_pages == 0 || experiment.kernel.prefault > 0);
        }
        let cpu = row.user_seconds + row.system_seconds;
        prop_assert!(cpu <= row.wall_seconds * f64::from(row.threads) * (1.0 + 1e-9));
        prop_assert_eq!(&row, &experiment.run(Stepping::Skip).unwrap());
        let stepped = experiment.run(Stepping::EachEvent).unwrap();
        prop_assert_eq!(row.wall_seconds, stepped.wall_seconds);
        prop_assert_eq!(row.system_seconds, stepped.system_seconds);
        prop_assert_eq!(row.faults, stepped.faults);
        prop_assert_eq!(&row.zeroed_ahead, &stepped.zeroed_ahead);
        prop_assert_eq!(row.zeroed_ahead.is_some(), experiment.kernel.prezero.is_some());
        if let Some(ahead) = &row.zeroed_ahead {
            let pages = |blocks: &[u64]| (0..).zip(blocks).map(|(order, count)| count << order).sum::<u64>();
            let frames = experiment.machine.node_memory.0 / experiment.machine.base_page.0;
            for node in &ahead.nodes {
                prop_assert_eq!(pages(&node.zeroed) + pages(&node.not_zeroed), frames);
            }
            prop_assert!(ahead.found_pages <= row.pages + row.wasted_pages);
        }
    }

    #[test]
    fn one_cpu_has_no_contention(experiment in any()) {
        let one = Experiment { threads: 1, ..experiment };
        let mut free = one.clone();
        for cost in [&mut free.machine.costs.transfer, &mut free.machine.costs.transfer_near] {
            *cost = 0;
        }
        free.machine.costs.crowding = 0;
        let (one, free) = (one.run(Stepping::Skip).unwrap(), free.run(Stepping::Skip).unwrap());
        prop_assert_eq!(one.wall_seconds, free.wall_seconds);
    }
}

/// Four nodes of two CPUs. The first thread stays on its node; the others look for an idle CPU.
#[test]
fn threads_leave_daemons_their_cpus_while_others_are_idle() {
    let homes = |placement, threads: u32, daemons: [bool; 4]| {
        let mut experiment = of("altix-8", "prezero", threads, ByteSize::mib(64));
        experiment.machine.placement = placement;
        let mut prices = Prices::new(&experiment);
        prices.place(&daemons);
        (0..threads).map(|cpu| prices.node(cpu)).collect::<Vec<u32>>()
    };
    let (packed, spread) = (Placement::Packed, Placement::Spread);
    assert_eq!(homes(packed, 4, [false; 4]), [0, 0, 1, 1]);
    assert_eq!(homes(packed, 4, [true, false, false, false]), [0, 1, 1, 2]);
    assert_eq!(homes(packed, 8, [true; 4]), [0, 1, 2, 3, 0, 1, 2, 3]);
    assert_eq!(homes(spread, 6, [false; 4]), [0, 1, 2, 3, 0, 1]);
    assert_eq!(homes(spread, 4, [true, true, false, false]), [0, 2, 3, 1]);
    assert_eq!(homes(spread, 8, [false, true, true, true]).iter().filter(|n| **n == 0).count(), 2);
}

#[test]
fn dearer_lines_are_never_faster() {
    for patches in ["baseline", "atomic-pte", "prefault", "atomic-pte,prefault,prezero"] {
        let mut last = 0.0;
        for transfer in [0, 100_000, 300_000, 1_000_000, 3_000_000] {
            let mut experiment = of("altix-128", patches, 32, ByteSize::mib(64));
            experiment.machine.costs.transfer_near = 0;
            experiment.machine.costs.transfer = transfer;
            let row = experiment.run(Stepping::Skip).unwrap();
            assert!(row.wall_seconds >= last, "{patches} at {transfer}");
            last = row.wall_seconds;
        }
    }
}

#[test]
fn queues_and_nodes_help_where_a_lock_is_fought_for() {
    let wall = |patches: &str| {
        of("altix-128", patches, 64, ByteSize::mib(256)).run(Stepping::Skip).unwrap().wall_seconds
    };
    let plain = wall("baseline");
    assert!(wall("ticket-lock") < plain);
    assert!(wall("queued-lock") < wall("ticket-lock"));
    assert!(wall("numa-lock") < plain);
    assert!(wall("split-ptl") < plain);
    assert!(wall("superpage=1M") < wall("prefault"));
}

#[test]
fn prefault_maps_in_batches_that_double() {
    let row = of("altix-128", "prefault=4", 1, ByteSize::mib(1)).run(Stepping::Skip).unwrap();
    // 64 pages: batches of 1 2 4 8 16 16 16, and one page is left.
    assert_eq!((row.pages, row.faults), (64, 8));
    let row = of("altix-128", "superpage", 1, ByteSize::mib(64)).run(Stepping::Skip).unwrap();
    assert_eq!((row.pages, row.faults), (4096, 4));
}

#[test]
fn what_is_prefaulted_past_a_run_is_wasted() {
    let sparse = |patches: &str, run: u32, gap: u32| {
        let touches = Touches { run, gap };
        let one = Experiment { touches, ..of("altix-128", patches, 1, ByteSize::mib(1)) };
        let row = one.run(Stepping::Skip).unwrap();
        (row.pages, row.wasted_pages, row.faults, row.wall_seconds)
    };
    // 64 pages, 4 of each 16 touched: batches of 1, 2 and 4 pages, 3 of them past the run.
    let (pages, wasted, faults, wall) = sparse("prefault=4", 4, 12);
    assert_eq!((pages, wasted, faults), (16, 4 * 3, 4 * 3));
    let (pages, wasted, faults, base) = sparse("baseline", 4, 12);
    assert_eq!((pages, wasted, faults), (16, 0, 16));
    assert!(wall > base, "zeroing 12 pages in vain costs more than four traps");
    // A thread that jumps at each touch gets no prefault.
    let (pages, wasted, faults, _) = sparse("prefault=4", 1, 3);
    assert_eq!((pages, wasted, faults), (16, 0, 16));
    let (pages, wasted, faults, _) = sparse("superpage=256K", 1, 31);
    assert_eq!((pages, wasted, faults), (2, 30, 2));
}

#[test]
fn bad_input_has_one_line() {
    let wrong = |experiment: &Experiment| experiment.run(Stepping::Skip).unwrap_err().to_string();
    let good = of("altix-128", "baseline", 4, ByteSize::mib(1));
    for (threads, says) in [
        (0, "0 threads: altix-128 supports 1 to 512"),
        (513, "513 threads: altix-128 supports 1 to 512"),
        (65, "1 MiB is too small for 65 threads: each touches a page of 16 KiB or more"),
    ] {
        assert_eq!(wrong(&Experiment { threads, ..good.clone() }), says);
    }
    let large = Experiment { size: ByteSize(1 << 60), ..good.clone() };
    assert!(wrong(&large).starts_with("1 EiB exceeds what altix-128 has for a program:"));
    assert_eq!(
        wrong(&Experiment { repetitions: 0, ..good.clone() }),
        "0 repetitions: expected 1 to 1000"
    );
    assert_eq!(
        wrong(&Experiment { cache_lines: 257, ..good.clone() }),
        "257 cache lines: a page here has 256"
    );
    assert!(rows(&good, &[1, 0]).is_err());
    let patches = |text: &str| text.parse::<Patches>().unwrap_err();
    assert!(matches!(patches("atomic"), FaultsError::UnknownPatch { .. }));
    assert_eq!(
        patches("atomic-pte,split-ptl").to_string(),
        "`atomic-pte` and `split-ptl` change the same thing; use only one of them"
    );
    assert_eq!(
        patches("prefault=10").to_string(),
        "prefault=10: expected an order of 1 to 9 (2 to 512 pages)"
    );
    assert_eq!(patches("prezero=1").to_string(), "prezero=1: this patch takes no value");
    for text in ["", ",", "baseline,prezero", "prefault=", "superpage=x"] {
        assert!(text.parse::<Patches>().is_err(), "{text}");
    }
}

#[test]
fn patches_are_written_as_they_are_read() {
    for text in
        ["baseline", "prefault", "prefault=2,prezero", "superpage=2MiB", "per-vma,rss-split"]
    {
        assert_eq!(text.parse::<Patches>().unwrap().to_string(), text);
    }
    assert_eq!("prefault=4".parse::<Patch>().unwrap(), Patch::Prefault(4));
}
