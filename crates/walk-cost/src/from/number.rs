//! Numbers as perf prints them. Private to the readers.

/// A number that a program wrote for programs: digits, a point, an exponent. Never NaN, never
/// infinite.
pub(super) fn plain(text: &str) -> Option<f64> {
    let text = text.trim();
    let usual = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
    usual.then(|| text.parse().ok()).flatten().filter(|number: &f64| number.is_finite())
}

/// A count that perf wrote for people: `1,234,567` in an English locale, `1.234.567` or
/// `1 234 567` (with a no-break space) or `1'234'567` in others, and `1.23` where a unit follows.
pub(super) fn grouped(text: &str) -> Option<f64> {
    let joined: String =
        text.chars().filter(|c| !matches!(c, ',' | '\'' | '\u{a0}' | '\u{202f}')).collect();
    let points = joined.matches('.').count();
    let groups_of_three = joined.split('.').skip(1).all(|group| group.len() == 3);
    if points > 1 && groups_of_three {
        return plain(&joined.replace('.', ""));
    }
    plain(&joined)
}

/// `<not counted>` and `<not supported>`: asked for, and no number.
pub(super) fn is_absent(text: &str) -> bool {
    matches!(text.trim(), "<not counted>" | "<not supported>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_locales() {
        for (text, number) in [
            ("1234", Some(1234.0)),
            ("1,234,567", Some(1_234_567.0)),
            ("1.234.567", Some(1_234_567.0)),
            ("1\u{202f}234\u{202f}567", Some(1_234_567.0)),
            ("1'234'567", Some(1_234_567.0)),
            ("4.206333", Some(4.206333)),
            ("nan", None),
            ("inf", None),
            ("1e999", None),
            ("", None),
            ("cycles", None),
        ] {
            assert_eq!(grouped(text), number, "{text}");
        }
    }
}
