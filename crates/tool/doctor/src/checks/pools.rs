//! The hugetlb pools: sizes, limits, mounts and files.

use host::pool::boot::{BootPages, BootPool};
use host::pool::users::Stale;
use host::pool::{Status, exact};
use host::{Pool, Unknown};
use units::{ByteSize, PageSize};

use super::thp::lacks;
use super::{Found, Judged, Stop, Workload, all_seen, evidence, only_if};
use crate::facts::{Facts, GROUPS, GroupControl, Missing, POOLS, Setting};
use crate::finding::{Evidence, Remedy, Severity, Step};

/// Fewer idle bytes are not worth a finding.
const FEW: ByteSize = ByteSize::mib(64);
const MUCH: ByteSize = ByteSize::gib(1);
/// A pool may wait this long for the program that it is for, in seconds.
const GRACE: f64 = 3600.0;
/// The kernel's default of shmmax and shmall: ULONG_MAX - 2^24 (include/uapi/linux/shm.h).
const SHM_DEFAULT: u64 = u64::MAX - (1 << 24);

fn file(size: PageSize, name: &str) -> String {
    format!("{POOLS}/hugepages-{}kB/{name}", size.bytes() / 1024)
}

fn line(size: PageSize, name: &str, pages: u64) -> Evidence {
    evidence(file(size, name), pages)
}

fn bytes(size: PageSize, pages: u64) -> ByteSize {
    ByteSize(pages.saturating_mul(size.bytes()))
}

fn pools(facts: &Facts) -> Result<&Status, Stop> {
    facts.pools.if_there()
}

/// A pool whose numbers are all known.
struct Known {
    size: PageSize,
    total: u64,
    free: u64,
    reserved: u64,
    surplus: u64,
    overcommit: u64,
}

impl Known {
    fn new(status: &Status, size: PageSize, pool: &Pool) -> Result<Self, Stop> {
        let known = |value: Option<u64>, name: &str| {
            let file = file(size, name);
            let why = status.unknown.iter().find(|unknown| unknown.what == file);
            let unknown = || Unknown {
                what: file.clone(),
                why: why.map_or("not read".to_string(), |unknown| unknown.why.clone()),
            };
            value.ok_or_else(|| Stop::Unknown(vec![unknown()]))
        };
        Ok(Self {
            size,
            total: known(pool.total, "nr_hugepages")?,
            free: known(pool.free, "free_hugepages")?,
            reserved: known(pool.reserved, "resv_hugepages")?,
            surplus: known(pool.surplus, "surplus_hugepages")?,
            // Gigantic pages cannot be overcommitted on some kernels.
            overcommit: pool.overcommit.unwrap_or(0),
        })
    }

    /// Whether a program can get a page of it at any time.
    fn gives(&self) -> bool {
        self.total > 0 || self.overcommit > 0
    }

    /// Number of pages that a new mapping can reserve without surplus pages.
    fn unreserved(&self) -> u64 {
        self.free.saturating_sub(self.reserved)
    }

    fn persistent(&self) -> u64 {
        self.total.saturating_sub(self.surplus)
    }
}

fn known(facts: &Facts) -> Result<Vec<Known>, Stop> {
    let status = pools(facts)?;
    status.pools.sizes.iter().map(|(size, pool)| Known::new(status, *size, pool)).collect()
}

/// Whether programs can get hugetlb pages of the default size.
pub(super) fn default_gives(facts: &Facts) -> Result<bool, Stop> {
    let default = pools(facts)?.default.ok_or_else(|| lacks("/proc/meminfo", "Hugepagesize"))?;
    Ok(known(facts)?.iter().any(|it| it.size == default && it.gives()))
}

/// The file of the default pool's size.
pub(super) fn default_file(facts: &Facts) -> Result<String, Stop> {
    let default = pools(facts)?.default.ok_or_else(|| lacks("/proc/meminfo", "Hugepagesize"))?;
    Ok(file(default, "nr_hugepages"))
}

