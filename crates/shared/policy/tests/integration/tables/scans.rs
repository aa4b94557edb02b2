//! Designs without superpages at faults: Ingens (OSDI'16) and HawkEye (ASPLOS'19), both on Linux 4.3.

use core::cmp::Reverse;

use superpage_policy::rules::{Effort, Locking, ResidentCount};
use superpage_policy::{
    Action, Backing, Compaction, Daemon, Event, FaultPath, Launch, LaunchPages, Page, Physical,
    Policy, Process, Reads, Region, Zeroing,
};
use units::ByteSize;

use super::common::{
    LINUX, TRANSPARENT, efforts, idle, launched, no_pages, superpages, watermarks,
};
use super::dsl::*;
use super::khugepaged::{KHUGEPAGED, Scan, candidates};
use super::linux::asked;

const DEFERRED: &str = "Ingens, mm/huge_memory.c: do_huge_pmd_anonymous_page with deferred_mode 1";
const ASYNC: &str = "HawkEye at ATC'20's commit 9b5a97: no superpages in mm/memory.c's faults";
const KSWAPD: &str = "mm/vmscan.c of 4.3: kswapd, balance_pgdat";
const NO_DAEMON: &str = "neither has such a thread";

/// Faults map base pages, with any advice.
#[rustfmt::skip]
fn faults(source: &'static str) -> Table {
    let page = |at: u64| fresh().populated(9).with(|facts| facts.place.0 += at);
    let clean = || fresh().populated(9).page(Page::Mapped { cow: false, shared: false });
    vec![
        at("first fault: a read", source, READ, fresh(), BASE),
        at("first fault: a write", source, WRITE, fresh(), BASE),
        at("advised: a write", source, WRITE, fresh().advised(true), BASE),
        at("advised against: a write", source, WRITE, fresh().advised(false), BASE),
        at("n-th page", source, WRITE, fresh().populated(459), BASE),
        at("a page of a file", source, READ, fresh().backed(Backing::File { cached: true }), BASE),
        at("a page that is swapped out", source, READ, fresh().populated(9).page(Page::Swapped), BASE),
        at("a page in memory that is not mapped", source, READ, fresh().populated(9).page(Page::Resident { cow: false, shared: false }), fault(FaultAction::MapResident { around: 0 })),
        run("sequential faults: one page each", source, [on(WRITE, page(0), BASE), on(WRITE, page(1), BASE), on(WRITE, page(2), BASE)]),
        at("clean write: a page", source, WRITE, clean(), fault(FaultAction::MakeWritable)),
        at("clean write: a superpage", source, WRITE, large(), fault(FaultAction::MakeWritable)),
        at("all pages are mapped: nothing is made in place", source, Event::Mapped, fresh().full([!0; 8]), Action::Nothing),
        at("frames of a split superpage go", "mm/huge_memory.c of 4.3: no deferred split queue", Event::Demoted { reserved: false }, fresh(), Action::Release),
    ]
}

const PHYSICAL: Physical = Physical { contended: (950, 450), ..super::dsl::PHYSICAL };

const PATH: FaultPath = FaultPath {
    locking: Locking::SplitPageTable,
    resident: ResidentCount::Split,
    prefault: 0,
    prezero: None,
    superpage: None,
};

const ZEROES: Zeroing =
    Zeroing { non_temporal: false, bulk: ByteSize::kib(4), ahead_non_temporal: None };

#[rustfmt::skip]
fn settings(physical: Physical, path: FaultPath, zeroing: Zeroing, daemons: &[(Daemon, u64)], reads: &[Reads]) -> Table {
    vec![
        says("how memory is kept", "mm/compaction.c of 4.3; how often it fails is fitted to ATC'20, slides 22 and 23", |policy| policy.physical(), physical),
        says("locks of a fault, its counters, how much it maps", "mm/memory.c of 4.3: mmap_sem, split ptlocks, add_mm_counter_fast", |policy| policy.fault_path(), path),
        says("how pages are zeroed", "mm/memory.c of 4.3: clear_huge_page; HawkEye, asynczero.c: zero_fill_page_ntstores", |policy| policy.zeroing(), zeroing),
        says("daemons and their periods", "the parameters of ATC'20's scripts; kswapd is looked at every 100 ms", |policy| policy.daemons().collect::<Vec<_>>(), daemons.to_vec()),
        says("facts it asks for", "what no line here is decided by is not asked for", asked, reads.to_vec()),
    ]
}

