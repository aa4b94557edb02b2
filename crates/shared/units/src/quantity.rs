//! Quantities: valid ranges of numbers in documents, checked when a document is read.
//!
//! A field names its quantity: `#[serde(deserialize_with = "units::seconds")]`. The field may hold one number, several,
//! or an optional one (`null`). A number outside the quantity's range, or a missing field, then is an error with its
//! location. Ranges are limited so that sums and squares of numbers stay finite. Types check conditions across several
//! fields themselves ([`checked!`](crate::checked)).

use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;

use serde::de::{Deserialize, Deserializer, Error};

use crate::ByteSize;

/// One or several numbers of the same quantity.
pub trait Figures {
    /// The first number outside the range.
    fn outside(&self, range: &RangeInclusive<f64>) -> Option<f64>;
}

impl Figures for f64 {
    fn outside(&self, range: &RangeInclusive<f64>) -> Option<f64> {
        (!range.contains(self)).then_some(*self)
    }
}

impl Figures for u64 {
    fn outside(&self, range: &RangeInclusive<f64>) -> Option<f64> {
        (*self as f64).outside(range)
    }
}

impl Figures for u32 {
    fn outside(&self, range: &RangeInclusive<f64>) -> Option<f64> {
        f64::from(*self).outside(range)
    }
}

impl Figures for i32 {
    fn outside(&self, range: &RangeInclusive<f64>) -> Option<f64> {
        f64::from(*self).outside(range)
    }
}

impl Figures for ByteSize {
    fn outside(&self, range: &RangeInclusive<f64>) -> Option<f64> {
        self.bytes().outside(range)
    }
}

impl<F: Figures> Figures for Option<F> {
    fn outside(&self, range: &RangeInclusive<f64>) -> Option<f64> {
        self.iter().find_map(|one| one.outside(range))
    }
}

impl<F: Figures> Figures for Vec<F> {
    fn outside(&self, range: &RangeInclusive<f64>) -> Option<f64> {
        self.iter().find_map(|one| one.outside(range))
    }
}

impl<F: Figures, const N: usize> Figures for [F; N] {
    fn outside(&self, range: &RangeInclusive<f64>) -> Option<f64> {
        self.iter().find_map(|one| one.outside(range))
    }
}

impl<A: Figures, B: Figures> Figures for (A, B) {
    fn outside(&self, range: &RangeInclusive<f64>) -> Option<f64> {
        self.0.outside(range).or_else(|| self.1.outside(range))
    }
}

/// A number outside its quantity's range.
struct Outside(f64, &'static str);

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(found, expected) = self;
        match found.abs() {
            0.0 | 1e-3..1e15 => write!(f, "{found}: expected {expected}"),
            _ => write!(f, "{found:e}: expected {expected}"),
        }
    }
}

