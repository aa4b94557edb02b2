//! The checks, and `examine`, which makes all of them. A check decides from [`Facts`] and the class of workload alone.

mod memory;
mod pools;
mod programs;
mod thp;

use std::fmt;

use host::Unknown;
use serde::Serialize;

use crate::facts::{Facts, Stop};
use crate::finding::{Evidence, Finding, Remedy, Severity};

/// A class of workload: what the machine is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Servers with large shared or private buffers whose latency matters: PostgreSQL, Redis, MySQL.
    Database,
    /// Java virtual machines.
    Jvm,
    /// Programs whose throughput matters and no single delay: simulations, compilers, analytics.
    Batch,
    /// A host of virtual machines.
    Vm,
    /// Unknown or mixed.
    Any,
}

impl Workload {
    /// Every class.
    pub const ALL: [Self; 5] = [Self::Database, Self::Jvm, Self::Batch, Self::Vm, Self::Any];

    /// Whether a single long fault matters.
    pub(crate) fn minds_stalls(self) -> bool {
        self != Self::Batch
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Database => "database",
            Self::Jvm => "jvm",
            Self::Batch => "batch",
            Self::Vm => "vm",
            Self::Any => "any",
        })
    }
}

/// A check.
pub struct Check {
    /// Its name, which does not change.
    pub id: &'static str,
    /// What it finds, for the documentation.
    pub finds: &'static str,
    judge: fn(&Facts, Workload) -> Judged,
}

/// What a check found; nothing: fine.
type Judged = Result<Vec<Found>, Stop>;

/// A finding without its check's name.
struct Found {
    severity: Severity,
    what: String,
    evidence: Vec<Evidence>,
    why: &'static str,
    remedy: Remedy,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// The check.
    pub id: &'static str,
    /// Its result.
    pub state: State,
    /// What could not be read; empty unless `state` is unknown.
    pub unknown: Vec<Unknown>,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Nothing was found.
    Fine,
    /// There is a finding.
    Found,
    /// Does not concern this machine or class of workload.
    NotApplicable,
    /// Facts are missing.
    Unknown,
}

/// The results of all checks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The class of workload.
    pub workload: Workload,
    /// Findings, the worst first.
    pub findings: Vec<Finding>,
    /// Every check, in the order of [`CHECKS`].
    pub checks: Vec<Checked>,
}

impl Report {
    /// Number of checks in a state.
    pub fn count(&self, state: State) -> usize {
        self.checks.iter().filter(|check| check.state == state).count()
    }

    /// Number of checks that had a verdict.
    pub fn judged(&self) -> usize {
        self.count(State::Fine) + self.count(State::Found)
    }
}

/// Makes every check.
pub fn examine(facts: &Facts, workload: Workload) -> Report {
    let mut report = Report { workload, findings: Vec::new(), checks: Vec::new() };
    for check in CHECKS {
        let (state, unknown) = match (check.judge)(facts, workload) {
            Ok(found) if found.is_empty() => (State::Fine, Vec::new()),
            Ok(found) => {
                report.findings.extend(found.into_iter().map(|found| Finding {
                    id: check.id,
                    severity: found.severity,
                    what: found.what,
                    evidence: found.evidence,
                    why: found.why,
                    remedy: found.remedy,
                }));
                (State::Found, Vec::new())
            }
            Err(Stop::NotApplicable) => (State::NotApplicable, Vec::new()),
            Err(Stop::Unknown(unknown)) => (State::Unknown, unknown),
        };
        report.checks.push(Checked { id: check.id, state, unknown });
    }
    report.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    report
}

/// Stops the check as not applicable unless `applies`.
fn only_if(applies: bool) -> Result<(), Stop> {
    if applies { Ok(()) } else { Err(Stop::NotApplicable) }
}

/// Stops the check as unknown if there may be processes of which not even the names were read.
fn all_seen(facts: &Facts) -> Result<(), Stop> {
    let is_unseen = |it: &&Unknown| it.what == "/proc" || it.what.starts_with("pid ");
    let unseen: Vec<_> = facts.processes_unknown.iter().filter(is_unseen).cloned().collect();
    if unseen.is_empty() { Ok(()) } else { Err(Stop::Unknown(unseen)) }
}

fn evidence(file: impl Into<String>, value: impl ToString) -> Evidence {
    Evidence { file: file.into(), value: value.to_string() }
}

/// `part` of `whole`, as a share; 0 of 0 is 0.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

macro_rules! checks {
    ($($module:ident { $($id:literal $judge:ident $finds:literal)* })*) => {
        /// Every check.
        pub const CHECKS: &[Check] = &[$($(
            Check { id: $id, finds: $finds, judge: $module::$judge },
        )*)*];
    };
}

