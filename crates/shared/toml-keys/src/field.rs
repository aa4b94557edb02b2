//! `Field`: parsing of values, for the types used in files.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use toml::de::DeValue;
use units::{ByteSize, NodeId};

use crate::text::{guess, nearest, one_of, quoted};

/// The type of a key's value.
pub trait Field: Sized {
    /// Describes the allowed values: `a text in quotes`.
    fn allowed() -> String;

    /// Parses the value.
    ///
    /// # Errors
    /// The problem, and the allowed values.
    fn read(value: &DeValue<'_>) -> Result<Self, String>;
}

/// Error text for a value whose type is not `allowed`.
pub fn wrong(value: &DeValue<'_>, allowed: &str) -> String {
    let kind = value.type_str();
    let article = if kind.starts_with(['a', 'i']) { "an" } else { "a" };
    format!("is {article} {kind}: must be {allowed}")
}

/// Parses one of `words`, each paired with the value it stands for.
///
/// # Errors
/// The value is not one of them.
pub fn word<T: Clone>(value: &DeValue<'_>, words: &[(&str, T)]) -> Result<T, String> {
    let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
    let text = value
        .as_str()
        .ok_or_else(|| wrong(value, &format!("a text in quotes: {}", one_of(&names))))?;
    if let Some((_, meant)) = words.iter().find(|(name, _)| *name == text) {
        return Ok(meant.clone());
    }
    let near = nearest(text, names.iter().copied());
    let near = near.map_or(":".into(), |near| guess(Some(near), "\""));
    Err(format!("{}{near} must be {}", quoted(text), one_of(&names)))
}

/// Parses a quoted string by the type's own grammar.
///
/// # Errors
/// The value is not a string, or its text is invalid.
pub fn parsed<T: FromStr<Err: Display>>(value: &DeValue<'_>, allowed: &str) -> Result<T, String> {
    let text = value.as_str().ok_or_else(|| wrong(value, allowed))?;
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// Parses a list of values.
///
/// # Errors
/// The value is not a list, or one of its elements is invalid.
pub fn list<T: Field>(value: &DeValue<'_>, allowed: &str) -> Result<Vec<T>, String> {
    let list = value.as_array().ok_or_else(|| wrong(value, allowed))?;
    list.iter().map(|each| T::read(each.get_ref())).collect()
}

/// Integers are limited to the range that both the type and TOML can represent.
macro_rules! numbers {
    ($($type:ty)+) => {$(
        impl Field for $type {
            fn allowed() -> String {
                format!("a whole number from 0 to {}", Self::MAX.min(i64::MAX as u64 as $type))
            }
            fn read(value: &DeValue<'_>) -> Result<Self, String> {
                let number = value.as_integer().ok_or_else(|| wrong(value, &Self::allowed()))?;
                let read = Self::from_str_radix(number.as_str(), number.radix()).ok();
                // The largest TOML integer is 2^63 - 1.
                read.filter(|read| i64::try_from(*read).is_ok())
                    .ok_or_else(|| format!("{number} is out of range: must be {}", Self::allowed()))
            }
        }
    )+};
}

numbers! { u8 u16 u32 u64 }

impl Field for f64 {
    fn allowed() -> String {
        "a number".to_string()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let number = match value {
            DeValue::Float(number) => number.as_str().parse().ok(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
            _ => None,
        };
        number.ok_or_else(|| wrong(value, &Self::allowed()))
    }
}

impl<T: Field> Field for Vec<T> {
    fn allowed() -> String {
        format!("a list, each {}", T::allowed())
    }
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        list(value, &Self::allowed())
    }
}

impl Field for bool {
    fn allowed() -> String {
        "true or false".to_string()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        value.as_bool().ok_or_else(|| wrong(value, &Self::allowed()))
    }
}

impl Field for String {
    fn allowed() -> String {
        "a text in quotes".to_string()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        value.as_str().map(str::to_string).ok_or_else(|| wrong(value, &Self::allowed()))
    }
}

impl Field for ByteSize {
    fn allowed() -> String {
        "a size like \"64K\" or \"2M\"".to_string()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        parsed(value, &Self::allowed())
    }
}

impl Field for NodeId {
    fn allowed() -> String {
        "a node's number".to_string()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        u32::read(value).map(NodeId)
    }
}

/// Units of time with their nanoseconds, the largest first.
pub const TIMES: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1000),
    ("ns", 1),
];

impl Field for Duration {
    fn allowed() -> String {
        "a time: a whole number and ns, us, ms, s, min or h, like \"10s\" or \"500ms\"".to_string()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let text = value.as_str().ok_or_else(|| wrong(value, &Self::allowed()))?;
        let bad = || format!("{} is not {}", quoted(text), Self::allowed());
        let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let (number, unit) = text.split_at(digits);
        let (_, nanos) = TIMES.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
        if number.is_empty() {
            return Err(bad());
        }
        let number: Option<u64> = number.parse().ok();
        let nanos = number.and_then(|number| number.checked_mul(*nanos));
        let long = || format!("{} is too long: at most 584 years", quoted(text));
        nanos.map(Duration::from_nanos).ok_or_else(long)
    }
}
