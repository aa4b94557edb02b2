//! One line on standard error, from inside somebody else's program.
//!
//! # Safety
//! `writev(2)` with parts that live across the call; nothing is allocated.

use crate::raw;

/// Writes `superpage: ` and the parts as one line, in one system call. What cannot be written is
/// lost: there is nobody to tell.
pub fn line(parts: &[&[u8]]) {
    const MAX_PARTS: usize = 16;
    let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX_PARTS];
    let all = [b"superpage: " as &[u8]].into_iter().chain(parts.iter().copied());
    let mut count = 0;
    for part in all.take(MAX_PARTS - 1).chain([b"\n" as &[u8]]) {
        vectors[count] =
            libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
        count += 1;
    }
    raw::keeping_errno(|| {
        // SAFETY: `count` vectors, each of a slice that outlives the call and is only read.
        unsafe { raw::call!(SYS_writev, 2, vectors.as_ptr(), count) };
    });
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
