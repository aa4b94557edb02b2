//! Free memory, compaction, NUMA, overcommit, and the host below a virtual machine.

use host::{FreeContiguity, Hypervisor, Unknown};
use units::ByteSize;

use super::thp::{lacks, only_in_use, printed};
use super::{Found, Judged, Stop, Workload, evidence, only_if, share, thp};
use crate::facts::{Facts, Setting, THP};
use crate::finding::{Lasting, Remedy, Severity};

/// Zones from which the kernel does not take memory that it cannot move.
const MOVABLE_ZONES: [&str; 2] = ["Movable", "Device"];

pub(super) fn fragmented(facts: &Facts, workload: Workload) -> Judged {
    let superpage = match thp::settings(facts) {
        Ok(thp) => thp.pmd_size,
        Err(_) => facts.pools.if_there()?.default,
    };
    let Some(superpage) = superpage else {
        return Err(lacks(&format!("{THP}/hpage_pmd_size"), "the size of a superpage"));
    };
    let mut zones = facts.free.get()?.clone();
    // The kernel gives no memory of this zone to programs.
    zones.retain(|zone| zone.zone != "DMA");
    let free = FreeContiguity::from_zones(&zones, facts.page_size, superpage);
    let total = facts.memory.get()?.total.ok_or_else(|| lacks("/proc/meminfo", "MemTotal"))?;
    let Some(whole) = free.in_superpages else { return Err(Stop::NotApplicable) };
    let much = (total.bytes() / 20).max(ByteSize::mib(512).bytes());
    let ratio = share(whole.bytes(), free.free.bytes());
    if free.free.bytes() < much || ratio >= 0.25 {
        return Ok(Vec::new());
    }
    let severity = match workload {
        Workload::Database => Severity::Note,
        _ => Severity::Warning,
    };
    Ok(vec![Found {
        severity,
        what: format!(
            "{} are free, of which {} in whole superpages: unusable for {superpage} without \
             compaction: {}",
            free.free,
            whole,
            report::format::percent(1.0 - ratio)
        ),
        evidence: vec![evidence(
            &facts.free.file,
            format!("free {}, in blocks of {superpage} or more {whole}", free.free),
        )],
        why: "Faults get base pages or wait for compaction, and pools grow by a part of what is asked.",
        remedy: Remedy::default().write("/proc/sys/vm/compact_memory", 1).lasting(
            Lasting::Sysctl {
                key: Setting::CompactionProactiveness.key().to_string(),
                value: "40".to_string(),
            },
        ),
    }])
}

/// The kernel's own minimum with THP, in kB: eleven pageblocks for each zone of memory that cannot be moved, at most a
/// twentieth of these zones (mm/khugepaged.c set_recommended_min_free_kbytes()).
fn recommended(facts: &Facts) -> Result<u64, Stop> {
    let pmd = thp::settings(facts)?.pmd_size;
    let Some(block) = pmd else {
        return Err(lacks(&format!("{THP}/hpage_pmd_size"), "the size of a superpage"));
    };
    let zones = facts.zones.get()?.iter().filter(|zone| {
        zone.managed.is_some_and(|pages| pages > 0) && !MOVABLE_ZONES.contains(&zone.zone.as_str())
    });
    let (mut count, mut pages) = (0, 0u64);
    for zone in zones {
        count += 1;
        let above = zone.managed.unwrap_or(0).saturating_sub(zone.high.unwrap_or(0));
        pages = pages.saturating_add(above);
    }
    if count == 0 {
        return Err(lacks(&facts.zones.file, "zone with managed pages"));
    }
    let kbytes = (block.bytes() / 1024).saturating_mul(count).saturating_mul(11);
    Ok(kbytes.min(pages.saturating_mul(facts.page_size.bytes() / 1024) / 20))
}

pub(super) fn min_free(facts: &Facts, _: Workload) -> Judged {
    only_in_use(facts)?;
    let setting = facts.setting(Setting::MinFreeKbytes);
    let now = u64::try_from(*setting.get()?).unwrap_or(0);
    let recommended = recommended(facts)?;
    // The kernel computed the cap from other watermarks than those of now.
    if now >= recommended / 10 * 9 {
        return Ok(Vec::new());
    }
    Ok(vec![Found {
        severity: if now < recommended / 4 { Severity::Warning } else { Severity::Note },
        what: format!(
            "the kernel keeps {} free; with THP it needs {} so that pages that can be moved and pages \
             that cannot stay apart",
            ByteSize::kib(now),
            ByteSize::kib(recommended)
        ),
        evidence: vec![
            evidence(&setting.file, now),
            evidence(&facts.zones.file, format!("eleven pageblocks a zone: {recommended} kB")),
        ],
        why: "Unmovable kernel pages then spread over all memory, and one of them in a block rules out \
              a superpage there. The kernel raises the value when THP are turned on; something lowered it.",
        remedy: Remedy::setting(Setting::MinFreeKbytes, recommended),
    }])
}

