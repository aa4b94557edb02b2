//! Whether PAGEMAP_SCAN flags the huge zero page (PAGE_IS_PFNZERO), which costs a process no memory.

use std::hint::black_box;
use std::sync::OnceLock;

use sys::mem::{Advice, Mapping};
use sys::pagemap::{Categories, Pagemap};

use crate::{Root, Thp};

/// Tests the flag by mapping the huge zero page once. From Linux 6.7 to 6.15, PAGEMAP_SCAN reports the huge zero page
/// like any superpage; "fs/proc/task_mmu: fix PAGE_IS_PFNZERO detection for the huge zero folio" (2025) fixed this.
/// Returns true if there is no huge zero page, or if the test fails.
pub fn is_flagged(root: &Root) -> bool {
    static FLAGGED: OnceLock<bool> = OnceLock::new();
    *FLAGGED.get_or_init(|| try_it(root).unwrap_or(true))
}

fn try_it(root: &Root) -> Option<bool> {
    let thp = Thp::from_root(root)?;
    let size = thp.pmd_size.filter(|_| thp.use_zero_page == Some(true))?;
    let mut memory = Mapping::aligned(size.bytes() as usize, size).ok()?;
    memory.advise(Advice::HugePage).ok()?;
    black_box(memory.bytes()[0]);
    let (start, mut found) = (memory.address(), Vec::new());
    let pagemap = Pagemap::open(sys::param::own_pid()).ok()?;
    pagemap.scan(start, start + size.bytes(), Categories::HUGE, &mut found).ok()?;
    Some(found.iter().all(|region| region.categories.contains(Categories::PFNZERO)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_flags_it_or_is_known_not_to() {
        let flagged = is_flagged(&Root::real());
        // Kernels since 6.16 flag the huge zero page.
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        assert!(flagged || version < (6, 16), "{release}");
    }
}
