//! What the cgroup a process is in still lets it have. Versions 1 and 2.

use units::{ByteSize, Pid};

use crate::Root;

/// How much more memory this process's cgroup and every one above it allow; `None` where no limit
/// is set or none can be read.
pub fn memory_headroom(root: &Root) -> Option<ByteSize> {
    headroom_in(root, "/proc/self/cgroup")
}

/// The same of another process.
pub fn memory_headroom_of(root: &Root, pid: Pid) -> Option<ByteSize> {
    headroom_in(root, &format!("/proc/{pid}/cgroup"))
}

fn headroom_in(root: &Root, groups: &str) -> Option<ByteSize> {
    let groups = root.read(groups).ok()?;
    groups.lines().filter_map(|line| headroom_of(root, line)).min()
}

/// One line of `/proc/self/cgroup`: `0::/path` (v2) or `4:memory:/path` (v1).
fn headroom_of(root: &Root, line: &str) -> Option<ByteSize> {
    let mut fields = line.splitn(3, ':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let (top, limit, usage) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max", "memory.current"),
        list if list.split(',').any(|one| one == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
        }
        _ => return None,
    };
    let mut path = path.trim_end_matches('/');
    let mut least: Option<u64> = None;
    loop {
        let number = |name: &str| -> Option<u64> {
            root.read(&format!("{top}{path}/{name}")).ok()?.trim().parse().ok()
        };
        // `max` is no number: no limit. Version 1 writes a number near 2^63 for it.
        if let (Some(limit), Some(usage)) = (number(limit).filter(|n| *n < 1 << 62), number(usage))
        {
            let left = limit.saturating_sub(usage);
            least = Some(least.map_or(left, |least| least.min(left)));
        }
        match path.rfind('/') {
            Some(cut) => path = &path[..cut],
            None => return least.map(ByteSize),
        }
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
        assert_eq!(memory_headroom_of(&root, Pid(7)), Some(ByteSize(999)));
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
