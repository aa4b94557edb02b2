//! `Spec`: a user's request to a pool in one word, `2M:+512M`. No I/O.

use std::fmt;
use std::str::FromStr;

use units::{ByteSize, PageSize};

/// A change of one pool's size: `SIZE:[+-]AMOUNT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    /// The pool.
    pub pool: PoolName,
    /// The change.
    pub change: Change,
}

/// A pool, by its page size or as the machine's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolName {
    /// The size in `/proc/meminfo`'s `Hugepagesize`.
    Default,
    /// This size.
    Of(PageSize),
}

/// A new size for a pool, absolute or relative to its current size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Set to exactly this amount.
    To(Amount),
    /// Increase by this amount.
    Grow(Amount),
    /// Decrease by this amount.
    Shrink(Amount),
}

/// An amount of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// A plain number: pages.
    Pages(u64),
    /// A number with a unit: bytes.
    Bytes(ByteSize),
    /// Percentage of the pool's current pages, rounded down.
    Percent(u64),
}

/// Why a spec cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// No colon.
    #[error("invalid pool change `{0}`: expected SIZE:AMOUNT, e.g. 2M:512 or 2M:+1G")]
    NoColon(String),
    /// The word before the colon is neither `default` nor a power of two.
    #[error("invalid page size `{0}`: expected `default` or a size, e.g. 2M or 1G")]
    BadPool(String),
    /// Invalid amount after the colon.
    #[error(
        "invalid amount `{0}`: expected pages (512), bytes with a unit (1G) or percent (25%), with \
         + or - before it to grow or shrink by it"
    )]
    BadAmount(String),
    /// The amount overflows a 64-bit number.
    #[error("amount `{0}` is too large")]
    TooLarge(String),
    /// A number of bytes that is not a multiple of the page size.
    #[error("{asked} is not a multiple of the page size {size}; {}", neighbours(*asked, *size))]
    NotWhole {
        /// Requested bytes.
        asked: ByteSize,
        /// The pool's page size.
        size: PageSize,
    },
    /// Two changes of the same pool.
    #[error("the pool of {0} pages is specified twice; specify each pool once")]
    Twice(PageSize),
    /// A decrease by more pages than the pool has.
    #[error("the pool has {has} pages of {size}, so it cannot shrink by {by}; use {size_word}:0 to \
            empty it", size_word = exact(size.bytes()))]
    BelowZero {
        /// Number of pages in the pool.
        has: u64,
        /// Number of pages to remove.
        by: u64,
        /// The pool's page size.
        size: PageSize,
    },
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (pool, change) =
            text.split_once(':').ok_or_else(|| SpecError::NoColon(text.to_string()))?;
        Ok(Self { pool: pool.parse()?, change: change.parse()? })
    }
}

impl FromStr for PoolName {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        if text.eq_ignore_ascii_case("default") {
            return Ok(Self::Default);
        }
        let bytes = text.parse::<ByteSize>().ok().map(ByteSize::bytes);
        let size = bytes.and_then(|bytes| PageSize::new(bytes).ok());
        size.map(Self::Of).ok_or_else(|| SpecError::BadPool(text.to_string()))
    }
}

impl FromStr for Change {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        match text.as_bytes().first() {
            Some(b'+') => amount(&text[1..], text).map(Self::Grow),
            Some(b'-') => amount(&text[1..], text).map(Self::Shrink),
            _ => amount(text, text).map(Self::To),
        }
    }
}

fn amount(text: &str, whole: &str) -> Result<Amount, SpecError> {
    let bad = || SpecError::BadAmount(whole.to_string());
    let too_large = || SpecError::TooLarge(whole.to_string());
    let number = |digits: &str| {
        let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        if is_number { digits.parse().map_err(|_| too_large()) } else { Err(bad()) }
    };
    if let Some(percent) = text.strip_suffix('%') {
        return number(percent).map(Amount::Percent);
    }
    match text.as_bytes() {
        [] => Err(bad()),
        [.., last] if last.is_ascii_digit() => number(text).map(Amount::Pages),
        // `ByteSize` would accept surrounding blanks.
        _ if text.contains(char::is_whitespace) => Err(bad()),
        _ => text.parse().map(Amount::Bytes).map_err(|error| match error {
            units::ParseSizeError::TooLarge(_) => too_large(),
            units::ParseSizeError::NotASize(_) => bad(),
        }),
    }
}

impl Change {
    /// Returns the target number of pages for a pool that now has `now` pages.
    pub fn target(self, size: PageSize, now: u64) -> Result<u64, SpecError> {
        match self {
            Self::To(amount) => amount.pages(size, now),
            Self::Grow(amount) => {
                let by = amount.pages(size, now)?;
                let target = now.checked_add(by).filter(|n| n.checked_mul(size.bytes()).is_some());
                target.ok_or_else(|| SpecError::TooLarge(format!("+{by}")))
            }
            Self::Shrink(amount) => {
                let by = amount.pages(size, now)?;
                now.checked_sub(by).ok_or(SpecError::BelowZero { has: now, by, size })
            }
        }
    }
}

impl Amount {
    /// Returns the amount as a number of pages of `size`, for a pool that now has `now` pages.
    pub fn pages(self, size: PageSize, now: u64) -> Result<u64, SpecError> {
        let pages = match self {
            Self::Pages(pages) => pages,
            Self::Bytes(asked) if !size.divides(asked.bytes()) => {
                return Err(SpecError::NotWhole { asked, size });
            }
            Self::Bytes(bytes) => bytes.bytes() / size.bytes(),
            Self::Percent(percent) => {
                let share = u128::from(now) * u128::from(percent) / 100;
                u64::try_from(share).map_err(|_| SpecError::TooLarge(format!("{percent}%")))?
            }
        };
        // No pool can exceed the address space, so reject amounts whose bytes do not fit in 64
        // bits.
        let fits = pages.checked_mul(size.bytes()).is_some();
        if fits { Ok(pages) } else { Err(SpecError::TooLarge(pages.to_string())) }
    }
}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Of(size) => f.write_str(&exact(size.bytes())),
        }
    }
}

