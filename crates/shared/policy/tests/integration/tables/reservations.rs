//! Designs with reservations: FreeBSD, Quicksilver (ATC'20) on FreeBSD 11.2, Navarro et al. (OSDI'02), and the ideal
//! design.

use superpage_policy::rules::{Locking, Prefault, ResidentCount};
use superpage_policy::{
    Action, Backing, Daemon, Event, Facts, FaultPath, Launch, LaunchPages, Orders, Page, Physical,
    Plain, Reads, Reservation, Result as Ended, Zeroing,
};
use units::ByteSize;

use super::common::{FREEBSD, TRANSPARENT, efforts, idle, launched, superpages, watermarks};
use super::dsl::*;
use super::khugepaged::collapse_only;
use super::linux::asked;

const ALLOC: &str = "vm/vm_reserv.c: vm_reserv_alloc_page";
const POPULATE: &str = "vm/vm_reserv.c: vm_reserv_populate";
const PROMOTE: &str = "amd64/pmap.c: pmap_promote_pde";
const SOFT: &str = "vm/vm_fault.c: vm_fault_soft_fast";
const PREFAULT: &str = "vm/vm_fault.c: vm_fault_prefault";
const RECLAIM: &str = "vm/vm_reserv.c: vm_reserv_reclaim_inactive";
const PAGEOUT: &str = "vm/vm_pageout.c: vm_pageout_worker";
const SYNC: &str =
    "Quicksilver, vm/vm_reserv.c: vm_reserv_satisfy_sync_promotion, sync_popthreshold (scripts)";
const DEFAULT: &str =
    "Quicksilver, vm/vm_fault.c: vm_fault_hold: OBJT_DEFAULT, backing_object == NULL";
const RELAX: &str = "Quicksilver, vm/vm_page.c: vm_page_ps_test with vm.relax";
const COMPACT: &str = "Quicksilver, vm/vm_reserv.c: vm_reserv_evict_inactive, inactive_thre, migrate_budget (scripts)";
const PREPOP: &str =
    "Quicksilver, vm/vm_reserv.c: vm_reserv_scan_partpopq, vm_reserv_prepopulate (scripts)";
const NAVARRO: &str = "Navarro et al., OSDI'02, sections 4.1 to 4.6";
const NO_DAEMON: &str = "it has no such thread";

const CLEAN: [u64; 8] = [0; 8];
const DIRTY: [u64; 8] = [!0; 8];
/// All pages except for the faulting one, the first.
const OTHERS: [u64; 8] = [!1, !0, !0, !0, !0, !0, !0, !0];
const MIXED: [u64; 8] = [!0, 0, !0, !0, !0, !0, !0, !0];

/// Differences between the presets of this family.
struct Reserving {
    /// Whether clean pages of anonymous memory count as written.
    relaxed: bool,
    /// Number of pages on each side of a fault that are mapped too.
    around: u8,
    /// Whether a write to a clean superpage splits it.
    demotes: bool,
    /// Whether anonymous memory may have reservations past its end.
    past_end: bool,
    /// Whether a reservation may be preempted for another one.
    preempts: bool,
    /// Whether entries without the accessed bit prevent promotion.
    needs_accessed: bool,
}

const PLAIN: Reserving = Reserving {
    relaxed: false,
    around: 4,
    demotes: true,
    past_end: true,
    preempts: false,
    needs_accessed: false,
};

/// Facts about a page that is in memory but not mapped.
fn soft(dirty: [u64; 8]) -> Facts {
    let resident = Page::Resident { cow: false, shared: false };
    fresh().full(dirty).page(resident).region(|region| region.is_mapped = false)
}

