//! Number syntax of perf's output, in every locale.

/// Parses a machine-written number: digits, decimal point, exponent. Never NaN or infinite.
pub(super) fn plain(text: &str) -> Option<f64> {
    let text = text.trim();
    let usual = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
    usual.then(|| text.parse().ok()).flatten().filter(|number: &f64| number.is_finite())
}

/// Parses digits with at most one decimal point or comma, as perf writes them without grouping (`%f` in a locale).
pub(super) fn decimal(text: &str) -> Option<f64> {
    let text = text.trim();
    let is_usual = text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || c == '.' || c == ',')
        && text.matches(['.', ',']).count() <= 1;
    is_usual.then(|| text.replace(',', ".").parse().ok()).flatten()
}

/// Splits a count with thousands separators from the start of `text` (`%'.0f` in a locale) and returns the rest. Groups
/// have three digits, in Indian locales two; perf prints a fraction with two digits, before 4.14 with six.
pub(super) fn grouped(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (first, mut rest) = text.split_at(end);
    if first.is_empty() {
        return None;
    }
    let (mut digits, mut lengths, mut mark) = (first.to_string(), Vec::new(), None);
    let mut fraction = "";
    while let Some(separator) = rest.chars().next().filter(|c| is_separator(*c)) {
        let after = &rest[separator.len_utf8()..];
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let group = &after[..end];
        let ends = !after[end..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
        // A space ends the count unless a whole group follows it.
        if group.is_empty() || (separator == ' ' && !(group.len() == 3 && ends)) {
            break;
        }
        let is_decimal = matches!(separator, '.' | ',')
            && mark != Some(separator)
            && matches!(end, 2 | 6)
            && !after[end..].starts_with(|c| is_separator(c) && c != ' ');
        if is_decimal {
            fraction = group;
            rest = &after[end..];
            break;
        }
        if *mark.get_or_insert(separator) != separator {
            return None;
        }
        digits += group;
        lengths.push(end);
        rest = &after[end..];
    }
    let (last, middle) = lengths.split_last().unwrap_or((&3, &[]));
    let inner = middle.first().copied().unwrap_or(3);
    let in_groups = *last == 3 && matches!(inner, 2 | 3) && middle.iter().all(|n| *n == inner);
    let in_groups = in_groups && (lengths.is_empty() || first.len() <= 3);
    let ends = rest.is_empty() || rest.starts_with(char::is_whitespace);
    let value = format!("{digits}.{fraction}0").parse().ok()?;
    (in_groups && ends).then_some((value, rest))
}

/// Thousands separators and decimal marks of glibc's locales; perf's reader may have replaced narrow spaces.
fn is_separator(c: char) -> bool {
    ".,'’ \u{a0}\u{202f}\u{2009}\u{66c}".contains(c)
}

/// Whether a text is digits alone, at least one.
pub(super) fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `<not counted>` and `<not supported>`: requested events without a count.
pub(super) const ABSENT: [&str; 2] = ["<not counted>", "<not supported>"];

/// Whether this is one of [`ABSENT`].
pub(super) fn is_absent(text: &str) -> bool {
    ABSENT.contains(&text.trim())
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
        for (text, number) in [
            ("0,465034", Some(0.465034)),
            ("100,00", Some(100.0)),
            ("48.000000", Some(48.0)),
            ("1.234,5", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(decimal(text), number, "{text}");
        }
    }

    #[test]
    fn counts_of_every_locale() {
        for (text, number, rest) in [
            ("8,143,619,771      cycles", 8_143_619_771.0, "      cycles"),
            ("8143619771 cycles", 8_143_619_771.0, " cycles"),
            ("8.143.619.771 cycles", 8_143_619_771.0, " cycles"),
            ("8'143'619'771 cycles", 8_143_619_771.0, " cycles"),
            ("8’143’619’771 cycles", 8_143_619_771.0, " cycles"),
            ("30 426 868 109      cycles:u", 30_426_868_109.0, "      cycles:u"),
            ("30\u{202f}426\u{202f}868 cycles", 30_426_868.0, " cycles"),
            ("30\u{a0}426\u{a0}868 cycles", 30_426_868.0, " cycles"),
            ("8,14,36,19,771 cycles", 8_143_619_771.0, " cycles"),
            ("0.53 msec task-clock", 0.53, " msec task-clock"),
            ("0,53 msec task-clock", 0.53, " msec task-clock"),
            ("1.234,56 msec", 1234.56, " msec"),
            ("8008.478891      cpu-clock", 8008.478891, "      cpu-clock"),
            ("951 page-faults", 951.0, " page-faults"),
            ("1,000", 1000.0, ""),
            ("7 100abc", 7.0, " 100abc"),
        ] {
            assert_eq!(grouped(text), Some((number, rest)), "{text}");
        }
        for text in
            ["", "x", "1,23,45", "12,34,56 cycles", "1,2345 x", "1234,567 x", "1,234'567 x", "1x"]
        {
            assert_eq!(grouped(text), None, "{text}");
        }
    }
}