fn common(source: &'static str) -> Table {
    let inactive = idle("inactive memory stays", NO_DAEMON, &[Daemon::Evacuate, Daemon::Fill]);
    let all =
        [superpages(&LINUX), efforts(), no_pages(), watermarks(KSWAPD), faults(source), inactive];
    all.into_iter().flatten().collect()
}

/// Returns the tables of presets that are tested here.
pub fn table(preset: &str) -> Option<Table> {
    Some(match preset {
        "ingens" => ingens(460, None),
        "ingens-star" => ingens(1, Some((20, 100 * MS))),
        "hawkeye-g" => hawkeye(&HawkEye { one_process: false, every: 10 * S, share: None }),
        "hawkeye-pmu" => hawkeye(&HawkEye { one_process: true, every: 10 * S, share: None }),
        "hawkeye-star" => hawkeye(&HawkEye { one_process: true, every: MS, share: Some(MS / 2) }),
        _ => return None,
    })
}

fn ingens(least: u16, periodic: Option<(usize, u64)>) -> Table {
    let mut table = common(DEFERRED);
    table.extend(candidates(&Scan { least, effort: Effort::None, ..KHUGEPAGED }));
    table.extend(worklist(least));
    table.extend(launched(OWN_KERNEL));
    table.extend(idle("idle time: nothing is zeroed ahead, nothing sampled", NO_DAEMON, &REST));
    table.extend(periodic.map_or_else(no_compaction, |(blocks, _)| periodic_compaction(blocks)));
    let mut daemons = vec![(Daemon::Scan, 10 * S)];
    daemons.extend(periodic.map(|(_, every)| (Daemon::Compact, every)));
    daemons.push((Daemon::Reclaim, 100 * MS));
    table.extend(settings(super::dsl::PHYSICAL, PATH, ZEROES, &daemons, &[]));
    table
}

const OWN_KERNEL: Launch = Launch { pages: LaunchPages::OwnKernel, ..TRANSPARENT };

const REST: [Daemon; 3] = [Daemon::Prezero, Daemon::Sample, Daemon::Recover];

fn no_compaction() -> Table {
    let machine = fresh().machine(|machine| machine.compaction_wanted = true);
    let source = "Ingens, osa/hugepage_scan.c: compact_sleep_millisecs 0";
    vec![at("no compaction behind", source, tick(Daemon::Compact), machine, PERIOD)]
}

/// A pass migrates at most this many batches.
#[rustfmt::skip]
fn periodic_compaction(blocks: usize) -> Table {
    const KCOMPACTD: &str = "Ingens, mm/compaction.c: compact_pgdat_periodic, osa_cc_counts 20; compact_sleep_millisecs 100 (ATC'20's scripts)";
    let sync = || compact_behind(Compaction::Sync);
    let begin = move || on(tick(Daemon::Compact), fresh(), sync());
    let more = move || then(done(512), fresh(), sync());
    vec![
        run("periodic compaction: so many batches in a pass", KCOMPACTD,
            [begin()].into_iter().chain((1..blocks).map(|_| more())).chain([then(done(512), fresh(), PERIOD), begin()])),
        run("periodic compaction: nothing to move ends the pass", KCOMPACTD, [begin(), then(done(0), fresh(), PERIOD)]),
        run("periodic compaction: a piece of work is long enough", KCOMPACTD, [
            begin(), then(done(512), fresh().machine(|machine| machine.is_piece_done = true), MORE), begin(),
        ]),
    ]
}

