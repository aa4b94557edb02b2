//! Explanations of made-up runs.

use crate::common::{report, timeline};
use mm_sim::Cause;
use superpage_lab::analysis::{explain, figures, mean_coverage, time_until};
use superpage_lab::{End, Report, Requests};

const G: u64 = 1_000_000_000;

fn quick() -> Report {
    let cycles = [(Cause::Work, 10 * G), (Cause::WalkLarge, G), (Cause::Zero, 2 * G)];
    let mut report = report("sync-64", &cycles);
    report.counters.made_in_place = 900;
    report.counters.made_at_fault = 100;
    report.counters.superpages = 1000;
    report.counters.faults = 70_000;
    report.counters.touched_pages = Some(512_000);
    report.counters.resident_pages = 512_000;
    report.timeline = timeline(&[(0, 0), (1_000_000, 500), (2_000_000, 1000), (13_000_000, 1000)]);
    report
}

fn slow() -> Report {
    let cycles = [(Cause::Work, 10 * G), (Cause::WalkBase, 15 * G), (Cause::Zero, G)];
    let mut report = report("linux-4.3", &cycles);
    report.counters.made_by_copy = 16;
    report.counters.superpages = 16;
    report.counters.faults = 510_000;
    report.counters.fallbacks = 900;
    report.counters.touched_pages = Some(512_000);
    report.counters.resident_pages = 640_000;
    report.timeline = timeline(&[(0, 0), (10_000_000, 8), (20_000_000, 16), (26_000_000, 16)]);
    report
}

#[test]
fn tells_what_made_the_difference_in_order_and_what_went_against_it() {
    let explanation = explain(&slow(), &quick());
    assert_eq!(explanation.runs, ["sync-64", "linux-4.3"]);
    assert_eq!(explanation.speedup, Some(2.0));
    let causes: Vec<Cause> = explanation.differences.iter().map(|one| one.cause).collect();
    assert_eq!(causes, [Cause::WalkBase, Cause::WalkLarge, Cause::Zero]);
    assert_eq!(
        explanation.sentences,
        [
            "sync-64 was 2.00 times as fast as linux-4.3: 13.0 s against 26.0 s.",
            "sync-64 used 13.0 G fewer CPU cycles than linux-4.3 (13.0 G against 26.0 G): it \
             saved on page walks for base pages (100 % of all savings: 0 against 15.0 G).",
            "It spent more on page walks for superpages (50.0 % of all that it spent more: 1.00 G against 0), zeroing (50.0 %: \
             2.00 G against 1.00 G).",
            "sync-64 made 1000 superpages: 100 by a fault, 900 in place; half of the peak (1000) existed after \
             1.00 s, 90 % after 2.00 s of 13.0 s. Over the whole run they covered 88.5 % of \
             its memory.",
            "linux-4.3 made 16 superpages, all by copying; half of the peak (16) existed after 10.0 s, 90 % \
             after 20.0 s of 26.0 s. Over the whole run they covered 0.677 % of its memory.",
            "Faults: 70000 against 510000; 900 faults of linux-4.3 requested a superpage and fell back.",
            "sync-64 kept only touched pages resident, linux-4.3 kept 1.25 pages resident per touched page (640000 for 512000, 80.0 % of \
             them in use).",
        ]
    );
}

#[test]
fn the_order_of_the_two_changes_nothing() {
    assert_eq!(explain(&slow(), &quick()), explain(&quick(), &slow()));
}

#[test]
fn what_trades_against_each_other_is_no_share_above_the_whole() {
    // The two runs differ by 0.2 G cycles in total, but by fifteen times as much in walks on base pages.
    let cycles = [(Cause::Work, 10 * G), (Cause::WalkBase, 3 * G), (Cause::Fault, G / 5)];
    let told = explain(&quick(), &report("async-64", &cycles)).sentences.join(" ");
    let shares = told.split('(').filter_map(|part| part.split_once(" %")?.0.parse::<f64>().ok());
    let shares: Vec<f64> = shares.collect();
    assert!(shares.len() > 2 && shares.iter().all(|share| *share <= 100.0), "{told}");
}

#[test]
fn is_honest_where_nothing_separates_them() {
    let mut other = quick();
    other.cell.design = "async-64".to_string();
    let explanation = explain(&quick(), &other);
    let first = &explanation.sentences[..2];
    assert_eq!(
        first[0],
        "sync-64 and async-64 took the same time within 1 %: 13.0 s against 13.0 s."
    );
    assert_eq!(first[1], "They spent the same cycles on everything.");

    // Both runs have the same sum, but other causes.
    let a = report("a", &[(Cause::Work, 10 * G), (Cause::Zero, 2 * G)]);
    let b = report("b", &[(Cause::Work, 10 * G), (Cause::WalkBase, 2 * G)]);
    let text = explain(&a, &b).sentences[1].clone();
    assert!(text.contains("spent them differently"), "{text}");
    assert!(text.contains("zeroing 2.00 G against 0"), "{text}");

    // A difference of half a per cent counts as none, whichever run is slower.
    let a = report("a", &[(Cause::Work, 1000 * G)]);
    let b = report("b", &[(Cause::Work, 1005 * G)]);
    let sentences = explain(&a, &b).sentences;
    assert!(sentences[0].contains("took the same time"), "{sentences:?}");
    assert!(sentences[1].contains("spent on the same work"), "{sentences:?}");
}

