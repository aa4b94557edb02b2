//! Common tables of the designs with conditions and of the one with three sizes; all are based on Linux' THP. The
//! presets name the repositories of the files that lines cite.

use superpage_policy::rules::{Locking, ResidentCount};
use superpage_policy::{
    Daemon, Facts, FaultPath, Orders, Physical, Policy, Reads, Region, Zeroing,
};

use super::common::{LINUX, Sources, efforts, idle, no_pages, superpages, watermarks};
use super::dsl::*;
use super::linux::{Thp, asked, fallback, faults, memory, sequence};
use super::{cbmm, elastic, hugescope, linux, trident};

/// Before 5.8.
pub const OLD: Sources = Sources {
    superpage_copied: "mm/huge_memory.c since 5.8: do_huge_pmd_wp_page; before it all was copied, which no rule says",
    ..LINUX
};

const KSWAPD: &str = "mm/vmscan.c: kswapd, balance_pgdat";

/// Returns the tables of presets that are tested here.
pub fn table(preset: &str) -> Option<Table> {
    Some(match preset {
        "cbmm" => cbmm::table(),
        "elastic" => elastic::table(),
        "hugescope" => hugescope::table(),
        "trident" => trident::table(),
        _ => return None,
    })
}

/// Constants of a policy.
pub struct Once {
    pub physical: Physical,
    pub path: FaultPath,
    pub ahead_non_temporal: Option<bool>,
    /// Daemons and their periods, with the source.
    pub daemons: (&'static str, Vec<(Daemon, u64)>),
    pub reads: Vec<Reads>,
    /// Sizes of the design, and sizes that its scan makes.
    pub sizes: (Orders, Orders),
}

pub const PHYSICAL: Physical = super::dsl::PHYSICAL;

/// Linux before per-VMA locks (6.4).
pub const PATH: FaultPath =
    FaultPath { locking: Locking::SplitPageTable, resident: ResidentCount::Split, ..linux::PATH };

/// All of Linux' behaviour, without the daemons that the design lacks.
pub fn built_on_linux(thp: &Thp, sources: &Sources, missing: &[Daemon], once: Once) -> Table {
    let none = idle(
        "inactive memory stays: no daemon; idle time of daemons that there are none of",
        "neither the paper nor its code has such threads",
        missing,
    );
    let common = [superpages(sources), efforts(), no_pages(), watermarks(KSWAPD), none];
    let own = [faults(thp), fallback(thp), sequence(), memory(thp), said_once(once)];
    common.into_iter().chain(own).flatten().collect()
}

#[rustfmt::skip]
fn said_once(once: Once) -> Table {
    let zeroing = Zeroing { ahead_non_temporal: once.ahead_non_temporal, ..linux::ZEROES };
    vec![
        says("how memory is kept", "mm/page_alloc.c, mm/compaction.c: COMPACT_MAX_DEFER_SHIFT", |policy| policy.physical(), once.physical),
        says("locks of a fault, its counters, how much it maps", "mm/memory.c before 6.4: mmap_lock, split ptlocks, add_mm_counter_fast", |policy| policy.fault_path(), once.path),
        says("how pages are zeroed", "mm/memory.c: clear_huge_page; asynczero.c: zero_fill_page_ntstores", |policy| policy.zeroing(), zeroing),
        says("daemons and their periods", once.daemons.0, |policy| policy.daemons().collect::<Vec<_>>(), once.daemons.1),
        says("facts it asks for", "what no line here is decided by is not asked for", asked, once.reads),
        says("sizes: those it has, those its scan makes", "docs/facts.md: Sizes", |policy| (policy.sizes(), policy.scanned_sizes()), once.sizes),
    ]
}

/// Ranks of candidates: by walks to base pages and to a superpage in the window, and by accessed base pages.
pub fn ranks(policy: &Policy) -> [Option<u32>; 5] {
    let region = |coverage| Region { coverage, has_table: true, ..Region::default() };
    let rank = |coverage, misses| policy.rank(&region(coverage), misses);
    let large = Region { coverage: 512, ..large().region };
    [rank(0, 0), rank(0, 700), rank(65, 0), rank(512, 7), policy.rank(&large, 700)]
}

/// Accessed bits are cleared, counted at the end of the window, and cleared again after a rest.
pub fn sampling(source: &'static str, (window, rest): (u64, u64), newest_percent: u32) -> Table {
    let took = |ticks| fresh().machine(|machine| machine.spent_in_piece = ticks);
    let sample = || tick(Daemon::Sample);
    let first = move || on(sample(), fresh(), scan_step(ScanAction::ClearAccessed));
    let count = scan_step(ScanAction::CountAccessed { newest_percent });
    let steps = move |spent, rest| {
        [
            first(),
            then(DONE, took(spent), after(window)),
            on(sample(), fresh(), count),
            then(DONE, took(spent), after(rest)),
            first(),
        ]
    };
    vec![
        run("sampled misses: a window, a rest, the next window", source, steps(MS, rest)),
        run(
            "sampled misses: a twentieth of one CPU at most",
            "HawkEye, mm/ohp.c: kbinmanager_wait_cpu_bound, of whose sampling this is",
            steps(10 * S, 190 * S),
        ),
    ]
}

/// A superpage that is not zeroed is free, and much memory is free.
pub fn roomy(facts: Facts) -> Facts {
    facts.machine(|machine| {
        (machine.free, machine.pages, machine.free_superpages) = (900, 1000, 1);
    })
}