/// Ingens' list of regions that crossed the threshold.
#[rustfmt::skip]
fn worklist(least: u16) -> Table {
    use superpage_policy::Wait;
    const LIST: &str = "Ingens, osa/hugepage_scan.c: hugepage_worklist, util_threshold";
    const SERVE: &str = "Ingens, mm/huge_memory.c: hugepage_worklist first, then khugepaged_scan_mm_slot; khugepaged_wait_work";
    const ALLOC: &str = "mm/huge_memory.c of 4.3: khugepaged_alloc_sleep (60 s)";
    use superpage_policy::Result::Unfit;
    let waits = |waiting| fresh().machine(|machine| machine.waiting = waiting);
    let grew = |before, after| Event::Grew { before, after };
    let listed = scan_step(ScanAction::Visit(Candidates::Listed));
    let serve = move || on(tick(Daemon::Scan), waits(1), listed);
    let made = move || then(DONE, waits(1), MORE);
    let unfit = || then(Unfit, waits(0), NEXT);
    let pause = rest(Wait::Pause(60 * S));
    let mut table = vec![
        at("n-th page: the threshold is reached", LIST, grew(least - 1, least), fresh(), Action::List),
        at("n-th page: a batch goes over the threshold", LIST, grew(0, 512), fresh(), Action::List),
        at("n-th page: past the threshold", LIST, grew(least, least + 1), fresh(), Action::Nothing),
        run("the next candidate is the first of the list", SERVE, [serve(), made(), serve()]),
        run("one that does not qualify costs a look at those behind it", SERVE, [serve(), unfit(), then(DONE, waits(0), MORE)]),
        run("nobody waits any more: a scan by address, 8 regions in all, then it sleeps", SERVE,
            [serve()].into_iter().chain((0..7).map(|_| unfit())).chain([then(Unfit, waits(0), MORE), on(tick(Daemon::Scan), waits(0), PERIOD)])),
        run("somebody waits: the pass goes on beyond 8 regions", SERVE,
            [serve()].into_iter().chain((0..7).map(|_| unfit())).chain([then(Unfit, waits(1), MORE), serve()])),
        run("the end of memory: once more from the beginning, then the round ends", SERVE, [
            serve(), then(NOTHING, waits(0), scan_step(ScanAction::Rewind)), then(DONE, waits(0), NEXT), then(NOTHING, waits(0), MORE),
            on(tick(Daemon::Scan), waits(0), PERIOD),
        ]),
        run("no superpage: a rest that the next candidate ends; again: the round ends", ALLOC, [
            serve(), then(NO_MEMORY, waits(1), pause), serve(), then(NO_MEMORY, waits(1), MORE), on(tick(Daemon::Scan), waits(0), PERIOD),
        ]),
        run("it may use all of a CPU", SERVE, [on(tick(Daemon::Scan), waits(1).machine(|machine| machine.spent = 3600 * S), listed)]),
        run("a piece of work is long enough", SERVE, [serve(), then(Unfit, waits(1).machine(|machine| machine.is_piece_done = true), MORE), serve()]),
    ];
    if least > 1 {
        table.push(at("n-th page: before the threshold", LIST, grew(least - 2, least - 1), fresh(), Action::Nothing));
    }
    table
}

/// Differences between the presets of HawkEye.
struct HawkEye {
    /// Whether the daemon serves only the process with the most TLB misses.
    one_process: bool,
    every: u64,
    /// CPU time that a pass may use; `None`: no limit.
    share: Option<u64>,
}

#[rustfmt::skip]
fn hawkeye(design: &HawkEye) -> Table {
    let mut table = common(ASYNC);
    table.extend(candidates(&Scan { referenced: false, ..KHUGEPAGED }));
    table.extend(ranked(design));
    table.extend(sampling());
    table.extend(launched(Launch { prezero: true, ..OWN_KERNEL }));
    table.extend(super::bloat::prezero("HawkEye, hawkeye_modules/async-zero/asynczero.c: zero_fill_zone_pages", (1000, 1000), 10, 10));
    table.extend(super::bloat::recovery("HawkEye, bloat_recovery/remove.c: from 15 to 30 % free, any page of zeros", (15, 30), 0));
    table.extend(no_compaction());
    let path = FaultPath { prezero: Some((1000, 1000, 10)), ..PATH };
    let zeroing = Zeroing { ahead_non_temporal: Some(true), ..ZEROES };
    let daemons = [
        (Daemon::Prezero, S), (Daemon::Sample, 5 * S), (Daemon::Scan, design.every),
        (Daemon::Recover, 120 * S), (Daemon::Reclaim, 100 * MS),
    ];
    let physical = Physical { prefers_zeroed: true, ..PHYSICAL };
    table.extend(settings(physical, path, zeroing, &daemons, &[Reads::COVERAGE, Reads::ZEROS]));
    table
}

