//! Transparent huge pages: the modes, khugepaged, and what the counters say of them.

use std::collections::BTreeMap;

use host::{Choice, Thp};
use units::{ByteSize, PageSize};

use super::{Found, Judged, Stop, Workload, all_seen, evidence, only_if, share};
use crate::configuration::SetterKind;
use crate::facts::{Facts, Missing, THP};
use crate::finding::{Remedy, Severity};

/// Processes with less resident memory are not looked at.
const LARGE_PROCESS: ByteSize = ByteSize::mib(64);
/// Most processes that one finding lists.
const MOST_LISTED: usize = 8;
/// Fewer events since boot say nothing.
const ENOUGH_EVENTS: u64 = 1000;

/// The mode in force for superpages of PMD size in anonymous memory.
pub(super) struct InForce<'a> {
    /// The file that decides.
    pub file: String,
    pub choice: &'a Choice,
}

impl InForce<'_> {
    pub fn is_never(&self) -> bool {
        self.choice.is("never")
    }

    pub fn is_always(&self) -> bool {
        self.choice.is("always")
    }
}

pub(super) fn settings(facts: &Facts) -> Result<&Thp, Stop> {
    facts.thp.if_there()
}

/// A setting below the THP directory; stops as not applicable if this kernel has no such file.
fn there<'a, T>(facts: &Facts, value: &'a Option<T>, name: &str) -> Result<&'a T, Stop> {
    let file = format!("{THP}/{name}");
    value.as_ref().ok_or_else(|| match facts.thp_missing.get(&file) {
        None | Some(Missing::Absent) => Stop::NotApplicable,
        Some(Missing::Unreadable(why)) => {
            Stop::Unknown(vec![host::Unknown { what: file, why: why.clone() }])
        }
    })
}

pub(super) fn in_force(facts: &Facts) -> Result<InForce<'_>, Stop> {
    let thp = settings(facts)?;
    let own = thp.pmd_size.and_then(|size| thp.sizes.get(&size)?.enabled.as_ref());
    match (own, thp.pmd_size) {
        (Some(choice), Some(size)) if !choice.is("inherit") => {
            Ok(InForce { file: size_file(size, "enabled"), choice })
        }
        _ => Ok(InForce {
            file: format!("{THP}/enabled"),
            choice: there(facts, &thp.enabled, "enabled")?,
        }),
    }
}

/// Stops as not applicable if no memory can get a superpage of PMD size.
pub(super) fn only_in_use(facts: &Facts) -> Result<InForce<'_>, Stop> {
    let in_force = in_force(facts)?;
    only_if(!in_force.is_never())?;
    Ok(in_force)
}

