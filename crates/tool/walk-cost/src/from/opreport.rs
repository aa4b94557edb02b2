//! `opreport -l` of oprofile: the samples of one event by symbol. In the line `Counted EVENT events … count N`, N is
//! the number of events that each sample represents.
//!
//! The format is that of oprofile's manual (oprofile.sourceforge.io/doc/opreport.html). A file may contain several
//! reports of one event each; a report with several events in columns is refused, because the manual does not define
//! the order of the columns.

use std::io::BufRead;

use super::lines::Lines;
use super::reading::{FromError, Reading};
use crate::Given;

const SYMBOLS: &str = "a table of `opreport -l`: samples, %, image name, symbol name";
const ONE_EVENT: &str = "reports of one event each, one after another: opreport -l event:NAME";
const EVENT: &str =
    "an event of misses of the data or instruction TLB, or of cycles, that was not read yet";

/// Whether this line starts a report.
pub(super) fn is_line(line: &str) -> bool {
    counted(line).is_some()
}

pub(super) fn read<R: BufRead>(mut lines: Lines<R>) -> Result<Reading, FromError> {
    let mut reading = Reading::default();
    // The current event: the field for its sum, and the number of events per sample.
    let mut event: Option<(FieldAccessor, f64)> = None;
    let mut in_table = true;
    while let Some(line) = lines.next()? {
        let text = line.trim();
        if let Some((name, count)) = counted(text) {
            if !in_table {
                return Err(lines.bad(text, ONE_EVENT));
            }
            let field = field_of(name).ok_or_else(|| lines.bad(text, EVENT))?;
            if field(&mut reading.given).replace(0.0).is_some() {
                return Err(lines.bad(text, EVENT));
            }
            (event, in_table) = (Some((field, count)), false);
        } else if text.starts_with("samples") {
            if text.contains('|') || text.matches("samples").count() > 1 {
                return Err(lines.bad(text, SYMBOLS));
            }
            in_table = true;
        } else if let Some((field, count)) = event.filter(|_| in_table && !text.is_empty()) {
            let samples = text.split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
            match samples {
                Some(samples) => {
                    *field(&mut reading.given).get_or_insert(0.0) += samples as f64 * count
                }
                // First line of the next report.
                None if text.starts_with("CPU:") => {}
                None => return Err(lines.bad(text, SYMBOLS)),
            }
        }
    }
    Ok(reading)
}

type FieldAccessor = fn(&mut Given) -> &mut Option<f64>;

/// Maps an event name to the quantity it counts; oprofile's names differ by CPU.
fn field_of(event: &str) -> Option<FieldAccessor> {
    let is_miss = event.contains("MISS");
    match event {
        _ if is_miss && event.contains("DTLB") => Some(|given| &mut given.dtlb_misses),
        _ if is_miss && event.contains("ITLB") => Some(|given| &mut given.itlb_misses),
        "CPU_CLK_UNHALTED" | "CPU_CYCLES" | "CYCLES" => Some(|given| &mut given.cycles),
        _ => None,
    }
}

/// Parses `Counted EVENT events (…) … count N` into the event and N.
fn counted(line: &str) -> Option<(&str, f64)> {
    let (event, rest) = line.trim().strip_prefix("Counted ")?.split_once(" events ")?;
    let (_, count) = rest.rsplit_once(" count ")?;
    Some((event, count.parse::<u32>().ok()?.into()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::from::{Format, read_text};

    /// A report in the manual's format, with the sums of LWN's worked example.
    const REPORT: &str = "\
CPU: Intel Sandy Bridge microarchitecture, speed 2401 MHz (estimated)
Counted DTLB_LOAD_MISSES events (Load misses) with a unit mask of 0x01 (walk) count 1000
samples  %        image name               symbol name
9000     94.8167  stream                   main
492       5.1833  vmlinux                  clear_page
CPU: Intel Sandy Bridge microarchitecture, speed 2401 MHz (estimated)
Counted CPU_CLK_UNHALTED events (Clock cycles when not halted) with a unit mask of 0x00 (No unit mask) count 50000
samples  %        image name               symbol name
599073   100.000  stream                   main
";

    #[test]
    fn samples_times_their_count() {
        let reading = read_text(REPORT, Path::new("report")).unwrap();
        assert_eq!(reading.format, Format::Opreport);
        let given = reading.given;
        assert_eq!((given.dtlb_misses, given.cycles), (Some(9_492_000.0), Some(29_953_650_000.0)));
        assert_eq!((given.misses, given.itlb_misses), (None, None));
    }

    #[test]
    fn what_would_be_misread_is_refused() {
        for (from, to) in [
            ("samples  %        image", "samples|      %| image"),
            ("samples  %        image", "samples  %        samples  %        image"),
            ("DTLB_LOAD_MISSES", "LLC_MISSES"),
            ("CPU_CLK_UNHALTED", "DTLB_STORE_MISSES"),
            ("9000 ", "many "),
            ("samples  %        image name               symbol name\n", ""),
        ] {
            let bad = REPORT.replace(from, to);
            assert!(bad != REPORT && read_text(&bad, Path::new("report")).is_err(), "{to}");
        }
    }
}
