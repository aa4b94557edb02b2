//! Damaged documents are refused: every figure of a report or a validation is checked for impossible values.

use testkit::figures::Change::{Absent, Null};
use testkit::figures::{Legitimate, refused};

const RUN: &str = include_str!("../../../../../docs/schemas/examples/lab.run-1.json");
const COMPARE: &str = include_str!("../../../../../docs/schemas/examples/lab.compare-1.json");

fn read_reports(text: &str) -> Result<(), String> {
    superpage_lab_cli::reports(text).map(|_| ())
}

/// Returns the document with its optional fields.
fn whole(document: &str) -> serde_json::Value {
    let mut value: serde_json::Value = serde_json::from_str(document).unwrap();
    // `figures` is not read, but computed from the reports again.
    value.as_object_mut().unwrap().remove("figures");
    let is_run = value.get("cell").is_some();
    let report = if is_run { &mut value } else { &mut value["reports"][0] };
    report["requests"] = serde_json::json!({
        "count": 9, "mean": 2.0, "p50": 1.0, "p95": 2.0, "p99": 3.0, "p999": 4.0, "max": 5.0
    });
    report["cell"]["nodes_bytes"] = vec![report["cell"]["memory_bytes"].clone()].into();
    report["cell"]["swap_bytes"] = 4096.into();
    report["memory_parts"] = serde_json::json!([{
        "node": 0, "movable_only": false, "pages": 10, "unmovable_pages": 1, "pool_pages": 2,
        "movable_pages": 3, "free_pages": 4, "free_superpages": 0, "free_superpages_at_start": 0
    }]);
    value
}

#[test]
fn no_figure_of_a_report_can_be_what_it_cannot_be() {
    let legitimate = [
        Legitimate {
            changes: &[Null, Absent],
            fields: &["*counters.touched_pages"],
            why: "not counted",
        },
        Legitimate { changes: &[Null], fields: &["*kernel_bytes"], why: "it is not known" },
        Legitimate {
            changes: &[Absent],
            fields: &["*kernel_bytes", "*cell.swap_bytes"],
            why: "reports of an earlier version have none",
        },
    ];
    for document in [RUN, COMPARE] {
        let text = whole(document).to_string();
        let count = refused(&text, &legitimate, read_reports);
        println!("superpage.lab: {count:?}");
        assert_eq!(count.guarded, count.figures);
    }
}

#[test]
fn what_figures_of_a_report_say_together_agrees() {
    for (pointer, to, why) in [
        ("/cell/nodes_bytes/0", 4096, "cell.nodes_bytes are not cell.memory_bytes together"),
        ("/cell/movable_bytes", 1 << 40, "cell.movable_bytes is more than cell.memory_bytes"),
        ("/phases/0/wall_cycles", 1 << 40, "the phases take more than wall_cycles"),
        ("/phases/0/ledger/work", 1 << 40, "the phases' ledgers are more than ledger"),
        ("/phases/0/accesses", 1 << 40, "the phases have more than counters.accesses"),
        ("/counters/superpage_faults", 1 << 40, "counters.superpage_faults are more than"),
        ("/timeline/0/microseconds", 1 << 40, "the timeline is not in the order of time"),
        ("/timeline/0/smaller_superpages", 1, "smaller_superpages are more than superpages"),
        ("/timeline/0/superpages", 1 << 40, "the timeline has more than counters.superpages"),
        ("/timeline/0/resident_pages", 1 << 40, "the timeline has more than counters.sup"),
        ("/memory_parts/0/free_pages", 5, "the pages of a part of memory_parts do not add up"),
        ("/requests/p95", 4, "requests: p50, p95, p99, p999 and max do not ascend"),
        ("/requests/mean", 6, "requests: mean is more than max"),
        ("/ledger/work", u64::MAX, "ledger: the cycles of all causes are more than 2^64"),
        ("/mhz", 0, "mhz: 0: expected 1 to 100000 MHz"),
    ] {
        let mut value = whole(RUN);
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        match value.pointer_mut(parent).unwrap() {
            serde_json::Value::Array(all) => all[0] = to.into(),
            object => object[name] = to.into(),
        }
        let refused = read_reports(&value.to_string()).unwrap_err();
        assert!(refused.starts_with(why), "{pointer}: {refused}");
    }
}

