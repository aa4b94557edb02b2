//! Pressure stall information (PSI): how long tasks waited for memory. Of the machine (`/proc/pressure/memory`) or of a
//! cgroup of version 2 (`memory.pressure`).

use std::path::Path;

use serde::Serialize;

use crate::{ReadError, Root, root};

/// Waits for memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Pressure {
    /// While at least one task waited.
    pub some: Stalled,
    /// While all tasks that are not idle waited.
    pub full: Stalled,
}

/// How long tasks waited.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Stalled {
    /// Share of the last ten seconds, 0 to 1.
    pub recent: f64,
    /// Seconds since boot, or since the cgroup was made.
    pub seconds: f64,
}

impl Pressure {
    /// Path of the machine's file.
    pub const MACHINE: &str = "/proc/pressure/memory";

    /// Reads a file of PSI.
    ///
    /// # Errors
    /// The kernel has no PSI (CONFIG_PSI, `psi=1`), or the file cannot be read.
    pub fn read(root: &Root, path: &str) -> Result<Self, ReadError> {
        parse(&root.read(path)?, &root.path(path))
    }
}

/// Reads the text of a PSI file; errors name `path`.
pub fn parse(text: &str, path: &Path) -> Result<Pressure, ReadError> {
    let (mut some, mut full) = (None, None);
    for (line, bad) in root::numbered(text, path) {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        let slot = match name {
            "some" => &mut some,
            "full" => &mut full,
            _ => continue,
        };
        *slot =
            Some(stalled(rest).ok_or_else(|| bad("`some avg10=PERCENT ... total=MICROSECONDS`"))?);
    }
    let missing = || ReadError::malformed(path, 1, text, "lines `some` and `full`");
    Ok(Pressure { some: some.ok_or_else(missing)?, full: full.ok_or_else(missing)? })
}

fn stalled(rest: &str) -> Option<Stalled> {
    let word = |key: &str| rest.split_ascii_whitespace().find_map(|word| word.strip_prefix(key));
    let percent: f64 = word("avg10=")?.parse().ok()?;
    let micros: u64 = word("total=")?.parse().ok()?;
    (0.0..=100.0)
        .contains(&percent)
        .then_some(Stalled { recent: percent / 100.0, seconds: micros as f64 / 1e6 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_read_and_damage_names_its_line() {
        let text = "some avg10=12.50 avg60=1.00 avg300=0.00 total=2500000\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=1\nnew x=1\n";
        let pressure = parse(text, Path::new("p")).unwrap();
        assert_eq!(pressure.some, Stalled { recent: 0.125, seconds: 2.5 });
        assert_eq!(pressure.full, Stalled { recent: 0.0, seconds: 1e-6 });
        for (text, place) in [
            ("some avg10=x total=1\nfull avg10=0 total=0\n", "p:1:"),
            ("some avg10=1 total=1\nfull avg10=101 total=0\n", "p:2:"),
            ("some avg10=1 total=1\n", "p:1:"),
            ("", "p:1:"),
        ] {
            let error = parse(text, Path::new("p")).unwrap_err().to_string();
            assert!(error.starts_with(place), "{error}");
        }
    }
}
