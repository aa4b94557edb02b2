//! Finds the page sizes that this machine offers, by allocating some pages of each, and the reasons for missing sizes.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use host::{HugetlbPools, Root, Thp};
use sys::mem::{Advice, Mapping};
use sys::memfd;
use units::PageSize;

use super::arena::{Arena, Means, Source};
use super::pmd_size;
use crate::probe::{NotOffered, Place, ProbeError};

/// Size of a superpage file in bytes: enough guest-physical pages to exercise the hypervisor's page tables as a
/// medium-sized program would.
const FILE_BYTES: u64 = 128 << 20;
/// Maximum and minimum number of file pages over which base pages are scattered: more than an arena populates.
/// Scattered over 128 MiB, the cost of a walk depended on the location of the frames (because of a hypervisor's tables,
/// it varied from 48 to 63 cycles between runs). Over 512 MiB it did not (64.0 to 64.2 cycles), and over 1 GiB it was
/// the same.
const SCATTERED: (u64, u64) = (1 << 17, 1 << 15);
/// Maximum number of pages borrowed from a hugetlb pool.
const POOL_PAGES: u64 = 64;
/// Size of an address range in bytes: half of the 47-bit user address space.
const SPAN: u64 = 1 << 46;
/// Maximum number of superpages of one chase.
const PAGES: u64 = 1 << 14;

/// Makes an arena for every available page size, the base page first.
pub(super) fn arenas(
    root: &Root,
    budget: u64,
    without: &mut Vec<NotOffered>,
) -> Result<Vec<Arena>, ProbeError> {
    let base = sys::param::page_size();
    let pages = (budget / base.bytes()).min(2 * PAGES);
    if pages < 1 << 12 {
        let why = format!("only {pages} of them fit into available memory; free some memory");
        return Err(ProbeError::NotGot { page: base, why });
    }
    let span = SPAN / base.bytes();
    // Leave as much memory again for other measurements.
    let most = (budget / base.bytes() / 2).max(1);
    let count = SCATTERED.0.min(1 << most.ilog2());
    let made = if count >= SCATTERED.1 { scattered(base, count) } else { None };
    let made = made.and_then(|file| {
        let words = format!("shared memory, scattered over {count} of them");
        let source = Source { file, pages: count, again: None };
        let mut arena = Arena::new(base, span, pages, &words, Means::Scattered(source)).ok()?;
        arena.populate(&[Place { page: 0, line: 0 }]).ok()?;
        Some(arena)
    });
    let words = "anonymous memory, MADV_NOHUGEPAGE";
    let plain = || Arena::new(base, span, pages, words, Means::Base);
    let mut arenas = vec![made.map_or_else(plain, Ok)?];
    let pmd = pmd_size(root);
    let thp = Thp::from_root(root);
    let mut off = Vec::new();
    for (size, settings) in thp.iter().flat_map(|thp| &thp.sizes) {
        // Skip the smallest size, which exists only for shared memory.
        let Some(enabled) = settings.enabled.as_ref().filter(|_| Some(*size) != pmd) else {
            continue;
        };
        if enabled.is("never") {
            off.push(*size);
            continue;
        }
        match advised(root, *size, budget) {
            Ok(arena) => arenas.push(arena),
            Err(why) => without.push(NotOffered { sizes: vec![*size], why }),
        }
    }
    if !off.is_empty() {
        let why = format!("disabled{}", remedy("switches it on"));
        without.push(NotOffered { sizes: off, why });
    }
    match pmd.map(|size| (size, superpages(root, size))) {
        Some((_, Ok(arena))) => arenas.push(arena),
        Some((size, Err(why))) => without.push(NotOffered { sizes: vec![size], why }),
        None => without.push(NotOffered {
            sizes: Vec::new(),
            why: "this kernel has no transparent huge pages".to_string(),
        }),
    }
    for (size, _) in HugetlbPools::read_sizes(root) {
        if Some(size) == pmd {
            continue;
        }
        match pool(root, size) {
            Ok(arena) => arenas.push(arena),
            Err(why) => without.push(NotOffered { sizes: vec![size], why }),
        }
    }
    arenas.sort_by_key(|arena| arena.offer.page);
    Ok(arenas)
}

/// Text that tells the user how to enable a size.
fn remedy(does: &str) -> String {
    format!("; `superpage tlb --allow --page-size SIZE` {does} for the run")
}

/// Makes a file of base pages and allocates all of them.
fn scattered(base: PageSize, count: u64) -> Option<OwnedFd> {
    let bytes = count * base.bytes();
    let file = sized(memfd::create("superpage-tlb", None).ok()?, bytes).ok()?;
    let mut memory = Mapping::sparse(bytes as usize, base).ok()?;
    memory.put_file(0, bytes as usize, file.as_fd(), 0).ok()?;
    memory.bytes_mut().iter_mut().step_by(base.bytes() as usize).for_each(|byte| *byte = 1);
    Some(file)
}

