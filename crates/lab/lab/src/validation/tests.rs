//! Tests the arithmetic with made-up figures.

use super::*;

fn side(seconds: f64) -> Side {
    Side { seconds, ..Side::default() }
}

fn row(live: f64, lab: f64, as_live: Option<f64>) -> Row {
    Row {
        design: format!("{live}"),
        live: side(live),
        lab: side(lab),
        as_live: as_live.map(|seconds| AsLive {
            summary: "copies".to_string(),
            design: String::new(),
            lab: side(seconds),
        }),
        rules: Vec::new(),
        notes: Vec::new(),
    }
}

fn pair(than: usize, design: usize, ratio: f64, interval: [f64; 2]) -> Pair {
    Pair { than, design, ratio, interval: Some(interval) }
}

/// Base pages: 4 s live, 4.4 s simulated. `a`: 2 s live, 1.6 s simulated as written, 2.5 s as carried out live. `b`: 5
/// s live, 4 s simulated.
pub(super) fn validation() -> Validation {
    let compared = Compared {
        workload: "gups:size=1GiB".to_string(),
        fragmentation: None,
        command: vec!["superpage".to_string()],
        runs: 6,
        designs: vec![row(4.0, 4.4, None), row(2.0, 1.6, Some(2.5)), row(5.0, 4.0, None)],
        pairs: vec![
            pair(0, 1, 2.0, [1.8, 2.2]),
            pair(0, 2, 0.8, [0.7, 0.9]),
            pair(1, 2, 0.4, [0.35, 0.45]),
        ],
    };
    Validation {
        schema: SCHEMA.to_string(),
        computer: "a computer".to_string(),
        machine: "this".to_string(),
        memory_bytes: 8 << 30,
        fragmentation: "none".to_string(),
        seed: 1,
        confidence: 0.99,
        workloads: vec![compared],
    }
}

fn near(found: Option<f64>, wanted: f64) {
    assert!((found.unwrap() - wanted).abs() < 1e-12, "{found:?}, not {wanted}");
}

#[test]
fn errors_are_of_speed_ups_over_each_sides_own_base() {
    let all = validation();
    let one = &all.workloads[0];
    let [_, a, b] = &one.designs[..] else { panic!("three") };
    // The simulated ratio is 4.4 / 1.6 = 2.75 as written and 4.4 / 2.5 = 1.76 as carried out live; the measured ratio
    // is 2.
    near(one.error(a, |row| &row.lab), 0.375);
    near(one.error(a, Row::simulated), -0.12);
    // The simulated ratio is 1.1, the measured one 0.8, both as written and as carried out live.
    near(one.error(b, |row| &row.lab), 0.375);
    near(one.error(b, Row::simulated), 0.375);
    near(all.as_written().error, 0.375);
    near(all.as_live().error, (1.375f64 / 0.88).sqrt() - 1.0);
    near(all.as_live().base_error, 0.1);
}

#[test]
fn an_anchored_speed_up_takes_the_programs_own_work_from_the_live_run() {
    let mut all = validation();
    let base = &mut all.workloads[0].designs[0];
    (base.live.kernel_seconds, base.lab.kernel_seconds) = (Some(1.0), Some(0.5));
    let one = &all.workloads[0];
    let [_, a, b] = &one.designs[..] else { panic!("three") };
    // On base pages 3 s in user mode live and 0.5 s in the simulated kernel. Of them 2.8 s are saved as written, 1.9 as
    // carried out live.
    near(one.anchored(a, |row| &row.lab), 3.5 / 0.7);
    near(one.anchored(a, Row::simulated), 3.5 / 1.6);
    near(one.anchored_error(a, Row::simulated), 3.5 / 1.6 / 2.0 - 1.0);
    near(one.anchored_error(b, Row::simulated), 3.5 / 3.1 / 0.8 - 1.0);
    near(all.as_live().worst, 3.5 / 3.1 / 0.8 - 1.0);
    // A program that only faults is simulated whole.
    let mut faults = one.clone();
    faults.designs[0].live.kernel_seconds = Some(4.5);
    faults.designs[0].lab.kernel_seconds = Some(5.0);
    near(faults.anchored(&faults.designs[1], Row::simulated), 4.4 / 2.5);
    // More is saved than the program took; the time in the kernel is unknown.
    let mut other = one.clone();
    other.designs[0].lab.seconds = 9.0;
    assert_eq!(other.anchored(&other.designs[1], |row| &row.lab), None);
    other.designs[0] = validation().workloads[0].designs[0].clone();
    assert_eq!(other.anchored(&other.designs[1], |row| &row.lab), None);
}

#[test]
fn a_cause_is_the_part_that_differs_most() {
    let all = validation();
    let mut one = all.workloads[0].clone();
    assert_eq!(one.gap(&one.designs[2], Row::simulated), None, "kernel time is unknown");
    let set = |side: &mut Side, kernel, superpages| {
        (side.kernel_seconds, side.superpages) = (Some(kernel), Some(superpages));
    };
    set(&mut one.designs[0].live, 1.0, 0.0);
    set(&mut one.designs[0].lab, 1.0, 0.0);
    set(&mut one.designs[2].live, 2.0, 100.0);
    set(&mut one.designs[2].lab, 0.5, 95.0);
    // Live 1 s is lost, all of it in the kernel. The laboratory saves 0.4 s: 0.5 in the kernel, and loses 0.1.
    let gap = one.gap(&one.designs[2], Row::simulated).unwrap();
    near(Some(gap.kernel), 1.5 / 4.0);
    near(Some(gap.translation), -0.1 / 4.0);
    assert_eq!(gap.cause(), Cause::Kernel);
    set(&mut one.designs[2].lab, 1.9, 95.0);
    let gap = one.gap(&one.designs[2], Row::simulated).unwrap();
    assert_eq!(gap.cause(), Cause::Translation, "{gap:?}");
    set(&mut one.designs[2].lab, 1.9, 80.0);
    assert_eq!(one.gap(&one.designs[2], Row::simulated).unwrap().cause(), Cause::Superpages);
}

#[test]
fn only_pairs_that_the_laboratory_separates_count() {
    let mut all = validation();
    // b is 10 % faster than base pages in the laboratory, but slower live.
    let of = |all: &Validation| all.as_written().order;
    assert_eq!(of(&all), Order { pairs: 3, agree: 2, disagree: 1, undecided: 0 });
    // The interval contains 1: undecided.
    all.workloads[0].pairs[1].interval = Some([0.7, 1.02]);
    assert_eq!(of(&all), Order { pairs: 3, agree: 2, disagree: 0, undecided: 1 });
    all.workloads[0].pairs[1].interval = None;
    assert_eq!(of(&all).undecided, 1);
    // A difference of 4 % does not count as an order.
    all.workloads[0].designs[2].lab.seconds = 4.4 / 1.04;
    assert_eq!(of(&all), Order { pairs: 2, agree: 2, ..Order::default() });
}

#[test]
fn half_of_the_superpages_are_there_from_a_step_on() {
    let step = |at, superpages| Step { at, superpages };
    let mut side = side(1.0);
    assert_eq!(side.half_at(), None);
    side.steps = vec![step(0.0, 0.0), step(0.1, 5.0), step(0.3, 6.0), step(0.5, 11.0)];
    assert_eq!(side.half_at(), Some(0.3));
}

#[test]
fn a_document_is_read_back_as_it_was() {
    let text = serde_json::to_string(&validation()).unwrap();
    assert_eq!(serde_json::from_str::<Validation>(&text).unwrap(), validation());
}
