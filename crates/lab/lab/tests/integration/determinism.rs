//! The same experiment gives the same report, byte by byte: when repeated, together with other designs, and with any
//! number of threads.

use std::collections::BTreeMap;

use design::Design;
use superpage_lab::{Experiment, run};
use units::ByteSize;

/// Workloads that free, grow and touch at random. Memory is short for some and fragmented for others.
const EXPERIMENTS: [(&str, u64, &str); 3] = [
    ("gups:size=48M,operations=200K", 64, "frag-50"),
    ("gcc:size=64M", 96, "pinned-50"),
    ("alloc-free:size=48M,operations=2K", 96, "none"),
];

fn experiments() -> Vec<Experiment> {
    let experiment = |&(workload, mebibytes, fragmentation): &(&str, u64, &str)| Experiment {
        machine: machine::preset("e3-1245v6").expect("a preset"),
        memory: ByteSize::mib(mebibytes),
        fragmentation: fragmentation.parse().expect("a fragmentation"),
        fragmentation_name: fragmentation.to_string(),
        workload: workload.parse().expect("a workload"),
        workload_name: workload.to_string(),
        seed: 7,
        swap: ByteSize::gib(64),
        layout: mm_sim::Layout::default(),
        utilisation: true,
    };
    EXPERIMENTS.iter().map(experiment).collect()
}

/// Returns all presets that are simulated in the nightly set, otherwise every third.
fn designs() -> Vec<Design> {
    let all = design::designs::list().iter().map(|preset| preset.design().expect("a preset"));
    let all = all.filter(|design| superpage_lab::not_simulated(design).is_none());
    let every = if testkit::cases(10) == 10 { 1 } else { 3 };
    let designs: Vec<Design> = all.step_by(every).collect();
    assert!(designs.len() > 7, "{} designs", designs.len());
    designs
}

fn reports(experiment: &Experiment, designs: &[Design]) -> BTreeMap<String, String> {
    let reports = run(experiment, designs).expect("a workload's stream");
    let text = |report| serde_json::to_string(report).expect("a report has names for keys");
    reports.iter().map(|report| (report.cell.design.clone(), text(report))).collect()
}

#[test]
fn a_run_is_repeated_exactly_alone_and_in_company() {
    for experiment in experiments() {
        let together = reports(&experiment, &designs());
        assert_eq!(together, reports(&experiment, &designs()), "{}", experiment.workload_name);
        for design in designs() {
            let alone = reports(&experiment, std::slice::from_ref(&design));
            assert_eq!(alone[&design.name], together[&design.name], "{}", design.name);
        }
    }
}

#[test]
fn threads_change_nothing() {
    for experiment in experiments() {
        let designs = designs();
        let expected = reports(&experiment, &designs);
        for threads in [1, 2, 8] {
            let share = designs.len().div_ceil(threads);
            let found: BTreeMap<String, String> = std::thread::scope(|scope| {
                let begin = |part| {
                    let experiment = &experiment;
                    scope.spawn(move || reports(experiment, part))
                };
                let running: Vec<_> = designs.chunks(share).map(begin).collect();
                running.into_iter().flat_map(|one| one.join().expect("no panic")).collect()
            });
            assert_eq!(found, expected, "{threads} threads, {}", experiment.workload_name);
        }
    }
}
