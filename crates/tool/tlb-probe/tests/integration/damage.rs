//! Damaged calibrations are refused: every figure is checked for impossible values.

use serde_json::{Value, json};
use superpage_tlb_probe::Calibration;
use testkit::figures::Change::{Absent, Negative, Null};
use testkit::figures::{Legitimate, refused};

const TLB: &str = include_str!("../../../../../docs/schemas/examples/tlb-1.json");

const LEGITIMATE: [Legitimate; 4] = [
    Legitimate {
        changes: &[Null],
        fields: &[
            "clock.counter_mhz",
            "*.levels[].entries",
            "*.levels[].ways",
            "*.miss_pages",
            "walk_steps[].entries",
            "walk_steps[].cycles",
        ],
        why: "it does not show",
    },
    Legitimate {
        changes: &[Null, Absent],
        fields: &["processor.*"],
        why: "the processor does not say",
    },
    Legitimate {
        changes: &[Null, Absent],
        fields: &["*.confidence"],
        why: "an earlier version did not say",
    },
    Legitimate {
        changes: &[Negative],
        fields: &["*.packed", "*.estimates[]", "*.interval[]", "walk_steps[].curve[][]"],
        why: "a difference of two readings is turned by noise",
    },
];

fn read(text: &str) -> Result<(), String> {
    report::document::read::<Calibration>(text).map(|_| ())
}

/// Returns a calibration with all optional fields.
fn whole() -> Value {
    let mut document: Value = serde_json::from_str(TLB).unwrap();
    document["backing"] = json!({
        "page": 2 << 20, "verdict": "mixed", "looked_at": 8, "fractured": 3, "whole": 4, "lines": 64, "within": 9.0,
        "together": 5.0, "apart": 12.0,
    });
    document["accesses"] = json!({
        "bytes": 1u64 << 30,
        "dependent": {"base_ns": 99.0, "superpage_ns": 80.0},
        "independent": {"base_ns": 9.0, "superpage_ns": 8.0},
    });
    document["walk_steps"] =
        json!([{"reads": 2, "entries": 32, "cycles": 7.0, "curve": [[2, 1.0], [4, 2.0]]}]);
    document
}

#[test]
fn no_figure_can_be_what_it_cannot_be() {
    println!("superpage.tlb/1: {:?}", refused(&whole().to_string(), &LEGITIMATE, read));
}

#[test]
fn what_figures_say_together_agrees() {
    for (pointer, to, why) in [
        ("/clock/seen_mhz", json!([3000, 2000]), "clock: seen_mhz does not ascend"),
        ("/sizes/0/levels/0/ways", json!(128), "sizes[0].levels[0]: ways are more than entries"),
        ("/sizes/0/levels/0/range", json!([65, 64]), "sizes[0].levels[0]: range does not ascend"),
        ("/sizes/0/miss/cycles", json!(9e3), "sizes[0].miss: cycles are not inside interval"),
        ("/backing/whole", json!(7), "backing: fractured and whole are more than looked_at"),
    ] {
        let mut document = whole();
        *document.pointer_mut(pointer).unwrap() = to;
        let refused = read(&document.to_string()).unwrap_err();
        assert!(refused.starts_with(why), "{pointer}: {refused}");
    }
}