pub(super) fn zone_reclaim(facts: &Facts, workload: Workload) -> Judged {
    only_if(workload != Workload::Batch)?;
    only_if(*facts.nodes.if_there()? > 1)?;
    let setting = facts.setting(Setting::ZoneReclaimMode);
    let mode = *setting.if_there()?;
    if mode == 0 {
        return Ok(Vec::new());
    }
    Ok(vec![Found {
        severity: if workload == Workload::Vm { Severity::Note } else { Severity::Warning },
        what: "a full node reclaims its own memory before it takes memory of another node"
            .to_string(),
        evidence: vec![evidence(&setting.file, mode)],
        why: "Caches are dropped and faults wait while other nodes have free superpages.",
        remedy: Remedy::setting(Setting::ZoneReclaimMode, 0),
    }])
}

pub(super) fn numa_balancing(facts: &Facts, workload: Workload) -> Judged {
    only_if(matches!(workload, Workload::Database | Workload::Vm))?;
    only_if(*facts.nodes.if_there()? > 1)?;
    let setting = facts.setting(Setting::NumaBalancing);
    let mode = *setting.if_there()?;
    if mode & 1 == 0 {
        return Ok(Vec::new());
    }
    Ok(vec![Found {
        severity: Severity::Note,
        what: "the kernel unmaps memory now and then to see which node uses it".to_string(),
        evidence: vec![evidence(&setting.file, mode)],
        why: "The hint faults and the migration of whole superpages cost a program that is bound to a \
              node and gain it nothing.",
        remedy: Remedy::setting(Setting::NumaBalancing, 0),
    }])
}

pub(super) fn commit_limit(facts: &Facts, workload: Workload) -> Judged {
    let setting = facts.setting(Setting::OvercommitMemory);
    if *setting.get()? != 2 {
        return Ok(Vec::new());
    }
    let (limit, used) = *facts.commit.get()?;
    let share = share(used.bytes(), limit.bytes());
    let severity = match (share >= 0.9, workload) {
        (true, _) => Severity::Warning,
        (false, Workload::Jvm) => Severity::Note,
        (false, _) => return Ok(Vec::new()),
    };
    Ok(vec![Found {
        severity,
        what: format!(
            "strict overcommit: {used} of {limit} are promised ({})",
            report::format::percent(share)
        ),
        evidence: vec![
            evidence(&setting.file, 2),
            evidence(&facts.commit.file, format!("Committed_AS: {used}, CommitLimit: {limit}")),
        ],
        why: "Each page of a hugetlb pool lowers the limit, and mappings that are reserved but not \
              touched (heaps of JVMs) count: an mmap fails while memory is free.",
        remedy: Remedy::setting(Setting::OvercommitMemory, 0),
    }])
}

pub(super) fn compaction_stalls(facts: &Facts, workload: Workload) -> Judged {
    only_if(workload.minds_stalls())?;
    let in_force = only_in_use(facts)?;
    let counters = facts.counters.get()?;
    let (Some(stalls), Some(failed)) =
        (counters.get("compact_stall"), counters.get("compact_fail"))
    else {
        return Err(Stop::NotApplicable);
    };
    let seconds = *facts.uptime.get()?;
    if stalls < 10_000 || (stalls as f64) < seconds || share(failed, stalls) < 0.5 {
        return Ok(Vec::new());
    }
    let file = format!("{THP}/defrag");
    let defrag = thp::settings(facts)?.defrag.as_ref();
    let remedy = match defrag.is_some_and(|defrag| defrag.is("defer")) {
        true => Remedy::default(),
        false => Remedy::sysfs(&file, "defer"),
    };
    let mut lines = vec![
        evidence("/proc/vmstat", format!("compact_stall {stalls}")),
        evidence("/proc/vmstat", format!("compact_fail {failed}")),
        evidence(&facts.uptime.file, format!("{} s since boot", seconds as u64)),
        evidence(&in_force.file, printed(in_force.choice)),
    ];
    lines.extend(defrag.map(|defrag| evidence(&file, printed(defrag))));
    Ok(vec![Found {
        severity: Severity::Warning,
        what: format!(
            "programs waited {stalls} times for compaction, {} of the times without success",
            report::format::percent(share(failed, stalls))
        ),
        evidence: lines,
        why: "Each wait takes up to milliseconds; `defer` leaves the work to kernel threads.",
        remedy,
    }])
}

