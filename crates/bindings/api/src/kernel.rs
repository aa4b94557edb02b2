//! Reads the kernel's superpage parameters that a request needs. `root` stands for `/`.
//!
//! `superpage-host` reads all parameters, but needs more dependencies than an allocator should have.

use std::fs;
use std::path::Path;

use units::PageSize;

/// Returns the page size that `MAP_HUGETLB` means (`Hugepagesize` of /proc/meminfo).
pub fn default_size(root: &Path) -> Option<PageSize> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("Hugepagesize:"))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    PageSize::new(kib.checked_mul(1024)?).ok()
}

/// Returns the size of a transparent superpage (PMD mapping).
pub fn transparent_size(root: &Path) -> Option<PageSize> {
    let bytes = number(&root.join("sys/kernel/mm/transparent_hugepage/hpage_pmd_size"))?;
    PageSize::new(bytes).ok()
}

/// Returns whether the kernel has pools, even empty ones.
pub fn has_pools(root: &Path) -> bool {
    let mut entries = fs::read_dir(root.join(POOLS)).into_iter().flatten();
    entries.next().is_some()
}

/// Returns the number of pages of this size that a new mapping can reserve, including overcommit. `None`: no such pool.
pub fn available(root: &Path, page: PageSize) -> Option<u64> {
    let pool = root.join(POOLS).join(format!("hugepages-{}kB", page.bytes() / 1024));
    let pages = |file: &str| number(&pool.join(file)).unwrap_or(0);
    let on_demand = pages("nr_overcommit_hugepages").saturating_sub(pages("surplus_hugepages"));
    let unreserved = pages("free_hugepages").saturating_sub(pages("resv_hugepages"));
    pool.is_dir().then_some(unreserved + on_demand)
}

const POOLS: &str = "sys/kernel/mm/hugepages";

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use host::{HugetlbPools, MemInfo, Root, Thp};

    use super::*;

    /// Returns this machine and the fixtures of other machines.
    fn roots() -> Vec<PathBuf> {
        let fixtures =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/host/tests/fixtures");
        let fixtures = fs::read_dir(fixtures).unwrap().map(|entry| entry.unwrap().path());
        [PathBuf::from("/")].into_iter().chain(fixtures).collect()
    }

    #[test]
    fn the_same_as_the_reader_of_all_settings() {
        let roots = roots();
        assert!(roots.len() > 4, "{roots:?}");
        for root in &roots {
            let all = Root::at(root);
            let meminfo = MemInfo::read(&all).ok();
            assert_eq!(default_size(root), meminfo.and_then(|info| info.default_hugepage));
            assert_eq!(transparent_size(root), Thp::pmd_size_of(&all).ok());
            let sizes = HugetlbPools::read_sizes(&all);
            assert_eq!(has_pools(root), !sizes.is_empty(), "{root:?}");
            // Skip this machine, whose pools may change during the test.
            for (size, pool) in sizes.iter().filter(|_| root != Path::new("/")) {
                let more = pool.overcommit.unwrap() - pool.surplus.unwrap();
                assert_eq!(available(root, *size), Some(pool.unreserved().unwrap() + more));
            }
            assert_eq!(available(root, PageSize::new(1 << 45).unwrap()), None);
        }
    }
}