#[rustfmt::skip]
fn faults(design: &Reserving) -> Table {
    let reserve = || reserve(WHOLE, design.preempts);
    let map = fault(FaultAction::MapReserved { around: design.around });
    let past = fresh().cut();
    let beyond = if design.past_end { reserve() } else if design.preempts { super::dsl::reserve(4, true) } else { BASE };
    let file = |cached| fresh().backed(Backing::File { cached });
    let file_reserved = |pages| file(true).reserved(pages);
    let taken = fresh().reserved(9).region(|region| region.reservation = region.reservation.map(|one| Reservation { is_taken: true, ..one }));
    let page = |at: u64| fresh().reserved(9).with(|facts| facts.place.0 += at);
    vec![
        at("first fault: a read", ALLOC, READ, fresh(), reserve()),
        at("first fault: a write", ALLOC, WRITE, fresh(), reserve()),
        run("first fault: there is a reservation now", ALLOC, [on(WRITE, fresh(), reserve()), on(WRITE, fresh().reserved(0), map)]),
        at("advised: a write", "FreeBSD has no such advice: vm/vm_map.c, vm_map_madvise", WRITE, fresh().advised(true), reserve()),
        at("advised against: a write", "FreeBSD has no such advice; the lab's does", WRITE, fresh().advised(false), BASE),
        at("n-th page: its place in the reservation", ALLOC, WRITE, fresh().reserved(9), map),
        at("n-th page: a read", ALLOC, READ, fresh().reserved(511), map),
        at("a page that is swapped out, in a reservation", ALLOC, READ, fresh().reserved(9).page(Page::Swapped), map),
        at("its place is another page's", ALLOC, WRITE, taken, BASE),
        at("the mapping ends within: anonymous memory may grow", ALLOC, WRITE, past, beyond),
        at("the mapping begins within", ALLOC, WRITE, fresh().region(|region| region.begins = Orders::NONE), BASE),
        at("the mapping of a file ends within", ALLOC, WRITE, file(false).region(|region| region.ends = Orders::NONE), BASE),
        at("a page of it is in memory outside of a reservation", ALLOC, WRITE, fresh().region(|region| region.unreserved = Orders::NONE), BASE),
        at("first fault: a page of a file", ALLOC, READ, file(true), reserve()),
        at("a file in memory whole: mapped large, to be read", SOFT, READ, file_reserved(0), fault(FaultAction::MapFile)),
        at("the same where the mapping ends within", SOFT, READ, file_reserved(0).region(|region| region.inside = false), map),
        at("the same with pages mapped", SOFT, READ, file_reserved(9), map),
        at("a file that is not in memory", SOFT, READ, file(false).reserved(0), map),
        run("sequential faults: one page each", ALLOC, [on(WRITE, page(0), map), on(WRITE, page(1), map), on(WRITE, page(2), map)]),
        at("clean write: a page", "vm/vm_fault.c: vm_fault_dirty", WRITE, fresh().reserved(9).page(Page::Mapped { cow: false, shared: false }), fault(FaultAction::MakeWritable)),
        at("clean write: a superpage", "amd64/pmap.c: pmap_enter, pmap_demote_pde", WRITE, large(), if design.demotes { fault(FaultAction::Demote) } else { fault(FaultAction::MakeWritable) }),
        at("a page in memory that is not mapped, and its neighbours", PREFAULT, READ, fresh().reserved(9).page(Page::Resident { cow: false, shared: false }), fault(FaultAction::MapResident { around: design.around })),
        at("frames of a split superpage go: its reservation keeps them", "vm/vm_reserv.c: vm_reserv_depopulate", Event::Demoted { reserved: true }, fresh(), Action::Release),
        at("frames of a split superpage without reservation go", "vm/vm_page.c: vm_page_free", Event::Demoted { reserved: false }, fresh(), Action::Release),
        at("a superpage of a reservation is shared by a fork", "amd64/pmap.c: pmap_copy", Event::Shared { whole: true, private: true }, large(), Action::Keep),
    ]
}