#[test]
fn a_time_that_is_not_in_the_ledger_is_told_as_waiting() {
    let a = report("a", &[(Cause::Work, 10 * G)]);
    let mut b = report("b", &[(Cause::Work, 10 * G + 1)]);
    b.wall_cycles = 15 * G;
    let text = explain(&a, &b).sentences[1].clone();
    assert!(text.contains("differ by waiting"), "{text}");
}

#[test]
fn an_end_before_the_end_is_no_speed() {
    let mut killed = slow();
    killed.end = End::OutOfMemory { resident_pages: 1, reserved_pages: Some(0) };
    let explanation = explain(&killed, &quick());
    assert_eq!(explanation.speedup, None);
    assert_eq!(
        explanation.sentences[0],
        "Their times are not comparable: linux-4.3 was killed: memory ran out with 1 base page resident."
    );
    killed.end = End::OutOfMemory { resident_pages: 0, reserved_pages: Some(511) };
    assert_eq!(
        explain(&killed, &quick()).sentences[0],
        "Their times are not comparable: linux-4.3 was killed: memory ran out with no base pages resident, while \
         reservations keep 511 base pages unused: the design does not break them (allocation.break-reservations = \
         false)."
    );
    killed.end = End::Refused { short_by: 7 };
    assert!(explain(&killed, &quick()).sentences[0].contains("its pool was 7 superpages short"));
    assert_eq!(figures(&killed, Some(&quick())).speedup, None);
}

#[test]
fn different_programs_and_machines_have_no_ratio() {
    for (what, change) in [
        ("workload", (|report: &mut Report| report.cell.workload.push('2')) as fn(&mut Report)),
        ("machine", |report| report.cell.machine.push('2')),
    ] {
        let mut other = slow();
        change(&mut other);
        let explanation = explain(&quick(), &other);
        assert_eq!(explanation.speedup, None);
        let all = explanation.sentences.join("\n");
        assert!(all.contains(&format!("not comparable: the {what}s differ")), "{all}");
        assert!(!all.contains("times as fast"), "{all}");
    }
}

/// Pages that were only read map the zero page: they are touched and not resident, and bloat is never below 1.
#[test]
fn pages_that_were_only_read_waste_nothing() {
    let mut report = quick();
    report.counters.touched_pages = Some(600_000);
    let told = figures(&report, None);
    assert_eq!((told.bloat, told.utilisation), (Some(1.0), Some(1.0)));
    report.counters.touched_pages = None;
    let told = figures(&report, None);
    assert_eq!((told.bloat, told.utilisation), (None, None));
}

#[test]
fn different_experiments_are_told_apart() {
    let mut other = quick();
    other.cell.fragmentation = "frag-50".to_string();
    other.wall_cycles *= 2;
    let explanation = explain(&quick(), &other);
    assert_eq!(explanation.runs, ["sync-64 (none)", "sync-64 (frag-50)"]);
    assert!(explanation.sentences[0].contains("also differ in fragmentation"));
}

#[test]
fn stalls_daemons_and_requests_are_told_where_there_are_any() {
    let requests = |p99: f64| Requests {
        count: 10,
        mean: 20.0,
        p50: 15.0,
        p95: 40.0,
        p99,
        p999: 900.0,
        max: 1000.0,
    };
    let (mut a, mut b) = (quick(), slow());
    b.ledger.charge(Cause::Compact, 5 * G);
    b.counters.compactions = 3;
    b.background.charge(Cause::Scan, 13 * G);
    (a.requests, b.requests) = (Some(requests(50.0)), Some(requests(700.0)));
    let text = explain(&a, &b).sentences.join("\n");
    assert!(text.contains("linux-4.3 stalled for 16.1 % of its cycles"), "{text}");
    assert!(text.contains("3 direct compactions"), "{text}");
    assert!(text.contains("linux-4.3's for 50.0 %"), "{text}");
    assert!(text.contains("99th percentiles were 50.0 µs and 700 µs"), "{text}");
}

#[test]
fn an_empty_run_says_nothing_it_does_not_know() {
    let empty = report("a", &[]);
    let figures = figures(&empty, Some(&empty));
    assert_eq!((figures.speedup, figures.translation, figures.bloat), (None, None, None));
    assert_eq!((figures.coverage, figures.utilisation), (None, None));
    assert_eq!((mean_coverage(&empty), time_until(&empty, 0.5)), (None, None));
    let text = explain(&empty, &report("b", &[])).sentences.join("\n");
    assert!(text.contains("took no time") && text.contains("a made no superpages."), "{text}");
}
