//! Each check: what it finds, what it must not find, and whether its commands mend it.

extern crate superpage_doctor as doctor;

use std::collections::BTreeSet;
use std::fs;

use doctor::{CHECKS, Lasting, Severity, State, Workload};

use crate::machine::{Machine, POOL, THP};

/// Whether the finding is gone after its commands.
#[derive(Clone, Copy, PartialEq, Debug)]
enum After {
    Mended,
    /// Counters since boot keep their values, or a person must edit or restart something.
    Stays,
}
use After::{Mended, Stays};

struct Case {
    id: &'static str,
    workload: Workload,
    severity: Severity,
    /// Makes the ordinary machine one with the finding.
    sick: fn(&Machine),
    /// Makes the ordinary machine one that is close to it and well.
    well: fn(&Machine),
    after: After,
}

macro_rules! cases {
    ($($id:literal $workload:ident $severity:ident $after:ident, $sick:expr, $well:expr;)*) => {
        vec![$(Case {
            id: $id,
            workload: Workload::$workload,
            severity: Severity::$severity,
            sick: $sick,
            well: $well,
            after: $after,
        }),*]
    };
}

fn always(m: &Machine) {
    m.thp("enabled", "always");
}

/// A network device that has feature 5, and a balloon with these features.
fn balloon(m: &Machine, features: &str) {
    let devices = [("virtio0", "0x0001", "1111110000"), ("virtio1", "0x0005", features)];
    for (name, device, features) in devices {
        m.put(&format!("/sys/bus/virtio/devices/{name}/device"), device);
        m.put(&format!("/sys/bus/virtio/devices/{name}/features"), features);
    }
}

fn large_machine(m: &Machine) {
    m.line("/proc/meminfo", "MemTotal:", " 134217728 kB");
}

fn journal(pid: u32) -> String {
    let header = format!(
        "{{\"superpage_journal\":1,\"boot_id\":\"11111111-2222-4333-8444-555555555555\",\"pid\":{pid},\
         \"command\":\"superpage\"}}\n"
    );
    header
        + "{\"change\":{\"seq\":1,\"knob\":\"/sys/kernel/mm/transparent_hugepage/enabled\",\
           \"old\":\"madvise\",\"asked\":\"always\"}}"
}

