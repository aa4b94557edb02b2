//! Elastic Translations (MICRO'24): TLB misses decide the sizes.

use design::{Design, designs};
use superpage_policy::rules::Effort;
use superpage_policy::{Action, Daemon, Event, Facts, How, Physical, Reads, Result as Ended};

use super::common::{LINUX, TRANSPARENT, launched};
use super::dsl::*;
use super::khugepaged::{KHUGEPAGED, Scan, candidates};
use super::linux::{LINUX_6, Thp};
use super::successors::{Once, PATH, PHYSICAL, built_on_linux, ranks, sampling};

const GREEDY: &str = "bin/epochs.sh: fault_hints 0";
const SOLVE: &str = "etutils-rs src/leshy.rs: Trace::solve";
const HINTS: &str =
    "bin/epochs.sh: nrpages; etutils-rs src/leshy.rs: compute_hints sorts by misses";
const EPOCHS: &str = "bin/epochs.sh: profile: this epoch and the one before, perf records on";
const INSPECTED: Event = Event::Inspected { requested: false };

const DAEMONS: &str = "bin/epochs.sh: leshy_interval; mm/khugepaged.c: khugepaged_scan_sleep_millisecs; kswapd is looked at every 100 ms";

const MISSING: [Daemon; 5] =
    [Daemon::Evacuate, Daemon::Fill, Daemon::Prezero, Daemon::Recover, Daemon::Split];

/// Facts about an extent of this size with this many misses, on this many of its pages.
fn missed(order: u8, misses: u32, coverage: u32) -> Facts {
    candidate(512).extent(|extent| {
        (extent.order, extent.populated) = (order, 1 << order);
        (extent.misses, extent.coverage) = (misses, coverage);
    })
}

fn copy(order: u8) -> Action {
    Action::MakeSuperpage { order, how: How::Copy { exclusive: true }, effort: Effort::DirectRetry }
}

pub fn table() -> Table {
    let thp =
        Thp { advised: Effort::None, zeros: false, small: Some(4), compacts: false, ..LINUX_6 };
    let once = Once {
        physical: Physical { smaller: orders(&[4]), ..PHYSICAL },
        path: PATH,
        ahead_non_temporal: None,
        daemons: (
            DAEMONS,
            vec![(Daemon::Sample, S), (Daemon::Scan, S), (Daemon::Reclaim, 100 * MS)],
        ),
        reads: vec![Reads::ABSENT, Reads::COVERAGE, Reads::OF_CANDIDATES, Reads::MISSES],
        sizes: (orders(&[4, 9]), orders(&[4, 9])),
    };
    let worth = |facts: Facts| {
        facts.extent(|extent| (extent.order, extent.misses, extent.coverage) = (9, 500, 512))
    };
    let mut table = built_on_linux(&thp, &LINUX, &MISSING, once);
    table.extend(candidates(&Scan { referenced: false, worth, ..KHUGEPAGED }));
    table.extend(by_misses());
    table.extend(passes());
    table.extend(sampling(EPOCHS, (4 * S, S), 50));
    table.extend(launched(TRANSPARENT));
    table
}

#[rustfmt::skip]
fn by_misses() -> Table {
    let consider = |order| Action::Consider { order };
    vec![
        at("sampled misses: more than a 64th of 2 MiB miss", SOLVE, INSPECTED, missed(9, 500, 9), copy(9)),
        at("border: a 64th of 2 MiB, the smaller size", SOLVE, INSPECTED, missed(9, 500, 8), consider(4)),
        at("border: of the pages that it holds, not of those in memory", SOLVE, INSPECTED, missed(9, 500, 7).extent(|extent| extent.populated = 400), consider(4)),
        at("sampled misses: on none of its pages in the last window", SOLVE, INSPECTED, missed(9, 500, 0), consider(4)),
        at("sampled misses: two pages of 64 KiB", SOLVE, INSPECTED, missed(4, 500, 2), copy(4)),
        at("border: one page of 64 KiB, none", "etutils-rs src/leshy.rs: solve: subentries > 1", INSPECTED, missed(4, 500, 1), Action::Nothing),
        at("border: one miss", SOLVE, INSPECTED, missed(9, 1, 9), copy(9)),
        at("border: no miss, whatever is accessed", "etutils-rs src/leshy.rs: entries are addresses that missed", INSPECTED, missed(9, 0, 512), consider(4)),
        at("border: no miss of 64 KiB", "etutils-rs src/leshy.rs: entries are addresses that missed", INSPECTED, missed(4, 0, 16), Action::Nothing),
        says("sampled misses: which candidates come first", HINTS, ranks, [None, Some(700), None, Some(7), None]),
        run("no free superpage at a fault: what is greedy takes 64 KiB", GREEDY, [
            on(WRITE, fresh(), whole(Effort::None)), then(NO_MEMORY, fresh(), smaller(4)), then(NO_MEMORY, fresh(), BASE),
        ]),
    ]
}

