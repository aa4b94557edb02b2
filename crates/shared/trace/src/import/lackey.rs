//! Output of `valgrind --tool=lackey --trace-mem=yes`: `I 04001c50,3`, ` L 1ffefffe78,8`, ` S …`, ` M …` (a load and a
//! store by one instruction). Addresses are hexadecimal, sizes decimal. Valgrind's own lines start with `==PID==` or
//! `--PID--` (lackey's documentation, and lk_main.c).

use super::Input;
use super::{Collector, MAX_ACCESS};
use super::{Lines, decimal, hex};
use crate::TraceError;

const REMEDY: &str = "keep the program's output out of it: valgrind --tool=lackey --trace-mem=yes \
                      --log-file=FILE";

/// Parses the input and passes all accesses to `to`.
pub fn parse(
    input: &mut Input,
    instructions: bool,
    to: &mut Collector<'_>,
) -> Result<(), TraceError> {
    let mut lines = Lines::new(input);
    while lines.advance()? {
        let line = lines.line();
        if line.is_empty() || line.starts_with(b"==") || line.starts_with(b"--") {
            continue;
        }
        let Some((kind, address, size)) = record(line) else {
            return Err(lines.wrong("no record of lackey's", REMEDY));
        };
        let place = lines.place();
        match kind {
            b'I' if !instructions => {}
            b'I' | b'L' => to.access(address, size, false, place)?,
            b'S' => to.access(address, size, true, place)?,
            _ => {
                to.access(address, size, false, place)?;
                to.access(address, size, true, place)?;
            }
        }
    }
    Ok(())
}

fn record(line: &[u8]) -> Option<(u8, u64, u64)> {
    let (&kind, rest) = line.split_first()?;
    let rest = rest.strip_prefix(b" ")?.trim_ascii_start();
    let comma = rest.iter().position(|&byte| byte == b',')?;
    let address = hex(&rest[..comma])?;
    let size = decimal(&rest[comma + 1..]).filter(|size| (1..=MAX_ACCESS).contains(size))?;
    b"ILSM".contains(&kind).then_some((kind, address, size))
}