fn cases() -> Vec<Case> {
    cases! {
        "thp-not-built" Any Warning Stays, |m| m.remove(THP), |_| ();
        "thp-not-built" Database Note Stays, |m| m.remove(THP), |_| ();
        "thp-never" Any Warning Mended, |m| m.thp("enabled", "never"), always;
        "thp-never" Database Note Mended, |m| m.thp("enabled", "never"), always;
        // The size's own setting gives superpages although the general one says never.
        "thp-never" Jvm Warning Mended, |m| {
            m.thp("enabled", "never");
            m.thp("hugepages-2048kB/enabled", "never");
        }, |m| {
            m.thp("enabled", "never");
            m.thp("hugepages-2048kB/enabled", "madvise");
        };
        "thp-pmd-size-off" Any Warning Mended, |m| m.thp("hugepages-2048kB/enabled", "never"),
            |m| m.thp("hugepages-64kB/enabled", "never");
        "thp-always" Database Note Mended, always, |_| ();
        "thp-always" Database Note Mended, |m| m.thp("hugepages-2048kB/enabled", "always"), |m| {
            always(m);
            m.thp("hugepages-2048kB/enabled", "madvise");
        };
        "thp-defrag-stalls" Database Warning Mended, |m| {
            always(m);
            m.thp("defrag", "always");
        }, |m| m.thp("defrag", "always");
        "thp-defrag-stalls" Jvm Warning Mended, |m| {
            always(m);
            m.thp("defrag", "always");
        }, |m| {
            always(m);
            m.thp("defrag", "defer+madvise");
        };
        "thp-defrag-never" Batch Note Mended, |m| m.thp("defrag", "never"), |m| m.thp("defrag", "defer");
        "thp-shmem-off" Database Note Mended, |m| m.line("/proc/meminfo", "Shmem:", " 4000000 kB"),
            |m| {
                m.line("/proc/meminfo", "Shmem:", " 4000000 kB");
                m.thp("hugepages-2048kB/shmem_enabled", "advise");
            };
        "thp-shmem-off" Database Note Mended, |m| {
            m.line("/proc/meminfo", "Shmem:", " 4000000 kB");
            m.thp("hugepages-2048kB/shmem_enabled", "never");
            m.thp("shmem_enabled", "advise");
        }, |m| {
            m.line("/proc/meminfo", "Shmem:", " 4000000 kB");
            m.thp("shmem_enabled", "advise");
        };
        "thp-shmem-test-mode" Any Warning Mended, |m| m.thp("shmem_enabled", "deny"),
            |m| m.thp("shmem_enabled", "within_size");
        "thp-shmem-test-mode" Any Warning Mended, |m| m.thp("shmem_enabled", "force"), |_| ();
        "thp-zero-page-off" Any Note Mended, |m| m.thp("use_zero_page", "0"), |m| {
            m.thp("use_zero_page", "0");
            m.thp("enabled", "never");
        };
        "thp-boot-overridden" Any Note Stays, |m| m.put("/proc/cmdline", "transparent_hugepage=never"),
            |m| m.put("/proc/cmdline", "transparent_hugepage=madvise -- transparent_hugepage=never");
        "thp-never-at-boot" Any Note Mended, |m| {
            let unit = "/etc/systemd/system/disable-thp.service";
            m.put(unit, "[Service]\nExecStart=/bin/sh -c \"echo never > \
                /sys/kernel/mm/transparent_hugepage/enabled\"");
            m.put("/etc/systemd/system/multi-user.target.wants/disable-thp.service", "");
        }, |m| {
            // Not enabled.
            m.put("/etc/systemd/system/disable-thp.service", "[Service]\nExecStart=/bin/sh -c \"echo \
                never > /sys/kernel/mm/transparent_hugepage/enabled\"");
        };
        "thp-never-at-boot" Any Note Stays, |m| {
            m.put("/etc/tuned/active_profile", "mongo");
            m.put("/etc/tuned/mongo/tuned.conf", "[main]\ninclude=base");
            m.put("/usr/lib/tuned/base/tuned.conf", "[vm]\ntransparent_hugepages=never");
        }, |m| {
            m.put("/etc/tuned/active_profile", "mongo");
            m.put("/etc/tuned/mongo/tuned.conf", "[main]\ninclude=base\ntransparent_hugepages=madvise");
            m.put("/usr/lib/tuned/base/tuned.conf", "[vm]\ntransparent_hugepages=never");
        };
        "thp-never-at-boot" Any Note Stays,
            |m| m.put("/etc/rc.local", "echo never > /sys/kernel/mm/transparent_hugepage/enabled"),
            |m| m.put("/etc/rc.local", "# echo never > /sys/kernel/mm/transparent_hugepage/enabled");
        "thp-process-off" Any Note Stays, |m| {
            m.process(7, "redis-server *:6379", "");
            m.line("/proc/7/status", "THP_enabled:", "\t0");
        }, |m| {
            m.process(7, "small", "");
            m.line("/proc/7/status", "THP_enabled:", "\t0");
            m.line("/proc/7/status", "VmRSS:", "\t 1000 kB");
        };
        "thp-process-off" Any Note Stays, |m| {
            m.process(7, "app", "");
            m.line("/proc/7/status", "THP_enabled:", "\t0");
            m.put("/proc/7/cgroup", "0::/user.slice");
        }, |m| m.process(7, "app", "");
        "thp-fault-fallback" Any Warning Stays,
            |m| m.counters(&[("thp_fault_alloc", 4000), ("thp_fault_fallback", 6000)]),
            |m| m.counters(&[("thp_fault_alloc", 4), ("thp_fault_fallback", 600)]);
        "thp-swap-splits" Any Note Stays,
            |m| m.counters(&[("thp_swpout", 100), ("thp_swpout_fallback", 6000)]),
            |m| m.counters(&[("thp_swpout", 9000), ("thp_swpout_fallback", 6000)]);
        "khugepaged-slow" Batch Note Mended, |m| {
            always(m);
            m.line("/proc/meminfo", "AnonPages:", " 12000000 kB");
        }, |m| m.line("/proc/meminfo", "AnonPages:", " 12000000 kB");
        "khugepaged-busy" Any Note Mended, |m| m.thp("khugepaged/scan_sleep_millisecs", "0"),
            |m| m.thp("khugepaged/scan_sleep_millisecs", "1");
        "khugepaged-defrag-off" Any Note Mended, |m| m.thp("khugepaged/defrag", "0"), |m| {
            m.thp("khugepaged/defrag", "0");
            m.thp("enabled", "never");
        };
        "khugepaged-sparse" Database Note Mended, always, |m| {
            always(m);
            m.thp("khugepaged/max_ptes_none", "0");
        };
        "khugepaged-swap" Any Note Mended, |m| m.thp("khugepaged/max_ptes_swap", "511"),
            |m| m.thp("khugepaged/max_ptes_swap", "0");

        "pool-not-got" Any Error Mended, |m| {
            m.put("/etc/sysctl.d/50-pool.conf", "vm/nr_hugepages = 512");
            m.pool(2048, 300, 10, 10);
        }, |m| {
            // The later file wins, and the boot parameter is earlier than both.
            m.put("/proc/cmdline", "hugepages=4000");
            m.put("/usr/lib/sysctl.d/10-pool.conf", "vm.nr_hugepages = 512");
            m.put("/etc/sysctl.d/10-pool.conf", "vm.nr_hugepages = 600\nvm.nr_hugepages = 300");
            m.pool(2048, 300, 10, 10);
        };
        "pool-not-got" Any Error Mended, |m| {
            m.put("/proc/cmdline", "hugepagesz=1G hugepages=8 hugepagesz=2M hugepages=10");
            m.pool(2048, 10, 0, 0);
            m.pool(1 << 20, 6, 0, 0);
        }, |m| {
            m.put("/proc/cmdline", "hugepagesz=1G hugepages=8");
            m.pool(1 << 20, 8, 0, 0);
        };
        "pool-idle" Any Warning Mended, |m| m.pool(2048, 1024, 1024, 0),
            |m| m.pool(2048, 1024, 1024, 1024);
        "pool-idle" Any Note Mended, |m| {
            m.pool(2048, 1024, 1024, 0);
            m.put("/proc/uptime", "600.0 1.0");
        }, |m| m.pool(2048, 20, 20, 0);
        "pool-idle" Any Note Mended, |m| m.pool(2048, 2048, 1900, 400),
            |m| m.pool(2048, 2048, 700, 0);
        "pool-surplus" Any Note Mended, |m| {
            m.pool(2048, 100, 0, 0);
            m.set(&format!("{POOL}/surplus_hugepages"), "40");
        }, |m| {
            m.pool(2048, 100, 0, 0);
            m.set(&format!("{POOL}/nr_overcommit_hugepages"), "4000");
        };
        "pool-uneven" Database Note Stays, |m| {
            m.two_nodes();
            m.pool(2048, 1100, 0, 0);
            for (node, pages) in [(0, "1000"), (1, "100")] {
                let dir = format!("/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB");
                m.put(&format!("{dir}/nr_hugepages"), pages);
            }
        }, |m| {
            m.two_nodes();
            m.pool(2048, 1100, 0, 0);
            for (node, pages) in [(0, "550"), (1, "550")] {
                let dir = format!("/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB");
                m.put(&format!("{dir}/nr_hugepages"), pages);
            }
        };
        "pool-1g-none" Vm Note Stays, large_machine, |m| {
            large_machine(m);
            m.pool(1 << 20, 32, 0, 0);
        };
        "pool-postgres-short" Database Warning Mended, |m| m.postgres(""), |m| {
            m.postgres("");
            m.line("/proc/70/status", "HugetlbPages:", "\t 4194304 kB");
        };
        "pool-postgres-short" Any Warning Mended, |m| {
            m.postgres("huge_pages try");
            m.pool(2048, 1500, 1500, 0);
        }, |m| m.postgres("huge_pages = off");
        "pool-postgres-short" Database Warning Mended, |m| {
            // Enough for the buffers, but not for all shared memory.
            m.postgres("");
            m.pool(2048, 2100, 2100, 0);
        }, |m| {
            m.postgres("");
            m.put("/proc/70/root/data/postgresql.auto.conf", "shared_buffers = 64MB");
        };
        // How much is needed is not known: the mapping is not there.
        "pool-postgres-short" Database Warning Stays, |m| {
            m.postgres("");
            m.put("/proc/70/root/data/postgresql.auto.conf", "shared_buffers = '8GB'");
            m.pool(2048, 2048, 2048, 0);
        }, |m| {
            m.postgres("");
            m.pool(2048, 2176, 2176, 0);
        };
        "pool-stale-files" Any Note Mended, |m| {
            m.mount("rw,pagesize=2M", 0o755);
            m.put("/dev/hugepages/left", "a page");
        }, |m| m.mount("rw,pagesize=2M", 0o755);
        "pool-group-refused" Any Warning Stays, |m| {
            let dir = "/sys/fs/cgroup/kubepods.slice/pod1";
            m.put(&format!("{dir}/hugetlb.2MB.max"), "0");
            m.put(&format!("{dir}/hugetlb.2MB.events.local"), "max 12");
        }, |m| {
            let dir = "/sys/fs/cgroup/kubepods.slice/pod1";
            m.put(&format!("{dir}/hugetlb.2MB.max"), "0");
            m.put(&format!("{dir}/hugetlb.2MB.events.local"), "max 0");
        };
        "pool-group-refused" Any Warning Stays, |m| {
            m.remove("/sys/fs/cgroup/cgroup.controllers");
            m.put("/sys/fs/cgroup/hugetlb/a/hugetlb.2MB.limit_in_bytes", "2097152");
            m.put("/sys/fs/cgroup/hugetlb/a/hugetlb.2MB.failcnt", "3");
        }, |m| m.put("/sys/fs/cgroup/a/hugetlb.2MB.rsvd.events.local", "max 0");
        "pool-no-group-limits" Vm Note Stays, |m| {
            m.pool(2048, 100, 0, 0);
            m.put("/sys/fs/cgroup/cgroup.controllers", "cpu memory");
        }, |m| m.pool(2048, 100, 0, 0);
        "pool-vmemmap" Any Note Mended, |m| m.pool(2048, 10_000, 0, 0), |m| m.pool(2048, 9_000, 0, 0);
        "pool-shm-group" Any Note Mended, |m| m.vm("hugetlb_shm_group", "121"),
            |m| m.vm("hugetlb_shm_group", "120");
        "pool-shm-limit" Database Warning Mended, |m| m.set("/proc/sys/kernel/shmmax", "33554432"),
            |m| m.set("/proc/sys/kernel/shmmax", "4294967296");
        "pool-shm-limit" Any Note Mended, |m| m.set("/proc/sys/kernel/shmall", "2097"), |_| ();
        "pool-mount-open" Any Warning Mended, |m| {
            m.pool(2048, 100, 0, 0);
            m.mount("rw,pagesize=2M", 0o1777);
        }, |m| {
            m.pool(2048, 100, 0, 0);
            m.mount("rw,pagesize=2M,size=4194304", 0o1777);
        };
        "pool-mount-missing" Vm Note Stays, |m| {
            m.pool(1 << 20, 4, 0, 0);
            m.mount("rw,pagesize=2M", 0o755);
        }, |m| {
            m.pool(2048, 4, 0, 0);
            m.mount("rw,pagesize=2M", 0o755);
        };

        "memory-fragmented" Batch Warning Mended,
            |m| m.free(&[400_000, 100_000, 30_000, 9_000, 900, 90, 9, 0, 0, 10, 2]),
            |m| m.free(&[4_000, 100, 30, 9, 0, 0, 0, 0, 0, 1, 2]);
        "memory-min-free" Any Warning Mended, |m| m.vm("min_free_kbytes", "4096"), |m| {
            // The kernel sets no more than this without THP.
            m.vm("min_free_kbytes", "16384");
            m.thp("enabled", "never");
        };
        "memory-min-free" Any Note Mended, |m| m.vm("min_free_kbytes", "60000"), |_| ();
        "memory-zone-reclaim" Database Warning Mended, |m| {
            m.two_nodes();
            m.vm("zone_reclaim_mode", "1");
        }, |m| m.vm("zone_reclaim_mode", "1");
        "memory-numa-balancing" Vm Note Mended, |m| {
            m.two_nodes();
            m.set("/proc/sys/kernel/numa_balancing", "1");
        }, |m| {
            // Tiering only.
            m.two_nodes();
            m.set("/proc/sys/kernel/numa_balancing", "2");
        };
        "memory-commit-limit" Any Warning Mended, |m| {
            m.vm("overcommit_memory", "2");
            m.line("/proc/meminfo", "Committed_AS:", " 8000000 kB");
        }, |m| m.vm("overcommit_memory", "2");
        "memory-commit-limit" Jvm Note Mended, |m| m.vm("overcommit_memory", "2"),
            |m| m.vm("overcommit_memory", "1");
        "compaction-stalls" Any Warning Stays,
            |m| m.counters(&[("compact_stall", 200_000), ("compact_fail", 150_000)]),
            |m| m.counters(&[("compact_stall", 200_000), ("compact_fail", 50_000)]);
        "compaction-proactive-off" Any Note Mended, |m| m.vm("compaction_proactiveness", "0"),
            |m| m.vm("compaction_proactiveness", "1");
        "compaction-unevictable" Any Note Mended, |m| m.vm("compact_unevictable_allowed", "0"), |_| ();
        "compaction-extfrag" Any Note Mended, |m| m.vm("extfrag_threshold", "1000"),
            |m| m.vm("extfrag_threshold", "600");
        "ksm-splits" Vm Note Mended, |m| {
            m.set("/sys/kernel/mm/ksm/run", "1");
            m.set("/sys/kernel/mm/ksm/pages_sharing", "100000");
        }, |m| m.set("/sys/kernel/mm/ksm/run", "1");
        "free-page-reporting" Any Note Stays, |m| balloon(m, "0110010100"), |m| balloon(m, "0110000100");

        "program-morecore" Any Warning Stays, |m| m.process(9, "app", "A=b HUGETLB_MORECORE=yes"), |m| {
            m.process(9, "app", "HUGETLB_MORECORE=yes");
            m.put("/proc/9/maps", "7f0000000000-7f0000001000 r-xp 0 08:01 7 /lib/libc-2.31.so");
            m.process(10, "app", "HUGETLB_MORECORE=yes");
            m.add("/proc/10/maps", "7f0000001000-7f0000002000 r-xp 0 08:01 8 /x/libsuperpage.so");
            m.process(11, "app", "HUGETLB_MORECORE=no");
        };
        "program-glibc-hugetlb" Any Warning Stays,
            |m| m.process(9, "app", "GLIBC_TUNABLES=a.b=1:glibc.malloc.hugetlb=2"),
            |m| {
                m.process(9, "app", "GLIBC_TUNABLES=glibc.malloc.hugetlb=2");
                m.set(&format!("{POOL}/nr_overcommit_hugepages"), "10");
                m.process(10, "app", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1");
            };
        "program-glibc-hugetlb" Any Warning Mended, |m| {
            m.process(9, "app", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1");
            m.thp("enabled", "never");
        }, |m| m.thp("enabled", "never");
        "program-jvm" Jvm Warning Stays, |m| m.process(9, "/opt/bin/java -XX:+UseLargePages -jar a", ""),
            |m| m.process(9, "java -XX:+UseLargePages -XX:-UseLargePages -jar a", "");
        "program-jvm" Jvm Warning Mended, |m| {
            m.process(9, "java -XX:+UseTransparentHugePages -jar a", "");
            m.thp("enabled", "never");
        }, |m| m.process(9, "java -XX:+UseTransparentHugePages -XX:+UseLargePages -jar a", "");
        "perf-paranoid" Any Note Mended, |m| m.set("/proc/sys/kernel/perf_event_paranoid", "4"),
            |m| m.set("/proc/sys/kernel/perf_event_paranoid", "-1");
        "sysctl-removed" Any Note Stays,
            |m| m.put("/etc/sysctl.conf", "-vm.hugepages_treat_as_movable = 1"),
            |m| m.put("/etc/sysctl.conf", "; vm.hugepages_treat_as_movable = 1\nnet.x = 1");
        "settings-left" Any Warning Mended,
            |m| m.put("/var/lib/superpage/journal/journal.jsonl", &journal(4_000_000)),
            |m| {
                m.process(9, "superpage", "");
                m.put("/var/lib/superpage/journal/journal.jsonl", &journal(9));
            };
    }
}

#[test]
fn each_check_finds_its_case_and_not_the_near_miss_and_its_commands_mend_it() {
    for case in cases() {
        let (id, workload) = (case.id, case.workload);
        let near = Machine::debian();
        (case.well)(&near);
        let state = near.state(id, workload);
        assert!(
            [State::Fine, State::NotApplicable].contains(&state),
            "{id}: the near miss is {state:?}: {:#?}",
            near.examine(workload).findings
        );
        let machine = Machine::debian();
        (case.sick)(&machine);
        let report = machine.examine(workload);
        let found: Vec<_> = report.findings.iter().filter(|it| it.id == id).collect();
        let [finding] = found[..] else {
            let check = report.checks.iter().find(|check| check.id == id);
            panic!("{id}, {workload}: {found:#?} {check:?}")
        };
        assert_eq!(finding.severity, case.severity, "{id}, {workload}");
        assert!(!finding.evidence.is_empty(), "{id}");
        for line in &finding.evidence {
            let is_file = line.file.starts_with('/');
            assert!(is_file && !line.value.is_empty() && !line.value.contains('\n'), "{line:?}");
        }
        let remedy = &finding.remedy;
        assert!(!remedy.now.is_empty() || !remedy.lasting.is_empty(), "{id} has no remedy");
        for step in &remedy.now {
            machine.apply(step);
        }
        let is_gone = machine.state(id, workload) != State::Found;
        assert_eq!(is_gone, case.after == Mended, "{id}, {workload}: after {:?}", remedy.now);
    }
}

#[test]
fn every_check_has_a_case_and_a_class_in_which_it_speaks() {
    let cases: BTreeSet<&str> = cases().iter().map(|case| case.id).collect();
    // A guest cannot see the host's pages, and the kernel is tried, not read: below.
    let apart = ["host-backing", "kernel-collapse"];
    let all: BTreeSet<&str> = CHECKS.iter().map(|check| check.id).collect();
    assert_eq!(all.len(), CHECKS.len(), "a name is there twice");
    let missing: Vec<_> =
        all.iter().filter(|id| !cases.contains(*id) && !apart.contains(id)).collect();
    assert!(missing.is_empty(), "{missing:?} have no case");
    assert!(cases.is_subset(&all), "{cases:?}");
}

#[test]
fn the_kernel_is_tried_and_the_host_is_unknown() {
    let machine = Machine::debian();
    let mut facts = machine.facts();
    let state = |facts: &doctor::Facts, id: &str| {
        let report = doctor::examine(facts, Workload::Any);
        report.checks.iter().find(|check| check.id == id).unwrap().state
    };
    assert_eq!(state(&facts, "kernel-collapse"), State::NotApplicable);
    for (has, expected) in [(true, State::Fine), (false, State::Found)] {
        facts.collapse.value = Ok(has);
        assert_eq!(state(&facts, "kernel-collapse"), expected);
    }
    assert_eq!(state(&facts, "host-backing"), State::NotApplicable);
    machine.line("/proc/cpuinfo", "flags", " : fpu hypervisor");
    assert_eq!(state(&machine.facts(), "host-backing"), State::Unknown);
    let root = host::Root::real();
    let facts = doctor::Facts::read(&root, std::path::Path::new("/nonexistent"));
    assert!(facts.collapse.value.is_ok(), "{:?}", facts.collapse);
}

#[test]
fn lasting_lines_are_in_the_form_of_their_files() {
    let mut kinds = BTreeSet::new();
    for case in cases() {
        let machine = Machine::debian();
        (case.sick)(&machine);
        for finding in machine.examine(case.workload).findings {
            for lasting in &finding.remedy.lasting {
                let text = lasting.text();
                match lasting {
                    Lasting::Sysctl { key, value } => {
                        kinds.insert("sysctl");
                        assert_eq!(text, format!("{key} = {value}"));
                        let is_there =
                            machine.path(&format!("/proc/sys/{}", key.replace('.', "/")));
                        assert!(is_there.exists(), "{key} is no setting");
                    }
                    Lasting::Tmpfiles { file, .. } => {
                        kinds.insert("tmpfiles");
                        // Type, path, mode, user, group, age, argument.
                        assert_eq!(text.split(' ').count(), 7, "{text}");
                        assert!(machine.path(file).exists(), "{file}");
                    }
                    Lasting::Boot { words } => {
                        kinds.insert("boot");
                        assert!(words.split(' ').all(|word| word.contains('=')), "{words}");
                    }
                    Lasting::Unit { unit, line, .. } => {
                        kinds.insert("unit");
                        assert!(unit.ends_with(".service") && line.contains('='), "{unit} {line}");
                    }
                    Lasting::Edit { file, change } => {
                        kinds.insert("edit");
                        assert!(!file.is_empty() && !change.is_empty());
                    }
                }
            }
        }
    }
    assert_eq!(kinds.len(), 5, "{kinds:?}");
}

#[test]
fn a_refusal_lists_every_group_and_masked_files_of_sysctl_do_nothing() {
    let machine = Machine::debian();
    for pod in ["a", "b"] {
        let dir = format!("/sys/fs/cgroup/kubepods.slice/{pod}");
        machine.put(&format!("{dir}/hugetlb.2MB.max"), "0");
        machine.put(&format!("{dir}/hugetlb.2MB.events.local"), "max 2");
    }
    let report = machine.examine(Workload::Any);
    assert_eq!(report.findings.iter().filter(|it| it.id == "pool-group-refused").count(), 2);
    machine.put("/usr/lib/sysctl.d/50-pool.conf", "vm.nr_hugepages = 512");
    assert_eq!(machine.state("pool-not-got", Workload::Any), State::Found);
    std::os::unix::fs::symlink("/dev/null", machine.path("/etc/sysctl.d/50-pool.conf")).unwrap();
    assert_eq!(machine.state("pool-not-got", Workload::Any), State::Fine);
    fs::remove_file(machine.path("/etc/sysctl.d/50-pool.conf")).unwrap();
    assert_eq!(machine.state("pool-not-got", Workload::Any), State::Found);
}

/// Checks about processes have no verdict if there may be some that are hidden.
#[test]
fn hidden_processes_are_unknown() {
    let ids = [
        "thp-process-off",
        "pool-postgres-short",
        "program-morecore",
        "program-glibc-hugetlb",
        "program-jvm",
    ];
    let machine = Machine::debian();
    machine.pool(2048, 8, 0, 0);
    machine.process(7, "sleep", "");
    let states = |machine: &Machine| ids.map(|id| machine.state(id, Workload::Any));
    let mounted = |options: &str| {
        let line = format!("23 22 0:21 / /proc rw - proc proc rw{options}");
        machine.put("/proc/self/mountinfo", &line);
    };
    mounted("");
    let [fine, none] = [State::Fine, State::NotApplicable];
    assert_eq!(states(&machine), [fine, none, fine, fine, fine]);
    mounted(",hidepid=invisible");
    assert_eq!(states(&machine), [State::Unknown; 5]);
    let report = machine.examine(Workload::Any);
    let check = report.checks.iter().find(|it| it.id == "program-jvm").unwrap();
    assert!(check.unknown[0].why.contains("hidepid"), "{:?}", check.unknown);
    // What is seen is still found.
    machine.postgres("huge_pages = try");
    assert_eq!(machine.state("pool-postgres-short", Workload::Any), State::Found);
}

/// Pipes without a writer in the place of files that are not the kernel's.
#[test]
fn no_pipe_is_waited_for() {
    let machine = Machine::debian();
    machine.postgres("huge_pages = on");
    for file in [
        "/etc/group",
        "/etc/sysctl.conf",
        "/etc/sysctl.d/99-sysctl.conf",
        "/etc/rc.local",
        "/etc/tuned/active_profile",
        "/proc/70/root/data/postgresql.conf",
        "/proc/70/root/data/postgresql.auto.conf",
    ] {
        let path = machine.path(file);
        let _ = fs::remove_file(&path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    }
    let (send, done) = std::sync::mpsc::channel();
    std::thread::spawn(move || send.send(machine.facts().groups.value));
    // Long on any machine: one that waits for a pipe waits for ever.
    let groups = done.recv_timeout(std::time::Duration::from_secs(90));
    let why = groups.expect("reads to the end").unwrap_err();
    assert_eq!(why, doctor::Missing::Unreadable("no regular file".to_string()));
}

#[test]
fn commands_are_quoted_for_the_shell() {
    let machine = Machine::debian();
    machine.mount("rw,pagesize=2M", 0o755);
    machine.put("/dev/hugepages/a $(b)", "x");
    let report = machine.examine(Workload::Any);
    let stale = report.findings.iter().find(|it| it.id == "pool-stale-files").unwrap();
    assert_eq!(stale.remedy.now[0].command(), "rm -- '/dev/hugepages/a $(b)'");
    machine.thp("enabled", "never");
    let report = machine.examine(Workload::Any);
    let never = report.findings.iter().find(|it| it.id == "thp-never").unwrap();
    let file = "/sys/kernel/mm/transparent_hugepage/enabled";
    assert_eq!(never.remedy.now[0].command(), format!("echo madvise > {file}"));
    machine.vm("extfrag_threshold", "1000");
    let report = machine.examine(Workload::Any);
    let extfrag = report.findings.iter().find(|it| it.id == "compaction-extfrag").unwrap();
    assert_eq!(extfrag.remedy.now[0].command(), "sysctl -w vm.extfrag_threshold=500");
    assert_eq!(never.remedy.lasting[0].text(), format!("w {file} - - - - madvise"));
}
