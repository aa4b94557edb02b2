//! Memory headroom of a process in its cgroups, of version 1 or 2.

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
    let groups = groups.lines().flat_map(Group::all_of);
    groups.filter_map(|group| group.headroom(root, &reclaimable)).min().map(ByteSize)
}

impl Group {
    /// The groups of a line of `/proc/self/cgroup`, `0::/path` (v2) or `4:memory:/path` (v1), and their
    /// ancestors.
    fn all_of(line: &str) -> Vec<Self> {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            return Vec::new();
        };
        let (top, v1) = match controllers {
            "" => ("/sys/fs/cgroup", false),
            list if list.split(',').any(|one| one == "memory") => ("/sys/fs/cgroup/memory", true),
            _ => return Vec::new(),
        };
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