/// One document of an earlier version, without live runs, and one of this version, with live runs.
const OLD: &str = include_str!("../documents/0.1.0/validate-1.json");
const WITH_LIVE: &str = include_str!("../../../../../docs/schemas/examples/validate-1.json");

fn read_validation(text: &str) -> Result<(), String> {
    superpage_lab_cli::validation(text).map(|_| ())
}

/// Checks that the changed document is refused with a reason that begins with `why`.
fn is_refused(document: &str, change: impl Fn(&mut serde_json::Value), why: &str) {
    let mut value: serde_json::Value = serde_json::from_str(document).unwrap();
    change(&mut value);
    let refused = read_validation(&value.to_string()).unwrap_err();
    assert!(refused.starts_with(why), "not {why}: {refused}");
}

#[test]
fn no_figure_of_a_validation_can_be_what_it_cannot_be() {
    let unknown = Legitimate {
        changes: &[Null],
        fields: &[
            "*.timed_seconds",
            "*.faults",
            "*.kernel_seconds",
            "*.beside_seconds",
            "*.live.superpages",
        ],
        why: "a figure that could not be measured is null",
    };
    for document in [OLD, WITH_LIVE] {
        // Other tests cover the document of live runs.
        let mut value: serde_json::Value = serde_json::from_str(document).unwrap();
        value.as_object_mut().unwrap().remove("live");
        value["workloads"][0]["pairs"][0]["interval"] = vec![0.5, 2.0].into();
        let count = refused(&value.to_string(), &[unknown], read_validation);
        println!("superpage.validate/1: {count:?}");
        assert_eq!(count.guarded, count.figures);
    }
}

#[test]
fn what_figures_of_a_validation_say_together_agrees() {
    let first = |value: &mut serde_json::Value, pointer: &str, to: serde_json::Value| {
        *value.pointer_mut(pointer).unwrap() = to;
    };
    is_refused(
        OLD,
        |value| first(value, "/workloads/0/designs/1/design", "base".into()),
        "workloads[0]: designs[1] has the name of designs[0]",
    );
    is_refused(
        OLD,
        |value| first(value, "/workloads/0/pairs/0/design", 7.into()),
        "workloads[0]: pairs[0] is of designs 0 and 7 of 2",
    );
    is_refused(
        OLD,
        |value| first(value, "/workloads/0/pairs/0/interval", vec![2.0, 3.0].into()),
        "workloads[0].pairs[0]: ratio is not inside interval",
    );
    is_refused(
        OLD,
        |value| first(value, "/workloads/0/designs/0/lab/superpages", 3.into()),
        "workloads[0].designs[0]: lab: superpages are not the most of any step",
    );
    is_refused(
        OLD,
        |value| first(value, "/workloads/0/designs/0/lab/steps/0/at", 0.9.into()),
        "workloads[0].designs[0].lab: steps are not in the order",
    );
}

#[test]
fn figures_are_those_of_the_live_runs() {
    assert_eq!(read_validation(WITH_LIVE), Ok(()));
    for (pointer, to, why) in [
        ("/workloads/0/runs", 7.0, "workloads[0].runs: 7, not "),
        ("/workloads/0/designs/1/live/seconds", 0.5, "workloads[0].designs[1].live.seconds: 0.5, "),
        ("/live/0/samples/1/wall_seconds", -1.0, "live[0].samples[1].wall_seconds: -1: expected "),
    ] {
        let to: serde_json::Value = match why.contains("runs:") {
            true => 7.into(),
            false => to.into(),
        };
        let change =
            |value: &mut serde_json::Value| *value.pointer_mut(pointer).unwrap() = to.clone();
        is_refused(WITH_LIVE, change, why);
    }
    let one_less = |value: &mut serde_json::Value| {
        let live = value["live"].as_array_mut().unwrap();
        live.push(live[0].clone());
    };
    is_refused(WITH_LIVE, one_less, "live: 2 comparisons of 1 workloads");
}
