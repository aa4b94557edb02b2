//! The few shapes that the kernel's text files share.

use std::path::Path;

use units::PageSize;

use crate::{ReadError, Root};

/// A file that holds one number.
pub fn number(root: &Root, path: &str) -> Result<u64, ReadError> {
    let text = root.read(path)?;
    let bad = || ReadError::malformed(&root.path(path), 1, text.trim_end(), "one number");
    text.trim().parse().map_err(|_| bad())
}

/// A file that holds `0` or `1`.
pub fn flag(root: &Root, path: &str) -> Result<bool, ReadError> {
    let text = root.read(path)?;
    match text.trim() {
        "0" => Ok(false),
        "1" => Ok(true),
        other => Err(ReadError::malformed(&root.path(path), 1, other, "0 or 1")),
    }
}

/// A file that holds one page size in bytes.
pub fn page_size(root: &Root, path: &str) -> Result<PageSize, ReadError> {
    let bad = |n: u64| {
        let found = n.to_string();
        ReadError::malformed(&root.path(path), 1, &found, "a page size (a power of two)")
    };
    let bytes = number(root, path)?;
    PageSize::new(bytes).map_err(|_| bad(bytes))
}

/// A file that holds one word, or a line of words.
pub fn word(root: &Root, path: &str) -> Result<String, ReadError> {
    let text = root.read(path)?;
    let word = text.trim();
    if word.is_empty() {
        return Err(ReadError::malformed(&root.path(path), 1, &text, "a word"));
    }
    Ok(word.to_string())
}

/// `123 kB` as bytes, `123` as it is.
pub fn bytes(value: &str) -> Option<u64> {
    let mut words = value.split_ascii_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    match (words.next(), words.next()) {
        (None, _) => Some(number),
        (Some("kB"), None) => number.checked_mul(1024),
        _ => None,
    }
}

/// The page size in a directory's name such as `hugepages-2048kB`.
pub fn size_of_dir(name: &str) -> Option<PageSize> {
    let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
    PageSize::new(kib.checked_mul(1024)?).ok()
}

/// The directory's name for a page size.
pub fn dir_of_size(size: PageSize) -> String {
    format!("hugepages-{}kB", size.bytes() / 1024)
}

/// `Node 0, zone   Normal` and what follows the zone's name.
pub fn node_and_zone(line: &str) -> Option<(units::NodeId, &str, &str)> {
    let (node, rest) = line.strip_prefix("Node")?.split_once(',')?;
    let node = units::NodeId(node.trim().parse().ok()?);
    let rest = rest.trim_start().strip_prefix("zone")?.trim_start();
    let end = rest.find(|c: char| c == ',' || c.is_whitespace()).unwrap_or(rest.len());
    let (zone, rest) = rest.split_at(end);
    if zone.is_empty() { None } else { Some((node, zone, rest)) }
}

/// Each line with its number, from 1, and a function that makes its error.
pub fn numbered<'a>(
    text: &'a str,
    path: &'a Path,
) -> impl Iterator<Item = (&'a str, impl Fn(&'static str) -> ReadError + use<'a>)> {
    text.lines().enumerate().map(move |(index, line)| {
        (line, move |expected| ReadError::malformed(path, index + 1, line, expected))
    })
}
