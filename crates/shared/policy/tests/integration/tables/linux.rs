//! Linux' transparent huge pages: 4.3, the modes of 6, mTHP, the underused shrinker, and the pool of superpages that
//! are zeroed ahead.

use superpage_policy::rules::{Effort, Locking, Prefault, ResidentCount};
use superpage_policy::{
    Action, Attempt, Backing, Compaction, Daemon, Event, Facts, FaultPath, Launch, Orders, Page,
    Physical, Reads, Zeroing,
};
use units::ByteSize;

use super::common::{
    LINUX, TRANSPARENT, efforts, idle, launched, no_pages, superpages, watermarks,
};
use super::dsl::*;
use super::khugepaged::{KHUGEPAGED, Scan, by_address, candidates};

const PMD_FAULT: &str = "mm/huge_memory.c: do_huge_pmd_anonymous_page";
const ALLOWED: &str = "mm/huge_memory.c: __thp_vma_allowable_orders";
const GFP: &str = "mm/huge_memory.c: vma_thp_gfp_mask";
const FAULT: &str = "mm/memory.c: __handle_mm_fault, handle_pte_fault";
const ANONYMOUS: &str = "mm/memory.c: do_anonymous_page";
const KSWAPD: &str = "mm/vmscan.c: kswapd, balance_pgdat";
const DEFERRED: &str = "mm/huge_memory.c: deferred_split_folio";
const KCOMPACTD: &str = "mm/compaction.c: kcompactd";
const NO_DAEMON: &str = "Linux has no such thread";

/// Differences between the presets of this family, and presets derived from them.
pub struct Thp {
    pub effort: Effort,
    pub advised: Effort,
    /// Whether mappings without advice may have superpages.
    pub always: bool,
    /// Order of a size below a superpage, if there is one.
    pub small: Option<u8>,
    /// Whether reads of untouched memory map the zero page.
    pub zeros: bool,
    /// Whether there is a deferred split queue.
    pub holds: bool,
    /// Whether there is kcompactd, and an effort that wakes it.
    pub compacts: bool,
    /// Facts about a first touch for which a superpage of 2 MiB is the right size.
    pub fresh: fn() -> Facts,
}

pub const LINUX_6: Thp = Thp {
    effort: Effort::None,
    advised: Effort::DirectRetry,
    always: true,
    small: None,
    zeros: true,
    holds: true,
    compacts: true,
    fresh,
};

