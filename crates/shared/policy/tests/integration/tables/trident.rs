//! Trident (MICRO'21): 1 GiB, 2 MiB and base pages together.
//! See docs/decisions/policy.md#8.

use superpage_policy::rules::Effort;
use superpage_policy::{
    Action, Daemon, Event, Facts, FaultPath, How, Launch, Orders, Physical, Reads, Result as Ended,
};
use units::ByteSize;

use super::common::{TRANSPARENT, launched};
use super::dsl::*;
use super::khugepaged::{KHUGEPAGED, Scan, candidates};
use super::linux::{LINUX_6, Thp};
use super::successors::{OLD, Once, PATH, PHYSICAL, built_on_linux};

const GIANT: u8 = 18;

const FAULT: &str =
    "mm/memory.c: __handle_mm_fault: create_huge_pud, then create_huge_pmd; MICRO'21, abstract";
const PUD: &str = "mm/huge_memory.c: do_huge_pud_anonymous_page";
const ZEROS: &str = "mm/huge_memory.c: do_huge_pud_anonymous_page: mm_get_huge_zero_onegb_page";
const WP: &str = "mm/huge_memory.c: do_huge_pud_wp_page";
const GFP: &str = "mm/huge_memory.c: alloc_hugepage_direct_gfpmask";
const SCAN_PUD: &str = "mm/khugepaged.c: khugepaged_scan_pud";
const SLOT: &str = "mm/khugepaged.c: khugepaged_scan_mm_slot";
/// If no superpage of 1 GiB is available, the kernel continues behind the extent.
const BELOW: &str = "docs/facts.md: Sizes; decided here for all designs of several sizes";

const DAEMONS: &str = "mm/khugepaged.c: khugepaged_scan_sleep_millisecs 10000; kswapd every 100 ms";

const MISSING: [Daemon; 5] =
    [Daemon::Evacuate, Daemon::Fill, Daemon::Sample, Daemon::Recover, Daemon::Split];
const INSPECTED: Event = Event::Inspected { requested: false };

/// Facts about a page in a mapping that is too small for 1 GiB.
fn below_giant() -> Facts {
    let small = || -> Orders { (1..GIANT).collect() };
    fresh()
        .region(|region| (region.begins, region.ends, region.absent) = (small(), small(), small()))
}

/// Facts about a candidate of 1 GiB with this many pages.
fn giant(pages: u32) -> Facts {
    candidate(512).extent(|extent| (extent.order, extent.populated) = (GIANT, pages))
}

fn copy(order: u8) -> Action {
    Action::MakeSuperpage { order, how: How::Copy { exclusive: true }, effort: Effort::DirectRetry }
}

pub fn table() -> Table {
    let thp = Thp { fresh: below_giant, compacts: false, ..LINUX_6 };
    let once = Once {
        physical: Physical { prefers_zeroed: true, larger: orders(&[GIANT]), ..PHYSICAL },
        path: FaultPath {
            prezero: Some((1000, 1000, 10)),
            superpage: Some(ByteSize::gib(1)),
            ..PATH
        },
        ahead_non_temporal: Some(true),
        daemons: (
            DAEMONS,
            vec![(Daemon::Prezero, S), (Daemon::Scan, 10 * S), (Daemon::Reclaim, 100 * MS)],
        ),
        reads: vec![Reads::ABSENT],
        sizes: (orders(&[9, GIANT]), orders(&[9, GIANT])),
    };
    let mut table = built_on_linux(&thp, &OLD, &MISSING, once);
    table.extend(three_sizes());
    table.extend(zeros_of_a_giant());
    table.extend(candidates(&Scan { swapped: 64, ..KHUGEPAGED }));
    table.extend(larger_candidates());
    table.extend(passes());
    table.extend(super::bloat::prezero(
        "MICRO'21: 1 GiB is zeroed ahead of faults; HawkEye, asynczero.c, of the same authors",
        (1000, 1000),
        256,
        10,
    ));
    table.extend(launched(Launch { prezero: true, size: Some(ByteSize::gib(1)), ..TRANSPARENT }));
    table
}