pub(super) fn not_got(facts: &Facts, _: Workload) -> Judged {
    let status = pools(facts)?;
    let boot = facts.boot.get()?;
    let sysctl = facts.sysctl.get()?;
    let mut found = Vec::new();
    for pool in known(facts)? {
        let is_default = status.default == Some(pool.size);
        let at_boot = boot.pools.iter().rev().find(|(size, _)| match size {
            Some(size) => *size == pool.size,
            None => is_default,
        });
        let later = sysctl.iter().rev().find(|line| line.key == "vm.nr_hugepages" && is_default);
        // sysctl.d is applied after the kernel's parameters.
        let (asked, by) = match (later, at_boot) {
            (Some(line), _) => match line.value.parse() {
                Ok(pages) => {
                    let place = format!("{}:{}", line.file, line.line);
                    (pages, evidence(place, format!("{} = {}", line.key, line.value)))
                }
                Err(_) => continue,
            },
            (None, Some((_, pages))) => {
                let words = boot_words(pool.size, BootPages::Anywhere(*pages));
                (*pages, evidence(&facts.boot.file, words))
            }
            (None, None) => continue,
        };
        let has = pool.persistent();
        if has >= asked {
            continue;
        }
        let words = boot_words(pool.size, BootPages::Anywhere(asked));
        found.push(Found {
            severity: Severity::Error,
            what: format!(
                "the pool of {} pages has {has} of the {asked} that were asked for",
                pool.size
            ),
            evidence: vec![by, line(pool.size, "nr_hugepages", pool.total)],
            why: "The kernel gives what it finds and reports no error; programs that need the rest \
                  fail or fall back to base pages.",
            remedy: Remedy::default()
                .step(Step::Pool { size: pool.size, pages: asked })
                .boot(words),
        });
    }
    Ok(found)
}

pub(super) fn idle(facts: &Facts, _: Workload) -> Judged {
    let mut found = Vec::new();
    for pool in known(facts)? {
        let idle = pool.unreserved().min(pool.persistent());
        let idle_bytes = bytes(pool.size, idle);
        let needed = pool.persistent() - idle;
        if idle_bytes < FEW || (needed > 0 && (idle_bytes < MUCH || idle < needed)) {
            continue;
        }
        let total = facts.memory.get()?.total.map_or(u64::MAX, ByteSize::bytes);
        let is_much = idle_bytes >= MUCH || idle_bytes.bytes() >= total / 20;
        // Before that the program may not have started.
        let is_late = facts.uptime.value.as_ref().is_ok_and(|seconds| *seconds > GRACE);
        let severity = match needed == 0 && is_much && is_late {
            true => Severity::Warning,
            false => Severity::Note,
        };
        let mut lines = vec![
            line(pool.size, "nr_hugepages", pool.total),
            line(pool.size, "free_hugepages", pool.free),
            line(pool.size, "resv_hugepages", pool.reserved),
        ];
        if let Ok(seconds) = &facts.uptime.value {
            lines.push(evidence(&facts.uptime.file, format!("{} s since boot", *seconds as u64)));
        }
        found.push(Found {
            severity,
            what: format!(
                "in the pool of {} pages, {idle} of {} ({idle_bytes}) are neither used nor reserved",
                pool.size, pool.total
            ),
            evidence: lines,
            why: "No other program and no file cache can use this memory.",
            remedy: Remedy::default()
                .step(Step::Pool { size: pool.size, pages: needed })
                .edit("where the pool is set", "lower it (`superpage pool boot` writes the lines)"),
        });
    }
    Ok(found)
}

pub(super) fn surplus(facts: &Facts, _: Workload) -> Judged {
    let known = known(facts)?;
    let short = known.iter().filter(|pool| pool.surplus > 0);
    let found = short.map(|pool| Found {
        severity: Severity::Note,
        what: format!(
            "programs use {} pages of {} more than the pool keeps",
            pool.surplus, pool.size
        ),
        evidence: vec![
            line(pool.size, "surplus_hugepages", pool.surplus),
            line(pool.size, "nr_overcommit_hugepages", pool.overcommit),
        ],
        why: "Surplus pages come from free memory at the moment of the mmap: on fragmented memory the \
              next program may get none.",
        remedy: Remedy::default().step(Step::Pool { size: pool.size, pages: pool.total }),
    });
    Ok(found.collect())
}

