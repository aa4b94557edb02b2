//! CBMM (ATC'22): a superpage is made if its benefit exceeds its cost.

use design::{Design, designs};
use superpage_policy::rules::Effort;
use superpage_policy::{Action, Daemon, Facts, FaultPath, Physical, Policy, Reads};

use super::common::{TRANSPARENT, launched};
use super::dsl::*;
use super::khugepaged::collapse_only;
use super::linux::{LINUX_6, Thp};
use super::successors::{OLD, Once, PATH, PHYSICAL, built_on_linux, roomy};

const DECIDE: &str = "mm/estimator.c: mm_decide: benefit > cost";
const COST: &str = "mm/estimator.c: mm_estimate_huge_page_promote_cost_benefit";
const PROFILE: &str =
    "mm/estimator.c: compute_hpage_benefit_from_profile, profile_search; ATC'22: offline profiles";

const DAEMONS: &str =
    "mm/asynczero/asynczero.c: asynczero_do_work; kswapd is looked at every 100 ms";

const MISSING: [Daemon; 7] = [
    Daemon::Evacuate,
    Daemon::Fill,
    Daemon::Sample,
    Daemon::Scan,
    Daemon::Compact,
    Daemon::Recover,
    Daemon::Split,
];

/// Returns facts about a place with this many misses in the profile.
fn misses(misses: u64) -> Facts {
    roomy(fresh()).extent(|extent| extent.profiled = misses)
}

fn zeroed(pages: u64) -> Facts {
    misses(pages).machine(|machine| machine.is_prezeroed = true)
}

fn short(pages: u64) -> Facts {
    misses(pages).machine(|machine| machine.free_superpages = 0)
}

#[rustfmt::skip]
pub fn table() -> Table {
    // If the benefit exceeds the cost, CBMM does the same as Linux.
    let worth = Thp { advised: Effort::None, compacts: false, fresh: || misses(9999), ..LINUX_6 };
    let once = Once {
        physical: Physical { prefers_zeroed: true, ..PHYSICAL },
        path: FaultPath { prezero: Some((1000, 1000, 10)), ..PATH },
        ahead_non_temporal: Some(true),
        daemons: (DAEMONS, vec![(Daemon::Prezero, S), (Daemon::Reclaim, 100 * MS)]),
        reads: vec![Reads::AT_FAULT],
        sizes: (orders(&[9]), orders(&[])),
    };
    let mut table = built_on_linux(&worth, &OLD, &MISSING, once);
    table.extend(prices());
    table.extend(profiled());
    table.extend(super::bloat::prezero("mm/asynczero/asynczero.c: zero_fill_zone_pages, zero_n_pages; ATC'22: idle time is free", (1000, 1000), 500, 10));
    table.extend(collapse_only());
    table.extend(launched(superpage_policy::Launch { prezero: true, ..TRANSPARENT }));
    table
}

#[rustfmt::skip]
fn prices() -> Table {
    let huge = whole(Effort::None);
    vec![
        at("border: as much as 100 * 2000 cycles of zeroing", DECIDE, WRITE, misses(4000), BASE),
        at("border: a miss more, 50 cycles", COST, WRITE, misses(4001), huge),
        at("border: a read, as much as zeroing", DECIDE, READ, misses(4000), zeros(false)),
        at("border: a read, a miss more", DECIDE, READ, misses(4001), zeros(true)),
        at("border: a free superpage is zeroed and costs nothing", COST, WRITE, zeroed(1), huge),
        at("border: that no benefit is more than", DECIDE, WRITE, zeroed(0), BASE),
        at("border: none is free, 2^32 cycles more, and zeroing", COST, WRITE, short(85_903_345), BASE),
        at("border: none is free, a miss more", COST, WRITE, short(85_903_346), huge),
        at("border: advised, as much as zeroing", DECIDE, WRITE, misses(4000).advised(true), BASE),
        at("border: memory of a heap, as much as zeroing", DECIDE, WRITE, misses(4000).backed(superpage_policy::Backing::Heap), BASE),
        run("border: worth it, and yet no superpage: a base page", "mm/huge_memory.c: do_huge_pmd_anonymous_page: VM_FAULT_FALLBACK", [
            on(WRITE, short(85_903_346), huge), then(NO_MEMORY, short(85_903_346), BASE),
        ]),
        at("a write to zeros: it was decided when they were mapped", "mm/huge_memory.c: do_huge_pmd_wp_page: is_huge_zero_pmd", WRITE,
           misses(0).superpage(|superpage| superpage.zeros = true), huge),
        at("no next candidate: nothing scans", "mm/estimator.c: mm_estimate_changes: MM_ACTION_RUN_PROMOTION has benefit 0", tick(Daemon::Scan), misses(9999), PERIOD),
        at("no compaction behind the program", "mm/estimator.c: mm_estimate_changes: MM_ACTION_RUN_DEFRAG has benefit 0", tick(Daemon::Compact),
           misses(9999).machine(|machine| (machine.compaction_wanted, machine.is_fragmented) = (true, false)), PERIOD),
    ]
}

#[rustfmt::skip]
fn profiled() -> Table {
    vec![
        at("profile: none, no benefit: a write", PROFILE, WRITE, misses(0), BASE),
        at("profile: none, no benefit: a read", PROFILE, READ, misses(0), zeros(false)),
        says("profile: it has none", PROFILE, |policy| policy.profiled(0), 0),
    ]
}

/// Returns CBMM with a profile of three spans, one of which is cold.
fn with_profile() -> Design {
    let text = designs::preset("cbmm").expect("a preset").text;
    let spans = "[profile]\nspans = [\"0 2M 4001\", \"4M 8M 4000\", \"8M 10M 70000\"]";
    Design::from_toml("test", &format!("{text}\n{spans}\n")).expect("a good design")
}

#[test]
fn a_profile_is_looked_up_by_offset() {
    const M: u64 = 1 << 20;
    // Address, misses of the profile there, and whether a fault there gets a superpage.
    let all = [
        (0, 4001, true),
        (2 * M - 1, 4001, true),
        (2 * M, 0, false),
        (4 * M, 4000, false),
        (8 * M - 1, 4000, false),
        (8 * M, 70_000, true),
        (10 * M, 0, false),
        (u64::MAX, 0, false),
    ];
    let mut policy: Policy = with_profile().policy(SCALE);
    for (offset, known, is_worth) in all {
        assert_eq!(policy.profiled(offset), known, "{offset}");
        let action = policy.on(WRITE, &misses(policy.profiled(offset)));
        let expected: Action = if is_worth { whole(Effort::None) } else { BASE };
        assert_eq!(action, expected, "{offset}");
    }
}