/// The hottest regions come first: of all processes, or of the one with the most TLB misses.
#[rustfmt::skip]
fn ranked(design: &HawkEye) -> Table {
    const OHP: &str = "HawkEye, mm/ohp.c: ohp_get_target_mm; promotion_metric, 8 promotions per wake";
    const BINS: &str = "HawkEye, mm/ohp.c: update_get_kaddr_index (order_base_2); the paper has ten equal bins";
    const CPU: &str = "HawkEye, mm/huge_memory.c: ohp_sleep_iteration, max_cpu";
    let best = scan_step(ScanAction::Visit(Candidates::Best));
    let rank = scan_step(ScanAction::Rank { most: 8, one_process: design.one_process });
    let begin = move || on(tick(Daemon::Scan), fresh(), rank);
    let spent = |ticks| fresh().machine(|machine| machine.spent = ticks);
    let busy = || fresh().machine(|machine| machine.is_piece_done = true);
    let mut table = vec![
        run("the next candidate is the best", OHP, [begin(), then(done(8), fresh(), best), then(DONE, fresh(), best), then(NOTHING, fresh(), PERIOD)]),
        run("a pass goes on after a piece of work, without ranking again", OHP, [
            begin(), then(done(8), fresh(), best), then(DONE, busy(), MORE), on(tick(Daemon::Scan), fresh(), best),
        ]),
        run("no superpage: the pass ends, without a rest (alloc_sleep 0)", OHP, [begin(), then(done(8), fresh(), best), then(NO_MEMORY, fresh(), PERIOD)]),
        at("n-th page: no list", OHP, Event::Grew { before: 0, after: 512 }, fresh(), Action::Nothing),
        says("ranks by accessed pages", BINS, ranks, vec![None, Some(0), Some(1), Some(2), Some(2), Some(6), Some(7), Some(9), None, None]),
        says("which process is served: 8 candidates above bin 1, then the largest overhead, then who waited longest", "HawkEye, mm/ohp.c: ohp_get_target_mm, promotion_metric 0", served, vec![7, 9, 3]),
    ];
    match design.share {
        Some(share) => table.extend([run("a share of a CPU: half of each period", CPU, [
            begin(), then(done(8), spent(share - 1), best), then(DONE, spent(share), PERIOD),
        ]), run("a superpage took longer than the share of a period: as long a rest", CPU, [
            begin(), then(done(8), spent(3 * share), after(3 * share)),
        ])]),
        None => table.push(run("it may use all of a CPU", CPU, [begin(), then(done(8), spent(3600 * S), best)])),
    }
    table
}

/// Returns ranks of regions with this many recently accessed pages, of a superpage, and of a region without base pages.
fn ranks(policy: &Policy) -> Vec<Option<u32>> {
    let region = |coverage| Region { coverage, has_table: true, ..Region::default() };
    let mut regions: Vec<Region> = [0, 1, 2, 3, 4, 64, 65, 512].map(region).to_vec();
    regions.push(large().region.with_coverage(512));
    regions.push(Region { coverage: 512, ..Region::default() });
    regions.iter().map(|region| policy.rank(region, 0)).collect()
}

trait Covered {
    fn with_coverage(self, coverage: u16) -> Region;
}

impl Covered for Region {
    fn with_coverage(self, coverage: u16) -> Region {
        Region { coverage, ..self }
    }
}

/// Returns the order in which five processes are served; two have too few candidates.
fn served(policy: &Policy) -> Vec<u32> {
    let process = |number, walks_permille, served| Process { number, walks_permille, served };
    let all = [
        (process(1, 900, 0), vec![2; 7]),
        (process(2, 800, 0), vec![1; 500]),
        (process(3, 100, 9), vec![2; 8]),
        (process(7, 300, 0), vec![2; 8]),
        (process(9, 300, 5), vec![9; 80]),
    ];
    let mut able: Vec<(_, u32)> = all
        .iter()
        .filter_map(|(process, ranks)| {
            Some((policy.rank_process(ranks.iter().copied(), process)?, process.number))
        })
        .collect();
    able.sort_by_key(|&(key, _)| Reverse(key));
    able.into_iter().map(|(_, number)| number).collect()
}

/// Accessed bits are cleared, and counted a second later. The next round begins after 5 s, or after 19 times the
/// duration of this round.
#[rustfmt::skip]
fn sampling() -> Table {
    const KBIN: &str = "HawkEye, mm/ohp.c: kbinmanager_do_scan, kbinmanager_wait_cpu_bound, update_get_kaddr_index";
    let took = |ticks| fresh().machine(|machine| machine.spent_in_piece = ticks);
    let count = scan_step(ScanAction::CountAccessed { newest_percent: 40 });
    let clear = || on(tick(Daemon::Sample), fresh(), scan_step(ScanAction::ClearAccessed));
    vec![
        run("sampling: cleared, counted after 1 s, then 5 s", KBIN, [
            clear(), then(DONE, took(MS), after(S)),
            on(tick(Daemon::Sample), fresh(), count), then(DONE, took(MS), after(5 * S)), clear(),
        ]),
        run("sampling: a twentieth of one CPU at most", KBIN, [
            clear(), then(DONE, took(S), after(S)),
            on(tick(Daemon::Sample), fresh(), count), then(DONE, took(S), after(19 * S)),
        ]),
    ]
}
