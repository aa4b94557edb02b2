//! Base pages only, and explicit superpages of a pool.

use superpage_policy::rules::{Effort, Locking, ResidentCount};
use superpage_policy::{
    Action, Attempt, Backing, Compaction, Daemon, Event, FaultPath, Launch, LaunchPages, Page,
    Physical, Zeroing,
};
use units::ByteSize;

use super::common::{
    LINUX, TRANSPARENT, efforts, idle, launched, no_pages, superpages, watermarks,
};
use super::dsl::*;
use super::khugepaged::collapse_only;
use super::linux::asked;

const KSWAPD: &str = "mm/vmscan.c: kswapd, balance_pgdat";
const NO_DAEMON: &str = "Linux has no such thread";
const ANONYMOUS: &str = "mm/memory.c: do_anonymous_page; THP are switched off";

const DAEMONS: [Daemon; 7] = [
    Daemon::Evacuate,
    Daemon::Fill,
    Daemon::Prezero,
    Daemon::Sample,
    Daemon::Scan,
    Daemon::Compact,
    Daemon::Recover,
];

const PATH: FaultPath = FaultPath {
    locking: Locking::PerVma,
    resident: ResidentCount::Split,
    prefault: 0,
    prezero: None,
    superpage: None,
};

#[rustfmt::skip]
fn settings(physical: Physical, path: FaultPath) -> Table {
    let zeroing = Zeroing { non_temporal: false, bulk: ByteSize::kib(4), ahead_non_temporal: None };
    vec![
        says("how memory is kept", "mm/page_alloc.c; Gorman, WIOSCA'10, section 3.1 (mobility) and 3.2 (reclaim)", |policy| policy.physical(), physical),
        says("locks of a fault, its counters, how much it maps", "mm/memory.c: lock_vma_under_rcu (6.4), add_mm_rss_vec", |policy| policy.fault_path(), path),
        says("how pages are zeroed", "mm/memory.c: folio_zero_user", |policy| policy.zeroing(), zeroing),
        says("daemons and their periods", "kswapd is looked at every 100 ms", |policy| policy.daemons().collect::<Vec<_>>(), vec![(Daemon::Reclaim, 100 * MS)]),
        says("facts it asks for", "what no line here is decided by is not asked for", asked, vec![]),
    ]
}

/// Faults on base pages.
#[rustfmt::skip]
fn base_faults(source: &'static str) -> Table {
    let page = |at: u64| fresh().populated(9).with(|facts| facts.place.0 += at);
    vec![
        at("first fault: a read", source, READ, fresh(), BASE),
        at("first fault: a write", source, WRITE, fresh(), BASE),
        at("n-th page", source, WRITE, fresh().populated(511), BASE),
        at("advised", source, WRITE, fresh().advised(true), BASE),
        at("advised against", source, WRITE, fresh().advised(false), BASE),
        at("a page of a file", source, READ, fresh().backed(Backing::File { cached: true }), BASE),
        at("a page that is swapped out", source, READ, fresh().populated(9).page(Page::Swapped), BASE),
        at("a page in memory that is not mapped", source, READ, fresh().populated(9).page(Page::Resident { cow: false, shared: false }), fault(FaultAction::MapResident { around: 0 })),
        run("sequential faults: one page each", source, [on(WRITE, page(0), BASE), on(WRITE, page(1), BASE), on(WRITE, page(2), BASE)]),
        at("a page got its contents", source, Event::Populated, fresh().reserved(511), Action::Nothing),
        at("all pages are mapped", source, Event::Mapped, fresh().full([!0; 8]), Action::Nothing),
        at("more pages than before", source, Event::Grew { before: 0, after: 512 }, fresh(), Action::Nothing),
    ]
}

/// Returns the tables of presets that are tested here.
pub fn table(preset: &str) -> Option<Table> {
    Some(match preset {
        "base" => base(),
        "hugetlb" => hugetlb(),
        _ => return None,
    })
}

#[rustfmt::skip]
fn base() -> Table {
    let own = vec![
        at("clean write: a page", "mm/memory.c: do_wp_page", WRITE, fresh().populated(9).page(Page::Mapped { cow: false, shared: false }), fault(FaultAction::MakeWritable)),
        at("clean write: a superpage that the program asked for", "mm/huge_memory.c: do_huge_pmd_wp_page", WRITE, large(), fault(FaultAction::MakeWritable)),
        at("frames of a split superpage go", "designs/base.toml: deallocation at once", Event::Demoted { reserved: false }, fresh(), Action::Release),
        at("asked for, where nobody advised", "mm/khugepaged.c: madvise_collapse", Event::CollapseRequested, candidate(1), Action::Inspect),
    ];
    let tables = [
        base_faults(ANONYMOUS), own, superpages(&LINUX), efforts(), no_pages(), watermarks(KSWAPD), collapse_only(),
        idle("no daemon", NO_DAEMON, &DAEMONS), settings(PHYSICAL, PATH),
        launched(Launch { pages: LaunchPages::Base, is_whole: false, ..TRANSPARENT }),
    ];
    tables.into_iter().flatten().collect()
}

