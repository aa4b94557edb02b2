//! Superpages of several regions, made by faults, scans and reservations: partial operations and forks.
//!
//! The tests use sizes that no machine has: 4M and 16M fit into memory where 1G would not.

use super::*;
use trace::{Advice, Backing, Page, Pages, Region, SLOTS};

const SMALL: &str = "\"64K\"";

fn with_sizes(preset: &str, sizes: &str) -> design::Design {
    let text = design::designs::preset(preset).expect("a preset").text;
    let line = text.lines().find(|line| line.starts_with("sizes = ")).expect("it has sizes");
    let mut text = text.replacen(line, &format!("sizes = [{sizes}]"), 1);
    if sizes == SMALL && text.contains("form = \"reservation\"") {
        // A reservation of 64K is not mapped by a single entry, so it never splits.
        let is_kept = |line: &&str| !line.starts_with("clean-");
        text = text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect();
        text = text.replace("when = \"prepared\"", "when = \"never\"");
    } else if sizes == SMALL {
        // Sizes below a superpage need no effort and no scan.
        let (before, after) = text.split_once("[mapping.scan]").expect("a scan");
        let after = &after[after.find("\n[").expect("a table after it")..];
        text = format!("{before}{after}").replace("effort-advised = \"direct-retry\"", "");
    }
    design::Design::from_toml(preset, &text).unwrap_or_else(|error| panic!("{error}"))
}