/// Promotion in place: `pmap_promote_pde` after a page was mapped, `vm_fault_soft_fast` before.
#[rustfmt::skip]
fn promotion(design: &Reserving) -> Table {
    let (mapped, read, write) = (Event::Mapped, Event::Prepared { write: false }, Event::Prepared { write: true });
    let relaxed = |otherwise| if design.relaxed { in_place(true) } else { otherwise };
    let why = if design.relaxed { RELAX } else { SOFT };
    let resident = || fault(if design.relaxed { FaultAction::MapInPlace { writable: true } } else { FaultAction::MapResident { around: design.around } });
    let file = |dirty| fresh().full(dirty).backed(Backing::File { cached: true });
    let not_full = || fresh().full(DIRTY).region(|region| region.reservation = region.reservation.map(|one| Reservation { is_full: false, ..one }));
    let shared = |dirty| fresh().full(dirty).with(|facts| facts.mapping.forked = true);
    vec![
        at("all pages are mapped and written", PROMOTE, mapped, fresh().full(DIRTY), in_place(true)),
        at("all pages are mapped, none is written", PROMOTE, mapped, fresh().full(CLEAN), in_place(false)),
        at("all pages are mapped, some written", PROMOTE, mapped, fresh().full(MIXED), Action::WriteProtect),
        at("all pages are mapped, none may be written", PROMOTE, mapped, fresh().full(MIXED).with(|facts| facts.mapping.writable = false), in_place(false)),
        at("all pages of a file are mapped", PROMOTE, mapped, file(MIXED), in_place(false)),
        at("all pages are mapped, some after a fork", PROMOTE, mapped, fresh().full(DIRTY).region(|region| region.has_cow = true), Action::Nothing),
        at("all pages are mapped, some beside a fault and not used since", PROMOTE, mapped, fresh().full(DIRTY).region(|region| region.has_unaccessed = true), if design.needs_accessed { Action::Nothing } else { in_place(true) }),
        at("not all pages are mapped", PROMOTE, mapped, fresh().full(DIRTY).region(|region| region.is_mapped = false), Action::Nothing),
        at("not all pages of the reservation are in use", PROMOTE, mapped, not_full(), Action::Nothing),
        at("it is a superpage", PROMOTE, mapped, fresh().full(DIRTY).superpage(|_| {}), Action::Nothing),
        at("a soft fault: the rest is written", SOFT, WRITE, soft(OTHERS), in_place_at_fault(true)),
        at("a soft fault: a page is clean", why, WRITE, soft(CLEAN), resident()),
        at("a soft fault: a page is clean, and it is read", why, READ, soft(MIXED), resident()),
        at("a soft fault: none may be written", SOFT, READ, soft(CLEAN).with(|facts| facts.mapping.writable = false), in_place_at_fault(false)),
        at("prepared at once, and written", why, write, fresh().full(CLEAN), relaxed(Action::Nothing)),
        at("prepared at once, and read", why, read, fresh().full(CLEAN), relaxed(Action::Nothing)),
        at("prepared at once: the mapping ends within", SOFT, write, fresh().full(DIRTY).region(|region| region.inside = false), Action::Nothing),
        at("prepared at once: not all", SOFT, write, not_full(), Action::Nothing),
        at("prepared at once: the memory is shared since a fork", why, write, shared(CLEAN), Action::Nothing),
        at("prepared at once: a file, to be read", SOFT, read, file(CLEAN), in_place(false)),
        at("prepared at once: a file, to be written", SOFT, write, file(CLEAN), Action::Nothing),
    ]
}

