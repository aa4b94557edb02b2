//! What a mapping is.

use serde::{Deserialize, Serialize};

use crate::process::{Mapping, MemoryMounts, Sharing, SmapsEntry};

/// What a mapping is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MappingKind {
    /// Private memory without a file, from mmap.
    Anonymous,
    /// The brk heap.
    Heap,
    /// The main thread's stack.
    Stack,
    /// Shared memory: `MAP_SHARED` without a file, memfd, SysV, tmpfs.
    Shmem,
    /// A file; private copies of its pages count as anonymous bytes.
    File,
    /// Pages of a hugetlb pool.
    Hugetlb,
    /// The kernel's own: vdso, vvar, vsyscall.
    Special,
}

impl MappingKind {
    /// Judges an smaps entry.
    pub(crate) fn from_entry(entry: &SmapsEntry, mounts: &MemoryMounts) -> Self {
        let hugetlb = entry.shared_hugetlb.bytes() | entry.private_hugetlb.bytes();
        if hugetlb > 0 || entry.has_flag("ht") {
            Self::Hugetlb
        } else if entry.shmem_pmd.bytes() > 0 {
            Self::Shmem
        } else {
            Self::from_mapping(&entry.mapping, mounts)
        }
    }

    /// Judges a line of maps. On a machine that is not at hand, a memfd of hugetlb pages looks like one
    /// of shared memory there.
    pub fn from_mapping(mapping: &Mapping, mounts: &MemoryMounts) -> Self {
        let name = mapping.name.as_str();
        // The kernel's internal tmpfs is in no mount table, but it names its files itself
        // (mm/shmem.c shmem_zero_setup, mm/memfd.c, ipc/shm.c). `[anon_shmem:` is PR_SET_VMA_NAME. The last is of our own
        // library (abi::environment::IN_PLACE_FILE).
        let shmem_name = ["/dev/zero", "/memfd:", "/SYSV", "[anon_shmem:", "/superpage-in-place"]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        // fs/hugetlbfs/inode.c names what has no file of its own.
        let hugetlb_name = name.starts_with("/anon_hugepage");
        match (mapping.inode, mapping.sharing) {
            (1.., _) if hugetlb_name || mounts.hugetlb(mapping.device).is_some() => Self::Hugetlb,
            // A private mapping of /dev/zero is anonymous memory with a name.
            (_, Sharing::Private) if name == "/dev/zero" => Self::Anonymous,
            (1.., _) if shmem_name || mounts.tmpfs.contains(&mapping.device) => Self::Shmem,
            (1.., _) => Self::File,
            (0, Sharing::Shared) if shmem_name => Self::Shmem,
            (0, _) if name == "[heap]" => Self::Heap,
            (0, _) if name.starts_with("[stack") => Self::Stack,
            (0, _) if name.is_empty() || name.starts_with("[anon:") => Self::Anonymous,
            (0, _) if name.starts_with('[') => Self::Special,
            (0, _) => Self::File,
        }
    }

    /// Whether it is private memory that THP may back.
    pub fn is_anonymous(self) -> bool {
        matches!(self, Self::Anonymous | Self::Heap | Self::Stack)
    }
}
