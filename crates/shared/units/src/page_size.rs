//! `PageSize`: a page size as reported by the machine, a power of two.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::ByteSize;

/// A page size: always a power of two. 4 KiB, 64 KiB, 2 MiB and 1 GiB are common, but no size is
/// assumed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct PageSize(u64);

/// The number is not a power of two.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid page size {0}: page sizes are powers of two")]
pub struct NotAPageSize(pub u64);

impl PageSize {
    /// The page size of `bytes` bytes.
    pub const fn new(bytes: u64) -> Result<Self, NotAPageSize> {
        if bytes.is_power_of_two() { Ok(Self(bytes)) } else { Err(NotAPageSize(bytes)) }
    }
    /// The size in bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
    /// `bytes` rounded down to a whole number of pages.
    pub const fn floor(self, bytes: u64) -> u64 {
        bytes & !(self.0 - 1)
    }
    /// `bytes` rounded up to a whole number of pages; saturates at the last whole page.
    pub const fn ceil(self, bytes: u64) -> u64 {
        self.floor(bytes.saturating_add(self.0 - 1))
    }
    /// Number of pages needed for `bytes` bytes.
    pub const fn count(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.0)
    }
    /// Whether `bytes` is a whole number of pages.
    pub const fn divides(self, bytes: u64) -> bool {
        bytes & (self.0 - 1) == 0
    }
}

impl TryFrom<u64> for PageSize {
    type Error = NotAPageSize;
    fn try_from(bytes: u64) -> Result<Self, NotAPageSize> {
        Self::new(bytes)
    }
}

impl From<PageSize> for u64 {
    fn from(size: PageSize) -> u64 {
        size.0
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ByteSize(self.0).fmt(f)
    }
}

impl fmt::Debug for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn rounds_for_every_size_in_use() {
        for bytes in [4 << 10, 16 << 10, 64 << 10, 2 << 20, 32 << 20, 512 << 20, 1 << 30] {
            let size = PageSize::new(bytes).unwrap();
            assert_eq!(size.floor(3 * bytes + 1), 3 * bytes);
            assert_eq!(size.ceil(3 * bytes + 1), 4 * bytes);
            assert_eq!(size.ceil(3 * bytes), 3 * bytes);
            assert_eq!(size.count(0), 0);
            assert_eq!(size.count(bytes + 1), 2);
            assert!(size.divides(5 * bytes) && !size.divides(bytes / 2));
        }
    }

    #[test]
    fn refuses_what_is_no_power_of_two() {
        for bytes in [0, 3, 4095, (2 << 20) + 1] {
            assert_eq!(PageSize::new(bytes), Err(NotAPageSize(bytes)));
            assert!(serde_json::from_str::<PageSize>(&bytes.to_string()).is_err());
        }
    }
}
