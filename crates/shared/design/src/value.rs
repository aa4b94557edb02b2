//! `Value`: the value of a key with its unit, as printed in TOML and in documents.

use std::fmt;
use std::time::Duration;

use toml_keys::{TIMES, quoted};
use units::ByteSize;

/// The value of one key of a design.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A word or a text.
    Text(String),
    /// A number without a unit, or in the unit that the key's name gives.
    Number(u64),
    /// True or false.
    Flag(bool),
    /// A size.
    Size(ByteSize),
    /// A time.
    Time(Duration),
    /// A list.
    List(Vec<Value>),
}

impl fmt::Display for Value {
    /// Prints the value as TOML.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(&quoted(text)),
            Self::Number(number) => write!(f, "{number}"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Size(size) => {
                let units = [(30, "G"), (20, "M"), (10, "K")];
                let whole = |shift: u32| size.0 != 0 && size.0.is_multiple_of(1 << shift);
                let unit = units.iter().find(|(shift, _)| whole(*shift));
                let (shift, unit) = unit.unwrap_or(&(0, ""));
                write!(f, "\"{}{unit}\"", size.0 >> shift)
            }
            Self::Time(time) => {
                let nanos = time.as_nanos();
                // Files may use minutes and hours; output uses seconds at most, as papers and
                // kernels do.
                let fits = |unit: &&(&str, u64)| nanos.is_multiple_of(u128::from(unit.1));
                let (name, unit) = TIMES[2..].iter().find(fits).unwrap_or(&("ns", 1));
                write!(f, "\"{}{name}\"", nanos / u128::from(*unit))
            }
            Self::List(values) => {
                let each: Vec<String> = values.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", each.join(", "))
            }
        }
    }
}