pub(super) fn uneven(facts: &Facts, workload: Workload) -> Judged {
    only_if(workload != Workload::Batch)?;
    let nodes = &pools(facts)?.pools.nodes;
    only_if(nodes.len() > 1)?;
    let mut found = Vec::new();
    for pool in known(facts)? {
        let totals = nodes.iter().map(|(node, pools)| {
            let total = pools.get(&pool.size).and_then(|share| share.total);
            let file = format!(
                "/sys/devices/system/node/node{}/hugepages/hugepages-{}kB/nr_hugepages",
                node.0,
                pool.size.bytes() / 1024
            );
            let unknown = || Unknown { what: file.clone(), why: "not read".to_string() };
            Ok((*node, total.ok_or_else(|| Stop::Unknown(vec![unknown()]))?, file))
        });
        let totals: Vec<_> = totals.collect::<Result<_, Stop>>()?;
        let least = totals.iter().min_by_key(|(_, total, _)| *total);
        let most = totals.iter().max_by_key(|(_, total, _)| *total);
        let (Some(least), Some(most)) = (least, most) else { continue };
        let apart = most.1 - least.1;
        if bytes(pool.size, apart) < MUCH || most.1 / 3 < least.1 / 2 {
            continue;
        }
        let each = pool.persistent() / totals.len() as u64;
        let mut remedy = Remedy::default();
        // The larger one first, which frees memory.
        let mut order: Vec<_> = totals.iter().collect();
        order.sort_by_key(|(_, total, _)| std::cmp::Reverse(*total));
        for (node, ..) in order {
            let spec = format!("{}:{each}", exact(pool.size.bytes()));
            remedy =
                remedy.run(&["superpage", "pool", "set", &spec, "--node", &node.0.to_string()]);
        }
        let on_nodes = totals.iter().map(|(node, ..)| (*node, each)).collect();
        let words = boot_words(pool.size, BootPages::OnNodes(on_nodes));
        found.push(Found {
            severity: Severity::Note,
            what: format!(
                "node {} has {} pages of {} and node {} has {}",
                most.0.0, most.1, pool.size, least.0.0, least.1
            ),
            evidence: totals.iter().map(|(_, total, file)| evidence(file, total)).collect(),
            why: "A program on the poorer node takes superpages of the other one, or none if its \
                  memory is bound to its node.",
            remedy: remedy.boot(words),
        });
    }
    Ok(found)
}

pub(super) fn giant_none(facts: &Facts, workload: Workload) -> Judged {
    only_if(workload == Workload::Vm)?;
    let cpu = facts.cpu.get()?;
    only_if(cpu.has_1g == Some(true))?;
    let total = facts.memory.get()?.total.ok_or_else(|| lacks("/proc/meminfo", "MemTotal"))?;
    only_if(total >= ByteSize::gib(64))?;
    let giant = PageSize::new(1 << 30).ok();
    let pool = known(facts)?.into_iter().find(|pool| Some(pool.size) == giant);
    if pool.as_ref().is_some_and(|pool| pool.total > 0) {
        return Ok(Vec::new());
    }
    let has = match giant.filter(|_| pool.is_some()) {
        Some(size) => line(size, "nr_hugepages", 0),
        None => evidence(POOLS, "no hugepages-1048576kB"),
    };
    Ok(vec![Found {
        severity: Severity::Note,
        what: "the processor maps pages of 1 GiB, but no pool has any".to_string(),
        evidence: vec![evidence(&facts.cpu.file, "flags: pdpe1gb"), has],
        why: "A guest's page walk goes through the host's tables at each of its levels: 1 GiB pages \
              make the host's part shortest. They are found reliably only at boot.",
        remedy: Remedy::default().boot("hugepagesz=1G hugepages=COUNT"),
    }])
}

fn boot_words(size: PageSize, pages: BootPages) -> String {
    BootPool { size, pages }.kernel_words()
}

