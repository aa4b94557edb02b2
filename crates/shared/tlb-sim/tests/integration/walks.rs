//! Costs of walks, compared with published figures and with calculations.

use machine::{Footprint, Machine, Nested, Size, Tally, names, preset};
use superpage_tlb_sim::{Naive, Translate, Visitor, dispatch};

/// Random accesses to `pages` pages of one size.
struct Gups {
    pages: u32,
    size: Size,
}

impl Visitor for Gups {
    type Output = Tally;

    fn visit<T: Translate>(self, mut tlb: T) -> Tally {
        let mut state = 1u64;
        for _ in 0..200_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let page = ((state >> 32) * u64::from(self.pages)) >> 32;
            tlb.look_up(page as u32, self.size);
        }
        tlb.tally()
    }
}

/// Returns walk cycles of 200,000 random accesses to 64 GiB.
fn gups(machine: &Machine, size: Size) -> f64 {
    let pages = 1 << 24;
    let tally = dispatch(machine, Gups { pages, size });
    let base_pages = if size == Size::Base { u64::from(pages) } else { 0 };
    machine.walk_cycles(&tally, Footprint::new(base_pages, u64::from(pages) / 512, 128 << 30))
}

#[test]
fn superpages_save_as_many_walk_cycles_as_in_the_logs_of_vmitosis() {
    // dtlb_load_misses.walk_pending + dtlb_store_misses.walk_pending of GUPS, base pages and
    // superpages (the logs of vMitosis: docs/sources/simulators.md 4.2).
    let logs = (339_819_544_704.0 + 82_923_946_913.0) / (61_495_367_098.0 + 18_941_834_283.0);
    let machine = preset("cascade-lake").unwrap();
    let ours = gups(&machine, Size::Base) / gups(&machine, Size::Large);
    assert!((ours / logs - 1.0f64).abs() < 0.2, "{ours:.2} here, {logs:.2} there");
}

#[test]
fn a_guest_pays_more_and_least_with_superpages_on_both_sides() {
    let native = preset("cascade-lake").unwrap();
    let guest = |host_page| {
        let nested = Some(Nested { host_page, levels: 4 });
        Machine { nested, ..native.clone() }
    };
    let (small, large) = (guest(Size::Base), guest(Size::Large));
    for size in [Size::Base, Size::Large] {
        assert!(gups(&large, size) > gups(&native, size));
        assert!(gups(&small, size) > gups(&large, size));
    }
    assert!(gups(&large, Size::Large) < gups(&large, Size::Base));
    // If the host has base pages, a TLB entry of a guest's superpage maps a base page.
    assert_eq!(small.entry_size(Size::Large), Size::Base);
}

#[test]
fn loads_are_dearer_the_larger_the_page_table() {
    for name in names() {
        let machine = preset(name).unwrap();
        let sizes = (6..40).map(|log2| machine.load_cycles(1 << log2));
        let sizes: Vec<f64> = sizes.collect();
        assert!(sizes.is_sorted(), "{name}: {sizes:?}");
        let (first, last) = (f64::from(machine.caches[0].cycles), f64::from(machine.memory_cycles));
        assert!(sizes[0] >= first && sizes[0] < 1.1 * first + 1.0, "{name}: {}", sizes[0]);
        assert!(sizes[33] <= last && sizes[33] > 0.95 * last, "{name}: {}", sizes[33]);
    }
}

#[test]
fn a_sequential_pass_reads_one_line_for_eight_pages() {
    struct Pass;
    impl Visitor for Pass {
        type Output = Tally;
        fn visit<T: Translate>(self, mut tlb: T) -> Tally {
            (0..80_000).for_each(|page| {
                tlb.look_up(page, Size::Base);
            });
            tlb.tally()
        }
    }
    let tally = dispatch(&preset("cascade-lake").unwrap(), Pass);
    assert_eq!(tally.all_walks(), 80_000);
    assert_eq!(tally.near[0], 70_000);
    // In each of 157 regions, the walk for the first page also reads the directory entry. All other walks read only
    // their own entry.
    assert_eq!(tally.reads(), 80_000 + 157 + 1 + 1);
    assert_eq!(tally.l1_hits(), 0);
}

/// A page of 16 KiB holds 2,048 entries of 8 bytes. A pass over 4,096 pages walks for each page, and needs translations
/// of two pages of the table.
#[test]
fn a_linear_table_needs_translations_itself() {
    let machine = preset("itanium2-16k").unwrap();
    let mut naive = Naive::new(&machine);
    (0..4096).for_each(|page| {
        naive.look_up(page, Size::Base);
    });
    let walks = naive.tally().walks[Size::Base as usize];
    assert_eq!((walks[1], walks[3]), (4094, 2));
    // The pages are far apart, so each one has its own page of the table, and no translation of these 128 is still in
    // the TLB at the next pass.
    let before = naive.tally();
    (0..1024).for_each(|page| {
        naive.look_up((page % 256 + 2) * 2048, Size::Base);
    });
    let walks = (naive.tally() - before).walks[Size::Base as usize];
    assert_eq!((walks[1], walks[3]), (0, 1024));
    // The cost is that of the handler and of the two loads above the leaf.
    let cost = |reads: usize| {
        let mut tally = Tally::default();
        tally.walks[0][reads] = 1;
        machine.walk_cycles(&tally, Footprint::new(1 << 20, 1 << 11, 32 << 30))
    };
    assert!(cost(3) - cost(1) >= 60.0 + 2.0 * 5.0, "{} {}", cost(3), cost(1));
}

/// A walk of a hashed table costs the same for adjacent pages as for random pages. Once groups fill up, it costs more
/// than one load.
#[test]
fn a_hashed_table_knows_no_neighbours() {
    let machine = preset("ppc970").unwrap();
    let mut tally = Tally::default();
    tally.walks[0][1] = 1000;
    let footprint = |entries| Footprint::new(entries, entries / 512, 8 << 30);
    let alone = machine.walk_cycles(&tally, footprint(1 << 18));
    tally.near[0] = 1000;
    assert_eq!(machine.walk_cycles(&tally, footprint(1 << 18)), alone);
    assert!((540.0..=563.0).contains(&(alone / 1000.0)), "{alone}");
    // With few pages, their lines stay in the caches. With more pages than slots, every second entry is in its second
    // group.
    assert!(machine.walk_cycles(&tally, footprint(64)) < 40.0 * 1000.0);
    assert!(machine.walk_cycles(&tally, footprint(16 << 20)) > 1.5 * 551.0 * 1000.0);
}
