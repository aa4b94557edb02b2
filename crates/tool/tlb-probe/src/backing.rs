//! Host backing: whether a guest's superpage takes one TLB entry, or is fractured into many entries because the host
//! backs it with base pages.
//!
//! The test chases more cache lines than the first level has entries, one in each base page of one superpage. If the
//! superpage takes one entry, these lines cost as much as adjacent lines. If it is fractured, they cost as much as
//! lines in separate base pages.

use serde::{Deserialize, Serialize};
use units::PageSize;

use crate::bench::Bench;
use crate::probe::ProbeError;
use crate::statistics::median;

/// The verdict of the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// A superpage is one TLB entry.
    Reaches,
    /// Most superpages are fractured, and none is whole.
    Fractured,
    /// Some superpages are fractured and others are whole, so the cost depends on which ones a
    /// program gets.
    Mixed,
    /// The result is unclear, or the first level cannot be overflowed.
    CannotTell,
}

/// The verdict with its evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Backing {
    /// Page size of the superpages tested.
    pub page: PageSize,
    /// The verdict.
    pub verdict: Verdict,
    /// Number of superpages tested.
    #[serde(deserialize_with = "units::count")]
    pub looked_at: u64,
    /// Number of fractured superpages.
    #[serde(deserialize_with = "units::count")]
    pub fractured: u64,
    /// Number of whole superpages.
    #[serde(deserialize_with = "units::count")]
    pub whole: u64,
    /// Number of lines chased in each superpage.
    #[serde(deserialize_with = "units::count")]
    pub lines: u64,
    /// Cycles per access with one line in each base page of a superpage: the median over all superpages.
    #[serde(deserialize_with = "units::cycles")]
    pub within: f64,
    /// Cycles per access with the same number of adjacent lines in one superpage.
    #[serde(deserialize_with = "units::cycles")]
    pub together: f64,
    /// Cycles per access with the same number of lines in separate base pages.
    #[serde(deserialize_with = "units::cycles")]
    pub apart: f64,
}

units::checked!(Backing);

impl Backing {
    fn check(&self) -> Result<(), String> {
        let is_part = self.fractured.saturating_add(self.whole) <= self.looked_at;
        is_part.then_some(()).ok_or("fractured and whole are more than looked_at".to_string())
    }
}

/// Maximum number of superpages to test.
const SUPERPAGES: u64 = 16;

/// Runs the test. `entries` is the size of the first level for base pages; `apart` is the cost of chasing base pages.
pub(crate) fn look(
    bench: &mut Bench,
    entries: u64,
    lines: u64,
    apart: f64,
) -> Result<Backing, ProbeError> {
    let shape = bench.shape;
    let lines = lines.min(shape.parts).min(shape.page_lines());
    let pages = SUPERPAGES.min(bench.offer.pages);
    let (mut whole, mut fractured) = (0, 0);
    let (mut within, mut together) = (Vec::new(), Vec::new());
    for page in 0..pages {
        let spread = bench.least(&shape.within(page, lines))?;
        let packed = bench.least(&shape.together(page, lines))?;
        within.push(spread);
        together.push(packed);
        // Classify by the nearer of the two known costs. The middle third between them is
        // undecided.
        let share = (spread - packed) / (apart - packed);
        if share < 1.0 / 3.0 {
            whole += 1;
        } else if share > 2.0 / 3.0 {
            fractured += 1;
        }
    }
    let (within, together) = (median(&within), median(&together));
    // Both cases look alike if the lines do not overflow the first level or if a miss costs
    // nothing.
    let tells = lines > entries && apart - together > 1.0;
    let verdict = if tells { verdict(whole, fractured, pages) } else { Verdict::CannotTell };
    let looked_at = pages;
    Ok(Backing {
        page: bench.offer.page,
        verdict,
        looked_at,
        fractured,
        whole,
        lines,
        within,
        together,
        apart,
    })
}

/// The verdict for these numbers of whole and fractured superpages among `pages`.
fn verdict(whole: u64, fractured: u64, pages: u64) -> Verdict {
    match (whole, fractured) {
        (whole, 0) if 2 * whole > pages => Verdict::Reaches,
        (0, fractured) if 2 * fractured > pages => Verdict::Fractured,
        (whole, fractured) if 4 * (whole + fractured) > 3 * pages => Verdict::Mixed,
        _ => Verdict::CannotTell,
    }
}

/// Number of lines to chase: twice the first level's entries.
pub(crate) fn lines(entries: u64) -> u64 {
    2 * entries
}

impl Backing {
    /// The verdict in plain words.
    pub fn words(&self) -> String {
        let page = self.page;
        match self.verdict {
            Verdict::Reaches => format!(
                "superpages reach the TLB: a page of {page} takes one entry, so what a program saves by \
                 superpages here is what it saves on the bare machine"
            ),
            Verdict::Fractured => format!(
                "superpages are fractured: {} of {} pages of {page} take one TLB entry for each base page, \
                 because the host backs this machine with base pages; superpages then shorten walks and \
                 spare faults, but the TLB reaches no further",
                self.fractured, self.looked_at
            ),
            Verdict::Mixed => format!(
                "superpages reach the TLB in part: of {} pages of {page} {} take one TLB entry and {} one for \
                 each base page, because the host backs parts of this machine with base pages; what a program \
                 saves by superpages depends on which it gets",
                self.looked_at, self.whole, self.fractured
            ),
            Verdict::CannotTell => format!(
                "cannot tell whether pages of {page} take one TLB entry: of {} looked at, {} do and {} do not",
                self.looked_at, self.whole, self.fractured
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_may_back_parts_of_a_machine_with_superpages() {
        for (whole, fractured, expected) in [
            (16, 0, Verdict::Reaches),
            (9, 0, Verdict::Reaches),
            (0, 16, Verdict::Fractured),
            (0, 9, Verdict::Fractured),
            (6, 10, Verdict::Mixed),
            (1, 15, Verdict::Mixed),
            (8, 8, Verdict::Mixed),
            (15, 1, Verdict::Mixed),
            (6, 6, Verdict::CannotTell),
            (8, 0, Verdict::CannotTell),
        ] {
            assert_eq!(
                verdict(whole, fractured, 16),
                expected,
                "{whole} whole, {fractured} fractured"
            );
        }
    }
}
