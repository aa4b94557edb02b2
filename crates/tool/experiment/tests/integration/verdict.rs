//! The verdicts, their precedence and their texts.

use superpage_experiment::schedule::Schedule;
use superpage_experiment::stats::{
    Better, Comparison, Interval, Sample, SampleError, Settings, compare,
};
use superpage_experiment::verdict::{
    Effect, Margin, Terms, Verdict, floor_text, noise_floor, verdict,
};

/// Returns a comparison with these figures.
fn figures(speedup: f64, low: f64, high: f64) -> Comparison {
    let samples: Vec<Sample> =
        Schedule::new(2, 1).take(20).map(|at| Sample { at, value: 1.0 }).collect();
    let settings = Settings::new(1);
    let base = compare(&samples, 0, 1, Better::Lower, &settings).expect("comparable");
    Comparison { speedup, interval: Some(Interval { low, high }), ..base }
}

fn judged(speedup: f64, low: f64, high: f64) -> Verdict {
    verdict(&Effect::AsPromised, Ok(&figures(speedup, low, high)), &Margin::default())
}

#[test]
fn plain_words() {
    let line = |s, l, h| judged(s, l, h).to_string();
    assert_eq!(line(1.93, 1.88, 1.97), "1.93x faster (99 % interval 1.88–1.97)");
    assert_eq!(line(0.5, 0.4, 0.625), "2.00x slower (99 % interval 1.60–2.50)");
    assert_eq!(line(0.998, 0.991, 1.005), "same within 1 % (0.998, 99 % interval 0.991–1.005)");
    assert_eq!(
        line(1.03, 0.99, 1.07),
        "undecided at 1.030x (99 % interval 0.990–1.070; about 6 more runs)"
    );
    assert_eq!(line(25.04, 20.0, 1e9), "25.0x faster (99 % interval 20.0–1.0e9)");
    // A decided verdict has its interval, however wide; an undecided verdict shows no wide interval, which would mean
    // nothing.
    let wide = judged(2.28, 4.0e-4, 11868.0).to_string();
    assert!(
        wide.starts_with("undecided at 2.28x (too few runs, or too much noise, for an"),
        "{wide}"
    );
    assert!(!wide.contains("11868"), "{wide}");
    let memory = judged(1.5, 1.4, 1.6).line(Terms::Worth);
    assert_eq!(memory, "1.50x better (99 % interval 1.40–1.60)");
}

#[test]
fn inside_the_margin_is_same_even_if_one_is_excluded() {
    assert!(matches!(judged(1.01, 1.005, 1.015), Verdict::Same { .. }));
    assert!(matches!(judged(1.01, 1.005, 1.0201), Verdict::Faster(_)));
    assert!(matches!(judged(1.0, 1.0 / 1.02, 1.02), Verdict::Same { .. }));
    assert!(matches!(judged(1.0, 1.0, 1.0), Verdict::Same { .. }));
}

#[test]
fn what_may_be_equal_is_same_up_to_the_wider_margin_and_says_how_far() {
    assert!(matches!(judged(1.01, 0.98, 1.04), Verdict::Same { within, .. } if within == 0.04));
    assert!(matches!(judged(1.01, 0.96, 1.06), Verdict::Undecided { .. }));
    // A certain difference above the margin is not "the same".
    assert!(matches!(judged(1.025, 1.01, 1.04), Verdict::Faster(_)));
}

#[test]
fn a_design_that_did_not_take_effect_has_no_number() {
    let why = "promised 2 GiB, found 0".to_string();
    let missing = Effect::Missing { why: why.clone() };
    let word = verdict(&missing, Ok(&figures(2.0, 1.9, 2.1)), &Margin::default());
    assert_eq!(word, Verdict::DidNotTakeEffect { why });
    let refused = SampleError::NoCompleteBlock { arm: 1, reference: 0 };
    let both = verdict(&missing, Err(&refused), &Margin::default());
    assert!(matches!(both, Verdict::DidNotTakeEffect { .. }));
    let none = verdict(&Effect::AsPromised, Err(&refused), &Margin::default());
    assert_eq!(none.to_string(), "no data: no block has both runs of arm 1 and both of arm 0");
}

#[test]
fn under_the_noise_floor_nothing_is_faster() {
    let floor = noise_floor(&figures(1.01, 0.96, 1.05)).expect("interval");
    assert!((floor - 0.05).abs() < 1e-12);
    let margin = Margin { noise_floor: Some(floor), ..Margin::default() };
    let word = |s, l, h| verdict(&Effect::AsPromised, Ok(&figures(s, l, h)), &margin);
    assert!(matches!(word(1.04, 1.01, 1.07), Verdict::Undecided { .. }));
    assert!(matches!(word(1.02, 1.005, 1.035), Verdict::Same { within, .. } if within == 0.035));
    assert!(matches!(word(1.06, 1.01, 1.11), Verdict::Faster(_)));
    assert!(matches!(word(1.0 / 1.06, 1.0 / 1.11, 1.0 / 1.01), Verdict::Slower(_)));
    // Arms are never the same within an arbitrary noise floor: a few runs on a noisy machine give a floor of hundreds
    // of percent.
    let high = Margin { noise_floor: Some(14.0), ..Margin::default() };
    let wide = verdict(&Effect::AsPromised, Ok(&figures(0.9, 0.28, 2.38)), &high);
    assert!(matches!(wide, Verdict::Undecided { .. }), "{wide}");
    assert!(floor_text(0.05).contains("noise floor 5 %"));
    assert!(floor_text(14.0).contains("noise floor unknown"));
    // A noise floor below the margin changes nothing.
    let low = Margin { noise_floor: Some(0.001), ..Margin::default() };
    let same = verdict(&Effect::AsPromised, Ok(&figures(1.0, 0.99, 1.01)), &low);
    assert!(matches!(same, Verdict::Same { within, .. } if within == 0.011));
}

#[test]
fn undecided_asks_for_at_least_one_block_and_ends() {
    let more = |s, l, h| match judged(s, l, h) {
        Verdict::Undecided { more_runs, .. } => more_runs,
        other => panic!("{other}"),
    };
    assert_eq!(more(1.03, 0.9999, 1.05), 2);
    assert!(more(1.0, 0.9, 1.1) > more(1.0, 0.95, 1.05));
    // At the edge of the margin, the distance to 1 decides, so the number of further runs stays small.
    assert!(more(1.05, 0.99, 1.11) < 20);
    assert_eq!(more(1.0, 1e-9, 1e9), 9_990);
}

#[test]
fn one_block_is_undecided_without_an_interval() {
    let samples: Vec<Sample> = Schedule::new(2, 1)
        .take(4)
        .map(|at| Sample { at, value: 1.0 + f64::from(at.arm) })
        .collect();
    let one = compare(&samples, 0, 1, Better::Lower, &Settings::new(1));
    let word = verdict(&Effect::AsPromised, one.as_ref(), &Margin::default());
    assert_eq!(word.to_string(), "undecided at 0.500x (no interval yet; about 4 more runs)");
    let json = serde_json::to_value(&word).expect("serializable");
    assert_eq!(
        (&json["verdict"], &json["interval"]),
        (&"undecided".into(), &serde_json::Value::Null)
    );
}

#[test]
fn json_is_flat_and_tagged() {
    let json = serde_json::to_string(&judged(1.0, 0.99, 1.01)).expect("serializable");
    let expected = r#"{"verdict":"same","within":0.011,"speedup":1.0,"interval":{"low":0.99,"high":1.01},"confidence":0.99}"#;
    assert_eq!(json, expected);
}
