//! Which format a text is, by its first lines that belong to one. Private to the readers.

use super::{Format, keys, script, stat_csv, stat_text};

/// Lines looked at; a program's own output may come first.
const LINES: usize = 2000;

/// The format, or `None` if no line belongs to any.
pub(super) fn format(head: &str) -> Option<Format> {
    // A binary file: no text that perf prints has a zero.
    if head.contains('\0') {
        return None;
    }
    let lines = || head.lines().take(LINES);
    if lines().any(|line| line.starts_with('{') && line.contains("\"counter-value\"")) {
        return Some(Format::StatJson);
    }
    if lines().any(|line| line.contains("Performance counter stats for")) {
        return Some(Format::StatText);
    }
    if lines().any(script::is_line) {
        return Some(Format::Script);
    }
    // A file of keys is one from its first line on.
    let first = lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with('['));
    if first.is_some_and(keys::is_line) {
        return Some(Format::Keys);
    }
    if lines().any(stat_csv::is_line) {
        return Some(Format::StatCsv);
    }
    // `perf stat -I` prints no headline.
    lines().any(stat_text::is_line).then_some(Format::StatText)
}