#[rustfmt::skip]
fn three_sizes() -> Table {
    let only = |largest: u8| fresh().region(|region| region.begins = (1..=largest).collect());
    let none = || fresh().region(|region| (region.inside, region.ends) = (false, Orders::NONE));
    let beside = || fresh().region(|region| region.absent = (1..=9).collect());
    let here = || fresh().populated(3);
    let advised = || fresh().advised(true);
    vec![
        at("three sizes: 1 GiB at a first fault", FAULT, WRITE, fresh(), smaller(GIANT)),
        at("three sizes: 1 GiB begins before the mapping, 2 MiB", PUD, WRITE, only(17), whole(Effort::None)),
        at("three sizes: 1 GiB ends after the mapping, 2 MiB", PUD, WRITE, fresh().region(|region| region.ends = (1..=17).collect()), whole(Effort::None)),
        at("three sizes: neither fits, a base page", FAULT, WRITE, none(), BASE),
        at("three sizes: some of 1 GiB has pages, 2 MiB", "mm/memory.c: __handle_mm_fault: pud_none", WRITE, beside(), whole(Effort::None)),
        at("three sizes: 2 MiB has pages, a base page", "mm/memory.c: __handle_mm_fault: pmd_none", WRITE, here(), BASE),
        run("a size is missing: no free 1 GiB, 2 MiB; no free 2 MiB, a base page", FAULT, [
            on(WRITE, fresh(), smaller(GIANT)), then(NO_MEMORY, fresh(), whole(Effort::None)), then(NO_MEMORY, fresh(), BASE),
        ]),
        run("a size is missing, advised", GFP, [
            on(WRITE, advised(), sized(GIANT, Effort::DirectRetry)), then(NO_MEMORY, advised(), whole(Effort::DirectRetry)), then(NO_MEMORY, advised(), BASE),
        ]),
        run("a size is missing: no free 1 GiB, and 2 MiB does not fit", FAULT, [
            on(WRITE, fresh(), smaller(GIANT)), then(NO_MEMORY, none(), BASE),
        ]),
        at("three sizes: advised against", "include/linux/huge_mm.h: transparent_hugepage_enabled: VM_NOHUGEPAGE", WRITE, fresh().advised(false), BASE),
        at("three sizes: a page of a file", PUD, READ, fresh().backed(superpage_policy::Backing::File { cached: true }), BASE),
        at("three sizes: memory of a heap", PUD, WRITE, fresh().backed(superpage_policy::Backing::Heap), smaller(GIANT)),
    ]
}

#[rustfmt::skip]
fn zeros_of_a_giant() -> Table {
    let zeros = |order| fresh().region(|region| region.superpage = Some(superpage_policy::Superpage { order, zeros: true, ..Default::default() }));
    let map = |order| fault(FaultAction::MapZeros { order });
    vec![
        at("three sizes: a read maps 1 GiB of zeros", ZEROS, READ, fresh(), map(GIANT)),
        at("three sizes: a read, advised against", ZEROS, READ, fresh().advised(false), map(0)),
        at("three sizes: a write to 1 GiB of zeros", WP, WRITE, zeros(GIANT), smaller(GIANT)),
        at("three sizes: the same, advised", WP, WRITE, zeros(GIANT).advised(true), sized(GIANT, Effort::DirectRetry)),
        at("three sizes: a write to 2 MiB of zeros", "mm/huge_memory.c: do_huge_pmd_wp_page", WRITE, zeros(9), whole(Effort::None)),
        run("a size is missing: no 1 GiB in the place of zeros", "mm/huge_memory.c: do_huge_pud_wp_page: split_huge_pud, VM_FAULT_FALLBACK", [
            on(WRITE, zeros(GIANT), smaller(GIANT)), then(NO_MEMORY, fresh(), whole(Effort::None)),
        ]),
    ]
}

