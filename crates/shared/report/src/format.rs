//! Numbers and times as text. A number that is not finite is "unknown", never 0.

use std::fmt::Display;

use units::ByteSize;

use crate::markup::is_invisible;

/// Text for an unknown value.
pub const UNKNOWN: &str = "unknown";

/// Formats the value, or returns [`UNKNOWN`].
pub fn known<T>(value: Option<T>, words: impl Fn(T) -> String) -> String {
    value.map_or(UNKNOWN.to_string(), words)
}

/// SI prefixes of large figures.
pub const PREFIXES: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];

/// Formats a time in seconds: `1.234 s`, `12.34 ms`, `56.0 µs`, `1 h 02 min`.
pub fn seconds(value: f64) -> String {
    match value {
        v if !v.is_finite() => UNKNOWN.to_string(),
        0.0 => "0 s".to_string(),
        v if v.abs() < 0.9995e-6 => format!("{} ns", digits(v * 1e9, 3)),
        v if v.abs() < 0.9995e-3 => format!("{} µs", digits(v * 1e6, 3)),
        v if v.abs() < 0.9995 => format!("{} ms", digits(v * 1e3, 4)),
        v => format!("{} s", digits(v, 4)),
    }
}

/// Formats a number of bytes in IEC units, with one decimal.
pub fn bytes(value: f64) -> String {
    if value.is_finite() { ByteSize(value.max(0.0) as u64).to_string() } else { UNKNOWN.into() }
}

/// Formats a share as a percentage: `99.2 %`; more digits near 0 and 1.
pub fn percent(share: f64) -> String {
    let text = match share * 100.0 {
        v if !v.is_finite() => return UNKNOWN.to_string(),
        v if v.abs() > 0.0 && v.abs() < 0.1 => digits(v, 2),
        v if v > 99.9 && v < 100.0 => format!("{v:.2}"),
        v => format!("{v:.1}"),
    };
    format!("{} %", trimmed(&text))
}

/// Formats a count with thin spaces between groups of digits: `12 345 678`.
pub fn count(value: f64) -> String {
    if !value.is_finite() {
        return UNKNOWN.to_string();
    }
    if value.abs() >= 1e15 || value.fract() != 0.0 {
        return figure(value);
    }
    let whole = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("−{text}") } else { text }
}

/// Formats a number of things: `1 process`, `3 processes`.
pub fn counted<T: Display + PartialEq + From<u8>>(number: T, one: &str, many: &str) -> String {
    let noun = if number == T::from(1) { one } else { many };
    format!("{number} {noun}")
}

/// Formats a figure of merit of any size: `84.0 M`, `1.234`, `3.2e-9`.
pub fn figure(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => UNKNOWN.to_string(),
        0.0 => "0".to_string(),
        v if !(1e-4..1e15).contains(&v) => format!("{value:.3e}"),
        v => match PREFIXES.iter().find(|(scale, _)| v >= *scale) {
            Some((scale, prefix)) => format!("{} {prefix}", digits(value / scale, 4)),
            None => digits(value, 4),
        },
    }
}

