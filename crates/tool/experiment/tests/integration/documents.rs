//! Damaged documents are refused: every figure of a comparison, a series or an evaluation is checked for impossible
//! values.

use serde_json::{Value, json};
use superpage_experiment::document::Document;
use superpage_experiment::evaluation::Evaluation;
use superpage_experiment::running::document::Document as Running;
use superpage_experiment::series::Series;
use testkit::figures::Change::{Absent, Negative, Null};
use testkit::figures::{Legitimate, refused};

const COMPARE: &str = include_str!("../../../../../docs/schemas/examples/compare-1.json");
const SERIES: &str = include_str!("../../../../../docs/schemas/examples/compare-series-1.json");
const RUNNING: &str = include_str!("../../../../../docs/schemas/examples/compare-running-1.json");
const EVALUATION: &str = include_str!("../../../../../docs/schemas/examples/evaluation-1.json");

const OF_THE_MACHINE: Legitimate = Legitimate {
    changes: &[Null, Absent],
    fields: &["*machine.*"],
    why: "what a kernel does not tell is unknown",
};
const NOT_SEEN: Legitimate = Legitimate {
    changes: &[Null],
    fields: &[
        "*samples[].exit_code",
        "*samples[].compaction_stalls",
        "*samples[].reclaim_stalls",
        "*samples[].thp_fault_fallbacks",
        "*samples[].free_superpage_bytes_after",
        "*samples[].free_superpage_bytes_before",
        "*samples[].library_asked_bytes",
        "*samples[].library_forks",
        "*samples[].memory.peak_resident_bytes",
        "*samples[].memory.peak_at_least_bytes",
        "*samples[].memory.peak_at_most_bytes",
        "*samples[].memory.zero_filled_bytes",
        "*samples[].memory.over_time.mean_coverage",
        "*samples[].memory.over_time.end.superpage_bytes",
        "*samples[].memory.timeline[].superpage_bytes",
        "*samples[].service.setup_seconds",
        "*samples[].service.prepare_seconds",
        "*samples[].service.port",
    ],
    why: "null is unknown, or that there was none",
};
const NO_LIMIT: Legitimate = Legitimate {
    changes: &[Null],
    fields: &[
        "*settings.max_seconds",
        "*settings.patience_seconds",
        "*settings.rule.decide_after",
        "*settings.rule.max_deviation",
    ],
    why: "null is no limit",
};
const ADDED_LATER: Legitimate = Legitimate {
    changes: &[Absent],
    fields: &[
        "*settings.patience_seconds",
        "*settings.rule.decide_after",
        "*settings.rule.max_deviation",
        "*samples[].library_asked_bytes",
        "*samples[].library_forks",
        "*samples[].memory.peak_at_least_bytes",
        "*samples[].memory.peak_at_most_bytes",
        "*samples[].memory.processes_unseen",
        "*samples[].design.in_place",
        "*samples[].design.ahead",
        "*samples[].design.held",
        "*samples[].design.waiting",
        "*samples[].design.by_fault",
        "*samples[].service.port",
    ],
    why: "documents of an earlier version have none",
};
const WHAT_IS_LEFT: Legitimate = Legitimate {
    changes: &[Negative],
    fields: &["predicted.prediction.base.rest", "predicted.prediction.superpage.rest"],
    why: "parts that are estimated may be more than the whole",
};
const A_LOSS: Legitimate = Legitimate {
    changes: &[Negative],
    fields: &["predicted.prediction.saved.low", "predicted.prediction.translating.low"],
    why: "superpages may cost time",
};

fn compare(text: &str) -> Result<(), String> {
    Document::parse(text, "FILE").map(|_| ()).map_err(|error| error.to_string())
}

fn series(text: &str) -> Result<(), String> {
    Series::parse(text, "FILE").map(|_| ()).map_err(|error| error.to_string())
}

