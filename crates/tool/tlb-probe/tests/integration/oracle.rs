//! Machines of known geometry are calibrated by measurement alone. Entries and ways must be exact, and costs within 6
//! per cent of the simulator's.

use crate::common::simulated::Simulated;
use crate::common::{EXACT, altered, found, on_a_tree, with_code};
use machine::{Machine, Size};
use superpage_tlb_probe::{Shape, SizeReport};
use units::PageSize;

/// Returns entries and ways, level by level.
fn shape(size: &SizeReport) -> Vec<(Option<u64>, Option<u64>)> {
    size.levels.iter().map(|level| (level.entries, level.ways)).collect()
}

/// Calibrates `machine`, and compares the result with its geometry, for base pages and for superpages.
fn finds_out(machine: Machine) {
    let name = machine.name.clone();
    let base = machine.base_page;
    let large = PageSize::new(base.bytes() << Size::Large.shift()).unwrap();
    let mut probe = Simulated::new(machine.clone());
    let calibration = found(&mut probe, EXACT, &[large]);
    assert_eq!(calibration.sizes.len(), 2, "{name}");
    for (report, size) in calibration.sizes.iter().zip([Size::Base, Size::Large]) {
        let entry = machine.entry_size(size);
        let held = |level: &[machine::Tlb]| {
            let tlb = level.iter().find(|tlb| tlb.holds[entry as usize]).copied();
            tlb.map(|tlb| (Some(u64::from(tlb.array.entries)), Some(u64::from(tlb.array.ways))))
        };
        let expected: Vec<_> =
            [held(&machine.l1), held(&machine.l2)].into_iter().flatten().collect();
        assert_eq!(shape(report), expected, "{name}, {size:?}");
        costs_agree(&machine, report, entry);
    }
    assert_eq!(calibration.load_cycles, f64::from(machine.caches[0].cycles), "{name}");
}

fn costs_agree(machine: &Machine, report: &SizeReport, entry: Size) {
    let name = &machine.name;
    let near = |found: f64, truth: f64| (found - truth).abs() <= 0.06 * truth;
    let second = machine.l2.iter().find(|tlb| tlb.holds[entry as usize]);
    if let Some(tlb) = second {
        let hit = report.levels[1].hit.as_ref().unwrap();
        assert!(hit.agreed && near(hit.cycles, f64::from(tlb.cycles)), "{name}: {hit:?}");
    }
    let (miss, pages) = (report.miss.as_ref().unwrap(), report.miss_pages.unwrap());
    let places = Shape::new(report.page, machine.base_page, 64).spread(pages);
    let truth = Simulated::new(machine.clone()).truth(report.page, &places, 99).unwrap();
    assert_eq!(truth.walks, 1.0, "{name}: the miss was measured where some accesses hit");
    assert!(miss.agreed && near(miss.cycles, truth.cycles), "{name}: {miss:?}, not {truth:?}");
}

macro_rules! geometries {
    ($($test:ident: $machine:expr;)*) => {$(
        #[test]
        fn $test() {
            finds_out($machine);
        }
    )*};
}

geometries! {
    cascade_lake_sets_by_exclusive_or: altered("cascade-lake", &[]);
    haswell_one_thousand_entries: altered("haswell", &[]);
    golden_cove_six_ways: altered("golden-cove", &[]);
    zen_1_twelve_ways_under_a_full_first_level: altered("zen1", &[]);
    zen_2: altered("zen2", &[]);
    zen_4_the_largest: altered("zen4", &[]);
    neoverse_n1_five_ways: altered("neoverse-n1", &[]);
    arm_with_pages_of_16k: altered("neoverse-v1", &[("base-page = \"4K\"", "base-page = \"16K\"")]);
    arm_with_pages_of_64k: altered("neoverse-n1", &[("base-page = \"4K\"", "base-page = \"64K\"")]);
    itanium_fully_associative_at_both_levels: on_a_tree(altered("itanium2-16k", &[]));
    ppc970_two_ways: on_a_tree(altered("ppc970", &[]));
    replaced_by_a_tree_of_bits: altered(
        "haswell",
        &[("ways = 8\n", "ways = 8\nreplacement = \"tree-plru\"\n")],
    );
    one_level_only: altered(
        "zen1",
        &[("[[tlb.l2]]\npages = [\"base\", \"large\"]", "[[tlb.l2]]\npages = [\"huge\"]")],
    );
}

/// The first level of another machine serves as the instruction TLB.
#[test]
fn what_the_first_level_keeps_of_code_is_found() {
    for name in ["cascade-lake", "zen1", "neoverse-n1"] {
        let machine = altered(name, &[]);
        let base = machine.base_page;
        let mut data = Simulated::new(altered("haswell", &[]));
        let mut code = Simulated::new(machine.clone()).only(base);
        let found = with_code(&mut data, Some(&mut code), EXACT, &[base]);
        assert_eq!(found.instructions.len(), 1, "{name}");
        let [first, next] = &found.instructions[0].levels[..] else { panic!("{name}") };
        assert_eq!(first.entries, Some(u64::from(machine.l1[0].array.entries)), "{name}");
        let (hit, truth) = (next.hit.as_ref().unwrap().cycles, f64::from(machine.l2[0].cycles));
        assert!((hit - truth).abs() <= 0.06 * truth, "{name}: {hit}, not {truth}");
        assert_eq!(found.sizes[0].levels[0].entries, Some(64), "{name}: loads are as before");
    }
}

#[test]
fn walk_caches_are_found() {
    // Entry sizes of the presets: PDE 32 (4 ways) or 64 (4 ways), PDPTE 16, PML4E 4.
    for (name, sizes) in [("neoverse-v1", [32, 16, 4]), ("zen4", [64, 16, 4])] {
        let machine = altered(name, &[]);
        let base = machine.base_page;
        let found = found(&mut Simulated::new(machine), EXACT, &[base]);
        assert_eq!(found.walk_steps.len(), 3, "{name}");
        for (step, truth) in found.walk_steps.iter().zip(sizes) {
            let entries = step.entries.unwrap();
            let apart = entries.abs_diff(truth);
            assert!(4 * apart <= truth.max(4), "{name}: {} reads, {entries}", step.reads);
            // Nearly all upper entries are in the first data cache: 4 cycles.
            let cycles = step.cycles.unwrap();
            assert!((3.5..5.5).contains(&cycles), "{name}: {} reads, {cycles}", step.reads);
        }
    }
}