/// At this number of pages the rest is prepared at once; `None`: never.
#[rustfmt::skip]
fn filling(from: Option<u16>) -> Table {
    let populated = Event::Populated;
    let fill = Action::Populate;
    let bad = |pages| fresh().reserved(pages).region(|region| region.reservation = region.reservation.map(|one| Reservation { is_bad: true, ..one }));
    let Some(from) = from else {
        return vec![
            at("n-th page: the rest is left to faults", POPULATE, populated, fresh().reserved(511), Action::Nothing),
            at("first page: the rest is left to faults", POPULATE, populated, fresh().reserved(1), Action::Nothing),
        ];
    };
    let short = |facts: Facts| facts.region(|region| region.inside = false);
    vec![
        at("n-th page: the rest is prepared at once", SYNC, populated, fresh().reserved(from), fill),
        at("n-th page: later, too", SYNC, populated, fresh().reserved(511), fill),
        at("n-th page: before", SYNC, populated, fresh().reserved(from - 1), Action::Nothing),
        at("n-th page: all are there", SYNC, populated, fresh().reserved(512), Action::Nothing),
        at("n-th page: it was found unfit", "Quicksilver, vm/vm_reserv.c: vm_reserv_mark_bad", populated, bad(511), Action::Nothing),
        at("n-th page of a file", SYNC, populated, fresh().backed(Backing::File { cached: false }).reserved(511), Action::Nothing),
        at("n-th page: another process shares the memory since a fork", DEFAULT, populated, fresh().reserved(511).with(|facts| facts.mapping.forked = true), Action::Nothing),
        at("n-th page: some of the memory was swapped out", DEFAULT, populated, fresh().reserved(511).with(|facts| facts.mapping.was_swapped = true), Action::Nothing),
        at("n-th page where the mapping ends within", SYNC, populated, short(fresh().reserved(511)), Action::Nothing),
        at("n-th page of a heap that may grow", SYNC, populated, short(fresh().backed(Backing::Heap).reserved(511)), fill),
        at("n-th page of a smaller reservation", SYNC, populated, fresh().reserved(511).region(|region| region.reservation = Some(Reservation { order: 4, populated: 15, ..Default::default() })), Action::Nothing),
    ]
}

/// When memory runs out, reservations are broken first.
#[rustfmt::skip]
fn pressure(design: &Reserving) -> Table {
    vec![
        run("no base page: a reservation is broken, at last pages are reclaimed", RECLAIM, [
            on(NO_PAGE, fresh(), Action::BreakReservation { wanted: 1 }),
            then(NOTHING, fresh(), Action::ReleaseHeld { wanted: 1 }),
            then(NOTHING, fresh(), reclaim(32)),
            then(NOTHING, fresh(), Action::GiveUp),
        ]),
        run("no free superpage: a base page", ALLOC, if design.preempts {
            vec![
                on(WRITE, fresh(), reserve(9, true)), then(NO_MEMORY, fresh(), reserve(7, true)),
                then(NO_MEMORY, fresh(), reserve(4, true)), then(NO_MEMORY, fresh(), BASE),
            ]
        } else {
            vec![on(WRITE, fresh(), reserve(9, false)), then(NO_MEMORY, fresh(), BASE)]
        }),
    ]
}

/// Without compaction and reclaim, an effort can use only free memory.
#[rustfmt::skip]
fn no_effort() -> Table {
    use superpage_policy::rules::Effort;
    vec![
        at("no superpage", ALLOC, no_superpage(Effort::None), fresh(), Action::GiveUp),
        run("a request reclaims, and does not compact", "mm/page_alloc.c: __alloc_pages_slowpath without CONFIG_COMPACTION", [
            on(no_superpage(Effort::DirectRetry), fresh(), direct_reclaim(on_own_node(superpage_policy::Compaction::SyncLight))),
            then(done(32), fresh(), Action::GiveUp),
        ]),
    ]
}

