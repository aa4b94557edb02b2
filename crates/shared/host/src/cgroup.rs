//! Memory headroom of a process in its cgroups, of version 1 or 2.

use std::sync::OnceLock;

use units::{ByteSize, Pid};

use crate::{ReadError, Root};

/// Bytes that this process's cgroup and all its ancestors still allow without reclaim. `None` if no limit is set or
/// readable.
pub fn memory_headroom(root: &Root) -> Option<ByteSize> {
    min_headroom(root, "/proc/self/cgroup", |_| 0)
}

/// Like [`memory_headroom`], but counts cached file pages of the groups as headroom, because the
/// kernel reclaims them first.
pub fn memory_available(root: &Root) -> Option<ByteSize> {
    min_headroom(root, "/proc/self/cgroup", |group| group.reclaimable(root))
}

/// [`memory_available`] of another process.
pub fn memory_available_of(root: &Root, pid: Pid) -> Option<ByteSize> {
    min_headroom(root, &format!("/proc/{pid}/cgroup"), |group| group.reclaimable(root))
}

/// `memory.stat` of a cgroup with the groups below it, of version 1 or 2.
#[derive(Debug, Clone)]
pub struct MemoryStat {
    /// Whether the cgroup is of version 1, whose keys for sums over the groups below start with `total_`.
    pub is_v1: bool,
    /// The cgroup's directory.
    pub directory: String,
    text: String,
}

impl MemoryStat {
    /// Reads the file of the cgroup with this path, as in `/proc/PID/cgroup`. Tries version 1 first: where both versions are
    /// mounted, version 2 has no memory controller.
    ///
    /// # Errors
    /// Neither hierarchy has the file, or it cannot be read.
    pub fn read(root: &Root, path: &str) -> Result<Self, ReadError> {
        let path = path.trim_end_matches('/');
        let read = |top: &str, is_v1| {
            let directory = format!("{top}{path}");
            let text = root.read(&format!("{directory}/memory.stat"))?;
            Ok(Self { is_v1, directory, text })
        };
        read("/sys/fs/cgroup/memory", true).or_else(|_: ReadError| read("/sys/fs/cgroup", false))
    }

    /// The number of a key; `None`: this version or kernel has no such key.
    pub fn get(&self, key: &str) -> Option<u64> {
        let mut fields = self.text.lines().filter_map(|line| line.split_once(' '));
        fields.find(|(name, _)| *name == key)?.1.trim().parse().ok()
    }
}

/// A hierarchy of cgroups with the memory controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hierarchy {
    /// Version 2.
    V2,
    /// That of version 1's memory controller.
    Memory,
}

impl Hierarchy {
    /// Its mount point.
    pub fn mount(self) -> &'static str {
        match self {
            Self::V2 => "/sys/fs/cgroup",
            Self::Memory => "/sys/fs/cgroup/memory",
        }
    }

    /// The path below the mount point of a path in `/proc/PID/cgroup`. Within a cgroup namespace
    /// (cgroup_namespaces(7)) the kernel prints paths of groups outside it relative to its root: `/../other`. They are
    /// found if the mount point shows the whole hierarchy; `None`: it does not. See docs/decisions/manage.md#6.
    pub fn below_mount(self, root: &Root, path: &str) -> Option<String> {
        let is_outside = |path: &str| path.split('/').any(|part| part == "..");
        if !is_outside(path) {
            return Some(path.to_string());
        }
        // A process stays in its cgroup, so its directory is searched for once.
        static OWN: [OnceLock<Option<String>>; 2] = [OnceLock::new(), OnceLock::new()];
        let own = match root.is_real() {
            true => OWN[self as usize].get_or_init(|| self.own_directory(root)).clone(),
            false => self.own_directory(root),
        };
        // This process is at the root of its namespace, or below that.
        let own = own?;
        let visible = self.own_path(root)?;
        let namespace = own.strip_suffix(visible.trim_end_matches('/'))?;
        let mut parts: Vec<&str> = namespace.split('/').filter(|part| !part.is_empty()).collect();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            match part {
                ".." => drop(parts.pop()?),
                part => parts.push(part),
            }
        }
        Some(format!("/{}", parts.join("/")))
    }

    /// The path of this process's cgroup, as `/proc/self/cgroup` prints it.
    fn own_path(self, root: &Root) -> Option<String> {
        let text = root.read("/proc/self/cgroup").ok()?;
        let path = text.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            let is_it = match self {
                Self::V2 => controllers.is_empty(),
                Self::Memory => controllers.split(',').any(|one| one == "memory"),
            };
            is_it.then(|| path.to_string())
        })?;
        (!path.contains("..")).then_some(path)
    }

    /// The directory below the mount point whose `cgroup.procs` has this process.
    fn own_directory(self, root: &Root) -> Option<String> {
        let own = sys::param::own_pid().to_string();
        let mut pending = vec![String::new()];
        let mut seen = 0;
        while let Some(path) = pending.pop() {
            seen += 1;
            if seen > MAX_GROUPS {
                return None;
            }
            let directory = format!("{}{path}", self.mount());
            let processes = root.read(&format!("{directory}/cgroup.procs")).unwrap_or_default();
            if processes.lines().any(|line| line == own) {
                return Some(path);
            }
            let entries = std::fs::read_dir(root.path(&directory)).into_iter().flatten().flatten();
            let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            pending.extend(
                below.map(|entry| format!("{path}/{}", entry.file_name().to_string_lossy())),
            );
        }
        None
    }
}

