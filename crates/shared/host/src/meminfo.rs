//! `/proc/meminfo`: the machine's memory in bytes.

use std::path::Path;

use serde::{Deserialize, Serialize};
use units::{ByteSize, PageSize};

use crate::{ReadError, Root, root};

/// Memory of the whole machine, in bytes. `None`: this kernel does not print the line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemInfo {
    /// `MemTotal`: usable RAM.
    pub total: Option<ByteSize>,
    /// `MemFree`.
    pub free: Option<ByteSize>,
    /// `MemAvailable`: the kernel's estimate of the memory that new programs can get without swapping.
    pub available: Option<ByteSize>,
    /// `AnonPages`: mapped anonymous memory, with THP, without hugetlb.
    pub anon: Option<ByteSize>,
    /// `Shmem`: shared memory and tmpfs, with THP.
    pub shmem: Option<ByteSize>,
    /// `Cached`: page cache, with shared memory.
    pub cached: Option<ByteSize>,
    /// `AnonHugePages`: anonymous memory in PMD-sized folios.
    pub anon_huge: Option<ByteSize>,
    /// `ShmemHugePages`: shared memory in PMD-sized folios, mapped or not.
    pub shmem_huge: Option<ByteSize>,
    /// `ShmemPmdMapped`: the part of `shmem_huge` that a PMD maps somewhere.
    pub shmem_pmd_mapped: Option<ByteSize>,
    /// `FileHugePages`: page cache in PMD-sized folios.
    pub file_huge: Option<ByteSize>,
    /// `FilePmdMapped`: the part of `file_huge` that a PMD maps somewhere.
    pub file_pmd_mapped: Option<ByteSize>,
    /// `Hugetlb`: all hugetlb pools together, free pages included.
    pub hugetlb: Option<ByteSize>,
    /// `Hugepagesize`: the default hugetlb page size.
    pub default_hugepage: Option<PageSize>,
    /// `PageTables`: memory in page tables.
    pub page_tables: Option<ByteSize>,
    /// `SwapTotal`.
    pub swap_total: Option<ByteSize>,
    /// `SwapFree`.
    pub swap_free: Option<ByteSize>,
}

impl MemInfo {
    /// Reads `/proc/meminfo`.
    pub fn read(root: &Root) -> Result<Self, ReadError> {
        parse(&root.read("/proc/meminfo")?, &root.path("/proc/meminfo"))
    }
}

/// Reads the text of `/proc/meminfo`; errors name `path`.
pub fn parse(text: &str, path: &Path) -> Result<MemInfo, ReadError> {
    let mut info = MemInfo::default();
    for (line, bad) in root::numbered(text, path) {
        let (key, value) = line.split_once(':').ok_or_else(|| bad("`Key: number kB`"))?;
        let slot = match key {
            "MemTotal" => &mut info.total,
            "MemFree" => &mut info.free,
            "MemAvailable" => &mut info.available,
            "AnonPages" => &mut info.anon,
            "Shmem" => &mut info.shmem,
            "Cached" => &mut info.cached,
            "AnonHugePages" => &mut info.anon_huge,
            "ShmemHugePages" => &mut info.shmem_huge,
            "ShmemPmdMapped" => &mut info.shmem_pmd_mapped,
            "FileHugePages" => &mut info.file_huge,
            "FilePmdMapped" => &mut info.file_pmd_mapped,
            "Hugetlb" => &mut info.hugetlb,
            "PageTables" => &mut info.page_tables,
            "SwapTotal" => &mut info.swap_total,
            "SwapFree" => &mut info.swap_free,
            "Hugepagesize" => {
                let bytes = root::bytes(value).and_then(|bytes| PageSize::new(bytes).ok());
                info.default_hugepage = Some(bytes.ok_or_else(|| bad("a page size in kB"))?);
                continue;
            }
            _ => continue,
        };
        *slot = Some(ByteSize(root::bytes(value).ok_or_else(|| bad("a number of kB"))?));
    }
    Ok(info)
}
