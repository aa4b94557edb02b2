//! Page tables that are not trees, and superpages of other sizes than 512 base pages, on the machines that have them.

use design::Design;
use mm_sim::Cause;
use superpage_lab::analysis::figures;
use superpage_lab::{End, Experiment, Report, run};
use units::ByteSize;

fn experiment(machine: &str, workload: &str) -> Experiment {
    Experiment {
        machine: machine::preset(machine).expect("a machine"),
        memory: ByteSize::gib(8),
        fragmentation: "none".parse().expect("a fragmentation"),
        fragmentation_name: "none".to_string(),
        workload: workload.parse().expect("a workload"),
        workload_name: workload.to_string(),
        seed: 1,
        swap: ByteSize(0),
        layout: mm_sim::Layout::default(),
        utilisation: true,
    }
}

fn on(machine: &str, workload: &str, design: &str) -> Report {
    let experiment = experiment(machine, workload);
    let design = match design.split_once(" of ") {
        Some(("pool", size)) => pool(size),
        Some((preset, size)) => transparent(preset, size),
        None => design::designs::find(design).expect("a design"),
    };
    run(&experiment, &[design]).expect("it runs").remove(0)
}

/// Returns the hugetlb design with superpages of another size.
fn pool(size: &str) -> Design {
    let text = design::designs::preset("hugetlb").expect("a design").text;
    let text = text.replacen("sizes = [\"2M\"]", &format!("sizes = [\"{size}\"]"), 1);
    Design::from_toml("pool.toml", &text).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns a design that makes superpages of one other size at a fault.
fn transparent(preset: &str, size: &str) -> Design {
    let text = design::designs::preset(preset).expect("a design").text;
    let line = text.lines().find(|line| line.starts_with("sizes = ")).expect("it has sizes");
    let mut text = text.replacen(line, &format!("sizes = [\"{size}\"]"), 1);
    if size.ends_with('K') {
        // khugepaged makes no superpages of this size, and no memory is compacted for them.
        let (before, after) = text.split_once("[mapping.scan]").expect("a scan");
        let after = &after[after.find("\n[").expect("a table after it")..];
        text = format!("{before}{after}").replace("effort-advised = \"direct-retry\"", "");
    }
    Design::from_toml("transparent.toml", &text).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the share of cycles spent waiting for walks: of all cycles, and of cycles outside the kernel.
fn shares(report: &Report) -> (f64, f64) {
    let ledger = &report.ledger;
    let walks = ledger[Cause::WalkBase] + ledger[Cause::WalkLarge];
    let user = walks + ledger[Cause::Work] + ledger[Cause::SecondTlb];
    (walks as f64 / ledger.total() as f64, walks as f64 / user as f64)
}

/// Published: 17.57, 17.84 and 18.23 % (docs/sources/policies.md 2.1).
#[test]
fn stream_on_a_hashed_page_table_misses_the_caches_at_every_page() {
    let base = on("ppc970", "stream:size=1G", "base");
    let (of_all, of_user) = shares(&base);
    assert!(
        (0.15..0.20).contains(&of_all) && (0.15..0.20).contains(&of_user),
        "{of_all} {of_user}"
    );
    let each = base.ledger[Cause::WalkBase] as f64 / base.counters.walks_base as f64;
    assert!((540.0..=563.0).contains(&each), "{each} cycles a walk");
    assert!(shares(&on("ppc970", "stream:size=1G", "pool of 16M")).0 < 1e-5);
}

/// On base pages a random load waits for memory twice, for the page-table entry and for the data; on superpages it
/// waits once.
#[test]
fn a_walk_of_a_hashed_page_table_costs_a_random_load_about_as_much_as_itself() {
    for workload in ["chase:size=256M,operations=1M", "gups:size=256M,operations=1M,weight=1"] {
        let (share, _) = shares(&on("ppc970", workload, "base"));
        assert!((0.2..0.9).contains(&share), "{workload}: {share}");
        assert!(shares(&on("ppc970", workload, "pool of 16M")).0 < 1e-3, "{workload}");
    }
}

/// Expected values for 4 GiB: numbers of faults and superpages by division. All memory is zeroed, at the machine's
/// price per 4 KiB. The only walks are for each superpage's first touch, one before the fault and one after it.
#[test]
fn superpages_of_every_size_by_hand() {
    let cases = [
        ("e3-1245v6", "1G", 4, 4096),
        ("e3-1245v6", "2M", 2048, 4096),
        ("ppc970", "16M", 256, 4096),
        ("itanium2-16k", "16M", 256, 16384),
        ("itanium2-16k", "256M", 16, 16384),
    ];
    let designs = ["pool", "linux-6"].map(|design| cases.map(|case| (design, case)));
    for (design, (machine, size, superpages, base_page)) in designs.into_iter().flatten() {
        let report = on(machine, "touch:size=4G,iterations=1", &format!("{design} of {size}"));
        let (counters, name) = (&report.counters, format!("{design} of {size} on {machine}"));
        let machine = machine::preset(machine).expect("a machine");
        assert_eq!(counters.faults, superpages, "{name}");
        assert_eq!(counters.made_at_fault, superpages, "{name}");
        assert_eq!(counters.superpages, superpages, "{name}");
        assert_eq!(counters.zeroed * base_page, 4 << 30, "{name}");
        assert_eq!(counters.resident_pages * base_page, 4 << 30, "{name}");
        assert_eq!(figures(&report, None).coverage, Some(1.0), "{name}");
        // hugetlb zeroes in calls of 4 KiB: the first column.
        let zeroing = machine.costs.zero.temporal[0] * 2048.0 * f64::from(machine.mhz);
        let charged = report.ledger[Cause::Zero] as f64;
        assert!((charged / zeroing - 1.0).abs() < 1e-6, "{name}: {charged}, {zeroing}");
        assert!(
            counters.walks_base <= superpages && counters.walks_large <= 2 * superpages,
            "{name}"
        );
    }
}

/// A fault maps 64K: 16 base pages, each with its own entry. If the TLB joins 16 entries in one, there are a sixteenth
/// as many walks.
#[test]
fn sixteen_base_pages_at_a_fault_by_hand() {
    let walks = |machine| {
        let report = on(machine, "touch:size=4G,iterations=1", "linux-6 of 64K");
        let counters = report.counters;
        assert_eq!(counters.faults, (4 << 30) / (64 << 10), "{machine}");
        assert_eq!(counters.zeroed * 4096, 4 << 30, "{machine}");
        assert_eq!(counters.superpages, 0, "no entry of its own");
        counters.walks_base
    };
    let pages = (4 << 30) / 4096;
    assert_eq!(walks("e3-1245v6"), pages);
    // One walk before each fault, and one after it.
    assert!(walks("neoverse-n1") <= pages / 16 * 2);
}

/// Returns a design that reserves, with one other size.
fn reserving(preset: &str, size: &str) -> Design {
    let text = design::designs::preset(preset).expect("a design").text;
    let mut text = text.replacen("sizes = [\"2M\"]", &format!("sizes = [\"{size}\"]"), 1);
    if size.ends_with('K') {
        // No base page has a page-table entry, so nothing is split.
        let is_kept = |line: &&str| !line.starts_with("clean-");
        text = text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect();
        text = text.replace("when = \"prepared\"", "when = \"never\"");
    }
    Design::from_toml("reserving.toml", &text).unwrap_or_else(|error| panic!("{error}"))
}

/// FreeBSD's design on 4 GiB: each base page takes a fault, and the last page of a superpage promotes it. Promotion
/// compares entries in tables of 512, whatever the size.
#[test]
fn reservations_of_every_size_by_hand() {
    for (machine, size, superpages, base_page) in [
        ("e3-1245v6", "1G", 4, 4096),
        ("e3-1245v6", "2M", 2048, 4096),
        ("ppc970", "16M", 256, 4096),
        ("itanium2-16k", "256M", 16, 16384),
    ] {
        let experiment = experiment(machine, "touch:size=4G,iterations=1");
        let report = run(&experiment, &[reserving("freebsd", size)]).expect("it runs").remove(0);
        let (counters, name) = (&report.counters, format!("{size} on {machine}"));
        let costs = &experiment.machine.costs;
        let pages = (4 << 30) / base_page;
        assert_eq!((counters.faults, counters.zeroed), (pages, pages), "{name}");
        assert_eq!((counters.reserved, counters.made_in_place), (superpages, superpages), "{name}");
        assert_eq!((counters.superpages, counters.broken), (superpages, 0), "{name}");
        let cycles = |nanoseconds: f64| (nanoseconds * f64::from(report.mhz) / 1000.0).round();
        let promoted = cycles(costs.promote) * (pages / 512) as f64;
        let reserved = cycles(costs.lock + costs.table_page) * superpages as f64;
        let mapped = report.ledger[Cause::Map] as f64 - promoted - reserved;
        // The rest is the end of the program, which unmaps all its memory.
        let unmapped = cycles(costs.unmap_superpage) * superpages as f64
            + cycles(2.0 * costs.scan_page) * pages as f64;
        assert!((0.0..unmapped * 1.01).contains(&mapped), "{name}: {mapped}, {unmapped}");
    }
}

/// Quicksilver's design with 16 MiB: after 64 faults the rest is prepared and the whole superpage is mapped. The first
/// 64 pages are zeroed singly, the other 4,032 with non-temporal stores, 512 pages per call.
#[test]
fn quicksilver_fills_16m_after_64_faults() {
    let experiment = experiment("ppc970", "touch:size=4G,iterations=1");
    let design = reserving("quicksilver-sync-64", "16M");
    let report = run(&experiment, &[design]).expect("it runs").remove(0);
    let counters = &report.counters;
    assert_eq!((counters.faults, counters.zeroed), (256 * 64, 256 * 4096));
    assert_eq!((counters.reserved, counters.made_in_place, counters.superpages), (256, 256, 256));
    let zero = &experiment.machine.costs.zero;
    let microseconds = 256.0 * (64.0 * zero.temporal[0] + 4032.0 * zero.non_temporal[2]) / 512.0;
    let charged = report.ledger[Cause::Zero] as f64 / f64::from(report.mhz);
    assert!((charged / microseconds - 1.0).abs() < 0.01, "{charged}, {microseconds}");
}

/// A kernel with pages of 64 KiB on the PowerPC 970: 4 GiB take 65,536 faults, each of which fills sixteen entries, or
/// 256 superpages.
#[test]
fn kernel_pages_of_64k_by_hand() {
    let workload = "touch:size=4G,iterations=1";
    let pages = (4 << 30) / 4096;
    let base = on("ppc970-64k", workload, "base").counters;
    assert_eq!((base.faults, base.zeroed, base.superpages), (65_536, pages, 0));
    assert_eq!(base.resident_pages, pages);
    // Each page of the processor has an entry, and is walked once, before its fault.
    assert_eq!(base.walks_base, pages);
    for design in ["pool of 16M", "linux-6 of 16M"] {
        let counters = on("ppc970-64k", workload, design).counters;
        assert_eq!((counters.faults, counters.superpages), (256, 256), "{design}");
        assert_eq!(counters.zeroed, pages, "{design}");
    }
    let experiment = experiment("ppc970-64k", workload);
    let reserved = run(&experiment, &[reserving("freebsd", "16M")]).expect("it runs").remove(0);
    let counters = reserved.counters;
    assert_eq!((counters.faults, counters.zeroed), (65_536, pages));
    assert_eq!((counters.made_in_place, counters.superpages), (256, 256));
    // 100 KiB are two of the kernel's pages.
    let small = on("ppc970-64k", "touch:size=100K,iterations=1", "base").counters;
    assert_eq!((small.faults, small.resident_pages), (2, 32));
}

/// Reservations of 64K only: sixteen adjacent base pages each. Where the TLB joins these, the number of walks is
/// halved: walks after faults find the joined entry.
#[test]
fn reservations_of_64k_by_hand() {
    for machine in ["e3-1245v6", "neoverse-n1"] {
        let experiment = experiment(machine, "touch:size=1G,iterations=1");
        let design = reserving("freebsd", "64K");
        let counters = run(&experiment, &[design]).expect("it runs").remove(0).counters;
        assert_eq!((counters.faults, counters.reserved), ((1 << 30) / 4096, (1 << 30) >> 16));
        assert_eq!((counters.superpages, counters.made_in_place), (0, 0), "no entry of its own");
    }
}

/// With 1G, a fault uses smaller superpages if no superpage of 1G is free. Coverage counts both sizes by the memory
/// that they map.
#[test]
fn trident_falls_back_by_size() {
    let workload = "touch:size=5G,iterations=1";
    let whole = on("e3-1245v6", workload, "trident");
    assert_eq!((whole.counters.faults, whole.counters.superpages), (5, 5));
    assert_eq!(figures(&whole, None).coverage, Some(1.0));
    let experiment = Experiment {
        fragmentation: "pinned-30".parse().expect("a fragmentation"),
        ..experiment("e3-1245v6", "touch:size=2G,iterations=1")
    };
    let trident = design::designs::find("trident").expect("a design");
    let report = run(&experiment, &[trident]).expect("it runs").remove(0);
    let counters = &report.counters;
    assert!(counters.superpages > 4 && counters.superpages <= 1024, "{counters:?}");
    let last = report.timeline.iter().rev().find(|moment| moment.superpages > 0);
    assert!(last.is_some_and(|moment| moment.smaller_superpages == moment.superpages));
}

/// The scan makes superpages of whatever is mapped, here of base pages.
#[test]
fn a_scan_makes_superpages_of_16m() {
    let text = r#"
        name = "scan"
        [allocation]
        trigger = "scan"
        form = "superpage"
        sizes = ["16M"]
        [mapping]
        when = "never"
        [mapping.scan]
        every = "100ms"
        regions = 64
        least-present = 1
        referenced = false
        order = "address"
        effort = "none"
    "#;
    let design = Design::from_toml("scan.toml", text).unwrap_or_else(|error| panic!("{error}"));
    let experiment = experiment("ppc970", "gups:size=1G,operations=200M");
    let counters = run(&experiment, &[design]).expect("it runs").remove(0).counters;
    assert!((1..=64).contains(&counters.made_by_copy), "{counters:?}");
    assert_eq!(counters.superpages, counters.made_by_copy);
    // A fault zeroes its page. The scan zeroes pages of a superpage that were never touched; these do not count as
    // zeroed by faults.
    assert_eq!(counters.zeroed, counters.faults);
    assert!((1..=counters.made_by_copy * 4096).contains(&counters.copied), "{counters:?}");
}

/// Without a free gigabyte the mapping is refused, and does not get smaller pages.
#[test]
fn a_gigabyte_that_lies_in_pieces_is_no_superpage() {
    let experiment = Experiment {
        fragmentation: "pinned-30".parse().expect("a fragmentation"),
        ..experiment("e3-1245v6", "touch:size=4G,iterations=1")
    };
    let report = run(&experiment, &[pool("1G")]).expect("it runs").remove(0);
    assert_eq!(report.end, End::Refused { short_by: 4 });
}

/// The machine has four entries of this size in the first level, and 16 in the second.
#[test]
fn superpages_of_1g_have_a_tlb_of_their_own() {
    let walks = |size| {
        on("e3-1245v6", &format!("gups:size={size},operations=1M,weight=1"), "pool of 1G").counters
    };
    assert!(walks("4G").walks_large < 20, "four entries for four superpages");
    let twice_as_many = walks("6G");
    assert!(
        twice_as_many.walks_large < 20 && twice_as_many.second_tlb_hits > 100_000,
        "{twice_as_many:?}"
    );
}

/// Every listed machine runs a program on base pages, and one on the largest superpages of the machine.
#[test]
fn every_machine_runs() {
    assert!(machine::names().count() > 10);
    for name in machine::names() {
        let machine = machine::preset(name).expect("a machine");
        let largest = ByteSize(*machine.superpages().last().expect("one size at least"));
        let size = format!("{}M", largest.bytes() >> 20);
        for design in ["base".to_string(), format!("pool of {size}")] {
            let report = on(name, "touch:size=2G,iterations=1", &design);
            assert_eq!(report.end, End::Done, "{name}, {design}");
            let superpages = if design == "base" { 0 } else { (2 << 30) / largest.bytes() };
            assert_eq!(report.counters.superpages, superpages, "{name}, {design}");
        }
    }
}