#[rustfmt::skip]
fn passes() -> Table {
    let best = scan_step(ScanAction::Visit(Candidates::Best));
    let rank = scan_step(ScanAction::Rank { most: 16, one_process: false });
    let begin = move || on(tick(Daemon::Scan), fresh(), rank);
    let busy = || fresh().machine(|machine| machine.is_piece_done = true);
    let long = || fresh().machine(|machine| machine.spent = 3600 * S);
    vec![
        run("the next candidate misses most; so many in a pass", HINTS, [
            begin(), then(done(16), fresh(), best), then(DONE, fresh(), best), then(Ended::Unfit, fresh(), best), then(NOTHING, fresh(), PERIOD), begin(),
        ]),
        run("nobody misses: the pass ends", HINTS, [begin(), then(NOTHING, fresh(), PERIOD)]),
        run("no superpage for the copy: a rest", "mm/khugepaged.c: khugepaged_alloc_sleep", [begin(), then(done(16), fresh(), best), then(NO_MEMORY, fresh(), after(S))]),
        run("a pass goes on after a piece of work, without ranking again", HINTS, [
            begin(), then(done(16), fresh(), best), then(DONE, busy(), MORE), on(tick(Daemon::Scan), fresh(), best),
        ]),
        run("it may use all of a CPU", HINTS, [begin(), then(done(16), long(), best), then(DONE, long(), best)]),
        at("n-th page: no list", HINTS, Event::Grew { before: 0, after: 512 }, fresh(), Action::Nothing),
    ]
}

fn check(design: &Design, table: &Table) {
    for line in table {
        line.check(&mut design.policy(SCALE)).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

/// All sizes that Armv8 has with base pages of 4 KiB.
#[rustfmt::skip]
#[test]
fn four_sizes_of_elastic_translations() {
    const SIZES: &str = "etutils-rs src/leshy.rs: PageSize: Pte, ContPte, Pmd, ContPmd; solve goes from large to small";
    let text = designs::preset("elastic").expect("a preset").text;
    let text = text.replace("[\"64K\", \"2M\"]", "[\"64K\", \"2M\", \"32M\", \"1G\"]");
    let design = Design::from_toml("test", &text).expect("a design of four sizes");
    let fits = |largest: u8| fresh().region(|region| region.ends = (1..=largest).collect());
    let fault = |facts, order| at("a fault: the largest that fits", SIZES, WRITE, facts, smaller(order));
    let scan = |order, coverage, expected| at("a scan: from the largest down", SIZES, INSPECTED, missed(order, 500, coverage), expected);
    let outside = |order| missed(order, 500, 99_999).region(|region| region.inside = false);
    let consider = |order| Action::Consider { order };
    check(&design, &vec![
        fault(fresh(), 18), fault(fits(17), 13), fault(fits(12), 9), fault(fresh().region(|region| region.absent = (1..=9).collect()), 9),
        run("a fault: where there is no memory, the next smaller", SIZES, [
            on(WRITE, fresh(), smaller(18)), then(NO_MEMORY, fresh(), smaller(13)), then(NO_MEMORY, fresh(), smaller(9)),
            then(NO_MEMORY, fresh(), smaller(4)), then(NO_MEMORY, fresh(), BASE),
        ]),
        scan(18, 4097, copy(18)), scan(18, 4096, consider(13)), scan(13, 129, copy(13)), scan(13, 128, consider(9)),
        scan(9, 9, copy(9)), scan(9, 8, consider(4)),
        at("a scan: past its mapping", SIZES, Event::Candidate, outside(18), consider(13)),
        at("a scan: past its mapping", SIZES, Event::Candidate, outside(9), Action::Nothing),
        run("a scan: no memory for 1 GiB", SIZES, [on(INSPECTED, missed(18, 500, 4097), copy(18)), then(NO_MEMORY, missed(18, 500, 4097), consider(13))]),
        run("a scan: no memory for 32 MiB", SIZES, [on(INSPECTED, missed(13, 500, 129), copy(13)), then(NO_MEMORY, missed(13, 500, 129), consider(9))]),
    ]);
}

#[rustfmt::skip]
#[test]
fn where_only_a_scan_makes_superpages_a_fault_maps_a_base_page() {
    let text = "name = \"x\"\n[allocation]\ntrigger = \"scan\"\nsizes = [\"64K\", \"2M\"]\n[mapping]\n\
                when = \"never\"\n[mapping.scan]\nwhen = \"populated > 9\"\n";
    let design = Design::from_toml("test", text).expect("a design");
    let populated = |order, pages| missed(order, 0, 0).extent(|extent| extent.populated = pages);
    check(&design, &vec![
        at("a fault", "docs/facts.md: allocation.trigger = \"scan\"", WRITE, fresh(), BASE),
        at("a scan makes both sizes", "docs/facts.md: from the largest down", INSPECTED, populated(9, 9), Action::Consider { order: 4 }),
        at("a scan makes both sizes", "docs/facts.md: from the largest down", INSPECTED, populated(4, 10), copy(4)),
    ]);
}
