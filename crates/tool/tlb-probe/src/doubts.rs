//! Doubts: results that resamples of their own readings or the CPU's self-description contradict.

use host::TlbKind;
use units::PageSize;

use crate::backing::Verdict;
use crate::document::{Calibration, LevelReport, SizeReport};

/// The levels of a size are in doubt below this share of agreeing resamples.
pub(crate) const DOUBTFUL: f64 = 0.8;
/// Tolerated relative difference between the measured number of entries and CPUID's.
const CPUID_TOLERANCE: f64 = 0.02;

impl Calibration {
    /// Number of entries of this level, according to CPUID, for loads from pages of this size;
    /// `None` if CPUID does not describe such a level.
    pub fn said(&self, page: PageSize, level: u32) -> Option<u64> {
        self.said_of(TlbKind::Data, page, level)
    }

    /// Number of first-level entries, according to CPUID, for code in pages of this size; `None` if
    /// CPUID does not describe such a level.
    pub fn said_of_code(&self, page: PageSize) -> Option<u64> {
        self.said_of(TlbKind::Instruction, page, 1)
    }

    fn said_of(&self, kind: TlbKind, page: PageSize, level: u32) -> Option<u64> {
        let arrays = self.processor.arrays.iter().filter(|array| {
            array.level == level
                && array.page_sizes.contains(&page)
                && (array.kind == kind || array.kind == TlbKind::Unified)
        });
        // Parallel arrays hold different pages of this size, so add up their entries.
        Some(arrays.map(|array| u64::from(array.entries)).sum()).filter(|entries| *entries > 0)
    }

    /// Returns all warnings.
    pub(crate) fn doubts(&self) -> Vec<String> {
        let whole = self.backing.as_ref().is_none_or(|found| found.verdict == Verdict::Reaches);
        // If superpages are fractured, the TLB holds smaller pages, and there is nothing to
        // compare.
        let compared = |size: &&SizeReport| whole || size.page == self.base_page;
        let unstable = self.sizes.iter().filter_map(unstable);
        let code = self.instructions.iter().filter(compared).filter_map(|size| {
            let said = self.said_of_code(size.page)?;
            self.contradiction(
                &format!("code in pages of {}", size.page),
                1,
                size.levels.first()?,
                said,
            )
        });
        unstable
            .chain(self.sizes.iter().filter(compared).flat_map(|size| self.contradicted(size)))
            .chain(code)
            .collect()
    }

    /// Returns warnings about results that contradict CPUID.
    fn contradicted(&self, size: &SizeReport) -> Vec<String> {
        let page = size.page;
        let levels = (1..=size.levels.len().max(2) as u32).filter_map(|number| {
            let said = self.said(page, number)?;
            let Some(level) = size.levels.get(number as usize - 1) else {
                return Some(format!(
                    "pages of {page}: no level {number} was found, but CPUID lists one of {said} entries"
                ));
            };
            self.contradiction(&format!("pages of {page}"), number, level, said)
        });
        levels.collect()
    }

    /// Returns a warning if CPUID has another number of entries for a level.
    fn contradiction(
        &self,
        what: &str,
        number: u32,
        level: &LevelReport,
        said: u64,
    ) -> Option<String> {
        let (low, high) = level.range?;
        let (found, slack) = (level.entries?, (CPUID_TOLERANCE * said as f64) as u64);
        let is_in_range = |said: u64| (low.saturating_sub(slack)..=high + slack).contains(&said);
        if is_in_range(said) {
            return None;
        }
        let is_amd = self.processor.vendor.as_deref() == Some("AuthenticAMD");
        let in_units = said * u64::from(host::AMD_UNIT);
        let why = match (found < said, self.processor.guest) {
            (false, Some(true)) if number == 2 && is_amd && is_in_range(in_units) => {
                return Some(format!(
                    "{what}: level {number} keeps {found} ({low} to {high}); CPUID names {said}, which are \
                     {in_units} if it counts in units of {} as since Zen 5: the hypervisor does not show whether \
                     it does (leaf 0x80000021)",
                    host::AMD_UNIT
                ));
            }
            (true, Some(true)) => {
                "another thread of the core may use the rest, or the hypervisor shows another \
                 processor's CPUID"
            }
            (true, _) => "another thread of the core, or a part of the pages, may use the rest",
            (false, Some(true)) => "the hypervisor may show another processor's CPUID",
            (false, _) => "the processor may keep neighbouring pages in one entry",
        };
        Some(format!(
            "{what}: level {number} keeps {found} ({low} to {high}), and CPUID names {said}: {why}"
        ))
    }
}

/// Returns a warning if resamples disagree about the levels.
fn unstable(size: &SizeReport) -> Option<String> {
    let confidence = size.confidence.filter(|share| *share < DOUBTFUL)?;
    let share = (100.0 * confidence).floor();
    Some(format!(
        "pages of {}: the levels are in doubt ({share} % of resampled readings agree): other programs \
         disturb the measurement; try again, or on another CPU with `taskset`",
        size.page
    ))
}