/// A pool's pages are reserved when memory is mapped. A fault maps a whole superpage, which is never split.
#[rustfmt::skip]
fn hugetlb() -> Table {
    const HUGETLB: &str = "mm/hugetlb.c: hugetlb_fault, hugetlb_no_page";
    const RESERVE: &str = "mm/hugetlb.c: hugetlb_reserve_pages, hugetlb_acct_memory; Gorman, WIOSCA'10, section 4";
    const WHOLE_ONLY: &str = "mm/hugetlb.c: hugetlb_vm_op_split (EINVAL)";
    const LUMPY: &str = "mm/vmscan.c of 2.6.38: isolate_lru_pages; Gorman, WIOSCA'10, section 3.2";
    let pooled = || fresh().superpage(|superpage| superpage.pooled = true).region(|region| region.is_pooled = true);
    let page = || fresh().page(Page::Pooled).region(|region| region.is_pooled = true);
    let lumpy = |direct| Action::Reclaim { pages: 512, lumpy: true, direct };
    let asked_for = on_own_node(Compaction::SyncLight);
    let own = vec![
        run("memory is mapped and the pool is short of a superpage: compacted, reclaimed, then refused", RESERVE, [
            on(Event::NoPoolPage { tried: Attempt::Nothing }, fresh(), compact(Compaction::Sync)),
            on(Event::NoPoolPage { tried: Attempt::Compaction }, fresh(), lumpy(None)),
            on(Event::NoPoolPage { tried: Attempt::Reclaim }, fresh(), Action::Refuse),
        ]),
        at("first fault: a read", HUGETLB, READ, page(), fault(FaultAction::MapPooled)),
        at("first fault: a write", HUGETLB, WRITE, page(), fault(FaultAction::MapPooled)),
        at("n-th page: it is mapped", HUGETLB, READ, pooled(), fault(FaultAction::Nothing)),
        at("clean write: a superpage", "mm/hugetlb.c: hugetlb_wp", WRITE, pooled(), fault(FaultAction::MapPooled)),
        at("unmapped in part", WHOLE_ONLY, Event::Unmapped { whole: false }, pooled(), Action::Keep),
        at("unmapped whole", "mm/hugetlb.c: free_huge_folio", Event::Unmapped { whole: true }, pooled(), Action::Release),
        at("protected in part", WHOLE_ONLY, Event::Protected { whole: false }, pooled(), Action::Keep),
        at("protected whole", "mm/hugetlb.c: hugetlb_change_protection", Event::Protected { whole: true }, pooled(), Action::Keep),
        at("a fork", "mm/hugetlb.c: copy_hugetlb_page_range", Event::Shared { whole: true, private: true }, pooled(), Action::Keep),
        at("a fork: a part of it is in another mapping", "mm/hugetlb.c: copy_hugetlb_page_range", Event::Shared { whole: false, private: true }, pooled(), Action::Keep),
        at("an object's superpage is mapped again", "mm/hugetlb.c: hugetlb_fault", Event::Shared { whole: true, private: false }, pooled(), Action::Keep),
        at("a page after a fork that others have", "mm/memory.c: do_wp_page", WRITE, fresh().populated(9).page(Page::Mapped { cow: true, shared: true }), fault(FaultAction::CopyPage)),
        at("memory that is not the pool's: clean write", "mm/memory.c: do_wp_page", WRITE, large(), fault(FaultAction::MakeWritable)),
        at("frames of a split superpage go: there are none", "mm/hugetlb.c: never split", Event::Demoted { reserved: false }, fresh(), Action::Release),
        at("no base page", LUMPY, NO_PAGE, fresh(), Action::ReleaseHeld { wanted: 1 }),
        run("no superpage: pages around an old one are reclaimed together", LUMPY, [
            on(no_superpage(Effort::DirectRetry), fresh(), lumpy(Some(asked_for))), then(done(512), fresh(), Action::GiveUp),
        ]),
        run("many pages wanted", LUMPY, [on(Event::NoPage { wanted: 512 }, fresh(), Action::ReleaseHeld { wanted: 512 }), then(NOTHING, fresh(), lumpy(None))]),
        run("few pages wanted", LUMPY, [on(Event::NoPage { wanted: 511 }, fresh(), Action::ReleaseHeld { wanted: 511 }), then(NOTHING, fresh(), reclaim(511))]),
        at("no superpage, effort none", RESERVE, no_superpage(Effort::None), fresh(), Action::GiveUp),
        at("asked for (MADV_COLLAPSE), where nobody advised", "mm/khugepaged.c: madvise_collapse", Event::CollapseRequested, candidate(1), Action::Inspect),
    ];
    let physical = Physical { pool: Some(None), ..PHYSICAL };
    let tables = [
        base_faults("mm/memory.c: do_anonymous_page; THP are not the pool's"), own, watermarks(KSWAPD), collapse_only(),
        idle("no daemon", NO_DAEMON, &DAEMONS), settings(physical, PATH),
        launched(Launch { pages: LaunchPages::Pool, ..TRANSPARENT }),
    ];
    tables.into_iter().flatten().collect()
}
