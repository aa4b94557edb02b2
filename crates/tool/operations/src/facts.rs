//! Collects the facts that `launch` needs, from what `host` reads.

use std::env;
use std::path::PathBuf;

use host::pool::Status;
use host::{Choice, FreeContiguity, HugetlbPools, MemInfo, Root, Snapshot, Thp};
use launch::{Facts, Pool};
use units::{ByteSize, PageSize};

/// Reads the facts of this machine and environment that launching needs.
pub fn read() -> Facts {
    let root = Root::real();
    let default = MemInfo::read(&root).ok().and_then(|memory| memory.default_hugepage);
    let status = Status::read(&root).ok();
    let mut pools: Vec<Pool> = HugetlbPools::read_sizes(&root)
        .iter()
        .map(|(size, pool)| Pool {
            size: *size,
            total: pool.total.unwrap_or(0),
            free: pool.free.unwrap_or(0),
            reserved: pool.reserved.unwrap_or(0),
            overcommit_left: pool.overcommit.unwrap_or(0).saturating_sub(pool.surplus.unwrap_or(0)),
            is_gigantic: status.as_ref().is_some_and(|status| status.is_gigantic(*size)),
        })
        .collect();
    pools.sort_by_key(|pool| Some(pool.size) != default);
    let thp = Thp::from_root(&root);
    Facts {
        thp_mode: thp.as_ref().and_then(mode_of_largest),
        thp_largest: thp.as_ref().and_then(|thp| thp.pmd_size),
        thp_sizes: thp.as_ref().map(sizes_that_are_on).unwrap_or_default(),
        thp_sizes_off: thp.as_ref().map(sizes_to_turn_on).unwrap_or_default(),
        may_change_settings: sys::param::effective_user() == 0,
        free_in_superpages: thp.as_ref().and_then(|thp| free_in(thp.pmd_size?)),
        thp_only_advised: sys::prctl::has_only_advised(),
        pools,
        runtime: runtime_library(),
        ld_preload: variable("LD_PRELOAD"),
        glibc_tunables: variable("GLIBC_TUNABLES"),
    }
}

/// Returns a variable as the program will see it.
fn variable(name: &str) -> Option<String> {
    let removed = || sys::secure::removed_variables().iter().find(|(removed, _)| removed == name);
    env::var(name).ok().or_else(|| removed()?.1.to_str().map(String::from))
}

/// A measurement may use at most 1/MEMORY_DIVISOR of the available memory, per page size.
pub const MEMORY_DIVISOR: u64 = 6;

/// Returns the bytes that a measurement may use per page size: `most`, or less if memory is short.
pub fn measurement_memory(most: ByteSize) -> ByteSize {
    let available = MemInfo::read(&Root::real()).ok().and_then(|memory| memory.available);
    available.map_or(most, |free| most.min(ByteSize(free.bytes() / MEMORY_DIVISOR)))
}

/// Returns the page size in which superpages are counted: a PMD mapping, or else the default hugetlb size.
pub fn superpage(snapshot: &Snapshot) -> Option<PageSize> {
    let thp = snapshot.thp.as_ref().and_then(|thp| thp.pmd_size);
    thp.or_else(|| snapshot.memory.as_ref()?.default_hugepage)
}

/// Formats the THP settings that differ between two snapshots.
pub fn thp_changes(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let (Some(before), Some(after)) = (&before.thp, &after.thp) else { return Vec::new() };
    let word = |choice: &Option<Choice>| {
        choice.as_ref().map_or("unknown".to_string(), |choice| choice.selected.clone())
    };
    let mut settings = vec![
        ("THP enabled".to_string(), &before.enabled, &after.enabled),
        ("THP defrag".to_string(), &before.defrag, &after.defrag),
        ("THP shmem_enabled".to_string(), &before.shmem_enabled, &after.shmem_enabled),
    ];
    for (size, old) in &before.sizes {
        if let Some(new) = after.sizes.get(size) {
            settings.push((format!("THP {size} enabled"), &old.enabled, &new.enabled));
        }
    }
    settings
        .into_iter()
        .filter(|(_, old, new)| old != new)
        .map(|(name, old, new)| format!("{name} went from {} to {}", word(old), word(new)))
        .collect()
}

/// Returns PATH as the shell uses it.
pub fn search_path() -> String {
    // glibc's execvp(3) has this default.
    env::var("PATH").unwrap_or_else(|_| "/bin:/usr/bin".to_string())
}

/// Returns the mode of PMD-sized THP: its own setting, if the kernel has one and it is not `inherit`, else the
/// top-level one.
pub fn mode_of_largest(thp: &Thp) -> Option<String> {
    let own = thp.pmd_size.and_then(|size| thp.sizes.get(&size)).and_then(|s| s.enabled.as_ref());
    let choice = own.filter(|choice| !choice.is("inherit")).or(thp.enabled.as_ref());
    choice.map(|choice: &Choice| choice.selected.clone())
}

/// Returns the mTHP sizes below the PMD size that are enabled for advised memory, the largest first.
fn sizes_that_are_on(thp: &Thp) -> Vec<PageSize> {
    let top = thp.enabled.as_ref().is_some_and(|choice| !choice.is("never"));
    let is_on = |choice: &Choice| match choice.selected.as_str() {
        "inherit" => top,
        "never" => false,
        _ => true,
    };
    let sizes = thp.sizes.iter().rev().filter(|(size, _)| Some(**size) != thp.pmd_size);
    let on = sizes.filter(|(_, setting)| setting.enabled.as_ref().is_some_and(is_on));
    on.map(|(size, _)| *size).collect()
}

/// The smallest mTHP size worth enabling, in bytes: smaller sizes reduce TLB misses little.
const SMALLEST: u64 = 64 << 10;

/// Returns the mTHP sizes worth enabling that are set to never, the largest first.
fn sizes_to_turn_on(thp: &Thp) -> Vec<PageSize> {
    let smaller = thp.sizes.iter().rev().filter(|(size, _)| {
        size.bytes() >= SMALLEST && thp.pmd_size.is_some_and(|largest| **size < largest)
    });
    let is_off = |choice: &Choice| choice.is("never");
    let off = smaller.filter(|(_, setting)| setting.enabled.as_ref().is_some_and(is_off));
    off.map(|(size, _)| *size).collect()
}

fn free_in(superpage: PageSize) -> Option<f64> {
    FreeContiguity::read(&Root::real(), superpage).ok()?.ratio()
}

/// Returns the path of libsuperpage.so: next to the command in cargo's target directory, or in a package's library
/// directory.
pub fn runtime_library() -> Option<PathBuf> {
    let exe = sys::param::own_executable()?;
    let dir = exe.parent()?;
    let places = [
        "libsuperpage.so",
        "deps/libsuperpage.so",
        match cfg!(target_arch = "aarch64") {
            true => "../lib/aarch64-linux-gnu/libsuperpage.so.0",
            false => "../lib/x86_64-linux-gnu/libsuperpage.so.0",
        },
        "../lib/libsuperpage.so.0",
        "../lib64/libsuperpage.so.0",
        "../lib/libsuperpage.so",
    ];
    let found = places.iter().map(|place| dir.join(place)).find(|path| path.is_file())?;
    Some(found.canonicalize().unwrap_or(found))
}
