//! Prints a line on the standard error with which the program was started. A daemon closes descriptor 2, and the next
//! file it opens gets that number.
//!
//! # Safety
//! `writev(2)` with parts that live across the call; nothing is allocated.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use abi::{Reason, Shortage};

use crate::{filter, raw};

const STANDARD_ERROR: i32 = 2;

/// Whether [`begin`] ran.
static IS_KNOWN: AtomicBool = AtomicBool::new(false);
/// Whether descriptor 2 was open when [`begin`] ran.
static WAS_OPEN: AtomicBool = AtomicBool::new(false);
/// Device of standard error when [`begin`] ran.
static DEVICE: AtomicU64 = AtomicU64::new(0);
/// Inode of standard error when [`begin`] ran.
static INODE: AtomicU64 = AtomicU64::new(0);

fn standard_error() -> Option<(u64, u64)> {
    let file = raw::keeping_errno(|| raw::fstat(STANDARD_ERROR))?;
    Some((file.st_dev, file.st_ino))
}

/// Notes which file standard error is. Call before the program's own code runs.
pub fn begin() {
    if IS_KNOWN.load(Ordering::Relaxed) {
        return;
    }
    let file = standard_error();
    let (device, inode) = file.unwrap_or_default();
    DEVICE.store(device, Ordering::Relaxed);
    INODE.store(inode, Ordering::Relaxed);
    WAS_OPEN.store(file.is_some(), Ordering::Relaxed);
    IS_KNOWN.store(true, Ordering::Relaxed);
}

/// Whether descriptor 2 is still the noted file.
fn is_initial_stderr() -> bool {
    let noted = (DEVICE.load(Ordering::Relaxed), INODE.load(Ordering::Relaxed));
    WAS_OPEN.load(Ordering::Relaxed) && standard_error() == Some(noted)
}

/// Writes `superpage: ` and the parts as one line, in one system call. A failed write is lost. Writes nothing if the
/// program requested a seccomp filter, which may kill the process for fstat(2).
pub fn line(parts: &[&[u8]]) {
    const MAX_PARTS: usize = 16;
    if filter::is_set() {
        return;
    }
    begin();
    if !is_initial_stderr() {
        return;
    }
    let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX_PARTS];
    let all = [b"superpage: " as &[u8]].into_iter().chain(parts.iter().copied());
    let mut count = 0;
    for part in all.take(MAX_PARTS - 1).chain([b"\n" as &[u8]]) {
        vectors[count] =
            libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
        count += 1;
    }
    let write = || {
        // SAFETY: `count` vectors, each of a slice that outlives the call and is only read.
        unsafe { raw::call!(SYS_writev, STANDARD_ERROR, vectors.as_ptr(), count) };
    };
    raw::keeping_errno(|| raw::without_signals_of_a_write(write));
}

/// Prints how much memory did not get superpages; for a pool, in its pages.
pub fn shortage(shortage: &Shortage, is_pool: bool) {
    let number = |value: u64| Decimal::new(value);
    let Shortage { page, wanted, had, missing, why } = *shortage;
    let (page, unit) = match page {
        0x4000_0000.. => (page >> 30, b" GiB"),
        0x10_0000.. => (page >> 20, b" MiB"),
        _ => (page >> 10, b" KiB"),
    };
    let (kib, page, wanted, had) =
        (number(missing >> 10), number(page), number(wanted), number(had));
    let why = why.map_or("no reason is known", Reason::words).as_bytes();
    if !is_pool {
        return line(&[kib.bytes(), b" KiB that were to be on superpages are not: ", why]);
    }
    line(&[
        why,
        b": ",
        wanted.bytes(),
        b" pages of ",
        page.bytes(),
        unit,
        b" wanted, ",
        had.bytes(),
        b" had; ",
        kib.bytes(),
        b" KiB are on other pages or were refused",
    ]);
}

/// A number in decimal, without allocating.
pub struct Decimal {
    digits: [u8; 20],
    from: usize,
}

impl Decimal {
    /// `value` in decimal.
    pub fn new(mut value: u64) -> Self {
        let mut digits = [0; 20];
        let mut from = digits.len();
        loop {
            from -= 1;
            digits[from] = b'0' + (value % 10) as u8;
            value /= 10;
            if value == 0 {
                return Self { digits, from };
            }
        }
    }

    /// Its digits.
    pub fn bytes(&self) -> &[u8] {
        &self.digits[self.from..]
    }
}