fn evaluation(text: &str) -> Result<(), String> {
    Evaluation::parse(text, "FILE").map(|_| ()).map_err(|error| error.to_string())
}

fn running(text: &str) -> Result<(), String> {
    Running::parse(text, "FILE").map(|_| ()).map_err(|error| error.to_string())
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Returns a comparison with all optional fields.
fn whole() -> Value {
    let mut document = value(COMPARE);
    document["settings"]["rule"]["max_deviation"] = json!(0.1);
    document["arrays"] = json!({
        "line_bytes": 64, "offset_bytes": 64, "deviation": {"arm": "a", "metric": "m", "share": 0.1},
        "earlier": [{"offset_bytes": 0, "deviation": null, "arms": [], "samples": [], "elapsed_seconds": 2.0}],
    });
    let parts = json!({"rest": 3.0, "translation": 1.0, "faults": 1.0});
    let range = json!({"low": 0.1, "mid": 0.2, "high": 0.3});
    document["predicted"] = json!({
        "prediction": {
            "translating": range, "saved": range, "base": parts, "superpage": parts, "dependence": 0.5,
            "explained": [1.0, 2.0],
        },
        "of_metric": false, "source": "a trace", "notes": [],
    });
    let sample = &mut document["samples"][0];
    sample["metric"] = json!(5.0);
    sample["more_metrics"] = json!([6.0]);
    sample["library_asked_bytes"] = json!(4096);
    sample["library_forks"] = json!(2);
    sample["memory"]["over_time"]["mean_coverage"] = json!(0.5);
    sample["supplied"] =
        json!({"requests": 1, "wanted": 2, "got": 2, "seconds": 0.1, "sizes": [65536]});
    sample["service"] = json!({
        "setup_seconds": 0.1, "ready_seconds": 0.1, "prepare_seconds": 0.1, "stop_seconds": 0.1, "port": 80,
        "was_killed": false,
    });
    sample["design"] = json!({
        "made": 4, "copied_pages": 1, "filled_pages": 1, "in_place": 1, "ahead": 1, "failed": {"no": 1}, "repeated": 1,
        "gone": 1, "unmade": 2, "held": 1, "waiting": 1, "touched": 5, "fullest": 10, "by_others": 1, "by_fault": 1,
        "delay": {"median_seconds": 0.1, "p95_seconds": 0.2}, "looking_seconds": 0.1, "making_seconds": 0.1, "looks": 1,
        "frontier_looks": 1, "unsampled": null, "processes": 1, "unseen": null,
    });
    document
}

#[test]
fn no_figure_of_a_comparison_can_be_what_it_cannot_be() {
    let counts_of_failures = Legitimate {
        changes: &[Absent],
        fields: &["*samples[].design.failed.no"],
        why: "a map of what there was",
    };
    let legitimate =
        [OF_THE_MACHINE, NOT_SEEN, NO_LIMIT, ADDED_LATER, WHAT_IS_LEFT, A_LOSS, counts_of_failures];
    println!("superpage.compare/1: {:?}", refused(&whole().to_string(), &legitimate, compare));
}

#[test]
fn no_figure_of_a_series_or_an_evaluation_can_be_what_it_cannot_be() {
    // Keep only one comparison, because all are of the same type.
    let mut of = value(SERIES);
    of["points"].as_array_mut().unwrap().truncate(1);
    of["points"][0]["comparison"]["samples"].as_array_mut().unwrap().truncate(1);
    let no_metric = Legitimate {
        changes: &[Null],
        fields: &["*samples[].metric"],
        why: "a run that failed has none",
    };
    let legitimate = [OF_THE_MACHINE, NOT_SEEN, NO_LIMIT, ADDED_LATER, no_metric];
    println!("superpage.compare-series/1: {:?}", refused(&of.to_string(), &legitimate, series));
    let mut of = value(EVALUATION);
    of["applications"].as_array_mut().unwrap().truncate(1);
    of["applications"][0]["comparison"]["samples"].as_array_mut().unwrap().truncate(1);
    let legitimate = [OF_THE_MACHINE, NOT_SEEN, NO_LIMIT, ADDED_LATER];
    println!("superpage.evaluation/1: {:?}", refused(&of.to_string(), &legitimate, evaluation));
}

#[test]
fn no_figure_of_a_comparison_on_a_running_service_can_be_what_it_cannot_be() {
    let mut of = value(RUNNING);
    of["blocks"].as_array_mut().unwrap().truncate(4);
    of["settings"]["rule"]["max_deviation"] = json!(0.1);
    of["blocks"][1]["switched"]["skipped"] = json!({"busy": 4096});
    let none = Legitimate {
        changes: &[Null],
        fields: &["*blocks[].arm", "*blocks[].value", "*longest_call_seconds"],
        why: "null is that there is none",
    };
    let by_reason = Legitimate {
        changes: &[Absent],
        fields: &["*skipped.busy"],
        why: "a map of what there was",
    };
    let legitimate = [OF_THE_MACHINE, NO_LIMIT, ADDED_LATER, none, by_reason];
    println!("superpage.compare-running/1: {:?}", refused(&of.to_string(), &legitimate, running));
    for (pointer, to, why) in [
        ("/blocks/1/arm", json!(9), "blocks[1].arm: expected less than 2"),
        ("/blocks/1/before/superpage_bytes", json!(1u64 << 50), "blocks[1]: superpage_bytes are"),
        ("/schema", json!("superpage.compare/1"), "schema: `superpage.compare/1`: expected"),
        ("/arms", json!([]), "arms: there are none"),
    ] {
        let mut document = value(RUNNING);
        *document.pointer_mut(pointer).unwrap() = to;
        let refused = running(&document.to_string()).unwrap_err();
        assert!(refused.contains(why), "{pointer}: {refused}");
    }
}

#[test]
fn what_figures_say_together_agrees() {
    for (pointer, to, why) in [
        ("/samples/1/arm", json!(9), "samples[1].arm: 9: expected less than 2"),
        ("/samples/1/signal", json!(9), "samples[1]: it has both an exit_code and a signal"),
        ("/samples/0/metric", json!(null), "samples[0]: it has more_metrics and no metric"),
        (
            "/samples/0/memory/timeline/0/superpage_bytes",
            json!(1u64 << 40),
            "superpage_bytes are more",
        ),
        ("/samples/0/memory/timeline/0/seconds", json!(9.0), "the timeline is not in the order of"),
        ("/samples/0/memory/peak_at_most_bytes", json!(1), "peak_resident_bytes and peak_at_most"),
        ("/samples/0/memory/over_time/gap/from_seconds", json!(9.0), "from_seconds is after to_"),
        ("/samples/0/design/in_place", json!(5), "samples[0].design: in_place is 5 of 4 made"),
        ("/samples/0/design/waiting", json!(5), "samples[0].design: waiting is 5 of 2 unmade"),
        ("/samples/0/design/delay/median_seconds", json!(5), "median_seconds is more than p95_"),
        ("/predicted/prediction/saved/low", json!(0.25), "saved: low, mid and high do not ascend"),
        ("/judging/same_within", json!(2), "judging.same_within: 2: expected a share from 0 to 1"),
        ("/schema", json!("superpage.compare/9"), "unsupported schema `superpage.compare/9`"),
        ("/arms", json!([]), "arms: there are none"),
    ] {
        let mut document = whole();
        *document.pointer_mut(pointer).unwrap() = to;
        let refused = compare(&document.to_string()).unwrap_err();
        assert!(refused.contains(why), "{pointer}: {refused}");
    }
    let mut of = value(SERIES);
    of["points"][0]["comparison"]["schema"] = json!("superpage.compare/9");
    let refused = series(&of.to_string()).unwrap_err();
    assert!(refused.contains("points[0].comparison: schema: `superpage.compare/9`"), "{refused}");
}