pub(super) fn proactive_off(facts: &Facts, workload: Workload) -> Judged {
    only_if(workload != Workload::Database)?;
    only_in_use(facts)?;
    let setting = facts.setting(Setting::CompactionProactiveness);
    if *setting.if_there()? > 0 {
        return Ok(Vec::new());
    }
    Ok(vec![Found {
        severity: Severity::Note,
        what: "memory is compacted only when a superpage is already missing".to_string(),
        evidence: vec![evidence(&setting.file, 0)],
        why: "The kernel's default, 20, keeps some blocks whole in the background.",
        remedy: Remedy::setting(Setting::CompactionProactiveness, 20),
    }])
}

pub(super) fn unevictable(facts: &Facts, workload: Workload) -> Judged {
    only_if(workload != Workload::Database)?;
    let setting = facts.setting(Setting::CompactUnevictableAllowed);
    if *setting.if_there()? != 0 {
        return Ok(Vec::new());
    }
    Ok(vec![Found {
        severity: Severity::Note,
        what: "compaction may not move locked memory".to_string(),
        evidence: vec![evidence(&setting.file, 0)],
        why: "A locked base page in a block rules out a superpage there; the setting is for realtime \
              programs.",
        remedy: Remedy::setting(Setting::CompactUnevictableAllowed, 1),
    }])
}

pub(super) fn extfrag(facts: &Facts, _: Workload) -> Judged {
    let setting = facts.setting(Setting::ExtfragThreshold);
    let threshold = *setting.if_there()?;
    if threshold < 900 {
        return Ok(Vec::new());
    }
    Ok(vec![Found {
        severity: Severity::Note,
        what: format!(
            "an allocation compacts memory only if its fragmentation index is above {threshold}"
        ),
        evidence: vec![evidence(&setting.file, threshold)],
        why: "The index ends at 1000: near that the kernel reclaims memory in use instead of compacting \
              what is free.",
        remedy: Remedy::setting(Setting::ExtfragThreshold, 500),
    }])
}

pub(super) fn ksm_splits(facts: &Facts, workload: Workload) -> Judged {
    only_if(matches!(workload, Workload::Vm | Workload::Batch | Workload::Any))?;
    let (run, sharing) = *facts.ksm.if_there()?;
    if run != 1 || sharing == 0 {
        return Ok(Vec::new());
    }
    let saved = ByteSize(sharing.saturating_mul(facts.page_size.bytes()));
    Ok(vec![Found {
        severity: Severity::Note,
        what: format!("KSM merges equal pages (saves {saved}) and splits superpages for it"),
        evidence: vec![
            evidence(&facts.ksm.file, run),
            evidence("/sys/kernel/mm/ksm/pages_sharing", sharing),
        ],
        why: "Memory that programs gave to KSM (QEMU does by default) does not stay on superpages; a \
              machine full of equal guests may want that.",
        remedy: Remedy::sysfs("/sys/kernel/mm/ksm/run", 0),
    }])
}

pub(super) fn free_page_reporting(facts: &Facts, _: Workload) -> Judged {
    let Some(features) = facts.reporting.if_there()? else { return Ok(Vec::new()) };
    Ok(vec![Found {
        severity: Severity::Note,
        what: "the host takes back memory that stays free (free page reporting)".to_string(),
        evidence: vec![evidence(&facts.reporting.file, features)],
        why: "The next touch of that memory waits for the host, several times as long as a page fault. Pages \
              of a hugetlb pool are not free memory, and stay.",
        remedy: Remedy::default().lasting(Lasting::Edit {
            file: "the host's configuration".to_string(),
            change: "free-page-reporting=off on the guest's balloon device (QEMU)".to_string(),
        }),
    }])
}

/// The host's pages cannot be seen from a guest: unknown, with what to look at.
pub(super) fn host_backing(facts: &Facts, _: Workload) -> Judged {
    let cpu = facts.cpu.get()?;
    let why = match &cpu.hypervisor {
        Hypervisor::Absent => return Err(Stop::NotApplicable),
        Hypervisor::Present(_) => {
            "this is a virtual machine, and a guest cannot see which pages the host gives it; on the \
             host, AnonHugePages and Private_Hugetlb in /proc/PID/smaps_rollup of the guest's process \
             tell; here, `superpage tlb` measures the reach of superpages"
        }
        Hypervisor::Unknown => {
            "this processor does not say whether it is virtual; if it is, see \
             /proc/PID/smaps_rollup of the guest's process on the host"
        }
    };
    let what = "pages of the host".to_string();
    Err(Stop::Unknown(vec![Unknown { what, why: why.to_string() }]))
}