#[rustfmt::skip]
pub fn faults(thp: &Thp) -> Table {
    let fresh = thp.fresh;
    let read = |superpage, write| if thp.zeros { zeros(superpage) } else { write };
    let plain = |effort| if thp.always { whole(effort) } else { BASE };
    let base = || thp.small.map_or(BASE, smaller);
    let unadvised = || if thp.always { base() } else { BASE };
    let zero = || fresh().superpage(|superpage| superpage.zeros = true);
    let cold = |pages| fresh().populated(pages).advised(true);
    let clean = || fresh().populated(9).page(Page::Mapped { cow: false, shared: false });
    let swapped = || fresh().populated(9).page(Page::Swapped).advised(true).region(|region| region.absent = Orders::NONE);
    vec![
        at("first fault: a read, advised", PMD_FAULT, READ, fresh().advised(true), read(true, whole(thp.advised))),
        at("first fault: a read where nobody advised", PMD_FAULT, READ, fresh(), read(thp.always, plain(thp.effort))),
        at("first fault: a write", PMD_FAULT, WRITE, fresh(), plain(thp.effort)),
        at("first fault: a write in memory of a heap", PMD_FAULT, WRITE, fresh().backed(Backing::Heap), plain(thp.effort)),
        at("advised: a write", GFP, WRITE, fresh().advised(true), whole(thp.advised)),
        at("advised against: a write", ALLOWED, WRITE, fresh().advised(false), BASE),
        at("advised against: a read", ALLOWED, READ, fresh().advised(false), read(false, BASE)),
        at("a write to the zeros", "mm/huge_memory.c: do_huge_zero_wp_pmd", WRITE, zero(), whole(thp.effort)),
        at("a write to the zeros, advised", GFP, WRITE, zero().advised(true), whole(thp.advised)),
        at("n-th page: a write", FAULT, WRITE, cold(9), base()),
        at("n-th page: a read", ANONYMOUS, READ, cold(9), read(false, base())),
        at("touched before, given back, its page table still there", FAULT, WRITE, cold(0), base()),
        at("the mapping ends within: a write", ALLOWED, WRITE, fresh().cut().advised(true), base()),
        at("the mapping ends within: a write where nobody advised", ALLOWED, WRITE, fresh().cut(), unadvised()),
        at("a page of a file", "mm/memory.c: do_fault", READ, fresh().backed(Backing::File { cached: true }).advised(true), BASE),
        at("a page that is swapped out", "mm/memory.c: do_swap_page", READ, swapped(), BASE),
        at("a page in memory that is not mapped", FAULT, READ, fresh().populated(9).page(Page::Resident { cow: false, shared: false }), fault(FaultAction::MapResident { around: 0 })),
        at("clean write: a page", "mm/memory.c: do_wp_page", WRITE, clean(), fault(FaultAction::MakeWritable)),
        at("clean write: a superpage", "mm/huge_memory.c: do_huge_pmd_wp_page", WRITE, large(), fault(FaultAction::MakeWritable)),
        at("a page got its contents", "nothing is made in place: mm/huge_memory.c has no promotion", Event::Populated, fresh().reserved(511), Action::Nothing),
        at("all pages are mapped", "nothing is made in place: mm/huge_memory.c has no promotion", Event::Mapped, fresh().full([!0; 8]), Action::Nothing),
        at("more pages than before", "mm/khugepaged.c scans by address: no list", Event::Grew { before: 0, after: 512 }, fresh(), Action::Nothing),
    ]
}

/// No superpage was available.
#[rustfmt::skip]
pub fn fallback(thp: &Thp) -> Table {
    let facts = || (thp.fresh)().advised(true);
    match thp.small {
        None => vec![run("no free superpage: a base page", PMD_FAULT, [
            on(WRITE, facts(), whole(thp.advised)), then(NO_MEMORY, facts(), BASE),
        ])],
        Some(order) => vec![
            run("no free superpage: the smaller size, at last a base page", "mm/memory.c: alloc_anon_folio", [
                on(WRITE, facts(), whole(thp.advised)),
                then(NO_MEMORY, facts(), smaller(order)),
                then(NO_MEMORY, facts(), BASE),
            ]),
            at("the smaller size has a page already", "mm/memory.c: alloc_anon_folio, pte_range_none", WRITE,
               fresh().populated(9).region(|region| region.absent = orders(&[1, 2, 3])), BASE),
            at("the smaller size begins before the mapping", "mm/huge_memory.c: thp_vma_suitable_order", WRITE,
               fresh().populated(9).region(|region| region.begins = orders(&[1, 2, 3])), BASE),
            at("the smaller size ends after the mapping", "mm/huge_memory.c: thp_vma_suitable_order", WRITE,
               fresh().cut().region(|region| region.ends = orders(&[1, 2, 3])), BASE),
        ],
    }
}

/// Faults on adjacent pages.
#[rustfmt::skip]
pub fn sequence() -> Table {
    let page = |at: u64| fresh().populated(9).advised(false).with(|facts| facts.place.0 += at);
    vec![run("sequential faults: one page each", ANONYMOUS, [
        on(WRITE, page(0), BASE), on(WRITE, page(1), BASE), on(WRITE, page(2), BASE), on(WRITE, page(3), BASE),
    ])]
}

