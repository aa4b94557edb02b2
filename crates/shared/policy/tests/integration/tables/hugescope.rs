//! HugeScope (ATC'24): a superpage is split depending on how many of its pages are accessed.

use design::Design;
use superpage_policy::rules::Effort;
use superpage_policy::{Action, Daemon, Event, Facts, Launch, Reads, Result as Ended, Wait};

use super::common::{TRANSPARENT, launched};
use super::dsl::*;
use super::khugepaged::{KHUGEPAGED, Scan, candidates};
use super::linux::{LINUX_6, Thp};
use super::successors::{OLD, Once, PATH, PHYSICAL, built_on_linux, ranks, sampling};

const SPLITS: &str =
    "hmmv/ept_scanner.c: sp_do_split: cc <= huge_split_th; ss_work.h: SP_SPLITE_THRESHOLD 70";
const COLD: &str = "hmmv/ept_scanner.c: pg_cache_free: those with cc 0 are left";
const ROUND: &str = "hmmv/ept_scanner.c: hs_ept_scanner; ss_work.h: SP_INTERVAL 3000";
const NEED: &str =
    "hmmv/ept_scanner.c: huge_page_split_select: none where all that is accessed fits";
const LIMIT: &str = "hmmv/ept_scanner.c: huge_page_split_select: split_limit_num 500";
const COLLAPSE: &str =
    "hmmv/ept_scanner.c: sp_check_collapse, sp_collapse_all; ss_work.h: SP_COLLAPSE_THRESHOLD 450";
const TRACE: &str =
    "ss_work.h: TRACE_LEN 10, SAMPLE_PERIOD 600; hmmv/ept_scanner.c: hs_ept_scanner";

const DAEMONS: &str = "ss_work.h: SAMPLE_PERIOD, TRACE_LEN, SP_INTERVAL; kswapd every 100 ms";

const MISSING: [Daemon; 4] = [Daemon::Evacuate, Daemon::Fill, Daemon::Prezero, Daemon::Recover];

const WATCH: Action = watch(WatchAction::Begin { most: 500 });
const VISIT: Action = watch(WatchAction::Visit);

/// This many pages of the superpage were accessed.
fn covered(facts: Facts, coverage: u32) -> Facts {
    facts.extent(|extent| (extent.order, extent.populated, extent.coverage) = (9, 512, coverage))
}

/// This many of 1000 pages of memory are free.
fn free(pages: u64) -> Facts {
    fresh().machine(|machine| (machine.free, machine.pages) = (pages, 1000))
}

pub fn table() -> Table {
    let thp = Thp { effort: Effort::Direct, compacts: false, ..LINUX_6 };
    let once = Once {
        physical: PHYSICAL,
        path: PATH,
        ahead_non_temporal: None,
        daemons: (
            DAEMONS,
            vec![
                (Daemon::Sample, 3 * S),
                (Daemon::Scan, 9 * S),
                (Daemon::Reclaim, 100 * MS),
                (Daemon::Split, 9 * S),
            ],
        ),
        reads: vec![Reads::COVERAGE, Reads::OF_CANDIDATES],
        sizes: (orders(&[9]), orders(&[9])),
    };
    let worth = |facts| covered(facts, 450);
    let mut table = built_on_linux(&thp, &OLD, &MISSING, once);
    table.extend(candidates(&Scan { least: 512, referenced: false, worth, ..KHUGEPAGED }));
    table.extend(watches());
    table.extend(splits());
    table.extend(collapses());
    table.extend(sampling(TRACE, (6 * S, 3 * S), 100));
    table.extend(launched(Launch { compacts: true, ..TRANSPARENT }));
    table
}

