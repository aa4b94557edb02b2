//! `Facts`: what the checks know of a machine, read once. Nothing here judges.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use host::journal::{self, Left};
use host::pool::mounts::{self, Mount};
use host::pool::users::{self, HugeFile};
use host::pool::{PoolError, Status};
use host::{Counters, Hypervisor, MemInfo, Root, Thp, Unknown, ZoneFree, ZoneLevels, parse};
use units::{ByteSize, PageSize};

use crate::configuration::{self, BootLine, Setter, SysctlLine};
use crate::processes::{self, Postgres, ProcessFacts};

/// Maximum number of cgroups that are looked at.
const MAX_GROUPS: usize = 8192;

/// A value and the file it is from.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact<T> {
    /// The file's absolute path, or the system call.
    pub file: String,
    /// The value.
    pub value: Result<T, Missing>,
}

/// Why there is no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// There is no such file.
    Absent,
    /// The file cannot be read or understood; has the reason.
    Unreadable(String),
}

/// Why a check has no verdict.
#[derive(Debug)]
pub(crate) enum Stop {
    /// This kernel has no such setting, or the class of workload is another.
    NotApplicable,
    /// Facts are missing; has the reasons.
    Unknown(Vec<Unknown>),
}

/// A number in `/proc/sys`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the variants are the kernel's names")]
pub enum Setting {
    CompactionProactiveness,
    CompactUnevictableAllowed,
    ExtfragThreshold,
    HugetlbOptimizeVmemmap,
    HugetlbShmGroup,
    MinFreeKbytes,
    NumaBalancing,
    OvercommitMemory,
    PerfEventParanoid,
    Shmall,
    Shmmax,
    ZoneReclaimMode,
}

impl Setting {
    /// Every setting.
    pub const ALL: [Self; 12] = [
        Self::CompactionProactiveness,
        Self::CompactUnevictableAllowed,
        Self::ExtfragThreshold,
        Self::HugetlbOptimizeVmemmap,
        Self::HugetlbShmGroup,
        Self::MinFreeKbytes,
        Self::NumaBalancing,
        Self::OvercommitMemory,
        Self::PerfEventParanoid,
        Self::Shmall,
        Self::Shmmax,
        Self::ZoneReclaimMode,
    ];

    /// The name that sysctl(8) takes.
    pub fn key(self) -> &'static str {
        match self {
            Self::CompactionProactiveness => "vm.compaction_proactiveness",
            Self::CompactUnevictableAllowed => "vm.compact_unevictable_allowed",
            Self::ExtfragThreshold => "vm.extfrag_threshold",
            Self::HugetlbOptimizeVmemmap => "vm.hugetlb_optimize_vmemmap",
            Self::HugetlbShmGroup => "vm.hugetlb_shm_group",
            Self::MinFreeKbytes => "vm.min_free_kbytes",
            Self::NumaBalancing => "kernel.numa_balancing",
            Self::OvercommitMemory => "vm.overcommit_memory",
            Self::PerfEventParanoid => "kernel.perf_event_paranoid",
            Self::Shmall => "kernel.shmall",
            Self::Shmmax => "kernel.shmmax",
            Self::ZoneReclaimMode => "vm.zone_reclaim_mode",
        }
    }

    /// The file.
    pub fn path(self) -> String {
        format!("/proc/sys/{}", self.key().replace('.', "/"))
    }
}

/// What `/proc/cpuinfo` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuFacts {
    /// Whether this is a virtual machine.
    pub hypervisor: Hypervisor,
    /// Whether the processor maps 1 GiB pages (x86: `pdpe1gb`); `None` on other architectures.
    pub has_1g: Option<bool>,
}

/// A hugetlbfs mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountFacts {
    /// The mount.
    pub mount: Mount,
    /// Permissions of its root directory; `None` if unreadable.
    pub mode: Option<u32>,
}

/// A cgroup whose hugetlb limit refused pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupRefusal {
    /// The cgroup's path below its hierarchy.
    pub group: String,
    /// The page size as in the file's name, such as `2MB`.
    pub size: String,
    /// The file that counts refusals.
    pub file: String,
    /// Number of allocations that the limit refused.
    pub refused: u64,
    /// The file of the limit.
    pub limit_file: String,
    /// The limit as printed.
    pub limit: String,
    /// What to write to lift the limit.
    pub no_limit: &'static str,
}