/// Makes superpages: shared memory with MADV_COLLAPSE, which needs no setting; if that fails, pages of the hugetlb
/// pool.
fn superpages(root: &Root, page: PageSize) -> Result<Arena, String> {
    let pages = (FILE_BYTES / page.bytes()).max(1);
    match collapsed(page, pages) {
        Ok(file) => {
            let again = Some((|page, pages| collapsed(page, pages).ok()) as fn(PageSize, u64) -> _);
            arena(page, Source { file, pages, again }, "shared memory, MADV_COLLAPSE")
        }
        Err(why) => pool(root, page).map_err(|pool| format!("{pool}; and {why}")),
    }
}

pub(super) fn collapsed(page: PageSize, pages: u64) -> Result<OwnedFd, String> {
    let bytes = pages * page.bytes();
    let get = || -> Result<OwnedFd, Box<dyn std::error::Error>> {
        let file = sized(memfd::create("superpage-tlb", None)?, bytes)?;
        let mut memory = Mapping::sparse(bytes as usize, page)?;
        memory.put_file(0, bytes as usize, file.as_fd(), 0)?;
        // Touch one base page of each superpage; the collapse allocates the others.
        memory.bytes_mut().iter_mut().step_by(page.bytes() as usize).for_each(|byte| *byte = 1);
        memory.advise(Advice::Collapse)?;
        Ok(file)
    };
    get().map_err(|error| error.to_string())
}

/// Uses free pages of a hugetlb pool, and does not grow the pool.
fn pool(root: &Root, page: PageSize) -> Result<Arena, String> {
    let pools = HugetlbPools::read_sizes(root);
    let free = pools.get(&page).and_then(|pool| pool.unreserved()).unwrap_or(0);
    if free == 0 {
        return Err(format!("the pool has none free{}", remedy("adds one")));
    }
    let pages = free.min(POOL_PAGES);
    let file = memfd::create("superpage-tlb", Some(page))
        .map_err(|error| error.to_string())
        .and_then(|file| sized(file, pages * page.bytes()).map_err(|error| error.to_string()))?;
    arena(page, Source { file, pages, again: None }, "pages of the hugetlb pool")
}

fn arena(page: PageSize, source: Source, words: &str) -> Result<Arena, String> {
    let words = format!("{words}; {} of them shown again and again", source.pages);
    let made = Arena::new(page, SPAN / page.bytes(), PAGES, &words, Means::File(source));
    let mut arena = made.map_err(|error| error.to_string())?;
    // Try it: populate one page and read its size back.
    let got = arena.populate(&[Place { page: 0, line: 0 }]);
    got.map_err(|error| error.to_string()).map(|()| arena)
}

fn sized(file: OwnedFd, bytes: u64) -> std::io::Result<OwnedFd> {
    let file = File::from(file);
    file.set_len(bytes)?;
    Ok(file.into())
}

/// Uses pages of an intermediate size, if the kernel is set to allocate them on advice. The kernel's counter for this
/// size tells how many were allocated.
fn advised(root: &Root, page: PageSize, budget: u64) -> Result<Arena, String> {
    let count = || {
        let thp = Thp::with_counters(root)?;
        let size = thp.sizes.get(&page)?;
        Some((size.enabled.clone()?, *size.stats.get("anon_fault_alloc")?))
    };
    let (enabled, before) = count().ok_or("the kernel does not say whether they are enabled")?;
    let words = "anonymous memory, MADV_HUGEPAGE page by page";
    // Every page needs its own memory, which the kernel zeroes at each allocation. So use at most twice as many pages
    // as the largest TLB has entries.
    let pages = (budget / page.bytes()).min(PAGES / 2);
    let made = Arena::new(page, SPAN / page.bytes(), pages, words, Means::Advised);
    let mut arena = made.map_err(|error| error.to_string())?;
    let tried = 16.min(pages);
    let places: Vec<Place> = (0..tried).map(|page| Place { page, line: 0 }).collect();
    arena.populate(&places).map_err(|error| error.to_string())?;
    let came = count().map_or(0, |(_, after)| after.saturating_sub(before));
    if came < tried {
        return Err(format!(
            "{came} of {tried} were allocated, although set to `{}`",
            enabled.selected
        ));
    }
    Ok(arena)
}

/// Number of bytes of a cache line.
pub(super) fn line(root: &Root) -> u64 {
    host::Cpu::cache_line(root).unwrap_or(64) // the size on every x86-64 and nearly every Arm
}
