//! Machines as distributions and clouds set them up: nothing to warn of.

extern crate superpage_doctor as doctor;

use doctor::{CHECKS, Severity, State, Workload};

use crate::machine::{Machine, THP};

/// RHEL 9: `always`, `defrag` for advised memory, two nodes with NUMA balancing.
fn rhel() -> Machine {
    let machine = Machine::debian();
    machine.thp("enabled", "always");
    machine.two_nodes();
    machine.set("/proc/sys/kernel/numa_balancing", "1");
    // Linux 5.14 has no sizes of THP and no shrinker.
    for file in ["hugepages-64kB", "hugepages-2048kB", "shrink_underused"] {
        machine.remove(&format!("{THP}/{file}"));
    }
    machine
}

/// Nodes of GKE and EKS: virtual machines; groups with a limit of no pages at all.
fn cloud(mode: &str) -> Machine {
    let machine = Machine::debian();
    machine.thp("enabled", mode);
    machine.line("/proc/cpuinfo", "flags", " : fpu pdpe1gb hypervisor");
    let pod = "/sys/fs/cgroup/kubepods.slice/pod1";
    machine.put(&format!("{pod}/hugetlb.2MB.max"), "0");
    machine.put(&format!("{pod}/hugetlb.2MB.events.local"), "max 0");
    machine
}

/// Debian 10: Linux 4.19 lacks half of the settings.
fn old() -> Machine {
    let machine = rhel();
    for file in ["compaction_proactiveness", "hugetlb_optimize_vmemmap"] {
        machine.remove(&format!("/proc/sys/vm/{file}"));
    }
    machine.thp("enabled", "madvise");
    machine
}

#[test]
fn machines_that_are_well_get_no_warning() {
    let machines = [
        ("Debian", Machine::debian()),
        ("RHEL", rhel()),
        ("GKE", cloud("always")),
        ("EKS", cloud("madvise")),
        ("Debian 10", old()),
    ];
    for (name, machine) in &machines {
        for workload in Workload::ALL {
            let report = machine.examine(workload);
            for finding in &report.findings {
                assert_eq!(finding.severity, Severity::Note, "{name}, {workload}: {finding:#?}");
            }
            let unknown = report.checks.iter().filter(|check| check.state == State::Unknown);
            let unknown: Vec<_> = unknown.map(|check| check.id).collect();
            let expected: &[&str] = match *name {
                "GKE" | "EKS" => &["host-backing"],
                _ => &[],
            };
            assert_eq!(unknown, expected, "{name}, {workload}");
            assert_eq!(report.checks.len(), CHECKS.len());
        }
    }
}

#[test]
fn machines_with_thp_for_advised_memory_get_no_finding_at_all() {
    for machine in [Machine::debian(), cloud("madvise")] {
        for workload in Workload::ALL {
            assert_eq!(machine.examine(workload).findings, [], "{workload}");
        }
    }
}

#[test]
fn what_cannot_be_read_is_unknown_and_not_fine() {
    let machine = Machine::debian();
    let known = machine.examine(Workload::Any);
    machine.put("/proc/meminfo", "garbage");
    machine.put("/proc/vmstat", "garbage");
    machine.put("/proc/sys/vm/zone_reclaim_mode", "x");
    machine.put("/proc/sys/vm/extfrag_threshold", "x");
    machine.put(&format!("{THP}/khugepaged/defrag"), "x");
    let report = machine.examine(Workload::Any);
    for id in [
        "memory-fragmented",
        "thp-fault-fallback",
        "compaction-extfrag",
        "khugepaged-defrag-off",
        "memory-min-free",
    ] {
        let check = report.checks.iter().find(|check| check.id == id).unwrap();
        assert_eq!(check.state, State::Unknown, "{id}");
        assert!(check.unknown.iter().all(|it| it.what.starts_with('/') && !it.why.is_empty()));
    }
    assert!(report.judged() < known.judged());
    let empty = tempfile::tempdir().unwrap();
    let facts = doctor::Facts::read(&host::Root::at(empty.path()), empty.path());
    let nothing = doctor::examine(&facts, Workload::Any);
    assert_eq!((nothing.findings.len(), nothing.count(State::Found)), (0, 0));
    assert!(nothing.count(State::Unknown) > 5, "{:#?}", nothing.checks);
}