/// Whether cgroups can limit pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GroupControl {
    /// The hugetlb controller is there.
    Hugetlb,
    /// There are cgroups without the hugetlb controller.
    Without,
}

/// A machine as the checks see it.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The base page size.
    pub page_size: PageSize,
    /// Whether this process is root's.
    pub is_root: bool,
    /// Seconds since boot.
    pub uptime: Fact<f64>,
    /// `/proc/meminfo`.
    pub memory: Fact<MemInfo>,
    /// `CommitLimit` and `Committed_AS` in bytes.
    pub commit: Fact<(ByteSize, ByteSize)>,
    /// The processor.
    pub cpu: Fact<CpuFacts>,
    /// Number of NUMA nodes.
    pub nodes: Fact<usize>,
    /// Features of the virtio balloon through which the host takes free memory back; `None`: no balloon does.
    pub reporting: Fact<Option<String>>,
    /// THP settings; absent: built without THP.
    pub thp: Fact<Thp>,
    /// Why THP settings are missing, by file.
    pub thp_missing: BTreeMap<String, Missing>,
    /// The hugetlb pools; absent: built without hugetlb.
    pub pools: Fact<Status>,
    /// Free blocks by zone.
    pub free: Fact<Vec<ZoneFree>>,
    /// Watermarks by zone.
    pub zones: Fact<Vec<ZoneLevels>>,
    /// Events since boot.
    pub counters: Fact<Counters>,
    /// `run` and `pages_sharing` of KSM.
    pub ksm: Fact<(u64, u64)>,
    /// Whether the kernel has MADV_COLLAPSE, by trying it.
    pub collapse: Fact<bool>,
    /// The kernel command line.
    pub boot: Fact<BootLine>,
    /// Lines of sysctl.d in the order they are applied.
    pub sysctl: Fact<Vec<SysctlLine>>,
    /// Files that set the THP mode at boot.
    pub setters: Vec<Setter>,
    /// The hugetlbfs mounts.
    pub mounts: Fact<Vec<MountFacts>>,
    /// Files in the hugetlbfs mounts.
    pub files: Vec<HugeFile>,
    /// Why files or their users are unknown.
    pub files_unknown: Vec<Unknown>,
    /// Group ids in `/etc/group`.
    pub groups: Fact<Vec<u32>>,
    /// cgroups that refused pages.
    pub refusals: Fact<Vec<GroupRefusal>>,
    pub(crate) group_control: Fact<GroupControl>,
    /// Running processes.
    pub processes: Vec<ProcessFacts>,
    /// Processes that could not be read, with reasons.
    pub processes_unknown: Vec<Unknown>,
    /// PostgreSQL servers.
    pub postgres: Vec<Postgres>,
    /// Settings that a killed superpage left changed.
    pub left: Fact<Vec<Left>>,
    settings: BTreeMap<Setting, Fact<i128>>,
}

