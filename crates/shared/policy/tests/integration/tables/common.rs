//! Tables of behaviour that all systems have in common.

use superpage_policy::rules::{Effort, Prefault};
use superpage_policy::{Action, Backing, Compaction, Daemon, Event, Launch, LaunchPages, Page};
use units::ByteSize;

use super::dsl::*;

/// Where the sources of a system describe each behaviour.
pub struct Sources {
    pub part_unmapped: &'static str,
    pub unmapped: &'static str,
    pub part_protected: &'static str,
    pub protected: &'static str,
    pub forked: &'static str,
    pub shared_twice: &'static str,
    pub page_copied: &'static str,
    pub superpage_copied: &'static str,
    pub object: &'static str,
}

pub const LINUX: Sources = Sources {
    part_unmapped: "mm/memory.c: zap_pmd_range, __split_huge_pmd",
    unmapped: "mm/huge_memory.c: zap_huge_pmd",
    part_protected: "mm/mprotect.c: change_pmd_range, __split_huge_pmd",
    protected: "mm/huge_memory.c: change_huge_pmd",
    forked: "mm/huge_memory.c: copy_huge_pmd",
    shared_twice: "mm/rmap.c: pages of an object are mapped singly; lab's model",
    page_copied: "mm/memory.c: do_wp_page, wp_page_reuse, wp_page_copy",
    // Before 5.8 (also in 4.3) the kernel copied the whole superpage; no rule expresses that.
    superpage_copied: "mm/huge_memory.c since 5.8: do_huge_pmd_wp_page",
    object: "mm/shmem.c: shmem_get_folio_gfp",
};

pub const FREEBSD: Sources = Sources {
    part_unmapped: "amd64/pmap.c: pmap_remove, pmap_demote_pde",
    unmapped: "amd64/pmap.c: pmap_remove_pde; vm_reserv.c: vm_reserv_depopulate",
    part_protected: "amd64/pmap.c: pmap_protect, pmap_demote_pde",
    protected: "amd64/pmap.c: pmap_protect_pde",
    forked: "amd64/pmap.c: pmap_copy",
    shared_twice: "vm/vm_map.c: vm_map_copy_entry; lab's model",
    page_copied: "vm/vm_fault.c: vm_fault, vm_fault_cow",
    superpage_copied: "vm/vm_fault.c: vm_fault_cow; amd64/pmap.c: pmap_enter, pmap_demote_pde",
    object: "vm/vm_fault.c: vm_fault_object",
};

/// Superpages outside pools: split, shared and copied.
#[rustfmt::skip]
pub fn superpages(from: &Sources) -> Table {
    let cow = |shared| fresh().superpage(|superpage| (superpage.cow, superpage.shared) = (true, shared));
    let mapped = |shared| fresh().populated(512).page(Page::Mapped { cow: true, shared });
    let resident = |shared| fresh().populated(512).page(Page::Resident { cow: true, shared });
    let small = || fresh().populated(512);
    vec![
        at("a superpage is unmapped in part", from.part_unmapped, Event::Unmapped { whole: false }, large(), Action::Demote),
        at("a superpage is unmapped whole", from.unmapped, Event::Unmapped { whole: true }, large(), Action::Release),
        at("base pages are unmapped", from.unmapped, Event::Unmapped { whole: true }, small(), Action::Nothing),
        at("a superpage is protected in part", from.part_protected, Event::Protected { whole: false }, large(), Action::Demote),
        at("a superpage is protected whole", from.protected, Event::Protected { whole: true }, large(), Action::Keep),
        at("base pages are protected", from.protected, Event::Protected { whole: false }, small(), Action::Keep),
        at("a fork: a superpage whole", from.forked, Event::Shared { whole: true, private: true }, large(), Action::Keep),
        at("a fork: a part of a superpage", from.part_unmapped, Event::Shared { whole: false, private: true }, large(), Action::Demote),
        at("a fork: base pages", from.forked, Event::Shared { whole: true, private: true }, small(), Action::Keep),
        at("an object's superpage is mapped again", from.shared_twice, Event::Shared { whole: true, private: false }, large(), Action::Demote),
        at("after a fork: a write to a page that others have", from.page_copied, WRITE, mapped(true), fault(FaultAction::CopyPage)),
        at("after a fork: a write to a page that nobody else has", from.page_copied, WRITE, mapped(false), fault(FaultAction::Reuse)),
        at("after a fork: the same, not mapped", from.page_copied, WRITE, resident(true), fault(FaultAction::CopyPage)),
        at("after a fork: the same, nobody else's", from.page_copied, WRITE, resident(false), fault(FaultAction::Reuse)),
        at("after a fork: a read", from.page_copied, READ, mapped(true), fault(FaultAction::Nothing)),
        at("after a fork: a write to a superpage that others have", from.superpage_copied, WRITE, cow(true), fault(FaultAction::DemoteAndCopy)),
        at("after a fork: a write to a superpage that nobody else has", from.superpage_copied, WRITE, cow(false), fault(FaultAction::Reuse)),
        at("a read under a superpage", from.superpage_copied, READ, cow(true), fault(FaultAction::Nothing)),
        at("a page that another mapping of the object has", from.object, READ, fresh().backed(Backing::Shared).page(Page::InObject), fault(FaultAction::MapInObject)),
    ]
}