pub(super) fn postgres_short(facts: &Facts, workload: Workload) -> Judged {
    only_if(matches!(workload, Workload::Database | Workload::Any))?;
    let status = pools(facts)?;
    if facts.postgres.is_empty() {
        all_seen(facts)?;
        return Err(Stop::NotApplicable);
    }
    let size = status.default.ok_or_else(|| lacks("/proc/meminfo", "Hugepagesize"))?;
    let Some(pool) = known(facts)?.into_iter().find(|pool| pool.size == size) else {
        return Err(Stop::NotApplicable);
    };
    let mut found = Vec::new();
    for server in &facts.postgres {
        let is_served = server.hugetlb.is_some_and(|bytes| bytes.bytes() > 0);
        if !server.wants_hugetlb || is_served || server.shared_buffers < MUCH {
            continue;
        }
        // The buffers are most of the shared memory; how much the rest is only the server knows.
        let shared = server.shared.filter(|bytes| *bytes >= server.shared_buffers);
        let needed = shared.unwrap_or(server.shared_buffers).bytes().div_ceil(size.bytes());
        if pool.unreserved().saturating_add(pool.overcommit) >= needed {
            continue;
        }
        let wanted = pool.persistent().saturating_add(needed.saturating_sub(pool.unreserved()));
        let mut lines =
            vec![evidence(&server.file, format!("shared_buffers = {}", server.shared_buffers))];
        lines.extend(shared.map(|bytes| {
            evidence(
                format!("/proc/{}/maps", server.process.pid),
                format!("{bytes} of shared memory"),
            )
        }));
        lines.push(line(size, "nr_hugepages", pool.total));
        lines.push(line(size, "free_hugepages", pool.free));
        let remedy = match shared {
            // The server maps its memory when it starts.
            Some(_) => Remedy::default().step(Step::Pool { size, pages: wanted }).lasting(
                crate::Lasting::Sysctl {
                    key: "vm.nr_hugepages".to_string(),
                    value: wanted.to_string(),
                },
            ),
            None => Remedy::default().run(&["psql", "-c", "SHOW shared_memory_size_in_huge_pages"]),
        };
        found.push(Found {
            severity: Severity::Warning,
            what: format!(
                "PostgreSQL (pid {}) wants {}{needed} pages of {size} for its shared memory and runs on \
                 base pages",
                server.process.pid,
                if shared.is_some() { "" } else { "more than " },
            ),
            evidence: lines,
            why: "With `huge_pages = try` a server that finds too few pages starts without any and says \
                  nothing; after the pool has grown it must be restarted.",
            remedy,
        });
    }
    Ok(found)
}

pub(super) fn stale_files(facts: &Facts, _: Workload) -> Judged {
    let holding = facts.files.iter().filter(|file| file.allocated.bytes() > 0);
    let (stale, others): (Vec<_>, Vec<_>) = holding.partition(|file| file.stale == Stale::Stale);
    if stale.is_empty() {
        let is_open = others.iter().any(|file| file.stale == Stale::Unknown);
        return match is_open || (facts.files.is_empty() && !facts.files_unknown.is_empty()) {
            true => Err(Stop::Unknown(facts.files_unknown.clone())),
            false => Ok(Vec::new()),
        };
    }
    let held: u64 = stale.iter().map(|file| file.allocated.bytes()).fold(0, u64::saturating_add);
    let mut remedy = Remedy::default();
    for file in &stale {
        remedy = remedy.run(&["rm", "--", &file.path.display().to_string()]);
    }
    let lines = stale
        .iter()
        .map(|file| evidence(file.path.display().to_string(), format!("holds {}", file.allocated)));
    Ok(vec![Found {
        severity: if held >= MUCH.bytes() { Severity::Warning } else { Severity::Note },
        what: format!(
            "{} in hugetlbfs that no process maps or has open {} {}",
            if stale.len() == 1 { "a file".to_string() } else { format!("{} files", stale.len()) },
            if stale.len() == 1 { "holds" } else { "hold" },
            ByteSize(held)
        ),
        evidence: lines.collect(),
        why: "A file keeps its pages until it is removed; programs that crash leave files behind, some \
              programs reuse their own.",
        remedy,
    }])
}

