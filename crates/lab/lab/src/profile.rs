//! Profiles the TLB misses of a program on base pages, by address: the input of CBMM's estimate of a superpage's
//! benefit.

use std::ops::ControlFlow;

use trace::Source;
use units::ByteSize;

use crate::run::Design;
use crate::run::{self, pass, prepare, reports};
use crate::run::{Pass, Watched};
use crate::{Experiment, LabError, Report};

/// Length of a profile's time unit, in seconds, as in CBMM (multifacet/cbmm, include/linux/mm_econ.h: MM_ECON_LTU).
pub const PROFILE_SECONDS: u64 = 10;

/// Superpage size in bytes.
const SUPERPAGE: u64 = 2 << 20;

/// TLB misses of a program by address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Spans by address; memory outside of all spans has no misses.
    pub spans: Vec<ProfileSpan>,
    /// Total number of page walks to base pages.
    pub walks: u64,
}

/// A span of a program's memory; offsets count from the beginning of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProfileSpan {
    /// First byte.
    pub from: ByteSize,
    /// The byte after the last.
    pub to: ByteSize,
    /// Page walks per superpage of the span and [`PROFILE_SECONDS`], rounded down to two digits.
    pub misses: u64,
}

impl Profile {
    /// Computes the spans from the number of page walks to each superpage-sized range.
    fn new(walks: &[u64], mhz: u32, cycles: u64) -> Self {
        let unit = u128::from(mhz) * 1_000_000 * u128::from(PROFILE_SECONDS);
        let per_unit = |walks: u64| {
            let rate = u128::from(walks) * unit / u128::from(cycles.max(1));
            two_digits(u64::try_from(rate).unwrap_or(u64::MAX))
        };
        let mut spans = Vec::<ProfileSpan>::new();
        for (at, &walks) in (0..).zip(walks) {
            let (from, to) = (ByteSize(at * SUPERPAGE), ByteSize((at + 1) * SUPERPAGE));
            match (per_unit(walks), spans.last_mut()) {
                (0, _) => {}
                (misses, Some(last)) if last.misses == misses && last.to == from => last.to = to,
                (misses, _) => spans.push(ProfileSpan { from, to, misses }),
            }
        }
        Self { spans, walks: walks.iter().sum() }
    }
}

/// Rounds down to two digits, so that similar neighbours merge into one span.
fn two_digits(number: u64) -> u64 {
    let unit = 10u64.pow(number.checked_ilog10().unwrap_or(0).saturating_sub(1));
    number / unit * unit
}

/// Runs an experiment under a design with base pages only and counts its TLB misses by address.
///
/// # Errors
/// As [`crate::run`]. If the program ended early, the profile covers the run up to then and the report says so.
pub fn profile_watched(
    experiment: &Experiment,
    design: &Design,
    watch: impl FnMut(Pass) -> ControlFlow<()>,
) -> Result<(Report, Profile), LabError> {
    let (description, _) = experiment.seeded().build()?;
    profile_stream(experiment, design, description.superpages, |region, process| {
        let stream = run::stream(experiment, std::slice::from_ref(design), (region, process))?;
        Ok(Watched::new(stream, description.records, watch))
    })
}

/// As [`profile_watched`], for a stream from another source (see [`crate::run_stream`]).
///
/// # Errors
/// As [`profile_watched`].
pub fn profile_stream<S: Source>(
    experiment: &Experiment,
    design: &Design,
    superpages: u64,
    open: impl FnOnce(u32, u32) -> Result<S, LabError>,
) -> Result<(Report, Profile), LabError> {
    let (mut runs, first) = prepare(experiment, std::slice::from_ref(design), superpages)?;
    runs.iter_mut().for_each(|run| run.count_walks());
    let mut stream = open(first.0, first.1)?;
    pass(experiment, &mut runs, &mut stream)?;
    let walks = runs.first_mut().map(|run| run.walks()).unwrap_or_default();
    let report = reports(runs, experiment)?.remove(0);
    let profile = Profile::new(&walks, report.mhz, report.wall_cycles);
    Ok((report, profile))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_of_neighbours_that_miss_alike() {
        let profile = Profile::new(&[7, 0, 1234, 1239, 1300, 0, 1300], 1, 10_000_000);
        let span = |from: u64, to: u64, misses| ProfileSpan {
            from: ByteSize::mib(from),
            to: ByteSize::mib(to),
            misses,
        };
        let spans = [span(0, 2, 7), span(4, 8, 1200), span(8, 10, 1300), span(12, 14, 1300)];
        assert_eq!(profile.spans, spans);
        assert_eq!(profile.walks, 5080);
    }

    #[test]
    fn misses_are_those_of_ten_seconds() {
        // Half a second at 1 GHz.
        let profile = Profile::new(&[100], 1000, 500_000_000);
        assert_eq!(profile.spans[0].misses, 2000);
        assert_eq!(Profile::new(&[u64::MAX], 4000, 1).spans[0].misses, 18 * 10u64.pow(18));
        assert_eq!(Profile::new(&[0], 4000, 0).spans, []);
    }
}