/// Attempts of faults and daemons to get a superpage when none is free, for designs that compact. The effort decides
/// what is attempted; each design's own table says which effort it has.
#[rustfmt::skip]
pub fn efforts() -> Table {
    use Compaction::{Async, SyncLight};
    use superpage_policy::Result::Unavailable;
    const GFP: &str = "mm/huge_memory.c: vma_thp_gfp_mask";
    const SLOW: &str = "mm/page_alloc.c: __alloc_pages_slowpath";
    const MPOL: &str = "mm/mempolicy.c: alloc_pages_mpol; mm/page_alloc.c: __alloc_pages_slowpath";
    const SLOW43: &str = "mm/page_alloc.c of 4.3: __alloc_pages_slowpath";
    let facts = fresh;
    let copy = |effort| Event::NoSuperpage { effort, is_copy: true };
    let behind = copy(Effort::Direct43);
    vec![
        at("none free, effort none", GFP, no_superpage(Effort::None), facts(), Action::GiveUp),
        at("none free, effort wake", GFP, no_superpage(Effort::Wake), facts(), Action::Wake),
        run("none free, effort direct, a fault: compacts, reclaims, compacts; on its own node, then on any", MPOL, [
            on(no_superpage(Effort::Direct), facts(), direct(on_own_node(Async))),
            then(NOTHING, facts(), direct_reclaim(on_own_node(Async))),
            then(done(32), facts(), direct_again(on_own_node(Async))),
            then(NOTHING, facts(), direct(last(Async, true))),
            then(NOTHING, facts(), direct_reclaim(last(Async, true))),
            then(done(32), facts(), direct_again(last(Async, true))),
            then(NOTHING, facts(), Action::GiveUp),
        ]),
        run("effort direct, a fault: compaction is deferred or skipped", MPOL, [
            on(no_superpage(Effort::Direct), facts(), direct(on_own_node(Async))),
            then(Unavailable, facts(), direct(last(Async, true))),
            then(Unavailable, facts(), Action::GiveUp),
        ]),
        run("effort direct, a copy: compaction is deferred or skipped", SLOW, [
            on(copy(Effort::Direct), facts(), direct(last(Async, true))),
            then(Unavailable, facts(), Action::GiveUp),
        ]),
        run("effort direct-retry, a fault: the last compaction is synchronous", MPOL, [
            on(no_superpage(Effort::DirectRetry), facts(), direct(on_own_node(SyncLight))),
            then(Unavailable, facts(), direct(last(SyncLight, false))),
            then(done(512), facts(), direct_reclaim(last(SyncLight, false))),
            then(NOTHING, facts(), direct_again(last(SyncLight, false))),
            then(done(512), facts(), Action::GiveUp),
        ]),
        run("effort direct-retry, a copy: compaction is deferred", SLOW, [
            on(copy(Effort::DirectRetry), facts(), direct(last(SyncLight, false))),
            then(Unavailable, facts(), direct_reclaim(last(SyncLight, false))),
            then(done(32), facts(), direct_again(last(SyncLight, false))),
            then(Unavailable, facts(), Action::GiveUp),
        ]),
        run("effort direct-4.3, a fault", SLOW43, [
            on(no_superpage(Effort::Direct43), facts(), direct(last(Async, true))),
            then(NOTHING, facts(), direct_reclaim(last(Async, true))),
            then(NOTHING, facts(), direct_again(last(Async, true))),
            then(NOTHING, facts(), Action::GiveUp),
        ]),
        run("effort direct-4.3, khugepaged", SLOW43, [
            on(behind, facts(), direct(last(SyncLight, true))),
            then(NOTHING, facts(), direct_reclaim(last(SyncLight, true))),
            then(NOTHING, facts(), direct_again(last(SyncLight, true))),
            then(NOTHING, facts(), Action::GiveUp),
        ]),
        run("effort direct-4.3: compaction is deferred", SLOW43, [
            on(behind, facts(), direct(last(SyncLight, true))),
            then(Unavailable, facts(), Action::GiveUp),
        ]),
    ]
}