#[rustfmt::skip]
pub fn memory(thp: &Thp) -> Table {
    let split = if thp.holds { Action::Hold } else { Action::Release };
    let why = if thp.holds { DEFERRED } else { "mm/huge_memory.c of 4.3: the deferred split queue came with 4.5" };
    let mut table = vec![
        at("frames of a split superpage go", why, Event::Demoted { reserved: false }, fresh(), split),
        at("a pool is short", "mm/hugetlb.c: hugetlb_acct_memory; a THP design has no pool", Event::NoPoolPage { tried: Attempt::Reclaim }, fresh(), Action::GiveUp),
    ];
    if thp.compacts {
        table.extend(kcompactd());
    } else {
        let machine = || fresh().machine(|machine| (machine.compaction_wanted, machine.is_fragmented) = (true, false));
        table.push(at("no kcompactd, or nobody wakes it", "mm/compaction.c: 4.3 has none; mm/page_alloc.c: __GFP_KSWAPD_RECLAIM alone wakes it", tick(Daemon::Compact), machine(), PERIOD));
    }
    table
}

/// kcompactd: woken, and proactive.
#[rustfmt::skip]
fn kcompactd() -> Table {
    const PROACTIVE: &str = "mm/compaction.c: kcompactd, should_proactive_compact_node";
    let machine = |wanted, score: Option<u32>| fresh().machine(|machine| {
        (machine.compaction_wanted, machine.is_fragmented) = (wanted, score.is_some());
        machine.fragmentation = score.unwrap_or(0);
    });
    let all = || compact_behind(Compaction::Proactive);
    let step = move || on(tick(Daemon::Compact), machine(false, Some(95)), PERIOD);
    vec![
        at("compaction: nobody asked, nothing is fragmented", KCOMPACTD, tick(Daemon::Compact), machine(false, None), PERIOD),
        run("compaction was asked for", KCOMPACTD, [
            on(tick(Daemon::Compact), machine(true, None), compact_behind(Compaction::SyncLight)),
            then(done(512), machine(false, None), PERIOD),
        ]),
        run("compaction was asked for, and memory is fragmented", PROACTIVE, [
            on(tick(Daemon::Compact), machine(true, Some(95)), compact_behind(Compaction::SyncLight)),
            then(done(512), machine(false, Some(95)), all()),
        ]),
        run("memory is fragmented: progress, and again", PROACTIVE, [
            on(tick(Daemon::Compact), machine(false, Some(95)), all()),
            then(done(512), machine(false, Some(80)), PERIOD),
            on(tick(Daemon::Compact), machine(false, Some(95)), all()),
        ]),
        run("no progress: 64 checks are left out (COMPACT_MAX_DEFER_SHIFT)", PROACTIVE,
            [on(tick(Daemon::Compact), machine(false, Some(95)), all()), then(done(512), machine(false, Some(95)), PERIOD)]
                .into_iter().chain((0..64).map(|_| step()))
                .chain([on(tick(Daemon::Compact), machine(false, Some(95)), all())])),
    ]
}

/// The settings of Linux 6.
pub const PHYSICAL: Physical = Physical { proactiveness: 20, ..super::dsl::PHYSICAL };

pub const PATH: FaultPath = FaultPath {
    locking: Locking::PerVma,
    resident: ResidentCount::Split,
    prefault: 0,
    prezero: None,
    superpage: Some(ByteSize::mib(2)),
};

pub const ZEROES: Zeroing =
    Zeroing { non_temporal: false, bulk: ByteSize::kib(4), ahead_non_temporal: None };

fn physical(expected: Physical) -> Line {
    says(
        "how memory is kept",
        "mm/page_alloc.c; mm/compaction.c: sysctl_compaction_proactiveness, COMPACT_MAX_DEFER_SHIFT",
        |policy| policy.physical(),
        expected,
    )
}

fn path(expected: FaultPath) -> Line {
    says(
        "locks of a fault, its counters, how much it maps",
        "mm/memory.c: lock_vma_under_rcu (6.4); mm/memory.c: add_mm_rss_vec; 4.3: mmap_sem, split ptlocks",
        |policy| policy.fault_path(),
        expected,
    )
}

fn zeroing(expected: Zeroing) -> Line {
    says(
        "how pages are zeroed",
        "mm/memory.c: folio_zero_user",
        |policy| policy.zeroing(),
        expected,
    )
}