/// Maximum number of cgroups that are searched for this process.
const MAX_GROUPS: usize = 100_000;

/// A group in the directory `path`; `v1` selects the file names of version 1.
struct Group {
    path: String,
    v1: bool,
}

fn min_headroom(
    root: &Root,
    groups: &str,
    reclaimable: impl Fn(&Group) -> u64,
) -> Option<ByteSize> {
    let groups = root.read(groups).ok()?;
    let groups = groups.lines().flat_map(|line| Group::all_of(root, line));
    groups.filter_map(|group| group.headroom(root, &reclaimable)).min().map(ByteSize)
}

impl Group {
    /// The groups of a line of `/proc/self/cgroup`, `0::/path` (v2) or `4:memory:/path` (v1), and their
    /// ancestors.
    fn all_of(root: &Root, line: &str) -> Vec<Self> {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            return Vec::new();
        };
        let hierarchy = match controllers {
            "" => Hierarchy::V2,
            list if list.split(',').any(|one| one == "memory") => Hierarchy::Memory,
            _ => return Vec::new(),
        };
        let Some(path) = hierarchy.below_mount(root, path) else { return Vec::new() };
        let (top, v1) = (hierarchy.mount(), hierarchy == Hierarchy::Memory);
        let path = path.trim_end_matches('/');
        let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
        ends.map(|end| Self { path: format!("{top}{}", &path[..end]), v1 }).collect()
    }

    fn headroom(&self, root: &Root, reclaimable: &impl Fn(&Self) -> u64) -> Option<u64> {
        let number = |name: &str| -> Option<u64> {
            root.read(&format!("{}/{name}", self.path)).ok()?.trim().parse().ok()
        };
        let [limit, usage] = match self.v1 {
            true => ["memory.limit_in_bytes", "memory.usage_in_bytes"],
            false => ["memory.max", "memory.current"],
        };
        // `max` is not a number: no limit. Version 1 writes a number near 2^63 instead.
        let limit = number(limit).filter(|limit| *limit < 1 << 62)?;
        let usage = number(usage)?;
        Some(limit.saturating_add(reclaimable(self)).saturating_sub(usage).min(limit))
    }

    /// Reclaimable bytes: the inactive file cache, and half of the active file cache and of the reclaimable slab, as in
    /// `MemAvailable` (si_mem_available). Version 1 has other names for the values that include descendant groups.
    fn reclaimable(&self, root: &Root) -> u64 {
        let Ok(text) = root.read(&format!("{}/memory.stat", self.path)) else { return 0 };
        let share = |line: &str| {
            let (name, value) = line.split_once(' ')?;
            let share = match (name, self.v1) {
                ("total_inactive_file", true) | ("inactive_file", false) => 1,
                ("total_active_file", true) => 2,
                ("active_file" | "slab_reclaimable", false) => 2,
                _ => return None,
            };
            Some(value.trim().parse::<u64>().ok()? / share)
        };
        text.lines().filter_map(share).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = Root::at(dir.path());
        (dir, root)
    }

    #[test]
    fn a_group_outside_the_cgroup_namespace_is_found_below_the_mount_of_all() {
        let own = sys::param::own_pid().to_string();
        let files = [
            ("proc/self/cgroup", "0::/\n"),
            ("proc/7/cgroup", "0::/../../besteffort/pod2/c\n"),
            ("sys/fs/cgroup/cgroup.procs", "1\n"),
            ("sys/fs/cgroup/kubepods/burstable/pod1/cgroup.procs", ""),
            ("sys/fs/cgroup/kubepods/burstable/pod1/manage/cgroup.procs", &own),
            ("sys/fs/cgroup/kubepods/burstable/besteffort/pod2/c/memory.max", "max\n"),
            ("sys/fs/cgroup/kubepods/burstable/besteffort/pod2/memory.max", "5000\n"),
            ("sys/fs/cgroup/kubepods/burstable/besteffort/pod2/memory.current", "1000\n"),
        ];
        let (dir, whole) = root(&files);
        assert_eq!(memory_available_of(&whole, Pid(7)), Some(ByteSize(4000)));
        let below = |path: &str| Hierarchy::V2.below_mount(&whole, path);
        assert_eq!(below("/../x").as_deref(), Some("/kubepods/burstable/pod1/x"));
        assert_eq!(below("/../../../../init").as_deref(), Some("/init"));
        assert_eq!(below("/a/b").as_deref(), Some("/a/b"));
        // Above the root of all, nothing is.
        assert_eq!(below("/../../../../../etc"), None);
        // In a group below the namespace's root.
        let file = dir.path().join("proc/self/cgroup");
        std::fs::write(&file, "0::/manage\n").unwrap();
        assert_eq!(below("/../x").as_deref(), Some("/kubepods/burstable/x"));
        // A mount that shows the namespace alone does not lead anywhere else.
        let (_dir, own_only) = root(&[
            ("proc/self/cgroup", "0::/\n"),
            ("proc/7/cgroup", "0::/../../outside\n"),
            ("sys/fs/cgroup/cgroup.procs", &own),
            ("sys/outside/memory.max", "5000\n"),
            ("sys/outside/memory.current", "1000\n"),
            ("outside/memory.max", "5000\n"),
            ("sys/fs/outside/memory.max", "5000\n"),
        ]);
        assert_eq!(memory_available_of(&own_only, Pid(7)), None);
    }

    #[test]
    fn the_tightest_limit_above_counts() {
        let (_dir, root) = root(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("proc/7/cgroup", "0::/c\n"),
            ("sys/fs/cgroup/c/memory.max", "1000\n"),
            ("sys/fs/cgroup/c/memory.current", "1\n"),
            ("sys/fs/cgroup/a/memory.max", "1000\n"),
            ("sys/fs/cgroup/a/memory.current", "900\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.current", "1\n"),
        ]);
        assert_eq!(memory_headroom(&root), Some(ByteSize(100)));
        assert_eq!(memory_available(&root), Some(ByteSize(100)));
        assert_eq!(memory_available_of(&root, Pid(7)), Some(ByteSize(999)));
    }

    #[test]
    fn what_a_group_can_reclaim_is_available() {
        let two =
            "anon 7\nfile 900\ninactive_file 100\nactive_file 60\nslab_reclaimable 20\nslab 90\n";
        let (_dir, root) = self::root(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("proc/7/cgroup", "4:memory:/x\n"),
            ("sys/fs/cgroup/a/memory.max", "1000\n"),
            ("sys/fs/cgroup/a/memory.current", "1000\n"),
            ("sys/fs/cgroup/a/memory.stat", two),
            // Values read at different times may show more reclaimable memory than usage. The result never exceeds the
            // limit.
            ("sys/fs/cgroup/a/b/memory.max", "800\n"),
            ("sys/fs/cgroup/a/b/memory.current", "10\n"),
            ("sys/fs/cgroup/a/b/memory.stat", two),
            ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1000\n"),
            ("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "990\n"),
            (
                "sys/fs/cgroup/memory/x/memory.stat",
                "inactive_file 4096\ntotal_inactive_file 100\ntotal_active_file 61\ntotal_rss x\n",
            ),
        ]);
        assert_eq!(memory_headroom(&root), Some(ByteSize(0)), "nothing is reclaimed");
        assert_eq!(memory_available(&root), Some(ByteSize(140)));
        assert_eq!(memory_available_of(&root, Pid(7)), Some(ByteSize(140)));
    }

    #[test]
    fn version_1_and_no_limit() {
        let (_dir, root) = root(&[
            ("proc/self/cgroup", "5:cpu,memory:/x\n0::/\ngarbage\n"),
            ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "50\n"),
            ("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "60\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "60\n"),
        ]);
        assert_eq!(memory_headroom(&root), Some(ByteSize(0)));
        assert_eq!(memory_headroom(&Root::at("/no/such/root")), None);
    }
}
