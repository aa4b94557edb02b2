//! Number syntax of perf's output.

/// Parses a machine-written number: digits, decimal point, exponent. Never NaN or infinite.
pub(super) fn plain(text: &str) -> Option<f64> {
    let text = text.trim();
    let usual = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
    usual.then(|| text.parse().ok()).flatten().filter(|number: &f64| number.is_finite())
}

/// `<not counted>` and `<not supported>`: requested events without a count.
pub(super) fn is_absent(text: &str) -> bool {
    matches!(text.trim(), "<not counted>" | "<not supported>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_programs_print() {
        for (text, number) in [
            ("1234", Some(1234.0)),
            ("1.5e3", Some(1500.0)),
            ("1,234,567", None),
            ("1.234.567", None),
            ("4.206333", Some(4.206333)),
            ("nan", None),
            ("inf", None),
            ("1e999", None),
            ("", None),
            ("cycles", None),
        ] {
            assert_eq!(plain(text), number, "{text}");
        }
    }
}