impl Facts {
    /// Reads a machine. `journal_dir` is where superpage keeps its journal of changed settings. Takes some 10 ms, and
    /// five small files for each process.
    pub fn read(root: &Root, journal_dir: &Path) -> Self {
        let (thp, thp_unknown) = Thp::settings(root);
        let (files, files_unknown) = users::files(root);
        let (processes, processes_unknown) = processes::read(root);
        let postgres = processes.iter().filter_map(|one| Postgres::read(root, one)).collect();
        Self {
            page_size: root.page_size(),
            is_root: root.is_real() && sys::param::effective_user() == 0,
            uptime: Fact::parsed(root, "/proc/uptime", "seconds", |text| {
                text.split_ascii_whitespace().next()?.parse().ok()
            }),
            memory: Fact::of("/proc/meminfo", MemInfo::read(root)),
            commit: Fact::parsed(root, "/proc/meminfo", "CommitLimit, Committed_AS", commit),
            cpu: cpu(root),
            nodes: nodes(root),
            reporting: reporting(root),
            thp: match (thp, thp_unknown.first()) {
                (Some(thp), _) => Fact::known(THP, thp),
                (None, _) if !root.path(THP).exists() => Fact::missing(THP, Missing::Absent),
                (None, why) => {
                    let why = why.map_or(String::new(), |why| why.why.clone());
                    Fact::missing(THP, Missing::Unreadable(why))
                }
            },
            thp_missing: thp_unknown.into_iter().map(|it| missing(root, it)).collect(),
            pools: Fact {
                file: POOLS.to_string(),
                value: Status::read(root).map_err(|error| match error {
                    PoolError::NoHugetlb => Missing::Absent,
                    error => Missing::Unreadable(error.to_string()),
                }),
            },
            free: Fact::of("/proc/buddyinfo", ZoneFree::read(root)),
            zones: Fact::of("/proc/zoneinfo", ZoneLevels::read(root)),
            counters: Fact::of("/proc/vmstat", Counters::read(root)),
            ksm: ksm(root),
            collapse: collapse(root),
            boot: Fact::parsed(root, "/proc/cmdline", "the kernel's command line", |text| {
                Some(BootLine::parse(text))
            }),
            sysctl: configuration::sysctl(root),
            setters: configuration::setters(root),
            mounts: mounts_of(root),
            files,
            files_unknown,
            groups: groups(root),
            refusals: refusals(root),
            group_control: group_control(root),
            processes,
            processes_unknown,
            postgres,
            left: Fact {
                file: journal_dir.display().to_string(),
                value: journal::left_changed(journal_dir, root)
                    .map_err(|error| Missing::Unreadable(error.to_string())),
            },
            settings: Setting::ALL.iter().map(|setting| (*setting, setting.read(root))).collect(),
        }
    }

    /// A number in `/proc/sys`.
    pub fn setting(&self, setting: Setting) -> &Fact<i128> {
        &self.settings[&setting]
    }
}

pub(crate) const THP: &str = "/sys/kernel/mm/transparent_hugepage";
pub(crate) const POOLS: &str = "/sys/kernel/mm/hugepages";

impl Setting {
    fn read(self, root: &Root) -> Fact<i128> {
        Fact::parsed(root, &self.path(), "one number", |text| text.trim().parse().ok())
    }
}

impl<T> Fact<T> {
    pub(crate) fn known(file: impl Into<String>, value: T) -> Self {
        Self { file: file.into(), value: Ok(value) }
    }

    pub(crate) fn missing(file: impl Into<String>, why: Missing) -> Self {
        Self { file: file.into(), value: Err(why) }
    }

    fn of(file: &str, value: Result<T, host::ReadError>) -> Self {
        Self { file: file.to_string(), value: value.map_err(Missing::from) }
    }

    pub(crate) fn parsed(
        root: &Root,
        file: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Self {
        let value = root.read(file).map_err(Missing::from).and_then(|text| {
            parse(&text).ok_or_else(|| Missing::Unreadable(format!("{file}: expected {expected}")))
        });
        Self { file: file.to_string(), value }
    }

    /// The value; a missing one stops the check as unknown.
    pub(crate) fn get(&self) -> Result<&T, Stop> {
        self.value.as_ref().map_err(|why| {
            let why = match why {
                Missing::Absent => "there is no such file".to_string(),
                Missing::Unreadable(why) => why.clone(),
            };
            Stop::Unknown(vec![Unknown { what: self.file.clone(), why }])
        })
    }

    /// The value; an absent file stops the check as not applicable.
    pub(crate) fn if_there(&self) -> Result<&T, Stop> {
        match &self.value {
            Err(Missing::Absent) => Err(Stop::NotApplicable),
            _ => self.get(),
        }
    }
}

impl From<host::ReadError> for Missing {
    fn from(error: host::ReadError) -> Self {
        if error.is_gone() { Self::Absent } else { Self::Unreadable(error.to_string()) }
    }
}

fn missing(root: &Root, unknown: Unknown) -> (String, Missing) {
    let is_absent = root
        .path(&unknown.what)
        .symlink_metadata()
        .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
    let why = if is_absent { Missing::Absent } else { Missing::Unreadable(unknown.why) };
    (unknown.what, why)
}

fn commit(text: &str) -> Option<(ByteSize, ByteSize)> {
    let of = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(ByteSize(kib.checked_mul(1024)?))
    };
    Some((of("CommitLimit:")?, of("Committed_AS:")?))
}