#[rustfmt::skip]
fn larger_candidates() -> Table {
    const CAND: Event = Event::Candidate;
    let below = Action::Consider { order: 9 };
    let region = |change: fn(&mut superpage_policy::Region)| giant(1).region(change);
    let with = |order, change: fn(&mut superpage_policy::Superpage)| {
        let mut superpage = superpage_policy::Superpage { order, ..Default::default() };
        change(&mut superpage);
        giant(1).region(|region| (region.superpage, region.has_table) = (Some(superpage), false))
    };
    vec![
        at("a candidate of 1 GiB: one page is enough", SCAN_PUD, CAND, giant(1), Action::Inspect),
        at("a candidate of 1 GiB: nothing in it", SCAN_PUD, CAND, giant(0), below),
        at("a candidate of 1 GiB: superpages in it", "mm/khugepaged.c: khugepaged_scan_pud: pmd_trans_huge", CAND, with(0, |_| ()), Action::Inspect),
        at("a candidate of 1 GiB: it is one", "mm/khugepaged.c: mm_find_pud", CAND, with(GIANT, |_| ()), below),
        at("a candidate of 1 GiB: superpages of zeros in it", "mm/khugepaged.c: khugepaged_scan_pud: page_count", CAND, with(9, |superpage| superpage.zeros = true), below),
        at("a candidate of 1 GiB: superpages of others, too", "mm/khugepaged.c: khugepaged_scan_pud: page_count", CAND, with(9, |superpage| superpage.cow = true), below),
        at("a candidate of 1 GiB: it was not accessed", "mm/khugepaged.c: SCAN_LACK_REFERENCED_PAGE", CAND, region(|region| region.accessed = false), below),
        at("a candidate of 1 GiB: past its mapping", "mm/khugepaged.c: khugepaged_scan_mm_slot: HPAGE_PUD_SIZE <= hend", CAND, region(|region| region.inside = false), below),
        at("a candidate of 2 MiB: past its mapping", SLOT, CAND, candidate(1).extent(|extent| extent.order = 9).region(|region| region.inside = false), Action::Nothing),
        at("looked into: 1 GiB is copied", SCAN_PUD, INSPECTED, giant(1), copy(GIANT)),
        at("looked into: no page of 1 GiB may be written", "mm/khugepaged.c: SCAN_PAGE_RO", INSPECTED, region(|region| region.has_writable = false), below),
        at("looked into: a page of 1 GiB is somebody else's, too", "mm/khugepaged.c: SCAN_PAGE_COUNT", INSPECTED, region(|region| region.has_shared = true), below),
        at("looked into: a page of 1 GiB is swapped out", "mm/khugepaged.c: khugepaged_scan_pud: SCAN_EXCEED_SWAP_PTE", INSPECTED, region(|region| region.swapped = 1), below),
        run("a size is missing: no free 1 GiB for the copy, its parts", BELOW, [on(INSPECTED, giant(1), copy(GIANT)), then(NO_MEMORY, giant(1), below)]),
        at("looked into: a part of 2 MiB", "mm/khugepaged.c: khugepaged_scan_pmd", INSPECTED, candidate(1).extent(|extent| (extent.order, extent.populated) = (9, 1)), copy(9)),
    ]
}

/// A pass scans 8 extents of 1 GiB (2,097,152 pages) every 10 s; after a failure the daemon rests for 10 s.
#[rustfmt::skip]
fn passes() -> Table {
    let busy = || fresh().machine(|machine| machine.is_piece_done = true);
    let long = || fresh().machine(|machine| machine.spent = 3600 * S);
    let scan = || on(tick(Daemon::Scan), fresh(), NEXT);
    let visit = || then(Ended::Unfit, fresh(), NEXT);
    vec![
        run("the next candidate is the next by address", SLOT, [scan(), visit()]),
        run("8 of 1 GiB in a pass: each costs its pages", SLOT,
            [scan()].into_iter().chain((0..7).map(|_| visit())).chain([then(DONE, fresh(), PERIOD), scan(), visit()])),
        run("8 in a pass: mappings passed over leave a superpage's pages for the last", SLOT,
            [scan()].into_iter().chain((0..6).map(|_| visit())).chain([passed(DONE, (1 << GIANT) - 512, fresh(), NEXT), then(DONE, fresh(), PERIOD)])),
        run("8 in a pass: they leave less", SLOT,
            [scan()].into_iter().chain((0..6).map(|_| visit())).chain([passed(DONE, (1 << GIANT) - 511, fresh(), PERIOD)])),
        run("the end of memory: once more from the beginning", SLOT, [
            scan(), then(NOTHING, fresh(), scan_step(ScanAction::Rewind)), then(DONE, fresh(), NEXT), then(NOTHING, fresh(), PERIOD),
        ]),
        run("a size is missing: no 2 MiB for the copy, a rest", "mm/khugepaged.c: khugepaged_alloc_sleep_millisecs 10000", [scan(), then(NO_MEMORY, fresh(), after(10 * S))]),
        run("a pass goes on after a piece of work, with what is left", SLOT,
            [scan(), then(DONE, busy(), MORE), scan()].into_iter().chain((0..6).map(|_| visit())).chain([then(DONE, fresh(), PERIOD)])),
        run("it may use all of a CPU", "scripts/common.sh: max_cpu 0; mm/khugepaged.c: khugepaged_wait_work", [on(tick(Daemon::Scan), long(), NEXT), then(DONE, long(), NEXT)]),
    ]
}
