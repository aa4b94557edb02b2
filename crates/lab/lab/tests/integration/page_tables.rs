//! Page tables that are no trees, on the machines that have them.

use mm_sim::Cause;
use superpage_lab::{Experiment, Report, run};
use units::ByteSize;

fn on(machine: &str, workload: &str, design: &str) -> Report {
    let experiment = Experiment {
        machine: machine::preset(machine).expect("a machine"),
        memory: ByteSize::gib(8),
        fragmentation: "none".parse().expect("a fragmentation"),
        fragmentation_name: "none".to_string(),
        workload: workload.parse().expect("a workload"),
        workload_name: workload.to_string(),
        seed: 1,
        swap: ByteSize(0),
        utilisation: false,
    };
    let design = design::designs::find(design).expect("a design");
    run(&experiment, &[design]).expect("it runs").remove(0)
}

/// What was waited for walks, of all cycles and of those outside the kernel.
fn shares(report: &Report) -> (f64, f64) {
    let ledger = &report.ledger;
    let walks = ledger[Cause::WalkBase] + ledger[Cause::WalkLarge];
    let user = walks + ledger[Cause::Work] + ledger[Cause::SecondTlb];
    (walks as f64 / ledger.total() as f64, walks as f64 / user as f64)
}

/// Published: 17.57, 17.84 and 18.23 % (docs/sources/policies.md 2.1).
#[test]
fn stream_on_a_hashed_page_table_misses_the_caches_at_every_page() {
    let base = on("ppc970", "stream:size=1G", "base");
    let (of_all, of_user) = shares(&base);
    assert!(
        (0.15..0.20).contains(&of_all) && (0.15..0.20).contains(&of_user),
        "{of_all} {of_user}"
    );
    let each = base.ledger[Cause::WalkBase] as f64 / base.counters.walks_base as f64;
    assert!((540.0..=563.0).contains(&each), "{each} cycles a walk");
    assert!(shares(&on("ppc970", "stream:size=1G", "hugetlb")).0 < 1e-5);
}

/// A random load waits for memory twice on base pages, for the table and for itself, and once on superpages.
#[test]
fn a_walk_of_a_hashed_page_table_costs_a_random_load_about_as_much_as_itself() {
    for workload in ["chase:size=256M,operations=1M", "gups:size=256M,operations=1M,weight=1"] {
        let (share, _) = shares(&on("ppc970", workload, "base"));
        assert!((0.2..0.9).contains(&share), "{workload}: {share}");
        assert!(shares(&on("ppc970", workload, "hugetlb")).0 < 1e-3, "{workload}");
    }
}
