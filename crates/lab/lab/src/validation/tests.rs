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