/// A setting as the kernel prints it: `always [madvise] never`.
pub(super) fn printed(choice: &Choice) -> String {
    let words = choice.allowed.iter().map(|word| match choice.is(word) {
        true => format!("[{word}]"),
        false => word.clone(),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn size_file(size: PageSize, name: &str) -> String {
    format!("{THP}/hugepages-{}kB/{name}", size.bytes() / 1024)
}

/// Number of base pages in a superpage.
fn base_pages(facts: &Facts) -> Option<u64> {
    let pmd = facts.thp.value.as_ref().ok()?.pmd_size?;
    Some(pmd.bytes() / facts.page_size.bytes())
}

pub(super) fn not_built(facts: &Facts, workload: Workload) -> Judged {
    if facts.thp.value != Err(Missing::Absent) {
        return facts.thp.get().map(|_| Vec::new());
    }
    // Without /sys nothing is known of the kernel.
    facts.counters.get()?;
    if facts.pools.value == Err(Missing::Absent) {
        let why = "neither THP nor hugetlb is there: /sys is not mounted, or the kernel has none";
        let unknown = host::Unknown { what: THP.to_string(), why: why.to_string() };
        return Err(Stop::Unknown(vec![unknown]));
    }
    let severity = match workload {
        Workload::Database => Severity::Note,
        _ => Severity::Warning,
    };
    Ok(vec![Found {
        severity,
        what: "this kernel is built without transparent huge pages".to_string(),
        evidence: vec![evidence(THP, "no such directory")],
        why: "Programs get superpages only from the hugetlb pools, which they must ask for.",
        remedy: Remedy::default().edit("kernel configuration", "CONFIG_TRANSPARENT_HUGEPAGE=y"),
    }])
}

pub(super) fn never(facts: &Facts, workload: Workload) -> Judged {
    let enabled = there(facts, &settings(facts)?.enabled, "enabled")?;
    let in_force = in_force(facts)?;
    if !in_force.is_never() || !enabled.is("never") {
        return Ok(Vec::new());
    }
    let severity = match workload {
        Workload::Database => Severity::Note,
        _ => Severity::Warning,
    };
    let file = format!("{THP}/enabled");
    let mut remedy = Remedy::sysfs(&file, "madvise").boot("transparent_hugepage=madvise");
    if in_force.file != file {
        remedy = remedy.write(&in_force.file, "inherit");
    }
    Ok(vec![Found {
        severity,
        what: "transparent huge pages are off, also for memory that programs advise".to_string(),
        evidence: vec![evidence(file, printed(enabled))],
        why: "No fault and no scan of khugepaged makes a superpage; `madvise` gives them only to \
              memory that asks.",
        remedy,
    }])
}

pub(super) fn pmd_size_off(facts: &Facts, _: Workload) -> Judged {
    let thp = settings(facts)?;
    let enabled = there(facts, &thp.enabled, "enabled")?;
    let own = thp.pmd_size.and_then(|size| Some((size, thp.sizes.get(&size)?.enabled.as_ref()?)));
    let Some((size, own)) = own else { return Err(Stop::NotApplicable) };
    if !own.is("never") || enabled.is("never") {
        return Ok(Vec::new());
    }
    let file = size_file(size, "enabled");
    Ok(vec![Found {
        severity: Severity::Warning,
        what: format!(
            "THP are `{}`, but those of {size} are `never`: a size's own setting wins",
            enabled.selected
        ),
        evidence: vec![
            evidence(format!("{THP}/enabled"), printed(enabled)),
            evidence(&file, printed(own)),
        ],
        why: "The general setting looks right while no program gets a superpage of that size.",
        remedy: Remedy::sysfs(file, "inherit"),
    }])
}

pub(super) fn always(facts: &Facts, workload: Workload) -> Judged {
    only_if(workload == Workload::Database)?;
    let in_force = only_in_use(facts)?;
    if !in_force.is_always() {
        return Ok(Vec::new());
    }
    Ok(vec![Found {
        severity: Severity::Note,
        what: "all anonymous memory gets superpages, whether or not a program advised it"
            .to_string(),
        evidence: vec![evidence(&in_force.file, printed(in_force.choice))],
        why: "A process may grow by memory that it does not use, and after a fork (a snapshot of \
              Redis) one write copies up to a whole superpage.",
        remedy: Remedy::sysfs(in_force.file, "madvise").boot("transparent_hugepage=madvise"),
    }])
}

pub(super) fn defrag_stalls(facts: &Facts, workload: Workload) -> Judged {
    only_if(workload.minds_stalls())?;
    let in_force = only_in_use(facts)?;
    // With `madvise` only advised memory faults in superpages: `always` in `defrag` adds nothing.
    only_if(in_force.is_always())?;
    let defrag = there(facts, &settings(facts)?.defrag, "defrag")?;
    if !defrag.is("always") {
        return Ok(Vec::new());
    }
    let file = format!("{THP}/defrag");
    Ok(vec![Found {
        severity: Severity::Warning,
        what: "every fault of a large mapping may wait for compaction and reclaim".to_string(),
        evidence: vec![
            evidence(&file, printed(defrag)),
            evidence(&in_force.file, printed(in_force.choice)),
        ],
        why: "On fragmented memory a fault then takes milliseconds instead of microseconds, also \
              where no program asked for a superpage.",
        remedy: Remedy::sysfs(file, "madvise"),
    }])
}

pub(super) fn defrag_never(facts: &Facts, workload: Workload) -> Judged {
    only_if(workload != Workload::Database)?;
    only_in_use(facts)?;
    let defrag = there(facts, &settings(facts)?.defrag, "defrag")?;
    if !defrag.is("never") {
        return Ok(Vec::new());
    }
    let file = format!("{THP}/defrag");
    Ok(vec![Found {
        severity: Severity::Note,
        what: "faults take a superpage only if one is free at that moment".to_string(),
        evidence: vec![evidence(&file, printed(defrag))],
        why: "Once memory is fragmented, programs get base pages and wait for khugepaged.",
        remedy: Remedy::sysfs(file, "madvise"),
    }])
}

/// Shared memory that is worth superpages, if it is a 64th of the machine's too: twice the default of PostgreSQL's
/// shared_buffers.
const MUCH_SHARED: ByteSize = ByteSize::mib(256);

pub(super) fn shmem_off(facts: &Facts, workload: Workload) -> Judged {
    only_if(matches!(workload, Workload::Database | Workload::Any))?;
    let thp = settings(facts)?;
    let shmem = there(facts, &thp.shmem_enabled, "shmem_enabled")?;
    let own = thp.pmd_size.and_then(|size| thp.sizes.get(&size)?.shmem_enabled.as_ref());
    let is_off = match own {
        Some(own) if !own.is("inherit") => own.is("never"),
        _ => shmem.is("never"),
    };
    let memory = facts.memory.get()?;
    let (Some(used), Some(total)) = (memory.shmem, memory.total) else {
        return Err(lacks(&facts.memory.file, "Shmem or MemTotal"));
    };
    if !is_off {
        return Ok(Vec::new());
    }
    // Little shared memory is no finding, and not fine either: `map` names the setting for it too.
    only_if(used >= MUCH_SHARED && used.bytes() >= total.bytes() / 64)?;
    let file = match own {
        Some(own) if !own.is("inherit") => {
            thp.pmd_size.map(|size| size_file(size, "shmem_enabled"))
        }
        _ => None,
    };
    let file = file.unwrap_or_else(|| format!("{THP}/shmem_enabled"));
    Ok(vec![Found {
        severity: Severity::Note,
        what: format!("{used} of shared memory are in use, and none may get superpages by THP"),
        evidence: vec![
            evidence(&file, printed(own.filter(|own| !own.is("inherit")).unwrap_or(shmem))),
            evidence(&facts.memory.file, format!("Shmem: {used}")),
        ],
        why: "Shared buffers (PostgreSQL, Oracle) are often most of a database's memory; `advise` \
              gives superpages to shared memory that asks (`superpage run --shm`).",
        remedy: Remedy::sysfs(file, "advise"),
    }])
}

pub(super) fn shmem_test_mode(facts: &Facts, _: Workload) -> Judged {
    let shmem = there(facts, &settings(facts)?.shmem_enabled, "shmem_enabled")?;
    let why = match shmem.selected.as_str() {
        "deny" => {
            "`deny` is an emergency switch: it takes superpages from shared memory even where \
                   a mount asks for them."
        }
        "force" => "`force` is for tests: every file of a tmpfs takes whole superpages.",
        _ => return Ok(Vec::new()),
    };
    let file = format!("{THP}/shmem_enabled");
    Ok(vec![Found {
        severity: Severity::Warning,
        what: format!("shared memory is in the mode `{}`", shmem.selected),
        evidence: vec![evidence(&file, printed(shmem))],
        why,
        remedy: Remedy::sysfs(file, "advise"),
    }])
}

pub(super) fn zero_page_off(facts: &Facts, _: Workload) -> Judged {
    only_in_use(facts)?;
    if *there(facts, &settings(facts)?.use_zero_page, "use_zero_page")? {
        return Ok(Vec::new());
    }
    let file = format!("{THP}/use_zero_page");
    Ok(vec![Found {
        severity: Severity::Note,
        what: "a read of untouched memory allocates and clears a whole superpage".to_string(),
        evidence: vec![evidence(&file, 0)],
        why: "Sparse tables that are mostly read take memory for what was never written.",
        remedy: Remedy::sysfs(file, 1),
    }])
}

pub(super) fn boot_overridden(facts: &Facts, _: Workload) -> Judged {
    let enabled = there(facts, &settings(facts)?.enabled, "enabled")?;
    let boot = facts.boot.get()?;
    let Some(asked) = &boot.thp else { return Err(Stop::NotApplicable) };
    if enabled.is(asked) {
        return Ok(Vec::new());
    }
    Ok(vec![Found {
        severity: Severity::Note,
        what: format!("the kernel command line says `{asked}`, but THP are `{}`", enabled.selected),
        evidence: vec![
            evidence(&facts.boot.file, format!("transparent_hugepage={asked}")),
            evidence(format!("{THP}/enabled"), printed(enabled)),
        ],
        why: "Something changed the mode after boot, and the boot parameter misleads its readers.",
        remedy: Remedy::default().boot(format!("transparent_hugepage={}", enabled.selected)),
    }])
}

pub(super) fn never_at_boot(facts: &Facts, _: Workload) -> Judged {
    settings(facts)?;
    let found = facts.setters.iter().filter(|setter| setter.mode == "never").map(|setter| {
        let place = format!("{}:{}", setter.file, setter.line);
        let (who, remedy) = match &setter.kind {
            SetterKind::Unit(unit) => (
                format!("the unit {unit}"),
                Remedy::default().run(&["systemctl", "disable", "--now", unit]),
            ),
            SetterKind::Tuned(profile) => (
                format!("the TuneD profile {profile}"),
                Remedy::default().edit(
                    format!("/etc/tuned/{profile}-thp/tuned.conf"),
                    format!(
                        "[main]\ninclude={profile}\n[vm]\ntransparent_hugepages=madvise\n# then: \
                         tuned-adm profile {profile}-thp"
                    ),
                ),
            ),
            SetterKind::Tmpfiles | SetterKind::Script => (
                "a file that is applied at boot".to_string(),
                Remedy::default().edit(&place, "remove the line, or write `madvise`"),
            ),
        };
        Found {
            severity: Severity::Note,
            what: format!("{who} turns THP off for all programs"),
            evidence: vec![evidence(&place, &setter.text)],
            why: "Advice for one program then applies to every program; `MemoryTHP=disable` (systemd \
                  260) or prctl turns THP off for one.",
            remedy,
        }
    });
    Ok(found.collect())
}

pub(super) fn process_off(facts: &Facts, _: Workload) -> Judged {
    settings(facts)?;
    let is_off = |one: &&crate::ProcessFacts| {
        one.thp_enabled == Some(false) && one.resident.is_some_and(|it| it >= LARGE_PROCESS)
    };
    let off: Vec<_> = facts.processes.iter().filter(is_off).collect();
    if off.is_empty() {
        return all_seen(facts).map(|()| Vec::new());
    }
    let mut by_owner: BTreeMap<String, usize> = BTreeMap::new();
    for one in &off {
        let owner = one.process.unit.clone().unwrap_or_else(|| one.process.name.clone());
        *by_owner.entry(owner).or_default() += 1;
    }
    let owners: Vec<String> = by_owner
        .iter()
        .take(MOST_LISTED)
        .map(|(owner, count)| match count {
            1 => owner.clone(),
            count => format!("{owner} ({count} processes)"),
        })
        .collect();
    let more = by_owner.len().saturating_sub(MOST_LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let mut remedy = Remedy::default();
    let units = by_owner.keys().filter(|owner| owner.ends_with(".service"));
    for unit in units.take(MOST_LISTED) {
        remedy = remedy.unit(unit, "MemoryTHP=system", Some(260));
    }
    if off.iter().any(|one| one.process.name.starts_with("redis-server")) {
        remedy = remedy.edit("redis.conf", "disable-thp no");
    }
    if remedy.lasting.is_empty() {
        let change = "leave out prctl(PR_SET_THP_DISABLE), in the program or in its parent";
        remedy = remedy.edit("where the program is started", change);
    }
    let listed = off.iter().take(MOST_LISTED).map(|one| {
        let resident = one.resident.map_or(String::new(), |it| format!(", {it} resident"));
        evidence(
            format!("/proc/{}/status", one.process.pid),
            format!("THP_enabled: 0 ({}{resident})", one.process.name),
        )
    });
    Ok(vec![Found {
        severity: Severity::Note,
        what: format!("THP are off by prctl for {}{more}", owners.join(", ")),
        evidence: listed.collect(),
        why: "The prctl is inherited by children and survives exec: the system's mode, advice and \
              MADV_COLLAPSE do nothing for these processes.",
        remedy,
    }])
}

pub(super) fn fault_fallback(facts: &Facts, _: Workload) -> Judged {
    only_in_use(facts)?;
    let counters = facts.counters.get()?;
    let (Some(got), Some(fallback)) =
        (counters.get("thp_fault_alloc"), counters.get("thp_fault_fallback"))
    else {
        return Err(Stop::NotApplicable);
    };
    let all = got.saturating_add(fallback);
    let share = share(fallback, all);
    if all < ENOUGH_EVENTS || share < 0.2 {
        return Ok(Vec::new());
    }
    let mut lines = vec![
        evidence("/proc/vmstat", format!("thp_fault_fallback {fallback}")),
        evidence("/proc/vmstat", format!("thp_fault_alloc {got}")),
    ];
    if let Some(charge) = counters.get("thp_fault_fallback_charge").filter(|count| *count > 0) {
        lines.push(evidence("/proc/vmstat", format!("thp_fault_fallback_charge {charge}")));
    }
    Ok(vec![Found {
        severity: Severity::Warning,
        what: format!(
            "{} of the faults that wanted a superpage since boot got a base page",
            report::format::percent(share)
        ),
        evidence: lines,
        why: "Either no block of free memory was large enough, or (`charge`) a cgroup was at its \
              limit; khugepaged repairs it slowly.",
        remedy: Remedy::default().write("/proc/sys/vm/compact_memory", 1).lasting(
            crate::Lasting::Sysctl {
                key: "vm.compaction_proactiveness".to_string(),
                value: "40".to_string(),
            },
        ),
    }])
}

pub(super) fn swap_splits(facts: &Facts, _: Workload) -> Judged {
    let counters = facts.counters.get()?;
    let (Some(whole), Some(split)) =
        (counters.get("thp_swpout"), counters.get("thp_swpout_fallback"))
    else {
        return Err(Stop::NotApplicable);
    };
    let all = whole.saturating_add(split);
    let share = share(split, all);
    if all < ENOUGH_EVENTS || share < 0.5 {
        return Ok(Vec::new());
    }
    Ok(vec![Found {
        severity: Severity::Note,
        what: format!(
            "{} of the superpages that were swapped out were split first",
            report::format::percent(share)
        ),
        evidence: vec![
            evidence("/proc/vmstat", format!("thp_swpout_fallback {split}")),
            evidence("/proc/vmstat", format!("thp_swpout {whole}")),
        ],
        why: "The swap area has no free extent as large as a superpage; what is swapped in again is \
              base pages. Emptying the area needs enough free memory.",
        remedy: Remedy::default().run(&["swapoff", "-a"]).run(&["swapon", "-a"]),
    }])
}

pub(super) fn khugepaged_slow(facts: &Facts, _: Workload) -> Judged {
    let in_force = only_in_use(facts)?;
    // With `madvise` khugepaged scans advised mappings only; how large these are is not known.
    only_if(in_force.is_always())?;
    let daemon = &settings(facts)?.khugepaged;
    let pages = *there(facts, &daemon.pages_to_scan, "khugepaged/pages_to_scan")?;
    let sleep = *there(facts, &daemon.scan_sleep_ms, "khugepaged/scan_sleep_millisecs")?;
    let memory = facts.memory.get()?;
    let (Some(all), Some(huge)) = (memory.anon, memory.anon_huge) else {
        return Err(lacks(&facts.memory.file, "AnonPages or AnonHugePages"));
    };
    let left = all.bytes().saturating_sub(huge.bytes()) / facts.page_size.bytes();
    // The time of the scans themselves comes on top.
    let hours = |pages: u64| left as f64 / pages.max(1) as f64 * sleep as f64 / 3.6e6;
    if hours(pages) < 1.0 {
        return Ok(Vec::new());
    }
    // One pass in ten minutes.
    let wanted = (left.saturating_mul(sleep)).div_ceil(600_000).max(pages);
    let bytes = ByteSize(left.saturating_mul(facts.page_size.bytes()));
    let file = format!("{THP}/khugepaged/pages_to_scan");
    Ok(vec![Found {
        severity: Severity::Note,
        what: format!(
            "khugepaged needs {} hours for one pass over the {bytes} that are not on superpages",
            report::format::figure(hours(pages))
        ),
        evidence: vec![
            evidence(&file, pages),
            evidence(format!("{THP}/khugepaged/scan_sleep_millisecs"), sleep),
            evidence(&facts.memory.file, format!("AnonPages: {all}, AnonHugePages: {huge}")),
        ],
        why: "Memory that got base pages at its faults stays on them that long.",
        remedy: Remedy::sysfs(file, wanted),
    }])
}

pub(super) fn khugepaged_busy(facts: &Facts, workload: Workload) -> Judged {
    only_if(workload != Workload::Batch)?;
    only_in_use(facts)?;
    let daemon = &settings(facts)?.khugepaged;
    if *there(facts, &daemon.scan_sleep_ms, "khugepaged/scan_sleep_millisecs")? > 0 {
        return Ok(Vec::new());
    }
    let file = format!("{THP}/khugepaged/scan_sleep_millisecs");
    Ok(vec![Found {
        severity: Severity::Note,
        what: "khugepaged scans without pause".to_string(),
        evidence: vec![evidence(&file, 0)],
        why: "It takes one CPU, and collapses hold a process's mmap lock.",
        remedy: Remedy::sysfs(file, 10_000),
    }])
}

pub(super) fn khugepaged_defrag_off(facts: &Facts, _: Workload) -> Judged {
    only_in_use(facts)?;
    let daemon = &settings(facts)?.khugepaged;
    if *there(facts, &daemon.defrag, "khugepaged/defrag")? {
        return Ok(Vec::new());
    }
    let file = format!("{THP}/khugepaged/defrag");
    Ok(vec![Found {
        severity: Severity::Note,
        what: "khugepaged may not compact memory to get a superpage".to_string(),
        evidence: vec![evidence(&file, 0)],
        why: "On fragmented memory nothing repairs what faults missed; khugepaged's compaction stalls \
              no program.",
        remedy: Remedy::sysfs(file, 1),
    }])
}

pub(super) fn khugepaged_sparse(facts: &Facts, workload: Workload) -> Judged {
    only_if(workload == Workload::Database)?;
    let in_force = only_in_use(facts)?;
    only_if(in_force.is_always())?;
    let daemon = &settings(facts)?.khugepaged;
    let none = *there(facts, &daemon.max_ptes_none, "khugepaged/max_ptes_none")?;
    let Some(pages) = base_pages(facts) else {
        return Err(lacks(&format!("{THP}/hpage_pmd_size"), "the size of a superpage"));
    };
    if none < pages.saturating_sub(1) {
        return Ok(Vec::new());
    }
    let file = format!("{THP}/khugepaged/max_ptes_none");
    Ok(vec![Found {
        severity: Severity::Note,
        what: format!(
            "khugepaged makes a superpage even of a region with one used page of {pages}"
        ),
        evidence: vec![evidence(&file, none)],
        why: "Pages that a program freed become resident again; at this value the kernel's shrinker of \
              underused superpages (Linux 6.12) does nothing.",
        remedy: Remedy::sysfs(file, pages / 8),
    }])
}

pub(super) fn khugepaged_swap(facts: &Facts, _: Workload) -> Judged {
    only_in_use(facts)?;
    let daemon = &settings(facts)?.khugepaged;
    let swap = *there(facts, &daemon.max_ptes_swap, "khugepaged/max_ptes_swap")?;
    let Some(pages) = base_pages(facts) else {
        return Err(lacks(&format!("{THP}/hpage_pmd_size"), "the size of a superpage"));
    };
    // The kernel's default is an eighth (mm/khugepaged.c).
    if swap <= pages / 8 {
        return Ok(Vec::new());
    }
    let file = format!("{THP}/khugepaged/max_ptes_swap");
    Ok(vec![Found {
        severity: Severity::Note,
        what: format!("khugepaged swaps up to {swap} pages in to make one superpage"),
        evidence: vec![evidence(&file, swap)],
        why: "Unused pages come back from swap and push out others.",
        remedy: Remedy::sysfs(file, pages / 8),
    }])
}

/// A file that lacks a line.
pub(super) fn lacks(file: &str, what: &str) -> Stop {
    Stop::Unknown(vec![host::Unknown { what: file.to_string(), why: format!("has no {what}") }])
}