/// Defines quantities: name, description of the valid numbers, range.
macro_rules! quantities {
    ($($(#[$doc:meta])* $name:ident $expected:literal $range:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            /// The value cannot be parsed, or a number is out of range.
            pub fn $name<'de, F, D>(deserializer: D) -> Result<F, D::Error>
            where
                F: Figures + Deserialize<'de>,
                D: Deserializer<'de>,
            {
                let figures = F::deserialize(deserializer)?;
                match figures.outside(&$range) {
                    Some(found) => Err(D::Error::custom(Outside(found, $expected))),
                    None => Ok(figures),
                }
            }
        )*
    };
}

/// The size of a 57-bit address space, more than any machine's memory.
const MAX_BYTES: f64 = (1u64 << 57) as f64;

quantities! {
    /// A time in seconds, at most three thousand years.
    seconds "0 to 1e11 seconds" 0.0..=1e11;
    /// A nonzero duration in seconds.
    elapsed "more than 0, up to 1e11 seconds" f64::MIN_POSITIVE..=1e11;
    /// A difference of times in seconds, possibly negative.
    seconds_more_or_less "-1e11 to 1e11 seconds" -1e11..=1e11;
    /// A time in microseconds.
    microseconds "0 to 1e17 microseconds" 0.0..=1e17;
    /// A time in nanoseconds, per access or page.
    nanoseconds "0 to 1e11 nanoseconds" 0.0..=1e11;
    /// Cycles per access or event.
    cycles "0 to 1e9 cycles" 0.0..=1e9;
    /// A difference of cycles, possibly negative because of noise.
    cycles_more_or_less "-1e9 to 1e9 cycles" -1e9..=1e9;
    /// A clock in MHz.
    mhz "1 to 100000 MHz" 1.0..=1e5;
    /// A number of bytes.
    bytes "0 to 2^57 bytes" 0.0..=MAX_BYTES;
    /// A count; means and medians may be fractional.
    count "0 to 2^57" 0.0..=MAX_BYTES;
    /// A process's exit code.
    exit_code "an exit code from 0 to 255" 0.0..=255.0;
    /// The number of a signal that killed a process.
    signal "a signal from 1 to 64" 1.0..=64.0;
    /// A share of a whole.
    share "a share from 0 to 1" 0.0..=1.0;
    /// A ratio of a part to a whole that may exceed 1.
    proportion "0 to 1e20" 0.0..=1e20;
    /// A difference of two shares.
    share_more_or_less "-1 to 1" -1.0..=1.0;
    /// A change of speed as a share of the speed: 0.1 is 10 % faster.
    gain "a gain from -0.99 to 1e6" -0.99..=1e6;
    /// A positive ratio.
    ratio "a ratio of more than 0, up to 1e20" f64::MIN_POSITIVE..=1e20;
    /// A figure of merit measured by a program, in the program's unit.
    figure_of_merit "a positive number up to 1e100" f64::MIN_POSITIVE..=MAX_FIGURE;
    /// A number chosen by a user.
    number "0 to 2^64" 0.0..=u64::MAX as f64;
}

/// Maximum figure of merit.
pub const MAX_FIGURE: f64 = 1e100;

/// Makes deserialization of a type check its fields together. The type must derive Serialize and Deserialize with
/// `#[serde(remote = "Self")]`, and have `fn check(&self) -> Result<(), String>`, which names the inconsistent fields.
#[macro_export]
macro_rules! checked {
    ($($type:ident),*) => {
        $(
            impl ::serde::Serialize for $type {
                fn serialize<S: ::serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                    // This calls the derived inherent function, which takes precedence over the
                    // trait's.
                    $type::serialize(self, to)
                }
            }

            impl<'de> ::serde::Deserialize<'de> for $type {
                fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                    let read = $type::deserialize(from)?;
                    read.check().map_err(<D::Error as ::serde::de::Error>::custom)?;
                    Ok(read)
                }
            }
        )*
    };
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};

    use super::*;

    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    #[serde(remote = "Self")]
    struct Run {
        #[serde(deserialize_with = "super::seconds")]
        all: f64,
        #[serde(deserialize_with = "super::seconds")]
        part: Option<f64>,
        #[serde(deserialize_with = "super::share")]
        interval: Option<(f64, f64)>,
        #[serde(deserialize_with = "super::bytes")]
        sizes: Vec<u64>,
    }

    impl Run {
        fn check(&self) -> Result<(), String> {
            let fits = self.part.is_none_or(|part| part <= self.all);
            fits.then_some(()).ok_or_else(|| "part is more than all".to_string())
        }
    }

    checked!(Run);

    fn read(text: &str) -> Result<Run, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn figures_are_of_their_quantity() {
        let good = r#"{"all":2.0,"part":null,"interval":[0.0,1.0],"sizes":[0,144115188075855872]}"#;
        let run = read(good).unwrap();
        assert_eq!(serde_json::to_string(&run).unwrap(), good);
        for (from, to, why) in [
            ("2.0", "-1", "-1: expected 0 to 1e11 seconds"),
            ("2.0", "1e300", "1e300: expected 0 to 1e11 seconds"),
            ("2.0", "null", "invalid type: null"),
            ("null", "1e12", "1000000000000: expected 0 to 1e11 seconds"),
            (r#""part":null,"#, "", "missing field `part`"),
            ("1.0]", "1.5]", "1.5: expected a share from 0 to 1"),
            ("855872", "855904", "1.441151880758559e17: expected 0 to 2^57 bytes"),
        ] {
            let refused = read(&good.replace(from, to)).unwrap_err();
            assert!(refused.starts_with(why), "{to}: {refused}");
        }
    }

    #[test]
    fn fields_agree() {
        let refused = read(r#"{"all":2.0,"part":3.0,"interval":null,"sizes":[]}"#).unwrap_err();
        assert!(refused.starts_with("part is more than all"), "{refused}");
    }
}
