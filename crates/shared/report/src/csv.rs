//! CSV: words are quoted, numbers are in base units with all digits, and unknown values are empty.

/// Quotes a word.
pub fn quoted(word: &str) -> String {
    format!("\"{}\"", word.replace('"', "\"\""))
}

/// Formats a number; an unknown number is empty.
pub fn number(value: Option<f64>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

/// A line of words followed by numbers.
pub fn line<'a>(
    words: impl IntoIterator<Item = &'a str>,
    numbers: impl IntoIterator<Item = Option<f64>>,
) -> String {
    let cells = words.into_iter().map(quoted).chain(numbers.into_iter().map(number));
    cells.collect::<Vec<_>>().join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_what_a_sheet_would_split_and_unknown_is_empty() {
        let numbers = [Some(0.1), None, Some(0.0), Some(2e20)];
        let expected = "\"a, \"\"b\"\"\",\"\",0.1,,0,200000000000000000000\n";
        assert_eq!(line(["a, \"b\"", ""], numbers), expected);
    }
}
