//! `CgroupCounters`: what the kernel counts for a cgroup, cheaply and without reading any process.

use host::cgroup::MemoryStat;
use host::{Pressure, Root};
use serde::Serialize;
use units::ByteSize;

/// Counters and sizes of a cgroup and the groups below it, from `memory.stat` and `memory.pressure`. A field is `None`
/// where the file or this version of cgroups does not have it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CgroupCounters {
    /// Bytes that its processes map, each page once: anonymous pages, and pages of files and shared memory, of the group that
    /// touched them first. Without hugetlb pages.
    pub mapped_once: Option<ByteSize>,
    /// Anonymous bytes on THP.
    pub anonymous_superpages: Option<ByteSize>,
    /// Number of page faults.
    pub faults: Option<u64>,
    /// Number of page faults that needed I/O.
    pub major_faults: Option<u64>,
    /// Number of faults that got a superpage (version 2).
    pub superpage_faults: Option<u64>,
    /// Number of superpages that khugepaged made (version 2).
    pub collapses: Option<u64>,
    /// Waits for memory (version 2).
    pub pressure: Option<Pressure>,
}

impl CgroupCounters {
    /// Reads the files of the cgroup with this path, as in `/proc/PID/cgroup`. `None`: the group is gone, or is not below
    /// this mount of cgroups, as in a container.
    pub fn read(root: &Root, path: &str) -> Option<Self> {
        let stat = MemoryStat::read(root, path).ok()?;
        let both = |one, other| Some(ByteSize(stat.get(one)?.saturating_add(stat.get(other)?)));
        if stat.is_v1 {
            return Some(Self {
                mapped_once: both("total_rss", "total_mapped_file"),
                anonymous_superpages: stat.get("total_rss_huge").map(ByteSize),
                faults: stat.get("total_pgfault"),
                major_faults: stat.get("total_pgmajfault"),
                ..Self::default()
            });
        }
        Some(Self {
            mapped_once: both("anon", "file_mapped"),
            anonymous_superpages: stat.get("anon_thp").map(ByteSize),
            faults: stat.get("pgfault"),
            major_faults: stat.get("pgmajfault"),
            superpage_faults: stat.get("thp_fault_alloc"),
            collapses: stat.get("thp_collapse_alloc"),
            pressure: Pressure::read(root, &format!("{}/memory.pressure", stat.directory)).ok(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_read_and_what_a_version_lacks_is_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = dir.path().join("sys/fs/cgroup").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let root = Root::at(dir.path());
        file(
            "a.slice/memory.stat",
            "anon 1\nfile_mapped 2\nanon_thp 4096\npgfault 7\npgmajfault 2\nthp_fault_alloc 3\n",
        );
        let pressure =
            "some avg10=1.00 avg60=0 avg300=0 total=1\nfull avg10=0.00 avg60=0 avg300=0 total=0\n";
        file("a.slice/memory.pressure", pressure);
        let second = CgroupCounters::read(&root, "/a.slice").unwrap();
        assert_eq!(second.anonymous_superpages, Some(ByteSize(4096)));
        assert_eq!(second.mapped_once, Some(ByteSize(3)));
        assert_eq!((second.faults, second.major_faults), (Some(7), Some(2)));
        assert_eq!((second.superpage_faults, second.collapses), (Some(3), None));
        assert_eq!(second.pressure.map(|pressure| pressure.some.recent), Some(0.01));
        file("memory/a.slice/memory.stat", "rss_huge 5\ntotal_rss_huge 2097152\ntotal_pgfault 9\n");
        let first = CgroupCounters::read(&root, "/a.slice/").unwrap();
        assert_eq!(first.anonymous_superpages, Some(ByteSize(2 << 20)));
        assert_eq!(first.mapped_once, None, "total_rss is missing");
        assert_eq!((first.faults, first.superpage_faults, first.pressure), (Some(9), None, None));
        assert_eq!(CgroupCounters::read(&root, "/b"), None);
    }
}
