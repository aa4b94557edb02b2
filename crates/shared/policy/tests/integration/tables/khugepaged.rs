//! Scans by address, and conditions that every scan has for its candidates. The functions named here are in
//! mm/huge_memory.c of Linux 4.3.

use superpage_policy::rules::Effort;
use superpage_policy::{Action, Backing, Daemon, Event, Facts, How};

use super::dsl::*;

const SCAN: &str = "mm/khugepaged.c: khugepaged_do_scan, khugepaged_scan_mm_slot";
const PMD: &str = "mm/khugepaged.c: hpage_collapse_scan_pmd";
const SWAP: &str = "mm/khugepaged.c: hpage_collapse_scan_pmd, khugepaged_max_ptes_swap";
const ALLOC: &str = "mm/khugepaged.c: khugepaged_do_scan, khugepaged_alloc_sleep";

/// Differences between the scans of designs.
pub struct Scan {
    /// Minimum number of populated pages of a candidate.
    pub least: u16,
    /// Maximum number of swapped-out pages of a candidate.
    pub swapped: u16,
    /// Whether a page of the candidate must have been accessed lately.
    pub referenced: bool,
    /// Whether mappings without advice are scanned.
    pub always: bool,
    /// Further facts that a candidate needs.
    pub worth: fn(Facts) -> Facts,
    /// Effort to get a superpage.
    pub effort: Effort,
}

pub const KHUGEPAGED: Scan = Scan {
    least: 1,
    swapped: 512,
    referenced: true,
    always: true,
    worth: |facts| facts,
    effort: Effort::DirectRetry,
};

/// A pass scans 8 regions (4096 units, 512 for each) every 10 s; after a failure the daemon rests for 60 s.
#[rustfmt::skip]
pub fn by_address() -> Table {
    let busy = || fresh().machine(|machine| machine.is_piece_done = true);
    let long = || fresh().machine(|machine| machine.spent = 3600 * S);
    let scan = || on(tick(Daemon::Scan), fresh(), NEXT);
    let visit = || then(superpage_policy::Result::Unfit, fresh(), NEXT);
    vec![
        run("the next candidate is the next by address", SCAN, [scan(), visit()]),
        run("a pass visits 8 regions, whatever comes of it", SCAN,
            [scan()].into_iter().chain((0..7).map(|_| visit())).chain([then(DONE, fresh(), PERIOD)])),
        run("each mapping passed over costs one unit: 7 regions", SCAN,
            [scan()].into_iter().chain((0..6).map(|_| visit())).chain([passed(DONE, 1, fresh(), PERIOD)])),
        run("a new pass has 8 again", SCAN,
            [scan(), then(NO_MEMORY, fresh(), after(60 * S)), scan()].into_iter()
                .chain((0..7).map(|_| visit())).chain([then(DONE, fresh(), PERIOD)])),
        run("the end of memory: once more from the beginning", SCAN, [
            scan(), then(NOTHING, fresh(), scan_step(ScanAction::Rewind)), then(DONE, fresh(), NEXT), then(NOTHING, fresh(), PERIOD),
        ]),
        run("no superpage for the copy", ALLOC, [scan(), then(NO_MEMORY, fresh(), after(60 * S))]),
        run("a pass goes on after a piece of work, with what is left", SCAN,
            [scan(), then(DONE, busy(), MORE), scan()].into_iter()
                .chain((0..6).map(|_| visit())).chain([then(DONE, fresh(), PERIOD)])),
        run("it may use all of a CPU", SCAN, [on(tick(Daemon::Scan), long(), NEXT), then(DONE, long(), NEXT)]),
    ]
}