/// Quicksilver: reservations that did not change for 5 s are emptied, 262,144 pages a second.
#[rustfmt::skip]
fn evacuation() -> Table {
    let evacuate = upkeep(UpkeepAction::Evacuate { after: 5 * S });
    let begin = move || on(tick(Daemon::Evacuate), fresh(), evacuate);
    vec![
        run("inactive: the oldest goes first, until none is left", COMPACT, [begin(), then(done(16), fresh(), evacuate), then(NOTHING, fresh(), PERIOD)]),
        run("inactive: one that cannot be moved is passed over", COMPACT, [begin(), then(Ended::Unavailable, fresh(), evacuate)]),
        run("inactive: nowhere to move to, the next is broken", COMPACT, [begin(), then(NO_MEMORY, fresh(), upkeep(UpkeepAction::BreakNext)), then(done(496), fresh(), evacuate)]),
        run("inactive: nothing is left to break", COMPACT, [begin(), then(NO_MEMORY, fresh(), upkeep(UpkeepAction::BreakNext)), then(NOTHING, fresh(), PERIOD)]),
        run("the budget of a pass: 262,144 pages", COMPACT, [begin(), then(done(262_143), fresh(), evacuate), then(done(1), fresh(), PERIOD), begin()]),
        run("the budget of a pass: used up, and passed", COMPACT, [begin(), then(done(262_144), fresh(), PERIOD)]),
        run("what is broken was not moved", COMPACT, [
            begin(), then(done(262_143), fresh(), evacuate), then(NO_MEMORY, fresh(), upkeep(UpkeepAction::BreakNext)), then(done(496), fresh(), evacuate),
        ]),
        run("a piece of work is long enough, the pass goes on", COMPACT, [
            begin(), then(done(262_143), fresh().machine(|machine| machine.is_piece_done = true), MORE),
            begin(), then(done(1), fresh(), PERIOD),
        ]),
    ]
}

/// Quicksilver's asynchronous variants: reservations with this many pages are filled, up to 200,000 a second.
#[rustfmt::skip]
fn background(least: u16) -> Table {
    let waits = |waiting| fresh().machine(|machine| machine.waiting = waiting);
    let visit = upkeep(UpkeepAction::Fill { at: least });
    let begin = move || on(tick(Daemon::Fill), waits(1), visit);
    let partial = || fresh().reserved(least).machine(|machine| machine.waiting = 1);
    let look = |facts, is| on(Event::Candidate, facts, is);
    vec![
        at("idle time: no reservation waits", PREPOP, tick(Daemon::Fill), waits(0), PERIOD),
        run("the next candidate is the reservation that changed last", PREPOP, [
            begin(), look(partial(), Action::Populate), then(done(448), waits(1), visit), then(done(1), waits(0), PERIOD),
        ]),
        run("what a pass completes is counted by reservation: 200,000 pages are few", PREPOP, [
            begin(), then(done(448), waits(1), visit), then(done(199_552), waits(1), visit), then(done(1), waits(1), visit),
        ]),
        run("the budget of a pass: 200,000 reservations", PREPOP,
            std::iter::once(begin()).chain((1..200_000).map(|_| then(done(448), waits(1), visit))).chain([then(done(448), waits(1), PERIOD), begin()])),
        run("a reservation that could not be completed is not counted", PREPOP,
            std::iter::once(begin()).chain((0..200_000).map(|_| then(Ended::Unfit, waits(1), visit)))),
        run("not to be filled: files, short mappings, superpages, memory shared since a fork", PREPOP, [
            begin(),
            look(partial().backed(Backing::File { cached: false }), Action::Exclude),
            look(partial().region(|region| region.inside = false), Action::Exclude),
            look(partial().superpage(|_| {}), Action::Exclude),
            look(partial().with(|facts| facts.mapping.forked = true), Action::Exclude),
            look(partial().with(|facts| facts.mapping.was_swapped = true), Action::Populate),
        ]),
        run("a piece of work is long enough, the pass goes on", PREPOP, [
            begin(), then(done(448), waits(1).machine(|machine| machine.is_piece_done = true), MORE), begin(), then(done(1), waits(0), PERIOD),
        ]),
    ]
}

fn plain(policy: &superpage_policy::Policy) -> [Plain; 2] {
    [true, false].map(|advised| policy.plain(true, &fresh().advised(advised).mapping))
}

const PHYSICAL: Physical =
    Physical { grouping: false, swaps: false, defer_shift: 0, ..super::dsl::PHYSICAL };

const PATH: FaultPath = FaultPath {
    locking: Locking::PageTable,
    resident: ResidentCount::Locked,
    prefault: 0,
    prezero: None,
    superpage: None,
};

const ZEROES: Zeroing =
    Zeroing { non_temporal: false, bulk: ByteSize::kib(4), ahead_non_temporal: None };

