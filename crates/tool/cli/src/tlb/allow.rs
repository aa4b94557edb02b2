//! `--allow`: changes settings so that more page sizes can be measured, and restores them however the run ends.
//! See docs/decisions/tlb.md#4.

use host::journal::Knob;
use host::{HugetlbPools, Root, Thp};
use tlb_probe::NotOffered;
use units::{ByteSize, PageSize};

use operations::pool_guard::OvercommitGuard;

/// Bytes of the mTHP size that `--allow` enables by default: Arm's contiguous bit with 4 KiB base pages, and the size
/// most often recommended.
const USUAL: u64 = 64 << 10;

/// A setting that prevents measuring a page size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The hugetlb pool of this size has no free page.
    Grow(PageSize),
    /// This mTHP size is disabled.
    SwitchOn(PageSize),
}

/// Returns the changes that measuring the sizes `asked` needs. If `asked` is empty: those of the usual mTHP size and of
/// every hugetlb pool, except a pool of the THP size, which THP measures without it.
pub fn needed(root: &Root, asked: &[PageSize]) -> Vec<Change> {
    let thp = Thp::from_root(root);
    let pmd = Thp::pmd_size_of(root).ok();
    let wanted = |size: &PageSize, usual: bool| match asked {
        [] => usual,
        asked => asked.contains(size),
    };
    let off = thp.iter().flat_map(|thp| &thp.sizes).filter(|(size, settings)| {
        let off = settings.enabled.as_ref().is_some_and(|enabled| enabled.is("never"));
        off && Some(**size) != pmd && wanted(size, size.bytes() == USUAL)
    });
    let off: Vec<Change> = off.map(|(size, _)| Change::SwitchOn(*size)).collect();
    let pools = HugetlbPools::read_sizes(root);
    let empty = pools.iter().filter(|(size, pool)| {
        Some(**size) != pmd && pool.unreserved().unwrap_or(0) == 0 && wanted(size, true)
    });
    // Grow pools first: an open journal keeps other processes from sharing pools.
    empty.map(|(size, _)| Change::Grow(*size)).chain(off).collect()
}

impl Change {
    /// Formats the change for `--dry-run`.
    pub fn preview(&self) -> String {
        match self {
            Self::Grow(size) => {
                format!("would grow {} by 1, and restore it", Knob::hugetlb_pool(*size))
            }
            Self::SwitchOn(size) => {
                let knob = Knob::thp_size_enabled(*size);
                format!("would set {knob} to madvise, and restore it")
            }
        }
    }

    /// Returns the page size of the change.
    pub fn size(&self) -> PageSize {
        match self {
            Self::Grow(size) | Self::SwitchOn(size) => *size,
        }
    }
}

/// Makes the changes under `guard`. Returns the sizes whose change failed, with the reason.
pub fn make(changes: &[Change], guard: &mut OvercommitGuard) -> Vec<NotOffered> {
    let make = |change: &Change| {
        let size = change.size();
        let why = match change {
            Change::SwitchOn(size) => {
                let knob = Knob::thp_size_enabled(*size);
                guard.set(&knob, "madvise").err().map(|error| error.to_string())
            }
            Change::Grow(size) => match guard.grow(*size, ByteSize(size.bytes()), &|| true) {
                Ok(0) => Some(
                    "the pool could not be grown by one page: free memory is fragmented; try again \
                     early after boot"
                        .to_string(),
                ),
                Ok(_) => None,
                Err(why) => Some(why.to_string()),
            },
        };
        why.map(|why| NotOffered { sizes: vec![size], why })
    };
    changes.iter().filter_map(make).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(changes: &[Change]) -> Vec<String> {
        changes.iter().map(Change::preview).collect()
    }

    /// Creates a machine with an empty pool of 1 GiB pages, one of 2 MiB pages, and two disabled mTHP sizes.
    fn machine() -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let thp = "sys/kernel/mm/transparent_hugepage";
        put(&format!("{thp}/hpage_pmd_size"), "2097152\n");
        put(&format!("{thp}/enabled"), "always [madvise] never\n");
        for (size, set) in [(16, "never"), (64, "never"), (128, "madvise"), (2048, "never")] {
            let all = "always inherit madvise never";
            let text = all.replace(set, &format!("[{set}]"));
            put(&format!("{thp}/hugepages-{size}kB/enabled"), &text);
        }
        for size in [2048, 1 << 20] {
            for file in ["nr_hugepages", "free_hugepages", "resv_hugepages", "surplus_hugepages"] {
                put(&format!("sys/kernel/mm/hugepages/hugepages-{size}kB/{file}"), "0\n");
            }
        }
        let root = Root::at(directory.path());
        (directory, root)
    }

    #[test]
    fn only_what_stands_in_the_way_is_changed() {
        let (_directory, root) = machine();
        let page = |bytes| PageSize::new(bytes).unwrap();
        let pool = "would grow /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages by 1, \
                    and restore it";
        let on = |kib: u64| {
            format!(
                "would set /sys/kernel/mm/transparent_hugepage/hugepages-{kib}kB/enabled to madvise, \
                 and restore it"
            )
        };
        assert_eq!(sizes(&needed(&root, &[])), [pool.to_string(), on(64)]);
        assert_eq!(sizes(&needed(&root, &[page(16 << 10)])), [on(16)]);
        assert_eq!(sizes(&needed(&root, &[page(1 << 30)])), [pool]);
        assert_eq!(needed(&root, &[page(128 << 10), page(2 << 20), page(4096)]), []);
    }
}