/// Formats a ratio: three decimals near 1, otherwise two or three significant digits.
pub fn ratio(value: f64) -> String {
    match value {
        v if !v.is_finite() => UNKNOWN.to_string(),
        v if !(1e-3..1e6).contains(&v) => format!("{v:.1e}"),
        v if v < 0.1 => format!("{v:.4}"),
        v if v < 1.1 => format!("{v:.3}"),
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

/// Formats with `significant` digits, without an exponent.
pub fn digits(value: f64, significant: usize) -> String {
    // Use the exponent after rounding: 0.99999 rounds to a number with one digit before the point.
    let rounded = format!("{value:.*e}", significant.saturating_sub(1));
    let exponent = rounded.split_once('e').and_then(|(_, exponent)| exponent.parse().ok());
    let after = (significant as i64 - 1 - exponent.unwrap_or(0)).clamp(0, 12) as usize;
    format!("{value:.after$}")
}

/// Removes trailing zeros of a fraction.
pub fn trimmed(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// Formats seconds since 1970 as `2026-11-21 21:51:07 UTC` (Howard Hinnant's civil_from_days).
pub fn utc(unix: u64) -> String {
    let (days, of_day) = ((unix / 86_400).min(1 << 40), unix % 86_400);
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Formats a command line with shell quoting.
pub fn command(words: impl IntoIterator<Item = impl Display>) -> String {
    // Shell words cannot contain NUL, so remove it.
    let words: Vec<String> =
        words.into_iter().map(|word| word.to_string().replace('\0', "")).collect();
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
}

/// The reason in a message of the regex crate, whose lines before it show the expression.
pub fn regex_reason(message: impl Display) -> String {
    let message = message.to_string();
    message.lines().last().unwrap_or_default().trim_start_matches("error: ").to_string()
}

/// Escapes control characters and those that reorder or hide text, so that a name from /proc neither moves a terminal's
/// cursor nor breaks a line.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char.is_control() || is_invisible(char) {
            true => escaped.extend(char.escape_default()),
            false => escaped.push(char),
        }
    }
    escaped
}

/// Truncates a name to at most `most` characters, in the middle, because long names often start alike and differ at the
/// end. If `most` is 0, returns an empty text. The name is [`escaped`] before its characters are counted, so it has the
/// width that a table computes.
pub fn name(text: &str, most: usize) -> String {
    let text = escaped(text);
    let length = text.chars().count();
    if length <= most {
        return text;
    }
    let Some(kept) = most.checked_sub(1) else { return String::new() };
    let tail = most / 2;
    let start = text.chars().take(kept - tail);
    start.chain(['…']).chain(text.chars().skip(length - tail)).collect()
}

/// Truncates a text to at most `most` characters, with a final `…`.
pub fn clipped(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_string();
    }
    let Some(kept) = most.checked_sub(1) else { return String::new() };
    text.chars().take(kept).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_every_order_are_readable() {
        let words = [0.0, 3e-9, 5.6e-5, 0.0123456, 0.99999, 1.0, 12.5, 3600.0].map(seconds);
        let expected =
            ["0 s", "3.00 ns", "56.0 µs", "12.35 ms", "1.000 s", "1.000 s", "12.50 s", "3600 s"];
        assert_eq!(words, expected);
        assert_eq!(
            [0.0, 0.00012, 0.5, 0.9996, 1.0].map(percent).join(", "),
            "0 %, 0.012 %, 50 %, 99.96 %, 100 %"
        );
        assert_eq!(count(1_234_567.0), "1\u{202f}234\u{202f}567");
        assert_eq!(
            [84_043_709.0, 1712.0, 0.25, 1e-9, 1e300].map(figure).join(", "),
            "84.04 M, 1.712 k, 0.2500, 1.000e-9, 1.000e300"
        );
        for words in [seconds, bytes, percent, count, figure, ratio] {
            assert_eq!(words(f64::NAN), UNKNOWN);
            assert_eq!(words(f64::INFINITY), UNKNOWN);
        }
    }

    #[test]
    fn dates_and_commands() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_795_297_867), "2026-11-21 21:51:07 UTC");
        assert!(utc(u64::MAX).ends_with("UTC"));
        assert_eq!(command(["a", "b c", "", "it's"]), r#"a 'b c' '' "it's""#);
        assert_eq!(clipped("abcdef", 4), "abc…");
        let threads = [0, 1, 2].map(|number: u32| counted(number, "thread", "threads"));
        assert_eq!(threads, ["0 threads", "1 thread", "2 threads"]);
        assert_eq!((name("abcdef", 6), name("abcdefgh", 6)), ("abcdef".into(), "ab…fgh".into()));
        for most in 0..8 {
            for cut in [name("abcdefgh", most), clipped("abcdefgh", most)] {
                assert_eq!(cut.chars().count(), most, "{cut}");
            }
        }
        assert_eq!(name("a\u{1b}[2J\n\u{85}b", 30), "a\\u{1b}[2J\\n\\u{85}b");
        // What `print` would escape later, after the columns were laid out.
        let tricky = name("x\u{202e}y\u{200b}", 30);
        assert_eq!(tricky, "x\\u{202e}y\\u{200b}");
        assert_eq!(crate::markup::visible(&tricky), tricky);
    }
}