struct Settings {
    physical: Physical,
    path: FaultPath,
    zeroing: Zeroing,
    daemons: Vec<(Daemon, u64)>,
    reads: Vec<Reads>,
    /// Number of pages below which faults in a reservation are all alike: normally, and with advice against superpages.
    below: [Plain; 2],
}

impl Settings {
    fn new() -> Self {
        Self {
            physical: Physical { reserved: orders(&[9]), ..PHYSICAL },
            path: PATH,
            zeroing: ZEROES,
            daemons: vec![(Daemon::Reclaim, 100 * MS)],
            reads: vec![Reads::UNRESERVED, Reads::FULL, Reads::DIRTY, Reads::WRITTEN],
            below: [Plain::Reserved { below: 512 }, Plain::None],
        }
    }

    #[rustfmt::skip]
    fn lines(self) -> Table {
        vec![
            says("how memory is kept", "vm/vm_phys.c: no mobility, no compaction; VM_LEVEL_0_ORDER 9", |policy| policy.physical(), self.physical),
            says("locks of a fault, its counters, how much it maps", "amd64/pmap.c: one lock per pmap, pmap_resident_count_adj", |policy| policy.fault_path(), self.path),
            says("how pages are zeroed", "amd64/pmap.c: pmap_zero_page; Quicksilver: non-temporal, in runs", |policy| policy.zeroing(), self.zeroing),
            says("daemons and their periods", "Quicksilver's scripts; pageout is looked at every 100 ms", |policy| policy.daemons().collect::<Vec<_>>(), self.daemons),
            says("facts it asks for", "what no line here is decided by is not asked for", asked, self.reads),
            says("faults that come to the same", "the lines about faults, n-th pages and advice", plain, self.below),
        ]
    }
}

/// All tables of a design except for filling, daemons and constants.
fn reserving(design: &Reserving) -> Table {
    let list = "nothing scans: no list";
    let prefault =
        if design.around > 0 { Prefault::Resident(design.around) } else { Prefault::None };
    let launch = Launch { pages: LaunchPages::OwnKernel, prefault, is_whole: false, ..TRANSPARENT };
    let grew = at(
        "more pages than before",
        list,
        Event::Grew { before: 0, after: 512 },
        fresh(),
        Action::Nothing,
    );
    let all = [
        superpages(&FREEBSD),
        faults(design),
        promotion(design),
        pressure(design),
        collapse_only(),
        launched(launch),
        vec![grew],
    ];
    all.into_iter().flatten().collect()
}

const SCANS: [Daemon; 5] =
    [Daemon::Scan, Daemon::Sample, Daemon::Prezero, Daemon::Compact, Daemon::Recover];

/// Returns the tables of presets that are tested here.
pub fn table(preset: &str) -> Option<Table> {
    Some(match preset {
        "freebsd" => freebsd(&PLAIN),
        "freebsd-11.2" => freebsd(&Reserving { needs_accessed: true, ..PLAIN }),
        "quicksilver-sync-1" => quicksilver(Some(1), None),
        "quicksilver-sync-64" => quicksilver(Some(64), None),
        "quicksilver-async-64" => quicksilver(None, Some(64)),
        "quicksilver-async-256" => quicksilver(None, Some(256)),
        "navarro" => navarro(),
        "ideal" => ideal(),
        _ => return None,
    })
}

fn freebsd(design: &Reserving) -> Table {
    let mut settings = Settings::new();
    if design.needs_accessed {
        settings.reads.push(Reads::UNACCESSED);
    }
    let quiet = [Daemon::Evacuate, Daemon::Fill];
    let tables = [
        reserving(design),
        no_effort(),
        filling(None),
        watermarks(PAGEOUT),
        idle("inactive reservations stay", RECLAIM, &quiet),
        idle("nothing scans, zeroes or compacts", NO_DAEMON, &SCANS),
        settings.lines(),
    ];
    tables.into_iter().flatten().collect()
}

