//! What a run's moments tell: how many superpages there were at most, when they came, and how much of
//! the resident memory they covered over time.

use crate::Report;
use mm_sim::Moment;

/// Base pages in a superpage where a report says nothing else (trace::SLOTS).
pub(crate) const PAGES: u64 = trace::SLOTS as u64;

/// The most superpages at any moment.
pub fn most_superpages(report: &Report) -> u64 {
    report.timeline.iter().map(|moment| moment.superpages).max().unwrap_or(0)
}

/// Microseconds until a share of the most superpages was there for the first time. `None` if there
/// never was one.
pub fn time_until(report: &Report, share: f64) -> Option<u64> {
    let most = most_superpages(report);
    let wanted = (most as f64 * share).ceil() as u64;
    let there = |moment: &&Moment| moment.superpages >= wanted;
    (most > 0).then(|| report.timeline.iter().find(there).map(|moment| moment.microseconds))?
}

/// The share of resident memory that superpages covered, averaged over time. `None` if nothing was
/// resident at any moment.
pub fn mean_coverage(report: &Report) -> Option<f64> {
    let moments = &report.timeline;
    // Each moment holds until the next, the last one until the run's end.
    let end = (report.seconds() * 1e6) as u64;
    let lasted = |index: usize| {
        let next = moments.get(index + 1).map_or(end, |next| next.microseconds);
        // A run of one moment is that moment, however short.
        let least = u64::from(moments.len() == 1);
        next.saturating_sub(moments[index].microseconds).max(least)
    };
    let (mut covered, mut resident) = (0.0, 0.0);
    for (index, moment) in moments.iter().enumerate() {
        let time = lasted(index) as f64;
        let pages = report.superpage_pages.unwrap_or(PAGES);
        let smaller = moment.smaller_superpages;
        let on_superpages = moment.superpages.saturating_sub(smaller) * pages + smaller * PAGES;
        let superpages = on_superpages.min(moment.resident_pages);
        covered += superpages as f64 * time;
        resident += moment.resident_pages as f64 * time;
    }
    (resident > 0.0).then(|| covered / resident)
}
