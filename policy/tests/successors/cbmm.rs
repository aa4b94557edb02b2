//! CBMM: a superpage where its benefit exceeds its cost.

use crate::*;

#[test]
fn cbmm_makes_a_superpage_where_its_benefit_exceeds_its_cost() {
    const DECIDE: &str = "mm/estimator.c: mm_decide: benefit > cost";
    const COST: &str = "mm/estimator.c: mm_estimate_huge_page_promote_cost_benefit";
    let misses = |misses| known(|facts| facts.extent.profiled = misses);
    let zeroed = |misses| {
        known(|facts| (facts.extent.profiled, facts.machine.is_prezeroed) = (misses, true))
    };
    let short = |misses| {
        known(|facts| (facts.extent.profiled, facts.machine.free_superpages) = (misses, 0))
    };
    let table: Vec<Line> = vec![
        (
            "no profile, no benefit",
            "mm/estimator.c: compute_hpage_benefit_from_profile: 0",
            vec![(WRITE, fresh(), BASE)],
        ),
        ("as much as 100 * 2000 cycles of zeroing", DECIDE, vec![(WRITE, misses(4000), BASE)]),
        ("a miss more: 50 cycles each", COST, vec![(WRITE, misses(4001), fresh_page(9))]),
        (
            "a free one is zeroed: it costs nothing",
            COST,
            vec![(WRITE, zeroed(1), fresh_page(9)), (WRITE, zeroed(0), BASE)],
        ),
        (
            "none is free: 2^32 cycles more",
            COST,
            vec![
                (WRITE, short(4001), BASE),
                (WRITE, short((1 << 32) / 50), BASE),
                (WRITE, short((1 << 32) / 50 + 4001), fresh_page(9)),
            ],
        ),
        (
            "a read maps a superpage of zeros where one is worth it",
            "mm/huge_memory.c: do_huge_pmd_anonymous_page",
            vec![
                (READ, misses(4001), Action::MapZeros { superpage: true }),
                (READ, misses(4000), Action::MapZeros { superpage: false }),
            ],
        ),
        (
            "it was decided when zeros were mapped",
            "mm/huge_memory.c: do_huge_pmd_wp_page's zero page",
            vec![(
                WRITE,
                known(|facts| {
                    facts.region.superpage = Some(Superpage { zeros: true, ..Superpage::default() })
                }),
                fresh_page(9),
            )],
        ),
        (
            "no memory after all: base pages",
            "mm/huge_memory.c: VM_FAULT_FALLBACK",
            vec![
                (WRITE, misses(4001), fresh_page(9)),
                (ended(fresh_page(9), Ended::NoMemory), misses(4001), BASE),
            ],
        ),
        (
            "a part of it is mapped already",
            "mm/memory.c: __handle_mm_fault: pmd_none",
            vec![(
                WRITE,
                known(|facts| {
                    facts.extent.profiled = 9999;
                    facts.region.has_table = true;
                    facts.region.populated = 1;
                }),
                BASE,
            )],
        ),
        (
            "past the mapping's end",
            "mm/huge_memory.c: transhuge_vma_suitable",
            vec![(
                WRITE,
                known(|facts| {
                    facts.extent.profiled = 9999;
                    facts.region.inside = false;
                }),
                BASE,
            )],
        ),
        (
            "advised against",
            "mm/huge_memory.c: VM_NOHUGEPAGE",
            vec![(
                WRITE,
                known(|facts| {
                    facts.extent.profiled = 9999;
                    facts.mapping.advised = Some(false);
                }),
                BASE,
            )],
        ),
        (
            "no scan: MM_ACTION_RUN_PROMOTION has benefit 0",
            "mm/estimator.c: mm_estimate_changes",
            vec![(SCAN, fresh(), Action::Wait(Wait::Period))],
        ),
    ];
    check(&preset("cbmm"), table);
    let policy = preset("cbmm").policy(SCALE);
    assert!(policy.reads().has(Reads::AT_FAULT));
    assert!(
        policy.daemons().all(|(daemon, _)| daemon != Daemon::Scan && daemon != Daemon::Compact)
    );
}

#[test]
fn a_profile_is_looked_up_by_offset() {
    let profile = "[profile]\nspans = [\"0 2M 7\", \"4M 8M 9\"]";
    let policy = with("cbmm", profile).policy(SCALE);
    const M: u64 = 1 << 20;
    for (offset, misses) in
        [(0, 7), (2 * M - 1, 7), (2 * M, 0), (4 * M, 9), (8 * M - 1, 9), (8 * M, 0), (u64::MAX, 0)]
    {
        assert_eq!(policy.profiled(offset), misses, "{offset}");
    }
    assert_eq!(preset("cbmm").policy(SCALE).profiled(0), 0);
}
