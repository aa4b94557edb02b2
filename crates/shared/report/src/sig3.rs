//! Figures of a model as text. They have three significant digits, because models are no more precise and columns stay
//! readable. [`crate::format`] formats measured figures, which have intervals.

use crate::format::{PREFIXES, UNKNOWN, digits};

const DIGITS: usize = 3;

/// Formats a time in seconds: `1.23 s`, `12.3 ms`, `56.0 µs`.
pub fn seconds(value: f64) -> String {
    let (scale, unit) = match value.abs() {
        v if !v.is_finite() => return UNKNOWN.to_string(),
        0.0 => return "0 s".to_string(),
        v if v < 0.9995e-6 => (1e9, "ns"),
        v if v < 0.9995e-3 => (1e6, "µs"),
        v if v < 0.9995 => (1e3, "ms"),
        _ => (1.0, "s"),
    };
    format!("{} {unit}", digits(value * scale, DIGITS))
}

/// Formats a share as a percentage: `99.2 %`, `0.123 %`, `<0.01 %`.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        v if !v.is_finite() => UNKNOWN.to_string(),
        0.0 => "0 %".to_string(),
        v if v.abs() < 0.01 => format!("{}0.01 %", if v > 0.0 { "<" } else { ">-" }),
        v => format!("{} %", digits(v, DIGITS)),
    }
}

/// Formats a figure of merit: `84.0 M`, `1.23`.
pub fn figure(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => UNKNOWN.to_string(),
        0.0 => "0".to_string(),
        v if !(1e-4..1e15).contains(&v) => format!("{value:.2e}"),
        v => match PREFIXES.iter().find(|(scale, _)| v >= *scale * 0.9995) {
            Some((scale, prefix)) => format!("{} {prefix}", digits(value / scale, DIGITS)),
            None => digits(value, DIGITS),
        },
    }
}

/// Formats a ratio: `1.02`, `0.987`, `47.0`.
pub fn ratio(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => UNKNOWN.to_string(),
        v if v != 0.0 && !(1e-3..1e6).contains(&v) => format!("{value:.2e}"),
        _ => digits(value, DIGITS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_of_every_order() {
        let all = [3e-9, 5.6e-5, 0.012_345_6, 0.999_99, 1.0, 12.54].map(seconds);
        assert_eq!(all, ["3.00 ns", "56.0 µs", "12.3 ms", "1.00 s", "1.00 s", "12.5 s"]);
        let all = [0.0, 1e-6, 0.00123, 0.0456, 0.5, 0.9996, 1.0, 12.3].map(percent);
        let expected =
            ["0 %", "<0.01 %", "0.123 %", "4.56 %", "50.0 %", "100 %", "100 %", "1230 %"];
        assert_eq!(all, expected);
        assert_eq!([84_043_709.0, 1712.0, 0.25].map(figure), ["84.0 M", "1.71 k", "0.250"]);
        assert_eq!(
            [0.9869, 1.0234, 47.0, 999_960.0].map(ratio),
            ["0.987", "1.02", "47.0", "999960"]
        );
        for words in [seconds, percent, figure, ratio] {
            assert_eq!(words(f64::NAN), UNKNOWN);
            assert_eq!(words(f64::INFINITY), UNKNOWN);
        }
    }
}