/// Conditions for candidates, and the resulting actions.
#[rustfmt::skip]
pub fn candidates(scan: &Scan) -> Table {
    const CAND: Event = Event::Candidate;
    let few = if scan.least > 1 { Action::Nothing } else { Action::Inspect };
    let unaccessed = if scan.referenced { Action::Nothing } else { Action::Inspect };
    let unadvised = if scan.always { Action::Inspect } else { Action::Nothing };
    let fit = || (scan.worth)(candidate(scan.least));
    let most = scan.swapped.min(512 - scan.least);
    let swapped = |pages| fit().region(|region| region.swapped = pages);
    let copy = || copied(scan.effort, true);
    let inspected = Event::Inspected { requested: false };
    let asked = Event::Inspected { requested: true };
    let mut table = vec![
        at("a candidate with one page", PMD, CAND, candidate(1).advised(true), few),
        at("a candidate with enough pages", PMD, CAND, fit().advised(true), Action::Inspect),
        at("a candidate with one page less", PMD, CAND, candidate(scan.least - 1).advised(true), Action::Nothing),
        at("a candidate that was not accessed", PMD, CAND, fit().advised(true).region(|region| region.accessed = false), unaccessed),
        at("a candidate that nobody advised about", PMD, CAND, fit(), unadvised),
        at("a candidate that was advised against", PMD, CAND, fit().advised(false), Action::Nothing),
        at("a candidate that is a superpage", PMD, CAND, large().advised(true), Action::Nothing),
        at("a candidate without a page table", PMD, CAND, fit().advised(true).region(|region| region.has_table = false), Action::Nothing),
        at("a candidate with pages that a write copies", PMD, CAND, fit().advised(true).region(|region| region.has_cow = true), Action::Nothing),
        at("a candidate that is partly another mapping's", PMD, CAND, fit().advised(true).region(|region| region.inside = false), Action::Nothing),
        at("a candidate of a file", PMD, CAND, fit().advised(true).backed(Backing::File { cached: true }), Action::Nothing),
        at("a candidate of a pool", PMD, CAND, fit().advised(true).region(|region| region.is_pooled = true), Action::Nothing),
        at("looked into: it is copied, and faults wait", PMD, inspected, fit(), copy()),
        at("looked into: no page may be written", PMD, inspected, fit().region(|region| region.has_writable = false), Action::Nothing),
        at("looked into: the mapping may not be written", PMD, inspected, fit().with(|facts| facts.mapping.writable = false), Action::Nothing),
        at("looked into: a page is somebody else's, too", PMD, inspected, fit().region(|region| region.has_shared = true), Action::Nothing),
        at("looked into: as many pages as may be are swapped out", SWAP, inspected, swapped(most), copy()),
        at("asked for (MADV_COLLAPSE): one page is enough", COLLAPSE, Event::CollapseRequested, candidate(1).advised(true).region(|region| region.accessed = false), Action::Inspect),
        at("asked for: it is copied, with all effort", COLLAPSE, asked, fit(), copied(Effort::DirectRetry, false)),
    ];
    if scan.swapped < 512 {
        table.push(at("looked into: a page more is swapped out", SWAP, inspected, swapped(scan.swapped + 1), Action::Nothing));
    }
    table
}

const COLLAPSE: &str = "mm/khugepaged.c: madvise_collapse";

/// MADV_COLLAPSE in designs without a scan.
#[rustfmt::skip]
pub fn collapse_only() -> Table {
    let copy = Action::MakeSuperpage { order: WHOLE, how: How::Copy { exclusive: false }, effort: Effort::DirectRetry };
    vec![
        at("asked for (MADV_COLLAPSE)", COLLAPSE, Event::CollapseRequested, candidate(1).advised(true), Action::Inspect),
        at("asked for: nothing is there", COLLAPSE, Event::CollapseRequested, fresh().advised(true), Action::Nothing),
        at("asked for: it is copied", COLLAPSE, Event::Inspected { requested: true }, candidate(1), copy),
    ]
}

/// Linux's own limit on swapped-out pages, which no preset sets.
#[rustfmt::skip]
fn limited() -> Table {
    let inspected = |requested| Event::Inspected { requested };
    let swapped = |pages| candidate(1).region(|region| region.swapped = pages);
    vec![
        at("looked into: no page is swapped out", SWAP, inspected(false), swapped(0), copied(Effort::DirectRetry, true)),
        at("looked into: 64 pages are swapped out", SWAP, inspected(false), swapped(64), copied(Effort::DirectRetry, true)),
        at("looked into: 65 pages are swapped out", SWAP, inspected(false), swapped(65), Action::Nothing),
        at("asked for: however many are swapped out", COLLAPSE, inspected(true), swapped(511), copied(Effort::DirectRetry, false)),
    ]
}

#[test]
fn a_scan_passes_over_what_is_swapped_out() {
    let linux = design::designs::find("linux-6").expect("a preset").to_toml();
    let with = |most: u16| {
        let text = linux.replace("most-swapped = 512", &format!("most-swapped = {most}"));
        design::Design::from_toml("limited", &text).expect("a good design")
    };
    let breaks = |most| {
        let design = with(most);
        limited().iter().find_map(|line| line.check(&mut design.policy(SCALE)).err())
    };
    assert_eq!(breaks(64), None);
    for most in [0, 63, 65, 512] {
        assert!(breaks(most).is_some(), "{most}");
    }
}