fn quicksilver(sync: Option<u16>, background_at: Option<u16>) -> Table {
    let mut settings = Settings::new();
    let bulk = if sync.is_some() { ByteSize::mib(2) } else { ByteSize::kib(4) };
    settings.zeroing = Zeroing { non_temporal: true, bulk, ahead_non_temporal: None };
    settings.reads.retain(|&one| one != Reads::DIRTY);
    settings.below[0] = Plain::Reserved { below: sync.map_or(512, u32::from) };
    settings.daemons.insert(0, (Daemon::Evacuate, S));
    if background_at.is_some() {
        settings.daemons.insert(1, (Daemon::Fill, S));
    }
    let fill = background_at.map_or_else(
        || idle("nothing is completed behind", NO_DAEMON, &[Daemon::Fill]),
        background,
    );
    let tables = [
        reserving(&Reserving { relaxed: true, ..PLAIN }),
        no_effort(),
        filling(sync),
        evacuation(),
        fill,
        watermarks(PAGEOUT),
        idle("nothing scans, zeroes or compacts", NO_DAEMON, &SCANS),
        settings.lines(),
    ];
    tables.into_iter().flatten().collect()
}

/// Three sizes; the paper is the only source.
#[rustfmt::skip]
fn navarro() -> Table {
    let sizes = orders(&[4, 7, 9]);
    let settings = Settings {
        physical: Physical { reserved: sizes, preemptible: sizes, ..PHYSICAL },
        below: [Plain::None, Plain::None],
        ..Settings::new()
    };
    let ends = |sizes: &[u8]| { let sizes = orders(sizes); fresh().backed(Backing::Heap).region(|region| region.ends = sizes) };
    let own = vec![
        at("a heap: as far as it is long now, 512K", NAVARRO, WRITE, ends(&[4, 7]), reserve(7, true)),
        at("a heap: as far as it is long now, 64K", NAVARRO, WRITE, ends(&[4]), reserve(4, true)),
        at("a heap: shorter than the smallest size", NAVARRO, WRITE, ends(&[]), BASE),
        at("the largest that overlaps no other reservation", NAVARRO, WRITE, fresh().region(|region| region.unreserved = orders(&[4, 7])), reserve(7, true)),
    ];
    let design = Reserving { around: 0, past_end: false, preempts: true, ..PLAIN };
    let quiet = [Daemon::Evacuate, Daemon::Fill];
    let tables = [
        reserving(&design), own, no_effort(), filling(None), watermarks(PAGEOUT),
        idle("inactive reservations stay, until they are preempted", NAVARRO, &quiet),
        idle("nothing scans, zeroes or compacts", NO_DAEMON, &SCANS),
        settings.lines(),
    ];
    tables.into_iter().flatten().collect()
}

/// The upper bound: like Quicksilver's Sync-1, but without costs.
fn ideal() -> Table {
    let settings = Settings {
        physical: Physical {
            grouping: true,
            swaps: true,
            defer_shift: 6,
            is_ideal: true,
            reserved: orders(&[9]),
            ..PHYSICAL
        },
        path: FaultPath { locking: Locking::PerVma, resident: ResidentCount::Split, ..PATH },
        reads: vec![Reads::UNRESERVED, Reads::FULL, Reads::WRITTEN],
        below: [Plain::Reserved { below: 1 }, Plain::None],
        ..Settings::new()
    };
    let design = Reserving { relaxed: true, around: 64, demotes: false, ..PLAIN };
    let quiet = [Daemon::Evacuate, Daemon::Fill];
    let tables = [
        reserving(&design),
        efforts(),
        filling(Some(1)),
        watermarks("designs/ideal.toml: memory is kept as Linux keeps it"),
        idle("inactive reservations stay", "designs/ideal.toml: deallocation when empty", &quiet),
        idle("nothing scans, zeroes or compacts", NO_DAEMON, &SCANS),
        settings.lines(),
    ];
    tables.into_iter().flatten().collect()
}