fn daemons(expected: &[(Daemon, u64)]) -> Line {
    says(
        "daemons and their periods",
        "mm/khugepaged.c: khugepaged_scan_sleep_millisecs; mm/compaction.c: HPAGE_FRAG_CHECK_INTERVAL_MSEC; kswapd is looked at \
         every 100 ms",
        |policy| policy.daemons().collect::<Vec<_>>(),
        expected.to_vec(),
    )
}

fn reads(expected: &[Reads]) -> Line {
    says(
        "facts it asks for",
        "what no line here is decided by is not asked for",
        asked,
        expected.to_vec(),
    )
}

/// Returns the expensive facts that the policy reads.
pub fn asked(policy: &superpage_policy::Policy) -> Vec<Reads> {
    let all = [
        Reads::ABSENT,
        Reads::UNRESERVED,
        Reads::FULL,
        Reads::DIRTY,
        Reads::COVERAGE,
        Reads::ZEROS,
        Reads::WRITTEN,
        Reads::AT_FAULT,
        Reads::OF_CANDIDATES,
        Reads::MISSES,
        Reads::UNACCESSED,
    ];
    all.into_iter().filter(|&one| policy.reads().has(one)).collect()
}

const PERIODS: [(Daemon, u64); 3] =
    [(Daemon::Scan, 10 * S), (Daemon::Compact, 500 * MS), (Daemon::Reclaim, 100 * MS)];

/// All tables of a THP design except for the constants.
fn thp(thp: &Thp, scan: &Scan) -> Table {
    let common = [superpages(&LINUX), efforts(), no_pages(), watermarks(KSWAPD)];
    let own = [faults(thp), fallback(thp), memory(thp), by_address(), candidates(scan)];
    common.into_iter().chain(own).flatten().collect()
}

const NOT_HERE: [Daemon; 3] = [Daemon::Evacuate, Daemon::Fill, Daemon::Sample];

/// No daemon zeroes or recovers memory.
fn rest(thp: &Thp) -> Table {
    let none = idle("inactive memory stays; nothing is sampled", NO_DAEMON, &NOT_HERE);
    let zero = idle("idle time: nothing is zeroed ahead", NO_DAEMON, &[Daemon::Prezero]);
    let compacts = !matches!(thp.effort, Effort::None | Effort::Wake);
    let launch = launched(Launch { compacts, ..TRANSPARENT });
    let bloat = idle("zeros stay (max_ptes_none 511)", UNDERUSED, &[Daemon::Recover]);
    [none, zero, bloat, sequence(), launch].into_iter().flatten().collect()
}

const UNDERUSED: &str = "mm/huge_memory.c: thp_underused, deferred_split_scan";

/// Returns the tables of presets that are tested here.
pub fn table(preset: &str) -> Option<Table> {
    let modern = |design: Thp| -> Table {
        let settings =
            [physical(PHYSICAL), path(PATH), zeroing(ZEROES), daemons(&PERIODS), reads(&[])];
        thp(&design, &KHUGEPAGED).into_iter().chain(rest(&design)).chain(settings).collect()
    };
    Some(match preset {
        "linux-6" => modern(LINUX_6),
        "linux-6-always" => modern(Thp { effort: Effort::Direct, ..LINUX_6 }),
        "linux-6-defer" => modern(Thp { effort: Effort::Wake, advised: Effort::Wake, ..LINUX_6 }),
        "linux-6-mthp" => mthp(),
        "linux-6-underused" => underused(),
        "linux-4.3" => linux_43(),
        "prezeroed-pool" => prezeroed_pool(),
        _ => return None,
    })
}

fn mthp() -> Table {
    let settings = [
        physical(Physical { smaller: orders(&[4]), ..PHYSICAL }),
        path(PATH),
        zeroing(ZEROES),
        daemons(&PERIODS),
        reads(&[Reads::ABSENT]),
    ];
    let design = Thp { small: Some(4), ..LINUX_6 };
    thp(&design, &KHUGEPAGED).into_iter().chain(rest(&design)).chain(settings).collect()
}