pub(super) fn group_refused(facts: &Facts, _: Workload) -> Judged {
    pools(facts)?;
    let refusals = facts.refusals.if_there()?;
    let found = refusals.iter().map(|one| Found {
        severity: Severity::Warning,
        what: format!(
            "the cgroup {} was refused pages of {} {} times by its own limit",
            report::format::name(&one.group, 80),
            one.size,
            one.refused
        ),
        evidence: vec![evidence(&one.file, one.refused), evidence(&one.limit_file, &one.limit)],
        why: "The pool may have pages, yet an mmap or a fault in this group fails.",
        remedy: Remedy::default()
            .write(&one.limit_file, one.no_limit)
            .edit("the container's specification", "raise its limit of hugepages"),
    });
    Ok(found.collect())
}

pub(super) fn no_group_limits(facts: &Facts, workload: Workload) -> Judged {
    only_if(workload == Workload::Vm)?;
    let total: u64 =
        known(facts)?.iter().map(|pool| bytes(pool.size, pool.total).bytes()).max().unwrap_or(0);
    only_if(total > 0)?;
    if *facts.group_control.if_there()? == GroupControl::Hugetlb {
        return Ok(Vec::new());
    }
    // In version 2 the kernel lists every controller that it has and that version 1 does not use.
    let remedy = match facts.group_control.file == GROUPS {
        true => Remedy::default().run(&["mkdir", "-p", "/sys/fs/cgroup/hugetlb"]).run(&[
            "mount",
            "-t",
            "cgroup",
            "-o",
            "hugetlb",
            "hugetlb",
            "/sys/fs/cgroup/hugetlb",
        ]),
        false => Remedy::default().edit("kernel configuration", "CONFIG_CGROUP_HUGETLB=y"),
    };
    Ok(vec![Found {
        severity: Severity::Note,
        what: "no cgroup can limit the pools: the hugetlb controller is not there".to_string(),
        evidence: vec![evidence(&facts.group_control.file, "no hugetlb")],
        why: "One guest or container may take all pages of the pools.",
        remedy,
    }])
}

pub(super) fn vmemmap(facts: &Facts, _: Workload) -> Judged {
    let setting = facts.setting(Setting::HugetlbOptimizeVmemmap);
    if *setting.if_there()? != 0 {
        return Ok(Vec::new());
    }
    // A page structure has 64 bytes; of those of one superpage one base page is kept
    // (mm/hugetlb_vmemmap.c).
    let base = facts.page_size.bytes();
    let saved = known(facts)?.iter().fold(0u64, |sum, pool| {
        let structures = (pool.size.bytes() / base).saturating_mul(64);
        sum.saturating_add(structures.saturating_sub(base).saturating_mul(pool.persistent()))
    });
    if saved < ByteSize::mib(256).bytes() {
        return Ok(Vec::new());
    }
    Ok(vec![Found {
        severity: Severity::Note,
        what: format!("the pools' page structures could give back {}", ByteSize(saved)),
        evidence: vec![evidence(&setting.file, 0)],
        why: "The kernel keeps 64 bytes for each base page of a superpage and needs few of them; freeing \
              them makes changes of a pool slower. Pages allocated from then on give theirs back.",
        remedy: Remedy::setting(Setting::HugetlbOptimizeVmemmap, 1).boot("hugetlb_free_vmemmap=on"),
    }])
}

pub(super) fn shm_group(facts: &Facts, _: Workload) -> Judged {
    let setting = facts.setting(Setting::HugetlbShmGroup);
    let group = *setting.if_there()?;
    if group == 0 {
        return Ok(Vec::new());
    }
    if facts.groups.get()?.iter().any(|one| i128::from(*one) == group) {
        return Ok(Vec::new());
    }
    Ok(vec![Found {
        severity: Severity::Note,
        what: format!(
            "group {group} may use hugetlb shared memory, but /etc/group does not have it"
        ),
        evidence: vec![evidence(&setting.file, group)],
        why: "A removed group's number may later be another one's; a group of a directory service is \
              not in this file.",
        remedy: Remedy::setting(Setting::HugetlbShmGroup, 0),
    }])
}

