//! One address per line: `0x7ffe1234` or decimal, optionally preceded by R or W; `#` starts a comment.

use super::Collector;
use super::Input;
use super::{Lines, decimal, hex};
use crate::TraceError;

const REMEDY: &str = "write `0x7ffe1234` or `W 0x7ffe1234`, hexadecimal with 0x, otherwise decimal";

/// Parses the input and passes all accesses to `to`.
pub fn parse(input: &mut Input, to: &mut Collector<'_>) -> Result<(), TraceError> {
    let mut lines = Lines::new(input);
    while lines.advance()? {
        let line = lines.line();
        let line = line.split(|&byte| byte == b'#').next().unwrap_or_default().trim_ascii();
        if line.is_empty() {
            continue;
        }
        let Some((address, writes)) = record(line) else {
            return Err(lines.wrong("no address", REMEDY));
        };
        to.access(address, 1, writes, lines.place())?;
    }
    Ok(())
}

fn record(line: &[u8]) -> Option<(u64, bool)> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let first = words.next()?;
    let writes = match first {
        b"R" | b"r" => Some(false),
        b"W" | b"w" => Some(true),
        _ => None,
    };
    let word = if writes.is_some() { words.next()? } else { first };
    let prefixed = word.strip_prefix(b"0x").or_else(|| word.strip_prefix(b"0X"));
    let address = prefixed.map_or_else(|| decimal(word), hex)?;
    words.next().is_none().then_some((address, writes.unwrap_or(false)))
}