fn cpu(root: &Root) -> Fact<CpuFacts> {
    let file = "/proc/cpuinfo";
    let text = match root.read(file) {
        Ok(text) => text,
        Err(error) => return Fact::of(file, Err(error)),
    };
    let flags = text.lines().find_map(|line| line.strip_prefix("flags")?.split_once(':'));
    let has_1g = flags.map(|(_, flags)| flags.split_ascii_whitespace().any(|it| it == "pdpe1gb"));
    let cpu = parse::cpuinfo(&text, &root.path(file));
    Fact::of(file, cpu.map(|cpu| CpuFacts { hypervisor: cpu.hypervisor, has_1g }))
}

fn groups(root: &Root) -> Fact<Vec<u32>> {
    let file = "/etc/group";
    let id = |line: &str| line.split(':').nth(2)?.parse().ok();
    match root.read_regular(file) {
        Ok(Some(text)) => Fact::known(file, text.lines().filter_map(id).collect()),
        Ok(None) => Fact::missing(file, Missing::Unreadable("no regular file".to_string())),
        Err(error) => Fact::of(file, Err(error)),
    }
}

fn nodes(root: &Root) -> Fact<usize> {
    let dir = "/sys/devices/system/node";
    let is_node = |name: &&String| {
        name.strip_prefix("node").is_some_and(|id| id.bytes().all(|byte| byte.is_ascii_digit()))
    };
    Fact::of(dir, root.list(dir).map(|names| names.iter().filter(is_node).count().max(1)))
}

/// Finds a balloon device that reports free pages: feature 5, VIRTIO_BALLOON_F_REPORTING, in the Virtio specification 1.2,
/// 5.5.3. Linux prints a digit for each feature, from the first; kept are those up to the last that is set.
fn reporting(root: &Root) -> Fact<Option<String>> {
    const BALLOON: &str = "0x0005";
    let dir = "/sys/bus/virtio/devices";
    let names = match root.list(dir) {
        Ok(names) => names,
        Err(error) => return Fact::of(dir, Err(error)),
    };
    let read = |name: &str, file: &str| root.read(&format!("{dir}/{name}/{file}"));
    for name in names {
        match (read(&name, "device"), read(&name, "features")) {
            (Ok(device), Ok(features)) if device.trim() == BALLOON => {
                if features.as_bytes().get(5) == Some(&b'1') {
                    let set = features.trim().trim_end_matches('0').to_string();
                    return Fact::known(format!("{dir}/{name}/features"), Some(set));
                }
            }
            (Ok(_), Ok(_)) => {}
            (Err(error), _) | (_, Err(error)) => return Fact::of(dir, Err(error)),
        }
    }
    Fact::known(dir, None)
}

fn ksm(root: &Root) -> Fact<(u64, u64)> {
    let number = |name: &str| {
        let file = format!("/sys/kernel/mm/ksm/{name}");
        Fact::parsed(root, &file, "one number", |text| text.trim().parse::<u64>().ok())
    };
    let (run, sharing) = (number("run"), number("pages_sharing"));
    match (run.value, sharing.value) {
        (Ok(run_value), Ok(sharing)) => Fact::known(run.file, (run_value, sharing)),
        (Err(why), _) => Fact::missing(run.file, why),
        (_, Err(why)) => Fact::missing(sharing.file, why),
    }
}

/// Tries MADV_COLLAPSE on an empty range, which changes nothing: a kernel that lacks it answers EINVAL.
fn collapse(root: &Root) -> Fact<bool> {
    let call = "madvise(MADV_COLLAPSE)";
    if !root.is_real() {
        return Fact::missing(call, Missing::Absent);
    }
    let mapping =
        sys::mem::Mapping::anonymous(root.page_size().bytes() as usize, sys::mem::Backing::Pages);
    match mapping {
        Ok(mut mapping) => {
            Fact::known(call, mapping.advise_range(0..0, sys::mem::Advice::Collapse).is_ok())
        }
        Err(error) => Fact::missing(call, Missing::Unreadable(error.to_string())),
    }
}