/// Formats `bytes` in this grammar, in the largest unit that needs no fraction.
pub fn exact(bytes: u64) -> String {
    let units = [("E", 60), ("P", 50), ("T", 40), ("G", 30), ("M", 20), ("K", 10)];
    let whole = units.iter().find(|(_, shift)| bytes > 0 && bytes.is_multiple_of(1u64 << shift));
    whole.map_or(format!("{bytes}B"), |(name, shift)| format!("{}{name}", bytes >> shift))
}

fn neighbours(asked: ByteSize, size: PageSize) -> String {
    let below = size.floor(asked.bytes());
    let say = |bytes: u64| match bytes / size.bytes() {
        1 => format!("{} (1 page)", exact(bytes)),
        pages => format!("{} ({pages} pages)", exact(bytes)),
    };
    match below.checked_add(size.bytes()) {
        Some(above) if below > 0 => format!("write {} or {}", say(below), say(above)),
        Some(above) => format!("write at least {}", say(above)),
        None => format!("write {}", say(below)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const M2: u64 = 2 << 20;

    fn size(bytes: u64) -> PageSize {
        PageSize::new(bytes).unwrap()
    }

    fn target(text: &str, now: u64) -> Result<u64, SpecError> {
        let spec: Spec = text.parse()?;
        let PoolName::Of(size) = spec.pool else { panic!("{text} names no size") };
        spec.change.target(size, now)
    }

    #[test]
    fn reads_what_people_write() {
        for (text, now, pages) in [
            ("2M:512M", 7, 256),
            ("2M:+512M", 7, 263),
            ("2M:-512M", 300, 44),
            ("2M:10", 7, 10),
            ("2MiB:+10", 7, 17),
            ("2097152:-7", 7, 0),
            ("1G:2", 0, 2),
            ("64K:1M", 0, 16),
            ("16K:1M", 0, 64),
            ("512M:1.5G", 0, 3),
            ("2M:-25%", 10, 8),
            ("2M:+50%", 3, 4),
            ("2M:200%", 3, 6),
            ("2M:0", 3, 0),
            ("2M:0B", 3, 0),
        ] {
            assert_eq!(target(text, now), Ok(pages), "{text}");
        }
        for text in ["default:+10", "DEFAULT:100"] {
            assert_eq!(text.parse::<Spec>().unwrap().pool, PoolName::Default);
        }
    }

    #[test]
    fn refuses_junk_with_the_remedy() {
        for (text, part) in [
            ("2M", "SIZE:AMOUNT"),
            ("", "SIZE:AMOUNT"),
            ("banana:1", "invalid page size `banana`"),
            ("3M:1", "invalid page size `3M`"),
            (":1", "invalid page size ``"),
            ("2M:10Q", "invalid amount `10Q`"),
            ("2M:", "invalid amount"),
            ("2M:+", "invalid amount `+`"),
            ("2M:--1", "invalid amount `--1`"),
            ("2M:+-1", "invalid amount"),
            ("2M:banana", "invalid amount"),
            ("2M:1:2", "invalid amount `1:2`"),
            ("2M: 5", "invalid amount"),
            ("2M:5 M", "invalid amount"),
            ("2M:0x10", "invalid amount"),
            ("2M:1.5", "invalid amount"),
            ("2M:%", "invalid amount"),
            ("2M:99999999999999999999", "is too large"),
            ("2M:+99999999999T", "is too large"),
            ("2M:18446744073709551615", "is too large"),
            ("2M:33M", "write 32M (16 pages) or 34M (17 pages)"),
            ("2M:1M", "write at least 2M (1 page)"),
            ("1G:1026M", "write 1G (1 page) or 2G (2 pages)"),
            ("2M:-8", "it cannot shrink by 8; use 2M:0"),
        ] {
            let error = target(text, 7).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,24}", now: u64, shift in 12u32..40) {
            if let Ok(spec) = text.parse::<Spec>() {
                let _ = spec.change.target(size(1 << shift), now);
            }
        }

        #[test]
        fn relative_and_absolute_agree(now in 0u64..1 << 40, by in 0u64..1 << 40) {
            prop_assert_eq!(target(&format!("2M:+{by}"), now), Ok(now + by));
            prop_assert_eq!(target(&format!("2M:-{by}"), now + by), Ok(now));
            prop_assert_eq!(target(&format!("2M:{by}"), now), Ok(by));
            let bytes = exact(by * M2);
            prop_assert_eq!(target(&format!("2M:{bytes}"), now), Ok(by));
        }

        #[test]
        fn neighbours_are_accepted_and_around(bytes in 1u64..1 << 50) {
            prop_assume!(bytes % M2 != 0);
            let error = target(&format!("2M:{bytes}B"), 0).unwrap_err().to_string();
            let sizes: Vec<u64> = error
                .rsplit(';')
                .next()
                .unwrap()
                .split_whitespace()
                .filter(|word| word.starts_with(|c: char| c.is_ascii_digit()))
                .map(|word| target(&format!("2M:{word}"), 0).unwrap() * M2)
                .collect();
            prop_assert!(sizes.iter().all(|near| near.abs_diff(bytes) < M2), "{error}");
        }
    }
}
