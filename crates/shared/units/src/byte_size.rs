//! `ByteSize`: a number of bytes, parsed and printed with IEC units.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// A number of bytes. Serialized as a plain number; deserialized by [`bytes`](crate::bytes).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ByteSize(#[serde(deserialize_with = "crate::bytes")] pub u64);

/// Why a size could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseSizeError {
    /// The text is not a number, or the number is not followed by a known unit.
    #[error(
        "invalid size `{0}`: expected a number of bytes or a unit, e.g. 4096, 64K, 2M, 2MiB, 1.5G"
    )]
    NotASize(String),
    /// More than 2^64 - 1 bytes.
    #[error("size `{0}` is too large (2^64 bytes or more)")]
    TooLarge(String),
}

const UNITS: [(&str, u32); 6] = [("K", 10), ("M", 20), ("G", 30), ("T", 40), ("P", 50), ("E", 60)];

impl ByteSize {
    /// `n` KiB.
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }
    /// `n` MiB.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }
    /// `n` GiB.
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }
    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
    /// The size as a flag's value: `4GiB` if exact, otherwise the bytes.
    pub fn to_exact(self) -> String {
        let short = self.to_string().replace(' ', "");
        if short.parse() == Ok(self) { short } else { self.0.to_string() }
    }
}

impl FromStr for ByteSize {
    type Err = ParseSizeError;

    /// Parses `2097152`, `2M`, `2MiB`, `2MB` (also binary, because memory sizes are never powers of ten), `1.5G`.
    /// Case-insensitive.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || ParseSizeError::NotASize(text.to_string());
        let trimmed = text.trim();
        let split =
            trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let shift = unit_shift(unit.trim()).ok_or_else(bad)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || (number.contains('.') && (fraction.is_empty() || shift == 0)) {
            return Err(bad());
        }
        let too_large = || ParseSizeError::TooLarge(text.to_string());
        if !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
            return Err(bad());
        }
        let whole: u64 = whole.parse().map_err(|_| too_large())?;
        let mut bytes = whole.checked_mul(1u64 << shift).ok_or_else(too_large)?;
        if !fraction.is_empty() {
            let share: f64 = format!("0.{fraction}").parse().map_err(|_| bad())?;
            bytes =
                bytes.checked_add((share * (1u64 << shift) as f64) as u64).ok_or_else(too_large)?;
        }
        Ok(Self(bytes))
    }
}

fn unit_shift(unit: &str) -> Option<u32> {
    let upper = unit.to_ascii_uppercase();
    if upper.is_empty() || upper == "B" {
        return Some(0);
    }
    let stem = upper.strip_suffix("IB").or_else(|| upper.strip_suffix('B')).unwrap_or(&upper);
    UNITS.iter().find(|(name, _)| *name == stem).map(|(_, shift)| *shift)
}

impl fmt::Display for ByteSize {
    /// Prints `4096 B` as `4 KiB`; fractions get one digit: `1.5 GiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().rev().find(|(_, shift)| self.0 >= 1u64 << shift);
        let text = match unit {
            None => format!("{} B", self.0),
            Some((name, shift)) if self.0.is_multiple_of(1u64 << shift) => {
                format!("{} {name}iB", self.0 >> shift)
            }
            Some((name, shift)) => {
                format!("{:.1} {name}iB", self.0 as f64 / (1u64 << shift) as f64)
            }
        };
        f.pad(&text)
    }
}

impl fmt::Debug for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_people_write() {
        for (text, bytes) in [
            ("0", 0),
            ("2097152", 2 << 20),
            ("64K", 64 << 10),
            ("2M", 2 << 20),
            ("2MiB", 2 << 20),
            ("2mb", 2 << 20),
            ("1.5G", 3 << 29),
            (" 4 G ", 4 << 30),
        ] {
            assert_eq!(text.parse::<ByteSize>(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_size() {
        for text in ["", "M", "-1", "2X", "1.5", "1.", ".5G", "2 M M", "0x10", "1.2.3G"] {
            assert!(matches!(text.parse::<ByteSize>(), Err(ParseSizeError::NotASize(_))), "{text}");
        }
        for text in ["99999999999999999999", "16E"] {
            assert!(matches!(text.parse::<ByteSize>(), Err(ParseSizeError::TooLarge(_))), "{text}");
        }
    }

    #[test]
    fn prints_in_iec() {
        for (bytes, text) in [(0, "0 B"), (512, "512 B"), (4096, "4 KiB"), (3 << 29, "1.5 GiB")] {
            assert_eq!(ByteSize(bytes).to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn never_panics_and_round_trips_bytes(text in ".{0,24}", bytes: u64) {
            let _ = text.parse::<ByteSize>();
            prop_assert_eq!(bytes.to_string().parse::<ByteSize>(), Ok(ByteSize(bytes)));
        }
    }
}