fn mounts_of(root: &Root) -> Fact<Vec<MountFacts>> {
    let mounts = mounts::mounts(root).map(|mounts| {
        let facts = mounts.into_iter().map(|mount| {
            let point = root.path(&mount.point.to_string_lossy());
            let mode = fs::metadata(point).ok().map(|it| it.permissions().mode() & 0o7777);
            MountFacts { mount, mode }
        });
        facts.collect()
    });
    Fact::of("/proc/self/mounts", mounts)
}

/// Where cgroups are mounted; the file of `group_control` in version 1 without the controller.
pub(crate) const GROUPS: &str = "/sys/fs/cgroup";
const GROUPS_1: &str = "/sys/fs/cgroup/hugetlb";

fn group_control(root: &Root) -> Fact<GroupControl> {
    let file = "/sys/fs/cgroup/cgroup.controllers";
    match root.read(file) {
        Ok(text) => {
            let has = text.split_ascii_whitespace().any(|one| one == "hugetlb");
            Fact::known(file, if has { GroupControl::Hugetlb } else { GroupControl::Without })
        }
        Err(error) if error.is_gone() => {
            let has = root.path(GROUPS_1).is_dir();
            match root.list(GROUPS) {
                Ok(names) if names.is_empty() => Fact::missing(GROUPS, Missing::Absent),
                Ok(_) if has => Fact::known(GROUPS_1, GroupControl::Hugetlb),
                Ok(_) => Fact::known(GROUPS, GroupControl::Without),
                Err(error) => Fact::of(GROUPS, Err(error)),
            }
        }
        Err(error) => Fact::of(file, Err(error)),
    }
}

/// Reads the counts of refused pages of every cgroup, of version 1 or 2.
fn refusals(root: &Root) -> Fact<Vec<GroupRefusal>> {
    let is_2 = root.path("/sys/fs/cgroup/cgroup.controllers").exists();
    let top = if is_2 { GROUPS } else { GROUPS_1 };
    let (suffix, limit, no_limit) = match is_2 {
        true => (".events.local", ".max", "max"),
        false => (".failcnt", ".limit_in_bytes", "-1"),
    };
    let mut found = Vec::new();
    let mut dirs = vec![String::new()];
    let mut count = 0;
    while let Some(group) = dirs.pop() {
        count += 1;
        if count > MAX_GROUPS {
            let why = format!("there are more than {MAX_GROUPS} cgroups");
            return Fact::missing(top, Missing::Unreadable(why));
        }
        let dir = format!("{top}{group}");
        let names = match root.list(&dir) {
            Ok(names) => names,
            // A group may end meanwhile.
            Err(error) if error.is_gone() && !group.is_empty() => continue,
            Err(error) => return Fact::of(&dir, Err(error)),
        };
        for name in names {
            let file = format!("{dir}/{name}");
            let is_count = name.ends_with(suffix) && !name.contains(".rsvd.");
            if let Some(size) = name.strip_prefix("hugetlb.").filter(|_| is_count) {
                let size = size.trim_end_matches(suffix).to_string();
                let Ok(text) = root.read(&file) else { continue };
                let text = text.trim();
                let refused = text.strip_prefix("max ").unwrap_or(text).parse().unwrap_or(0);
                if refused > 0 {
                    let limit_file = format!("{dir}/hugetlb.{size}{limit}");
                    let limit = root.read(&limit_file).unwrap_or_default().trim().to_string();
                    let group = if group.is_empty() { "/".to_string() } else { group.clone() };
                    let (size, limit_file) = (size, limit_file);
                    found.push(GroupRefusal {
                        group,
                        size,
                        file,
                        refused,
                        limit_file,
                        limit,
                        no_limit,
                    });
                }
            } else if root.path(&file).symlink_metadata().is_ok_and(|it| it.is_dir()) {
                dirs.push(format!("{group}/{name}"));
            }
        }
    }
    Fact::known(top, found)
}