fn conditions(machine: &'static str, mebibytes: u64, fragmentation: &'static str) -> Conditions {
    let memory = ByteSize::mib(mebibytes);
    Conditions { machine, memory, fragmentation, swap: ByteSize(0), layout: Layout::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn larger_superpages_of_faults_and_scans(
        ops in ops(120),
        preset in prop::sample::select(vec!["linux-6", "trident"]),
        sizes in prop::sample::select(vec![r#""4M""#, r#""16M""#, r#""2M", "4M""#, r#""64K", "2M", "8M""#, SMALL]),
        machine in prop::sample::select(vec!["e3-1245v6", "ppc970", "ppc970-64k", "itanium2-16k", "neoverse-n1"]),
        memory in prop::sample::select(vec![32, 64, 256]),
        fragmentation in prop::sample::select(vec!["none", "none", "pinned-30"]),
        swap in prop::sample::select(vec![ByteSize(0), ByteSize::gib(1)]),
    ) {
        let design = with_sizes(preset, sizes);
        // Frames and regions are four times as large on this machine.
        let memory = if machine == "itanium2-16k" { 4 * memory } else { memory };
        let conditions = Conditions { swap, ..conditions(machine, memory, fragmentation) };
        run_program(&design, &conditions, &ops);
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn reservations_of_other_sizes(
        ops in ops(120),
        (preset, sizes) in prop_oneof![
            Just(("freebsd", SMALL)),
            (
                prop::sample::select(vec!["freebsd", "quicksilver-sync-64", "quicksilver-async-64"]),
                prop::sample::select(vec![r#""4M""#, r#""16M""#]),
            ),
        ],
        machine in prop::sample::select(vec!["e3-1245v6", "ppc970", "ppc970-64k", "itanium2-16k", "neoverse-n1"]),
        memory in prop::sample::select(vec![32, 64, 256]),
        fragmentation in prop::sample::select(vec!["none", "none", "pinned-30"]),
    ) {
        let design = with_sizes(preset, sizes);
        let memory = if machine == "itanium2-16k" { 4 * memory } else { memory };
        run_program(&design, &conditions(machine, memory, fragmentation), &ops);
    }
}

/// Starts a process with a mapping of `regions` regions.
fn begin(run: &mut Run, regions: u32) -> Region {
    let (region, process) = (run.first.0.next_multiple_of(8), run.first.1);
    let pages = Pages { first: Region(region).first(), count: regions * SLOTS };
    let map = Event::Map { pages, address: 1 << 34, backing: Backing::Anonymous };
    run.step(Some(Event::Spawn(Process(process))), &[]).expect("a process");
    run.step(Some(map), &[]).expect("a mapping");
    Region(region)
}

fn sizes(run: &Run) -> (u64, u64) {
    run.engine.system.spaces.superpages_by_size()
}

/// One and a half times 16M: a fault makes the first 16M, smaller superpages follow. Then the mapping is cut at a
/// region boundary, and within a region.
#[test]
fn what_is_unmapped_in_part_is_split_so_far() {
    for (machine, after_cut, after_page) in
        [("e3-1245v6", (4, 0), (3, 0)), ("ppc970", (0, 0), (0, 0))]
    {
        let sizes_of = if machine == "ppc970" { r#""16M""# } else { r#""2M", "16M""# };
        let mut run = Run::new(&with_sizes("linux-6", sizes_of), &conditions(machine, 256, "none"));
        let first = begin(&mut run, 12);
        run.step(None, &[Access::write(Page(first.first().0 + 904))]).expect("memory");
        assert_eq!((run.engine.system.counters.faults, sizes(&run)), (1, (0, 1)), "{machine}");
        assert_eq!(run.engine.system.counters.zeroed, 8 * u64::from(SLOTS));
        let half = Pages { first: first.first(), count: 4 * SLOTS };
        run.step(Some(Event::Advise(half, Advice::DontNeed)), &[]).expect("memory");
        assert_eq!(sizes(&run), after_cut, "{machine}");
        assert_eq!(run.engine.system.spaces.resident(), 4 * u64::from(SLOTS));
        assert_eq!(run.engine.system.counters.demoted, 1);
        let page = Pages { first: Page(first.first().0 + 4 * SLOTS + 7), count: 1 };
        run.step(Some(Event::Unmap(page)), &[]).expect("memory");
        assert_eq!(sizes(&run), after_page, "{machine}");
        assert_eq!(run.engine.system.spaces.resident(), 4 * u64::from(SLOTS) - 1);
        run.end();
    }
}

/// After a fork, a write by one side splits the shared superpage for both, and copies a page.
#[test]
fn a_write_after_a_fork_splits_it_on_both_sides() {
    let design = with_sizes("linux-6", r#""2M", "16M""#);
    let mut run = Run::new(&design, &conditions("e3-1245v6", 256, "none"));
    let first = begin(&mut run, 8);
    run.step(None, &[Access::write(first.first())]).expect("memory");
    let child = Process(run.first.1 + 1);
    run.step(Some(Event::Fork { child, offset: 16 * SLOTS }), &[]).expect("memory");
    assert_eq!(sizes(&run), (0, 2));
    run.step(None, &[Access::write(first.first())]).expect("memory");
    assert_eq!((sizes(&run), run.engine.system.counters.copied), ((2 * 7, 0), 1));
    run.end();
    // If the superpage is unaligned in the child, the fork splits it.
    let mut run = Run::new(&design, &conditions("e3-1245v6", 256, "none"));
    let first = begin(&mut run, 8);
    run.step(None, &[Access::write(first.first())]).expect("memory");
    run.step(Some(Event::Fork { child, offset: 9 * SLOTS }), &[]).expect("memory");
    assert_eq!(sizes(&run), (2 * 8, 0));
    run.end();
}

/// A larger superpage that is only read maps zeros and takes no memory; a write allocates it.
#[test]
fn zeros_are_replaced_at_the_first_write() {
    let mut run = Run::new(&with_sizes("linux-6", r#""16M""#), &conditions("ppc970", 256, "none"));
    let first = begin(&mut run, 8);
    let free = run.engine.system.memory.free_frames();
    run.step(None, &[Access::read(first.first())]).expect("memory");
    assert_eq!((sizes(&run), run.engine.system.memory.free_frames()), ((0, 0), free));
    run.step(None, &[Access::write(Page(first.first().0 + 4095))]).expect("memory");
    let used = free - run.engine.system.memory.free_frames();
    assert_eq!((sizes(&run), used), ((0, 1), 8 * u64::from(SLOTS)));
    run.end();
}

/// If no contiguous frames are free, the next smaller size is used, finally base pages.
#[test]
fn smaller_ones_are_made_where_none_is_free() {
    for (of, expected) in [(r#""2M", "16M""#, (8, 0)), (r#""16M""#, (0, 0))] {
        let mut run = Run::new(&with_sizes("linux-6", of), &conditions("e3-1245v6", 128, "none"));
        // Leaves one superpage used in each 16M of memory.
        let mut taken = Vec::new();
        while let Some(got) = run.engine.system.memory.allocate_contiguous(12, 0) {
            taken.push(got);
        }
        for base in taken {
            (1..8).for_each(|part| {
                run.engine.system.memory.free(crate::memory::Frame(base.0 + part * SLOTS), 9);
            });
            let pinned = crate::memory::Owner::Kernel;
            (0..SLOTS).for_each(|at| {
                run.engine.system.memory.set_owner(crate::memory::Frame(base.0 + at), pinned);
            });
        }
        let first = begin(&mut run, 8);
        let all: Vec<Access> =
            (0..8 * SLOTS).map(|page| Access::write(Page(first.first().0 + page))).collect();
        run.step(None, &all).expect("memory");
        assert_eq!(sizes(&run), expected, "{of}");
        assert_eq!(run.engine.system.spaces.resident(), 8 * u64::from(SLOTS));
        run.end();
    }
}

fn touch(run: &mut Run, first: Page, count: u32) {
    let all: Vec<Access> = (0..count).map(|page| Access::write(Page(first.0 + page))).collect();
    run.step(None, &all).expect("memory");
}

/// FreeBSD's design at 16M: base pages until the last of 4,096 is populated, then one superpage. Discarded pages keep
/// their frames reserved; a full reservation is promoted again.
#[test]
fn a_reservation_is_one_superpage_when_it_is_full() {
    for (machine, parts) in [("e3-1245v6", 4), ("ppc970", 0)] {
        let design = with_sizes("freebsd", r#""16M""#);
        let mut run = Run::new(&design, &conditions(machine, 256, "none"));
        let first = begin(&mut run, 12);
        let free = run.engine.system.memory.free_frames();
        touch(&mut run, first.first(), 8 * SLOTS - 1);
        let counted = |run: &Run| {
            let counters = &run.engine.system.counters;
            (counters.faults, counters.zeroed, counters.reserved, counters.made_in_place)
        };
        let all = u64::from(8 * SLOTS);
        assert_eq!((counted(&run), sizes(&run)), ((all - 1, all - 1, 1, 0), (0, 0)), "{machine}");
        assert_eq!(free - run.engine.system.memory.free_frames(), all);
        touch(&mut run, Page(first.first().0 + 8 * SLOTS - 1), 1);
        assert_eq!((counted(&run), sizes(&run)), ((all, all, 1, 1), (0, 1)), "{machine}");
        // Discarding half splits it, into superpages of one region if the machine has these.
        let half = Pages { first: first.first(), count: 4 * SLOTS };
        run.step(Some(Event::Advise(half, Advice::DontNeed)), &[]).expect("memory");
        assert_eq!(sizes(&run), (parts, 0), "{machine}");
        assert_eq!(free - run.engine.system.memory.free_frames(), all, "still reserved");
        touch(&mut run, first.first(), 4 * SLOTS);
        assert_eq!((counted(&run).3, sizes(&run)), (2, (0, 1)), "{machine}");
        run.end();
    }
}

/// Quicksilver's design at 16M: at the 64th page the rest is filled and all of it mapped.
#[test]
fn a_reservation_is_filled_at_64_pages() {
    let design = with_sizes("quicksilver-sync-64", r#""16M""#);
    let mut run = Run::new(&design, &conditions("ppc970", 256, "none"));
    let first = begin(&mut run, 8);
    // The pages are spread over all regions.
    let pages: Vec<Access> =
        (0..64).map(|page| Access::write(Page(first.first().0 + page * 64))).collect();
    run.step(None, &pages[..63]).expect("memory");
    assert_eq!((run.engine.system.counters.zeroed, sizes(&run)), (63, (0, 0)));
    run.step(None, &pages[63..]).expect("memory");
    let counters = &run.engine.system.counters;
    assert_eq!((counters.faults, counters.zeroed), (64, 8 * u64::from(SLOTS)));
    assert_eq!((counters.made_in_place, sizes(&run)), (1, (0, 1)));
    run.end();
}

/// When base pages run out, the least recently changed reservation is broken and keeps its page.
#[test]
fn reservations_are_broken_when_memory_is_short() {
    let design = with_sizes("freebsd", r#""16M""#);
    let mut run = Run::new(&design, &conditions("e3-1245v6", 128, "none"));
    let first = begin(&mut run, 16 * 8);
    let reserved = |run: &Run| run.engine.system.counters.reserved;
    let mut extent = 0;
    while u64::from(extent) == reserved(&run) {
        touch(&mut run, Page(first.first().0 + extent * 8 * SLOTS + 5), 1);
        extent += 1;
    }
    let made = reserved(&run);
    assert!(made > 2, "{made} reservations");
    // No reservation is possible in the next 16M: base pages take all that is left.
    let left = run.engine.system.memory.free_frames() as u32;
    let next = Page(first.first().0 + (extent - 1) * 8 * SLOTS);
    touch(&mut run, Page(next.0 + SLOTS), left);
    let broken = |run: &Run| run.engine.system.counters.broken;
    assert_eq!((run.engine.system.memory.free_frames(), broken(&run)), (0, 0));
    touch(&mut run, Page(next.0 + SLOTS + left), 1);
    // The broken reservation frees all but its own page and the page that was needed.
    assert_eq!((run.engine.system.memory.free_frames(), broken(&run)), (4096 - 2, 1));
    let reservations = run.engine.system.frames.reservations();
    assert_eq!(reservations.find(first.first().0), None, "the oldest");
    assert_eq!(u64::from(reservations.len()), made - 1);
    assert!(run.engine.system.spaces.is_present(Page(first.first().0 + 5)));
    run.end();
}

/// A heap's reservation reaches past the heap's end. Another process that maps memory there breaks it.
#[test]
fn a_reservation_past_the_end_gives_way_to_another_process() {
    let design = with_sizes("freebsd", r#""16M""#);
    let mut run = Run::new(&design, &conditions("e3-1245v6", 256, "none"));
    let first = begin(&mut run, 3);
    touch(&mut run, first.first(), 2);
    assert_eq!(run.engine.system.frames.reservations().len(), 1);
    let other = Process(run.first.1 + 1);
    run.step(Some(Event::Spawn(other)), &[]).expect("a process");
    run.step(Some(Event::Run(other)), &[]).expect("it runs");
    let pages = Pages { first: Region(first.0 + 3).first(), count: 2 * SLOTS };
    let map = Event::Map { pages, address: 1 << 34, backing: Backing::Anonymous };
    run.step(Some(map), &[Access::write(pages.first)]).expect("memory");
    assert!(run.engine.system.frames.reservations().is_empty());
    assert_eq!(run.engine.system.counters.broken, 1);
    run.end();
}
