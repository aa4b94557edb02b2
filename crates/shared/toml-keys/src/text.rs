//! Text of error messages: quoted words, lists of words, suggestions.

/// Quotes a text as a TOML basic string.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted += &format!("\\u{:04X}", c as u32),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// Formats alternatives: `"a", "b" or "c"`.
pub fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// Text between an unknown word and the list of known words: `: did you mean "base"?`, or `;`.
pub fn guess(nearest: Option<&str>, quote: &str) -> String {
    nearest.map_or(";".into(), |near| format!(": did you mean {quote}{near}{quote}?"))
}

/// Returns the candidate most similar to `word`, if at most a third of its letters differ.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = |candidate: &&str| distance(word, candidate);
    let best = candidates.into_iter().min_by_key(near)?;
    (distance(word, best) <= best.len().div_ceil(3)).then_some(best)
}

/// Levenshtein distance, row by row.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for j in 0..b.len() {
            let change = diagonal + usize::from(letter != b[j]);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Joins lines into one.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Formats a key, quoted if necessary.
pub(crate) fn bare(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.is_empty() && name.chars().all(plain) { name.to_string() } else { quoted(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name() {
        let names = ["linux-4.3", "linux-6", "ingens", "freebsd"];
        assert_eq!(nearest("ingnes", names), Some("ingens"));
        assert_eq!(nearest("linux-5", names), Some("linux-6"));
        assert_eq!(nearest("windows", names), None);
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn distances() {
        for (a, b, steps) in [("", "abc", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)] {
            assert_eq!((distance(a, b), distance(b, a)), (steps, steps));
        }
    }
}