#[rustfmt::skip]
fn watches() -> Table {
    let split = |facts, action| on(tick(Daemon::Split), facts, action);
    let pause = rest(Wait::Pause(3 * S));
    let busy = || fresh().machine(|machine| machine.is_piece_done = true);
    vec![
        at("skew: a tenth of memory is free, nothing is watched", NEED, tick(Daemon::Split), free(100), PERIOD),
        run("skew: less is free, 500 superpages in a pass are watched for 3 s", LIMIT, [split(free(99), WATCH), then(done(500), fresh(), pause)]),
        run("skew: there are no superpages", ROUND, [split(free(99), WATCH), then(NOTHING, fresh(), PERIOD), split(free(99), WATCH)]),
        run("skew: each that was watched is visited, then the next round", ROUND, [
            split(free(99), WATCH), then(done(500), fresh(), pause), split(free(900), VISIT), then(DONE, fresh(), VISIT),
            then(Ended::Unfit, fresh(), VISIT), then(NOTHING, fresh(), PERIOD), split(free(900), PERIOD),
        ]),
        run("skew: a piece of work is long enough", ROUND, [
            split(free(99), WATCH), then(done(500), fresh(), pause), split(fresh(), VISIT), then(DONE, busy(), MORE), split(fresh(), VISIT),
        ]),
    ]
}

#[rustfmt::skip]
fn splits() -> Table {
    let watched = |coverage, action| [
        on(tick(Daemon::Split), free(99), WATCH), then(done(1), fresh(), rest(Wait::Pause(3 * S))),
        on(tick(Daemon::Split), fresh(), VISIT), on(Event::Candidate, covered(large(), coverage), action),
    ];
    vec![
        run("skew, border: 70 accessed pages, it is split", SPLITS, watched(70, Action::Demote)),
        run("skew, border: 71, it is a superpage again, in place", SPLITS, watched(71, in_place(true))),
        run("skew, border: one page is accessed", COLD, watched(1, Action::Demote)),
        run("skew, border: none is", COLD, watched(0, in_place(true))),
        run("skew: all pages are accessed", SPLITS, watched(512, in_place(true))),
    ]
}

#[rustfmt::skip]
fn collapses() -> Table {
    let inspected = Event::Inspected { requested: false };
    let best = scan_step(ScanAction::Visit(Candidates::Best));
    let rank = scan_step(ScanAction::Rank { most: 500, one_process: false });
    let begin = move || on(tick(Daemon::Scan), fresh(), rank);
    let long = || fresh().machine(|machine| machine.spent = 3600 * S);
    let busy = || fresh().machine(|machine| machine.is_piece_done = true);
    vec![
        at("border: 450 accessed pages are one superpage again", COLLAPSE, inspected, covered(candidate(512), 450), copied(Effort::DirectRetry, true)),
        at("all pages are accessed: the same", COLLAPSE, inspected, covered(candidate(512), 512), copied(Effort::DirectRetry, true)),
        at("border: 449 are not", COLLAPSE, inspected, covered(candidate(512), 449), Action::Nothing),
        run("the next candidate is the best; 500 in a pass", COLLAPSE, [
            begin(), then(done(500), fresh(), best), then(DONE, fresh(), best), then(NOTHING, fresh(), PERIOD), begin(),
        ]),
        run("a pass goes on after a piece of work, without ranking again", COLLAPSE, [
            begin(), then(done(9), fresh(), best), then(DONE, busy(), MORE), on(tick(Daemon::Scan), fresh(), best),
        ]),
        run("no superpage for the copy: a rest", "mm/khugepaged.c: khugepaged_alloc_sleep", [begin(), then(done(9), fresh(), best), then(NO_MEMORY, fresh(), after(60 * S))]),
        run("it may use all of a CPU", COLLAPSE, [begin(), then(done(9), long(), best), then(DONE, long(), best)]),
        says("which candidates come first", COLLAPSE, ranks, [None, None, Some(7), Some(9), None]),
    ]
}

/// FHPM uses skew instead: the number of pages of a superpage that are not accessed.
#[test]
fn a_superpage_is_split_by_its_skew() {
    let text = "name = \"x\"\n[unmapping]\nwhen = \"skew > 85\"\nscan = {below-percent = 100}\n";
    let design = Design::from_toml("test", text).expect("a good design");
    // Of 512 pages, 76 are 14 % and 77 are 15 %: percentages are rounded towards more skew.
    for (coverage, action) in [(0, Action::Demote), (76, Action::Demote), (77, in_place(true))] {
        let mut policy = design.policy(SCALE);
        policy.on(tick(Daemon::Split), &free(900));
        assert_eq!(policy.on(Event::Candidate, &covered(large(), coverage)), action, "{coverage}");
    }
}