fn linux_43() -> Table {
    let (effort, advised) = (Effort::Direct43, Effort::Direct43);
    let design = Thp { effort, advised, holds: false, compacts: false, ..LINUX_6 };
    let settings = [
        physical(Physical { proactiveness: 0, contended: (950, 450), ..PHYSICAL }),
        path(FaultPath { locking: Locking::SplitPageTable, ..PATH }),
        zeroing(ZEROES),
        daemons(&[(Daemon::Scan, 10 * S), (Daemon::Reclaim, 100 * MS)]),
        reads(&[]),
    ];
    thp(&design, &KHUGEPAGED).into_iter().chain(rest(&design)).chain(settings).collect()
}

#[rustfmt::skip]
fn underused() -> Table {
    let mut table = thp(&LINUX_6, &Scan { least: 103, ..KHUGEPAGED });
    table.extend(sequence());
    table.extend(launched(TRANSPARENT));
    table.extend(idle("inactive memory stays; nothing is sampled", NO_DAEMON, &NOT_HERE));
    table.extend(idle("idle time: nothing is zeroed ahead", NO_DAEMON, &[Daemon::Prezero]));
    table.extend(super::bloat::recovery(UNDERUSED, (2, 3), 409));
    table.extend([
        physical(PHYSICAL), path(PATH), zeroing(ZEROES), reads(&[Reads::ZEROS]),
        daemons(&[(Daemon::Scan, 10 * S), (Daemon::Compact, 500 * MS), (Daemon::Recover, S), (Daemon::Reclaim, 100 * MS)]),
    ]);
    table
}

/// Superpages that are zeroed ahead serve advised mappings; other mappings get base pages in growing batches.
#[rustfmt::skip]
fn prezeroed_pool() -> Table {
    const BATCH: &str = "Lameter, prefault (max_prealloc_order); crates/shared/policy/src/ahead.rs";
    let design = Thp { always: false, ..LINUX_6 };
    let page = |at: u64| fresh().populated(9).advised(true).with(|facts| facts.place.0 += at);
    let batch = |pages| fault(FaultAction::MapBase { pages });
    let mut table = thp(&design, &Scan { always: false, ..KHUGEPAGED });
    table.extend([
        run("sequential faults: batches double, up to 16 pages", BATCH, [
            on(WRITE, page(0), batch(1)), on(WRITE, page(1), batch(2)), on(WRITE, page(3), batch(4)),
            on(WRITE, page(7), batch(8)), on(WRITE, page(15), batch(16)), on(WRITE, page(31), batch(16)),
        ]),
        run("a fault elsewhere begins anew", BATCH, [
            on(WRITE, page(0), batch(1)), on(WRITE, page(1), batch(2)), on(WRITE, page(100), batch(1)),
        ]),
        run("a batch ends with its mapping", BATCH, [
            on(WRITE, page(509), batch(1)), on(WRITE, page(510), batch(2)),
        ]),
    ]);
    table.extend(idle("inactive memory stays; nothing is sampled", NO_DAEMON, &NOT_HERE));
    table.extend(idle("zeros stay (max_ptes_none 511)", UNDERUSED, &[Daemon::Recover]));
    table.extend(launched(Launch { prezero: true, prefault: Prefault::Doubling(4), ..TRANSPARENT }));
    table.extend(super::bloat::prezero("crates/shared/policy/src/ahead.rs; Lameter, prezeroing (scrubd)", (12, 16), 4, 9));
    table.extend([
        physical(Physical { prefers_zeroed: true, ..PHYSICAL }),
        path(FaultPath { prefault: 4, prezero: Some((12, 16, 9)), superpage: None, ..PATH }),
        zeroing(Zeroing { ahead_non_temporal: Some(true), ..ZEROES }),
        daemons(&[(Daemon::Prezero, MS), (Daemon::Scan, 10 * S), (Daemon::Compact, 500 * MS), (Daemon::Reclaim, 100 * MS)]),
        reads(&[]),
    ]);
    table
}
