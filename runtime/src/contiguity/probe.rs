//! Trying whether superpages are had in good time: a few are populated and given back.
//!
//! # Safety
//! Fresh memory of our own, unmapped before anybody else learns of it.

use crate::raw;

/// A superpage that takes longer was too long in the making. Compaction without success takes 3 to
/// 4 ms, but a superpage whose frames a hypervisor has yet to provide 5: what tells is the number
/// of faults.
const MAX_NS: u64 = 20_000_000;

/// Whether `count` superpages, held at once, were each populated by one fault, and in time. `None`:
/// it could not be tried.
pub fn superpages(count: usize, superpage: usize) -> Option<bool> {
    let length = (count + 1) * superpage;
    let flags = raw::PRIVATE_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: as the module says.
    unsafe {
        let start = raw::mmap(0, length, raw::READ_WRITE, flags, -1, 0).ok()?;
        let result = timed(start.next_multiple_of(superpage), count, superpage);
        let _ = raw::munmap(start, length);
        result
    }
}

/// # Safety
/// `count` superpages from `first` on are ours.
unsafe fn timed(first: usize, count: usize, superpage: usize) -> Option<bool> {
    // SAFETY: the contract.
    unsafe {
        raw::madvise(first, count * superpage, libc::MADV_HUGEPAGE).ok()?;
        for number in 0..count {
            let (ns, faults) = populate(first + number * superpage, superpage)?;
            // None: it was populated when it was mapped, as under mlockall(MCL_FUTURE).
            (faults > 0).then_some(())?;
            if faults > 2 || ns > MAX_NS {
                return Some(false);
            }
        }
    }
    Some(true)
}

/// Nanoseconds and faults that populating took.
///
/// # Safety
/// The range is ours.
unsafe fn populate(start: usize, length: usize) -> Option<(u64, i64)> {
    let (time, faults) = (now()?, faults()?);
    // SAFETY: the contract.
    unsafe { raw::madvise(start, length, libc::MADV_POPULATE_WRITE) }.ok()?;
    Some((now()?.saturating_sub(time), self::faults()? - faults))
}

/// Not libc's clock_gettime, which a program may replace by one that allocates.
fn now() -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one structure.
    let asked = raw::keeping_errno(|| unsafe {
        raw::call!(SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut time)
    });
    (asked == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Faults of this thread so far: populating counts each.
fn faults() -> Option<i64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes the structure if it returns 0.
    raw::keeping_errno(|| unsafe {
        let asked = raw::call!(SYS_getrusage, libc::RUSAGE_THREAD, usage.as_mut_ptr());
        (asked == 0).then(|| usage.assume_init().ru_minflt)
    })
}

/// Faults of this process so far.
pub fn process_faults() -> Option<usize> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: as above.
    raw::keeping_errno(|| unsafe {
        let asked = raw::call!(SYS_getrusage, libc::RUSAGE_SELF, usage.as_mut_ptr());
        (asked == 0).then(|| usage.assume_init().ru_minflt as usize)
    })
}
