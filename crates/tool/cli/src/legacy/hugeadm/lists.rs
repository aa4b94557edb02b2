//! Prints lists of pools, mounts and page sizes byte for byte as libhugetlbfs does, because scripts parse them.

use std::fmt::Write;

use host::pool::mounts::Mount;
use host::{HugetlbPools, MemInfo, Pool, Root};
use units::PageSize;

/// Minimum and maximum number of pages of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Persistent pages.
    pub min: u64,
    /// Persistent pages plus the overcommit limit.
    pub max: u64,
}

impl Bounds {
    /// Returns the bounds of a pool; `None` if its pages cannot be counted. A pool without overcommit support has limit
    /// 0.
    pub fn from_pool(pool: &Pool) -> Option<Self> {
        let min = pool.persistent()?;
        Some(Self { min, max: min.saturating_add(pool.overcommit.unwrap_or(0)) })
    }

    /// Returns the number of pages that the pool may allocate on demand.
    pub fn overcommit(&self) -> u64 {
        self.max.saturating_sub(self.min)
    }
}

/// Formats the pools as a table.
pub fn pools(root: &Root) -> String {
    let default = default_size(root);
    let mut text = format!(
        "{:>10} {:>8} {:>8} {:>8} {:>8}\n",
        "Size", "Minimum", "Current", "Maximum", "Default"
    );
    for (size, pool) in HugetlbPools::read_sizes(root) {
        let (Some(Bounds { min, max }), Some(total)) = (Bounds::from_pool(&pool), pool.total)
        else {
            continue;
        };
        let mark = if Some(size) == default { "*" } else { "" };
        let _ = writeln!(text, "{:>10} {min:>8} {total:>8} {max:>8} {mark:>8}", size.bytes());
    }
    text
}

/// Formats the mounts as a table; `None` if there is none.
pub fn mounts(mounts: &[Mount]) -> Option<String> {
    if mounts.is_empty() {
        return None;
    }
    let rows: Vec<(String, &str)> = mounts
        .iter()
        .map(|mount| (mount.point.display().to_string(), mount.options.as_str()))
        .collect();
    // Pad by bytes, not characters, as printf(3) does.
    let widest = rows.iter().map(|(point, _)| point.len()).max().unwrap_or(0).max(20);
    let mut text = String::new();
    for (point, options) in std::iter::once(("Mount Point".to_string(), "Options")).chain(rows) {
        let blanks = " ".repeat(widest - point.len());
        let _ = writeln!(text, "{point}{blanks} {options}");
    }
    Some(text)
}

/// Formats the page sizes of all pools in bytes, one per line.
pub fn all_sizes(root: &Root) -> String {
    HugetlbPools::read_sizes(root).keys().map(|size| format!("{}\n", size.bytes())).collect()
}

/// Formats the page sizes in bytes of the pools that programs can use through files: pools that may have pages and have
/// a mount.
pub fn usable_sizes(root: &Root, mounts: &[Mount]) -> String {
    let default = default_size(root);
    let mounted =
        |size: PageSize| mounts.iter().any(|mount| mount.page_size.or(default) == Some(size));
    let pools = HugetlbPools::read_sizes(root).into_iter();
    let usable = pools.filter(|(size, pool)| {
        Bounds::from_pool(pool).is_some_and(|bounds| bounds.max > 0) && mounted(*size)
    });
    usable.map(|(size, _)| format!("{}\n", size.bytes())).collect()
}

/// Returns the page size of the default pool.
pub fn default_size(root: &Root) -> Option<PageSize> {
    MemInfo::read(root).ok()?.default_hugepage
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legacy::tests::fixture;
    use host::pool::mounts::parse;
    use std::path::Path;

    const ZEN4: &str = "\x20  2097152        0        0        0        *\n\
        1073741824        0        0        0         \n";
    const ARM64: &str = "\x20  2097152        0        0        0         \n\
        \x20536870912        4        4        4        *\n\
        17179869184        0        0        0         \n";
    const TWO_NODES: &str = "\x20  2097152      500      512      564        *\n\
        1073741824        2        2        2         \n";
    const OLD: &str = "\x20  2097152        0        0        0        *\n";

    #[test]
    fn pools_of_other_machines() {
        let header = "      Size  Minimum  Current  Maximum  Default\n";
        for (machine, rows) in
            [("zen4-6.18", ZEN4), ("arm64-64k", ARM64), ("two-nodes", TWO_NODES), ("old-4.19", OLD)]
        {
            assert_eq!(pools(&fixture(machine)), format!("{header}{rows}"), "{machine}");
        }
        assert_eq!(all_sizes(&fixture("arm64-64k")), "2097152\n536870912\n17179869184\n");
        assert_eq!(pools(&Root::at("/no/such/place")), header);
    }

    #[test]
    fn mounts_align_and_decode() {
        let table = "none /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0\n\
            none /mnt/a\\040long/place/for/huge/pages hugetlbfs rw,pagesize=1024M 0 0\n";
        let found = mounts(&parse(table, Path::new("m")).unwrap()).unwrap();
        assert_eq!(
            found,
            "Mount Point                      Options\n\
             /dev/hugepages                   rw,relatime,pagesize=2M\n\
             /mnt/a long/place/for/huge/pages rw,pagesize=1024M\n"
        );
        assert_eq!(mounts(&[]), None);
    }

    #[test]
    fn a_usable_size_has_pages_and_a_mount() {
        let (small, large) =
            ("none /x hugetlbfs rw,pagesize=2M 0 0\n", "none /y hugetlbfs rw,pagesize=1024M 0 0\n");
        let both = format!("{small}{large}");
        for (machine, mounts, sizes) in [
            ("two-nodes", both.as_str(), "2097152\n1073741824\n"),
            ("two-nodes", small, "2097152\n"),
            ("two-nodes", large, "1073741824\n"),
            ("two-nodes", "", ""),
            // These machines have pools without pages.
            ("zen4-6.18", both.as_str(), ""),
        ] {
            let mounts = parse(mounts, Path::new("m")).unwrap();
            assert_eq!(usable_sizes(&fixture(machine), &mounts), sizes, "{machine}: {mounts:?}");
        }
    }
}
