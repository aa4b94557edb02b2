//! Calibrations of simulated machines with noise. Every geometry is calibrated with several seeds, as a quiet machine
//! and as a busy one. All levels must be found: the first exactly, the others within the reported range; and costs
//! within 10 per cent.

mod common;

use common::simulated::{Noise, Simulated};
use common::{altered, on_a_tree, with_code};
use machine::{Machine, Size};
use superpage_tlb_probe::{Effort, Shape, SizeReport};

/// Number of seeds for each geometry and noise.
const SEEDS: usize = 3;

/// Calibrates `machine` with noise, and compares the result with its geometry.
fn is_found(machine: Machine) {
    let quiet = Simulated::new(machine.clone());
    for (noise, words) in [(Noise::QUIET, "quiet"), (Noise::BUSY, "busy")] {
        for seed in 1..=testkit::cases(SEEDS) as u64 {
            let mut probe = quiet.with_noise(noise, seed);
            let base = machine.base_page;
            let mut code = quiet.with_noise(noise, 100 + seed).only(base);
            let calibration = with_code(&mut probe, Some(&mut code), EFFORT, &[base]);
            let which = format!("{} {words} {seed}", machine.name);
            check(&machine, &calibration.sizes[0], &which);
            check_code(&machine, &calibration.instructions, &which);
        }
    }
}

fn check(machine: &Machine, report: &SizeReport, which: &str) {
    let entry = machine.entry_size(Size::Base);
    let held = |level: &[machine::Tlb]| {
        level.iter().find(|tlb| tlb.holds[entry as usize]).map(|tlb| u64::from(tlb.array.entries))
    };
    let truth: Vec<u64> = [held(&machine.l1), held(&machine.l2)].into_iter().flatten().collect();
    let all: Vec<_> = report.levels.iter().map(|level| (level.entries, level.range)).collect();
    assert_eq!(report.levels.len(), truth.len(), "{which}: {all:?}, not {truth:?}");
    for (index, (level, truth)) in report.levels.iter().zip(truth).enumerate() {
        let (low, high) = level.range.unwrap_or_else(|| panic!("{which}: {all:?}"));
        // Tolerance for the number of pages: none in the first level, a hundredth in the others.
        let slack = if index == 0 { 0 } else { truth / 100 };
        assert!(low <= truth + slack && truth <= high + slack, "{which}: {all:?}, not {truth}");
        let entries = level.entries.unwrap();
        assert!(entries.abs_diff(truth) <= truth / 50, "{which}: {all:?}, not {truth}");
    }
    for (level, array) in report.levels.iter().zip([&machine.l1, &machine.l2]) {
        let ways = array.iter().find(|tlb| tlb.holds[entry as usize]).unwrap().array.ways;
        assert!(level.ways.is_none_or(|found| found == u64::from(ways)), "{which}: {level:?}");
    }
    let near = |found: f64, truth: f64| (found - truth).abs() <= 0.1 * truth;
    if let Some(tlb) = machine.l2.iter().find(|tlb| tlb.holds[entry as usize]) {
        let hit = report.levels[1].hit.as_ref().unwrap();
        assert!(near(hit.cycles, f64::from(tlb.cycles)), "{which}: {hit:?}");
    }
    let (miss, pages) = (report.miss.as_ref().unwrap(), report.miss_pages.unwrap());
    let places = Shape::new(report.page, machine.base_page, 64).spread(pages);
    let truth = Simulated::new(machine.clone()).truth(report.page, &places, 99).unwrap();
    assert!(near(miss.cycles, truth.cycles), "{which}: {miss:?}, not {truth:?}");
}

/// The first level's entries and the cost of the next level must be right, or not reported.
fn check_code(machine: &Machine, reports: &[SizeReport], which: &str) {
    let entry = machine.entry_size(Size::Base);
    let held = |tlb: &&machine::Tlb| tlb.holds[entry as usize];
    let Some(report) = reports.iter().find(|report| report.page == machine.base_page) else {
        return;
    };
    let truth = machine.l1.iter().find(held).map(|tlb| u64::from(tlb.array.entries));
    let [first, next] = &report.levels[..] else { panic!("{which}: code: {:?}", report.levels) };
    assert_eq!(first.entries, truth, "{which}: code");
    if let Some(tlb) = machine.l2.iter().find(held) {
        let (hit, truth) = (next.hit.as_ref().unwrap(), f64::from(tlb.cycles));
        assert!((hit.cycles - truth).abs() <= 0.1 * truth, "{which}: code: {hit:?}, not {truth}");
    }
}

/// The command's effort, with fewer footprints, because the simulation takes longer than a real chase.
const EFFORT: Effort = Effort { step: 1.12, rounds: (4, 8), most_pages: 1 << 13, ..Effort::FULL };

macro_rules! geometries {
    ($($test:ident: $machine:expr;)*) => {$(
        #[test]
        fn $test() {
            is_found($machine);
        }
    )*};
}

geometries! {
    cascade_lake: altered("cascade-lake", &[]);
    haswell: altered("haswell", &[]);
    golden_cove: altered("golden-cove", &[]);
    zen_1: altered("zen1", &[]);
    zen_2: altered("zen2", &[]);
    zen_4: altered("zen4", &[]);
    neoverse_n1: altered("neoverse-n1", &[]);
    itanium: on_a_tree(altered("itanium2-16k", &[]));
    ppc970: altered("ppc970", &[]);
    one_level_only: altered(
        "zen1",
        &[("[[tlb.l2]]\npages = [\"base\", \"large\"]", "[[tlb.l2]]\npages = [\"huge\"]")],
    );
}