checks! {
    thp {
        "thp-not-built" not_built "a kernel without THP"
        "thp-never" never "THP off for all memory"
        "thp-pmd-size-off" pmd_size_off "THP on, but its PMD size (2 MiB on x86) off"
        "thp-always" always "for databases: superpages for memory that was not advised"
        "thp-defrag-stalls" defrag_stalls "`always` in `defrag`: every fault may compact memory"
        "thp-defrag-never" defrag_never "`never` in `defrag`: no fault reclaims or compacts memory for a superpage"
        "thp-shmem-off" shmem_off "much shared memory, none of which may be on superpages"
        "thp-shmem-test-mode" shmem_test_mode "`deny` or `force` in `shmem_enabled`, which are for tests"
        "thp-zero-page-off" zero_page_off "reads of untouched memory take whole superpages"
        "thp-boot-overridden" boot_overridden "a boot parameter that something else overrides"
        "thp-never-at-boot" never_at_boot "units, TuneD profiles and scripts that turn THP off at boot"
        "thp-process-off" process_off "large processes that have THP turned off by prctl"
        "thp-fault-fallback" fault_fallback "faults that wanted a superpage and got a base page"
        "thp-swap-splits" swap_splits "superpages that were split to be swapped out"
        "khugepaged-slow" khugepaged_slow "a khugepaged that needs hours for the memory at hand"
        "khugepaged-busy" khugepaged_busy "a khugepaged without pauses"
        "khugepaged-defrag-off" khugepaged_defrag_off "a khugepaged that may not compact memory"
        "khugepaged-sparse" khugepaged_sparse "for databases: superpages made of a single used page"
        "khugepaged-swap" khugepaged_swap "a khugepaged that swaps many pages in"
    }
    pools {
        "pool-not-got" not_got "pools smaller than boot parameters or sysctl.d ask for"
        "pool-idle" idle "pool pages that no program uses or has reserved"
        "pool-surplus" surplus "pools that programs outgrow"
        "pool-uneven" uneven "pools of very different size on NUMA nodes"
        "pool-1g-none" giant_none "for hosts of virtual machines: no pool of 1 GiB pages"
        "pool-postgres-short" postgres_short "pools too small for PostgreSQL's shared buffers"
        "pool-stale-files" stale_files "files in hugetlbfs that hold pages and that no process uses"
        "pool-group-refused" group_refused "cgroups whose hugetlb limit refused pages"
        "pool-no-group-limits" no_group_limits "for hosts of virtual machines: pools that no cgroup can limit"
        "pool-vmemmap" vmemmap "large pools whose page structures could be freed"
        "pool-shm-group" shm_group "a group of hugetlb shared memory that does not exist"
        "pool-shm-limit" shm_limit "limits of SysV shared memory below the pool or below 1 GiB"
        "pool-mount-open" mount_open "hugetlbfs mounts in which any user may take the whole pool"
        "pool-mount-missing" mount_missing "for hosts of virtual machines: a pool without a mount"
    }
    memory {
        "memory-fragmented" fragmented "free memory in pieces smaller than a superpage"
        "memory-min-free" min_free "a min_free_kbytes too small to keep kinds of pages apart"
        "memory-zone-reclaim" zone_reclaim "nodes that drop caches before they use another node"
        "memory-numa-balancing" numa_balancing "automatic NUMA balancing for databases and virtual machines"
        "memory-commit-limit" commit_limit "strict overcommit near its limit"
        "compaction-stalls" compaction_stalls "faults that wait for compaction, mostly without success"
        "compaction-proactive-off" proactive_off "no compaction in the background"
        "compaction-unevictable" unevictable "locked memory that compaction may not move"
        "compaction-extfrag" extfrag "a threshold that turns compaction off"
        "ksm-splits" ksm_splits "page merging, which splits superpages"
        "free-page-reporting" free_page_reporting "in a virtual machine: free memory that the host takes back"
        "host-backing" host_backing "in a virtual machine: what pages the host gives"
    }
    programs {
        "program-morecore" morecore "HUGETLB_MORECORE with a C library that ignores it"
        "program-glibc-hugetlb" glibc_hugetlb "glibc.malloc.hugetlb without the superpages that it needs"
        "program-jvm" jvm "JVM flags without the superpages that they need"
        "kernel-collapse" collapse "a kernel without MADV_COLLAPSE"
        "perf-paranoid" perf_paranoid "counters and samples that ordinary users may not take"
        "sysctl-removed" sysctl_removed "lines of sysctl.d for settings that this kernel does not have"
        "settings-left" settings_left "settings that a killed superpage left changed"
    }
}