/// No base page is free, for designs that do not break reservations. At least 32 pages are reclaimed at once.
#[rustfmt::skip]
pub fn no_pages() -> Table {
    const SHRINK: &str = "mm/vmscan.c: do_try_to_free_pages, shrink_slab; mm/huge_memory.c: deferred_split_scan";
    let many = Event::NoPage { wanted: 100 };
    vec![
        run("no base page", SHRINK, [
            on(NO_PAGE, fresh(), Action::ReleaseHeld { wanted: 1 }),
            then(NOTHING, fresh(), reclaim(32)),
            then(NOTHING, fresh(), Action::GiveUp),
        ]),
        run("no base page, many wanted", SHRINK, [
            on(many, fresh(), Action::ReleaseHeld { wanted: 100 }),
            then(NOTHING, fresh(), reclaim(100)),
        ]),
    ]
}

/// kswapd, or the page daemon of other systems.
#[rustfmt::skip]
pub fn watermarks(source: &'static str) -> Table {
    let free = |pages| fresh().machine(|machine| (machine.watermarks, machine.free_with_reserved) = ((100, 160), pages));
    vec![
        at("enough is free", source, tick(Daemon::Reclaim), free(100), PERIOD),
        run("less is free than the low watermark", source, [
            on(tick(Daemon::Reclaim), free(99), upkeep(UpkeepAction::ReleaseHeld)),
            then(NOTHING, free(99), reclaim_behind(61)),
            then(done(61), free(160), PERIOD),
        ]),
        run("what was held is enough", source, [
            on(tick(Daemon::Reclaim), free(99), upkeep(UpkeepAction::ReleaseHeld)),
            then(done(61), free(160), PERIOD),
        ]),
    ]
}

/// What a program gets when it runs under the design on an unmodified kernel.
pub fn launched(launch: Launch) -> Table {
    let what = "what a program can be given on a stock kernel";
    let source = "Documentation/admin-guide/mm/transhuge.rst, hugetlbpage.rst: reservations, scans by population or access are none";
    vec![says(what, source, |policy| policy.launch(), launch)]
}

/// THP, allocated whole at the first fault.
pub const TRANSPARENT: Launch = Launch {
    pages: LaunchPages::Transparent,
    size: Some(ByteSize::mib(2)),
    prezero: false,
    prefault: Prefault::None,
    is_whole: true,
    compacts: false,
};

/// Daemons that a design lacks do nothing if they are asked.
pub fn idle(what: &'static str, source: &'static str, daemons: &[Daemon]) -> Table {
    let steps = daemons.iter().map(|&daemon| on(tick(daemon), fresh(), PERIOD));
    vec![run(what, source, steps)]
}
