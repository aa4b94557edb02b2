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
    machine.put("/sys/kernel/mm/ksm/run", "x");
    let report = machine.examine(Workload::Any);
    for id in [
        "memory-fragmented",
        "thp-fault-fallback",
        "compaction-extfrag",
        "khugepaged-defrag-off",
        "ksm-splits",
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

#[test]
fn a_damaged_file_is_no_finding_and_no_number_is_too_large() {
    let machine = Machine::debian();
    machine.postgres("");
    machine.process(9, "java -XX:+UseTransparentHugePages -jar a", "A=b");
    machine.mount("rw,pagesize=2M,size=4194304", 0o1777);
    machine.pool(2048, 2048, 0, 0);
    machine.line("/proc/70/status", "HugetlbPages:", "\t 4194304 kB");
    machine.put("/etc/sysctl.d/50.conf", "vm.nr_hugepages = 7");
    machine.two_nodes();
    let ids = |machine: &Machine| -> Vec<&str> {
        let facts = machine.facts();
        let reports = Workload::ALL.map(|workload| doctor::examine(&facts, workload));
        reports.iter().flat_map(|it| it.findings.iter().map(|found| found.id)).collect()
    };
    assert_eq!(ids(&machine), ["pool-surplus"; 0]);
    let files = machine.files();
    assert!(files.len() > 60, "{files:?}");
    for file in files {
        let before = std::fs::read(machine.path(&file)).unwrap();
        for garbage in [&b"garbage"[..], b"", b"\xff\xfe\n= [x", b"[[]] : 9 9 9 9"] {
            std::fs::write(machine.path(&file), garbage).unwrap();
            // A mount that is not in the table is no mount, a process without a name is none.
            let found = ids(&machine);
            let expected: &[&str] = match file.as_str() {
                "/proc/self/mounts" => &["pool-mount-missing"],
                // Any words are controllers.
                "/sys/fs/cgroup/cgroup.controllers" => &["pool-no-group-limits"],
                // Nothing says any more that the server is on superpages.
                "/proc/70/status" => &["pool-postgres-short", "pool-postgres-short"],
                _ => &[],
            };
            assert!(found.is_empty() || found == expected, "{file}, {garbage:?}: {found:?}");
        }
        for number in ["18446744073709551615", "-1", "99999999999999999999999999"] {
            machine.put(&file, number);
            ids(&machine);
        }
        std::fs::write(machine.path(&file), before).unwrap();
    }
}

/// Machines that the readers' tests have: two were captured.
#[test]
fn machines_of_other_tests_have_what_is_known_of_them() {
    let examine = |name: &str, kib: u64| {
        let dir = format!("{}/../../shared/host/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
        let root = host::Root::at(dir).with_page_size(units::PageSize::new(kib << 10).unwrap());
        assert!(root.path("/proc/meminfo").exists(), "{name}");
        let facts = doctor::Facts::read(&root, std::path::Path::new("/nonexistent"));
        let report = doctor::examine(&facts, Workload::Any);
        let found: Vec<&str> = report.findings.iter().map(|finding| finding.id).collect();
        println!("{name}: {found:?}, {} unknown", report.count(State::Unknown));
        found
    };
    assert_eq!(examine("zen4-6.18", 4), [""; 0]);
    // An unused page of 1 GiB, and surplus pages of 2 MiB.
    assert_eq!(examine("two-nodes", 4), ["pool-idle", "pool-surplus"]);
    assert_eq!(examine("old-4.19", 4), [""; 0]);
    assert_eq!(examine("no-thp", 4), ["thp-not-built"]);
    assert_eq!(examine("arm64-64k", 64), ["pool-idle"]);
}
