//! The stopping rule and its bounds.

use std::time::Duration;
use superpage_experiment::stats::Confidence;
use superpage_experiment::stats::stopping::{
    End, Looks, Next, PATIENT_RUNS, Progress, Rule, Time, next,
};

fn known(blocks: u32, half_width: f64) -> Progress {
    Progress { blocks, half_width: Some(half_width), decided: false }
}

fn time(elapsed: f64, limit: f64) -> Time {
    let [elapsed, limit] = [elapsed, limit].map(Duration::from_secs_f64);
    Time { elapsed, limit: Some(limit), patience: None }
}

const RULE: Rule = Rule {
    min_runs: 5,
    max_runs: 100,
    confidence: Confidence::P99,
    within: 0.02,
    decide_after: Some(60.0),
    max_deviation: None,
};

#[test]
fn the_default_asks_for_five_runs_and_two_percent() {
    assert_eq!(Rule::default(), RULE);
}

#[test]
fn five_runs_are_three_blocks() {
    assert!(!known(2, 0.0).is_enough(&RULE));
    assert!(known(3, 0.02).is_enough(&RULE));
    assert!(!known(3, 0.021).is_enough(&RULE));
    assert_eq!(known(2, 0.0).estimated_runs_needed(&RULE), Some(6));
    let unknown = Progress { half_width: None, ..known(1, 0.0) };
    assert_eq!((unknown.is_enough(&RULE), unknown.estimated_runs_needed(&RULE)), (false, None));
}

#[test]
fn the_estimate_grows_with_the_square_of_the_width() {
    let needed = |half| known(20, half).estimated_runs_needed(&RULE).unwrap();
    assert_eq!(needed(0.02), 40);
    let (twice, thrice) = (needed(0.04), needed(0.06));
    assert!((150..=160).contains(&twice), "{twice}");
    assert!((320..=360).contains(&thrice), "{thrice}");
}

#[test]
fn an_arm_that_always_fails_ends_at_max_runs() {
    let failing = Progress { blocks: 0, half_width: None, decided: false };
    assert_eq!(next(&failing, 49, &RULE, time(0.0, 9.0)), Next::Block);
    assert_eq!(next(&failing, 50, &RULE, time(0.0, 9.0)), Next::MaxRuns);
}

#[test]
fn a_block_that_will_not_fit_is_not_begun() {
    let wide = known(4, 0.1);
    assert_eq!(next(&wide, 4, &RULE, time(40.0, 60.0)), Next::Block);
    assert_eq!(next(&wide, 4, &RULE, time(40.0, 49.0)), Next::MaxTime);
    // A limit that was given holds before the minimum number of blocks too; only a soft one gives way.
    assert_eq!(next(&wide, 2, &RULE, time(40.0, 60.0)), Next::Block);
    assert_eq!(next(&wide, 2, &RULE, time(40.0, 50.0)), Next::MaxTime);
    let soft = Time { patience: Some(Duration::ZERO), ..time(40.0, 50.0) };
    assert_eq!(next(&wide, 2, &RULE, soft), Next::Block);
    let unlimited = Time { limit: None, ..time(1e9, 0.0) };
    assert_eq!(next(&wide, 4, &RULE, unlimited), Next::Block);
    assert_eq!(next(&known(3, 0.0), 3, &RULE, time(99.0, 1.0)), Next::Enough);
}

#[test]
fn a_limit_that_nobody_asked_for_gives_way_to_a_few_runs_and_to_two_blocks() {
    let wide = known(4, 0.1);
    let patient = |elapsed, limit| {
        let patience = Some(Duration::from_secs(1800));
        Time { patience, ..time(elapsed, limit) }
    };
    // With blocks of 20 s, runs end after `PATIENT_RUNS` runs of each arm, at 500 s; with blocks of 120 s after 15
    // blocks, at 1800 s.
    let blocks = PATIENT_RUNS / 2;
    for (block, most) in [(1.0, 300), (20.0, blocks), (120.0, 15), (3600.0, 2)] {
        let stops = |begun: u32| {
            let time = patient(f64::from(begun) * block, 300.0);
            next(&wide, begun, &Rule { max_runs: 10_000, ..RULE }, time) == Next::MaxTime
        };
        assert_eq!((1..).find(|begun| stops(*begun)), Some(most), "{block}");
        assert_eq!(patient(4.0 * block, 300.0).blocks(4), Some(most), "{block}");
    }
}

#[test]
fn verdicts_are_looked_at_after_a_minute_and_then_seldom() {
    let mut looks = Looks::default();
    let mut at = Vec::new();
    for begun in 1..=60 {
        // With blocks of 4 s the fifteenth ends at 60 s, and one more would end later.
        if looks.is_due(begun, &RULE, time(f64::from(begun) * 4.0, 1e4)) {
            looks.record(begun);
            at.push(begun);
        }
    }
    assert_eq!(at, [15, 23, 35, 53]);
    let never = Rule { decide_after: None, ..RULE };
    assert!(!Looks::default().is_due(9, &never, time(1e4, 1e6)));
    // With long runs, the first look is at the minimum number of blocks.
    assert!(!Looks::default().is_due(2, &RULE, time(240.0, 1e6)));
    assert!(Looks::default().is_due(3, &RULE, time(360.0, 1e6)));
}

#[test]
fn looks_spend_no_more_than_the_error_that_was_stated() {
    let error = |looks: &Looks, end| 1.0 - looks.level(Confidence::P99, end).level();
    let mut looks = Looks::default();
    let mut spent = 0.0;
    for begun in 1..12 {
        assert!(spent + error(&looks, End::Other) <= 0.005 + 1e-12, "half is in reserve");
        assert!(error(&looks, End::Enough) < error(&looks, End::Other));
        looks.record(begun);
        spent += error(&looks, End::Decided);
    }
}