pub(super) fn shm_limit(facts: &Facts, workload: Workload) -> Judged {
    let max = facts.setting(Setting::Shmmax);
    let all = facts.setting(Setting::Shmall);
    let (max_bytes, all_pages) = (*max.get()?, *all.get()?);
    let pool = match known(facts) {
        Ok(known) => {
            known.iter().map(|pool| bytes(pool.size, pool.total).bytes()).max().unwrap_or(0)
        }
        Err(Stop::NotApplicable) => 0,
        Err(stop) => return Err(stop),
    };
    let needed = i128::from(pool.max(MUCH.bytes()));
    let severity = match workload {
        Workload::Database => Severity::Warning,
        _ => Severity::Note,
    };
    let mut found = Vec::new();
    let all_bytes = all_pages.saturating_mul(i128::from(facts.page_size.bytes()));
    for (fact, setting, has, what) in [
        (max, Setting::Shmmax, max_bytes, "a segment of SysV shared memory"),
        (all, Setting::Shmall, all_bytes, "all SysV shared memory together"),
    ] {
        if has >= needed {
            continue;
        }
        found.push(Found {
            severity,
            what: format!(
                "{what} may have {} at most",
                ByteSize(u64::try_from(has).unwrap_or_default())
            ),
            evidence: vec![evidence(&fact.file, fact.get()?)],
            why: "By default there is no limit; something, often an old line of sysctl.d, set one, and \
                  shmget() of a larger segment fails, with SHM_HUGETLB too.",
            remedy: Remedy::setting(setting, SHM_DEFAULT),
        });
    }
    Ok(found)
}

pub(super) fn mount_open(facts: &Facts, _: Workload) -> Judged {
    let status = pools(facts)?;
    let mounts = facts.mounts.get()?;
    only_if(!mounts.is_empty())?;
    let known = known(facts)?;
    let mut found = Vec::new();
    let mut unknown = Vec::new();
    for one in mounts {
        let mount = &one.mount;
        let size = mount.page_size.or(status.default);
        let pool = known.iter().find(|pool| Some(pool.size) == size);
        let has_pages = pool.is_some_and(Known::gives);
        if mount.size.is_some() || mount.read_only || !has_pages {
            continue;
        }
        let point = mount.point.display().to_string();
        let Some(mode) = one.mode else {
            unknown
                .push(Unknown { what: point, why: "its permissions cannot be read".to_string() });
            continue;
        };
        if mode & 0o002 == 0 {
            continue;
        }
        found.push(Found {
            severity: Severity::Warning,
            what: format!("any user can take the whole pool with a file in {point}"),
            evidence: vec![
                evidence(&point, format!("mode {mode:o}")),
                evidence(&facts.mounts.file, format!("hugetlbfs {}", mount.options)),
            ],
            why: "The mount has no size= and everybody may write: one user's file can hold every page \
                  of the pool.",
            remedy: Remedy::default()
                .run(&["chmod", "o-w", &point])
                .edit("the mount's unit or line in /etc/fstab", "mode=0770,gid=GROUP,size=BYTES"),
        });
    }
    match found.is_empty() && !unknown.is_empty() {
        true => Err(Stop::Unknown(unknown)),
        false => Ok(found),
    }
}

pub(super) fn mount_missing(facts: &Facts, workload: Workload) -> Judged {
    only_if(workload == Workload::Vm)?;
    let status = pools(facts)?;
    let mounts = facts.mounts.get()?;
    let mut found = Vec::new();
    for pool in known(facts)?.into_iter().filter(|pool| pool.total > 0) {
        let is_of = |size: Option<PageSize>| size.or(status.default) == Some(pool.size);
        if mounts.iter().any(|one| is_of(one.mount.page_size)) {
            continue;
        }
        found.push(Found {
            severity: Severity::Note,
            what: format!("the pool of {} pages has no hugetlbfs mount", pool.size),
            evidence: vec![
                line(pool.size, "nr_hugepages", pool.total),
                evidence(&facts.mounts.file, "no hugetlbfs of that page size"),
            ],
            why: "QEMU, DPDK and libvirt take their superpages from files in a mount.",
            remedy: Remedy::default().run(&[
                "superpage",
                "pool",
                "mounts",
                "create",
                &exact(pool.size.bytes()),
                "--root-only",
            ]),
        });
    }
    Ok(found)
}

/// Whether there are no hugetlb pools at all.
pub(super) fn are_absent(facts: &Facts) -> bool {
    facts.pools.value == Err(Missing::Absent)
}
