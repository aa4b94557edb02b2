use proptest::prelude::*;

use super::*;
use crate::Gap;

fn count(event: &str, value: f64) -> Count {
    let (event, source) = (event.to_string(), "test".to_string());
    Count { event, value: Some(value), counted: Some(1.0), source, ..Count::default() }
}

fn table(name: &str) -> Option<&'static Table> {
    events::tables().find(|table| table.name == name)
}

#[test]
fn active_walks_are_taken_before_their_sums() {
    let counts = [
        count("cycles", 1e9),
        count("dtlb_load_misses.walk_active", 1e8),
        count("dtlb_store_misses.walk_active", 5e7),
        count("itlb_misses.walk_active", 1e7),
        count("dtlb_load_misses.walk_pending", 1.9e9),
    ];
    let estimate = interpret(&counts, Context::default());
    assert_eq!(estimate.method, Method::PmuWalkCycles);
    let dtlb = estimate.dtlb.unwrap();
    assert!((dtlb.low() - 0.1).abs() < 1e-9 && (dtlb.high() - 0.15).abs() < 1e-9, "{dtlb:?}");
    assert!((estimate.itlb.unwrap().mid() - 0.01).abs() < 1e-9);
    assert_eq!(estimate.evidence.len(), 5);
    assert_eq!(estimate.scope, Some(Scope::UserAndKernel));
}

/// vMitosis' GUPS: the sum of walks in progress is 1.55 times the cycles.
#[test]
fn sums_of_two_walkers_may_exceed_the_time() {
    let counts = [
        count("cycles:u", 1e9),
        count("dtlb_load_misses.walk_pending:u", 1.5e9),
        count("dtlb_store_misses.walk_pending:u", 0.05e9),
    ];
    let context = Context { table: table("Skylake"), cost: None };
    let estimate = interpret(&counts, context);
    let share = estimate.share.unwrap();
    assert!((share.low() - 0.775).abs() < 1e-9 && share.high() == 1.0, "{share:?}");
    assert!((share.mid() - 0.949).abs() < 1e-3, "{share:?}");
    assert_eq!(estimate.scope, Some(Scope::User));
    assert!(estimate.notes.iter().any(|note| note.contains("instruction fetches")));
    // If the number of walkers is unknown, the lower bound must hold for the maximum number.
    let unknown = interpret(&counts, Context::default()).share.unwrap();
    assert!(unknown.low() <= share.low() / 2.0 + 1e-9);
}

#[test]
fn walk_cycles_over_walks_are_the_cost_of_a_walk() {
    let mut counts = vec![
        count("cycles", 1e9),
        count("dtlb_load_misses.walk_completed", 2e6),
        count("dtlb_load_misses.walk_active", 1e8),
        count("itlb_misses.walk_active", 1e7),
    ];
    let found = |counts: &[Count]| {
        let estimate = interpret(counts, Context { table: table("Skylake"), cost: None });
        let found = estimate.evidence.into_iter().find(|it| it.name == "cycles of a data walk");
        found.map(|it| (it.value, it.source.contains("at least")))
    };
    assert_eq!(found(&counts), Some((50.0, true)));
    // With concurrent walks, the sum counts the cycles of each walk.
    counts.push(count("dtlb_load_misses.walk_pending", 1.5e8));
    assert_eq!(found(&counts), Some((75.0, false)));
    counts.remove(1);
    assert_eq!(found(&counts), None, "no walks, no cost");
}

#[test]
fn broadwells_duration_is_a_sum_and_haswells_is_not() {
    let counts = [count("cycles", 1e9), count("dtlb_load_misses.walk_duration", 4e8)];
    let share =
        |name| interpret(&counts, Context { table: table(name), cost: None }).share.unwrap();
    assert_eq!(share("Haswell").low(), 0.4);
    assert_eq!((share("Broadwell").low(), share("Broadwell").high()), (0.2, 0.4));
}

#[test]
fn misses_need_a_cost_and_hits_may_have_their_own() {
    let counts = [
        count("cycles", 1e9),
        count("ls_l1_d_tlb_miss.all_l2_miss", 1e6),
        count("ls_l1_d_tlb_miss.all_l2_hit", 1e7),
        count("bp_l1_tlb_miss_l2_tlb_miss.all", 1e5),
    ];
    let why = interpret(&counts, Context::default());
    assert!(why.reason().unwrap().contains("--cost"), "{why:?}");
    assert_eq!(why.share, None);
    let cost = MissCost {
        walk: Some(30.0),
        second_level_hit: Some(7.0),
        is_of_cached_tables: false,
        source: "test".into(),
    };
    let context = Context { table: table("Zen 3 to 5"), cost: Some(&cost) };
    let estimate = interpret(&counts, context);
    assert_eq!(estimate.method, Method::PmuMissesTimesCost);
    let dtlb = estimate.dtlb.unwrap();
    assert!((dtlb.mid() - 0.03).abs() < 1e-9 && (dtlb.high() - 0.1).abs() < 1e-9, "{estimate:?}");
    assert!((estimate.itlb.unwrap().mid() - 0.003).abs() < 1e-9);
}

#[test]
fn misses_by_page_size_add_up() {
    let counts = [
        count("cycles", 1e9),
        count("ls_l1_d_tlb_miss.tlb_reload_4k_l2_miss", 1e6),
        count("ls_l1_d_tlb_miss.tlb_reload_2m_l2_miss", 2e6),
    ];
    let cost = MissCost {
        walk: Some(10.0),
        second_level_hit: None,
        is_of_cached_tables: true,
        source: "test".into(),
    };
    let estimate = interpret(&counts, Context { table: None, cost: Some(&cost) });
    assert!((estimate.share.unwrap().mid() - 0.03).abs() < 1e-9);
}

#[test]
fn an_event_that_a_core_lacks_is_not_zero_walks() {
    let counts = [
        count("cpu_cycles", 1e9),
        count("dtlb_walk", 1e6),
        count("itlb_walk", 1e3),
        count("dtlb_walk_percyc", 0.0),
        count("itlb_walk_percyc", 0.0),
    ];
    let context = Context { table: table("Armv8"), cost: None };
    assert!(interpret(&counts, context).reason().unwrap().contains("--cost"));
}

#[test]
fn each_group_is_divided_by_its_own_cycles() {
    let in_group = |count: Count, group| Count { group, ..count };
    let counts = [
        in_group(count("cycles", 1e9), 0),
        in_group(count("dtlb_load_misses.walk_active", 1e8), 0),
        in_group(count("cycles", 2e9), 1),
        in_group(count("itlb_misses.walk_active", 1e8), 1),
    ];
    let estimate = interpret(&counts, Context::default());
    assert_eq!(estimate.dtlb.unwrap().mid(), 0.1);
    assert_eq!(estimate.itlb.unwrap().mid(), 0.05);
}

#[test]
fn counts_are_divided_by_cycles_of_their_mode() {
    let walks = "dtlb_load_misses.walk_active";
    let apart = [count(&format!("{walks}:k"), 6e8), count(&format!("{walks}:u"), 9e8)];
    let cycles = [count("cycles:k", 1e9), count("cycles:u", 9e9)];
    let share = |counts: &[Count]| {
        let estimate = interpret(counts, Context::default());
        let share = estimate.share.unwrap_or_else(|| panic!("{estimate:?}"));
        ((share.mid() * 1e6).round() / 1e6, estimate.scope, estimate.notes.join("; "))
    };
    let both = Some(Scope::UserAndKernel);
    let [kernel, user] = apart;
    for (of_cycles, of_walks, expected, scope) in [
        (&cycles[..], vec![kernel.clone(), user.clone()], 0.15, both),
        (&[count("cycles", 10e9)], vec![user.clone(), kernel.clone()], 0.15, both),
        (&cycles, vec![count(walks, 1.5e9)], 0.15, both),
        (&cycles, vec![user.clone()], 0.1, Some(Scope::User)),
        (&cycles, vec![kernel.clone()], 0.6, None),
        (&[count("cycles:uk", 10e9)], vec![count(walks, 1.5e9)], 0.15, both),
    ] {
        let (found, of, notes) = share(&[of_cycles, &of_walks].concat());
        assert_eq!((found, of), (expected, scope), "{of_cycles:?} {of_walks:?}");
        assert!(!notes.contains("cycles were not"), "{notes}");
    }
    // Cycles were not counted in kernel mode, so the kernel-mode half is ignored.
    let (found, _, notes) = share(&[cycles[1].clone(), user.clone(), kernel]);
    assert!(found == 0.1 && notes.contains(":k was counted in kernel mode, cycles were not"));
    let unlike = interpret(&[count("cycles", 1e10), user], Context::default());
    assert!(unlike.reason().unwrap().contains("different modes"), "{unlike:?}");
    assert!(unlike.notes[0].contains(":u was counted in user mode, cycles were not"));
}

#[test]
fn of_each_side_the_event_is_taken_that_says_most() {
    let counts = [
        count("cycles", 1e9),
        count("dtlb_load_misses.walk_active", 1e8),
        count("dtlb_store_misses.walk_pending", 2e8),
    ];
    let estimate = interpret(&counts, Context { table: table("Skylake"), cost: None });
    let data = estimate.dtlb.unwrap();
    assert!((data.high() - 0.3).abs() < 1e-9 && (data.low() - 0.1).abs() < 1e-9, "{data:?}");
    assert!(!estimate.notes.join(" ").contains("stores"), "{:?}", estimate.notes);
}

#[test]
fn the_bound_has_all_walks_and_all_priced_hits_in_it() {
    let cost = |second_level_hit| MissCost {
        walk: Some(30.0),
        second_level_hit,
        is_of_cached_tables: false,
        source: "test".into(),
    };
    let (priced, walks_alone) = (cost(Some(7.0)), cost(None));
    let intel = [
        ("dtlb_load_misses.walk_active", 1e7),
        ("dtlb_store_misses.walk_active", 1e7),
        ("dtlb_load_misses.stlb_hit", 1e7),
        ("dtlb_store_misses.stlb_hit", 0.0),
        ("itlb_misses.walk_active", 1e7),
        ("itlb_misses.stlb_hit", 0.0),
    ];
    let amd = [
        ("ls_l1_d_tlb_miss.all", 1e7 + 1e6),
        ("ls_l1_d_tlb_miss.all_l2_miss", 1e6),
        ("bp_l1_tlb_miss_l2_tlb_hit", 0.0),
        ("bp_l1_tlb_miss_l2_tlb_miss.all", 1e6),
    ];
    let sizes = [
        ("ls_l1_d_tlb_miss.all_l2_miss", 1e6),
        ("ls_l1_d_tlb_miss.tlb_reload_4k_l2_hit", 1e7),
        ("ls_l1_d_tlb_miss.tlb_reload_2m_l2_hit", 0.0),
        ("ls_l1_d_tlb_miss.tlb_reload_1g_l2_hit", 0.0),
        ("ls_l1_d_tlb_miss.tlb_reload_coalesced_page_hit", 0.0),
    ];
    let generic = [("dTLB-load-misses", 1e6), ("dTLB-store-misses", 1e6)];
    let zen = table("Zen 3 to 5");
    for (events, cost, table, bound) in [
        (&intel[..], &priced, None, Some("1.111")),
        (&intel[..4], &priced, None, Some("1.099")),
        // One kind of walk, one kind of hit, or the price of hits is missing.
        (&[&intel[..1], &intel[2..]].concat(), &priced, None, None),
        (&intel[..3], &priced, None, None),
        (&[&intel[..2], &intel[3..]].concat(), &priced, None, None),
        (&intel[..5], &priced, None, None),
        (&intel[4..], &priced, None, None),
        (&intel, &walks_alone, None, None),
        (&amd, &priced, zen, Some("1.149")),
        (&amd[1..], &priced, zen, None),
        (&amd, &walks_alone, zen, None),
        (&sizes, &priced, zen, Some("1.111")),
        (&sizes[..4], &priced, zen, None),
        // Zen's generic events count hits too, at the price of walks. Intel's do not.
        (&generic, &walks_alone, zen, Some("1.064")),
        (&generic, &walks_alone, table("Skylake"), None),
        (&generic, &priced, None, None),
    ] {
        let counts: Vec<Count> =
            [("cycles", 1e9)].iter().chain(events).map(|(event, n)| count(event, *n)).collect();
        let estimate = interpret(&counts, Context { table, cost: Some(cost) });
        let most = estimate.gain.unwrap().speedup_at_most.map(|most| format!("{most:.3}"));
        assert_eq!(most.as_deref(), bound, "{events:?} {estimate:?}");
        let unpriced = estimate.notes.iter().any(|note| note.contains("have no price"));
        let has_hits =
            events.iter().any(|(event, n)| event.contains("hit") && *n > 0.0) || *events == amd;
        assert_eq!(unpriced, has_hits && cost.second_level_hit.is_none(), "{estimate:?}");
        assert_eq!(estimate.hits == Some(Hits::Unpriced), unpriced, "{estimate:?}");
        assert!(bound.is_none() || estimate.hits == Some(Hits::Priced), "{estimate:?}");
        if bound.is_none() && !unpriced {
            let of_bound = estimate.missing.iter().any(|one| !one.events.is_empty());
            assert!(
                of_bound && estimate.recount[0].command.starts_with("perf stat -e cycles,"),
                "{estimate:?}"
            );
        }
    }
    // Adding counts of nested walks does not restore the speedup bound.
    let fetches = [
        count("cycles", 1e9),
        count("itlb_misses.walk_active", 1e6),
        count("ept.walk_pending", 1e6),
    ];
    let estimate = interpret(&fetches, Context { table: table("Skylake"), cost: None });
    assert_eq!(estimate.gain.unwrap().speedup_at_most, None);
}

/// Out-of-order execution may hide all of a hit: the saving grows at its upper bound alone.
#[test]
fn hits_may_cost_nothing() {
    let cost = MissCost {
        walk: Some(30.0),
        second_level_hit: Some(7.0),
        is_of_cached_tables: false,
        source: "test".into(),
    };
    let counts = [
        count("cycles", 60e9),
        count("ls_l1_d_tlb_miss.all_l2_hit", 1.6e9),
        count("ls_l1_d_tlb_miss.all_l2_miss", 2e6),
    ];
    let estimate = interpret(&counts, Context { table: table("Zen 3 to 5"), cost: Some(&cost) });
    let (share, gain) = (estimate.share.unwrap(), estimate.gain.unwrap());
    assert!(
        (share.low() - 0.001).abs() < 1e-9 && (share.high() - 0.18767).abs() < 1e-4,
        "{share:?}"
    );
    assert!(gain.saved.low() < 0.001 && gain.saved.high() > 0.18, "{gain:?}");
    assert_eq!(format!("{:.2}", gain.speedup_at_most.unwrap()), "1.23");
}

#[test]
fn what_is_missing_is_named_with_the_command_that_counts_it() {
    let names = |counts: &[&str], table| {
        let counts: Vec<Count> = counts.iter().map(|event| count(event, 1e9)).collect();
        let estimate = interpret(&counts, Context { table, cost: None });
        let missing = estimate
            .missing
            .iter()
            .map(|one| (one.figure, one.events.join(",")))
            .collect::<Vec<_>>();
        (missing, estimate.recount.into_iter().map(|one| one.command).collect::<Vec<_>>())
    };
    let intel = "perf stat -e cycles:u,dtlb_load_misses.walk_active:u,dtlb_store_misses.walk_active:u,\
                 itlb_misses.walk_active:u,dtlb_load_misses.stlb_hit:u,dtlb_store_misses.stlb_hit:u,\
                 itlb_misses.stlb_hit:u";
    let (missing, commands) = names(&["cycles:u", "dtlb_load_misses.walk_active:u"], None);
    assert_eq!(commands, [intel]);
    let of =
        |figure| missing.iter().find(|(one, _)| *one == figure).map(|(_, events)| events.as_str());
    assert_eq!(of(Figure::Data), Some("dtlb_store_misses.walk_active"));
    assert_eq!(of(Figure::Code), Some("itlb_misses.walk_active"));
    assert_eq!(of(Figure::Share), None);
    // The table of an unknown CPU follows from its events.
    let (missing, commands) =
        names(&["ls_l1_d_tlb_miss.all_l2_miss", "bp_l1_tlb_miss_l2_tlb_miss"], None);
    assert_eq!(missing[0], (Figure::Share, "cycles".to_string()));
    assert!(commands[0].contains("ls_l1_d_tlb_miss.all,bp_l1_tlb_miss_l2_tlb_hit"), "{commands:?}");
    assert!(
        names(&["cycles", "dtlb_load_misses.walk_duration"], None).1[0]
            .contains("itlb_misses.walk_duration")
    );
    assert!(names(&["cycles", "dtlb_walk"], None).1[0].contains("l1d_tlb_refill"));
    assert_eq!(names(&["cycles"], None).1.len(), 2, "one for each vendor");
}

#[test]
fn a_gap_widens_the_bounds_and_is_told() {
    let gap = Gap { cycles: 0.5, parts: (1, 2), first: "CPU1".into() };
    let with_gap = |event, value| Count { gap: Some(gap.clone()), ..count(event, value) };
    let counts = [count("cycles", 8e9), with_gap("dtlb_load_misses.walk_active", 8e8)];
    let estimate = interpret(&counts, Context::default());
    let share = estimate.share.unwrap();
    assert_eq!((share.low(), share.mid(), share.high()), (0.1, 0.2, 0.6));
    assert_eq!(estimate.evidence.iter().map(|one| one.gap).collect::<Vec<_>>(), [None, Some(0.5)]);
    let told = "dtlb_load_misses.walk_active was not counted in 1 of 2 parts of the run (first: CPU1), with 50 %";
    assert!(estimate.notes.iter().any(|note| note.contains(told)), "{:?}", estimate.notes);
}

#[test]
fn walks_far_above_all_cycles_are_of_another_run() {
    let counts = [count("cycles", 1e9), count("dtlb_load_misses.walk_active", 2e9)];
    assert!(interpret(&counts, Context::default()).reason().unwrap().contains("not of one run"));
}

#[test]
fn misses_that_would_take_more_than_all_the_time_are_unknown() {
    let cost = MissCost {
        walk: Some(700.0),
        second_level_hit: None,
        is_of_cached_tables: false,
        source: "test".into(),
    };
    let counts = [
        count("cycles", 1e9),
        count("ls_l1_d_tlb_miss.all_l2_miss", 1e6),
        count("bp_l1_tlb_miss_l2_tlb_miss.all", 1e6),
    ];
    let context = Context { table: table("Zen 3 to 5"), cost: Some(&cost) };
    assert!((interpret(&counts[..2], context).share.unwrap().mid() - 0.7).abs() < 1e-9);
    let above = interpret(&counts, context);
    assert!(above.reason().unwrap().contains("140 % of all cycles"), "{above:?}");
    assert!(above.evidence.iter().any(|one| one.value == 700.0), "{above:?}");
    // The share of counted walk cycles is at most 1, even if multiplexing scaled them to more.
    let walks = [count("cycles", 1e9), count("dtlb_load_misses.walk_active", 1.01e9)];
    assert_eq!(interpret(&walks, Context::default()).share.unwrap().mid(), 1.0);
}

#[test]
fn what_cannot_be_told_is_unknown_with_the_reason() {
    let walk = count("dtlb_load_misses.walk_active", 10.0);
    let not_counted = |event: &str| Count { value: None, ..count(event, 0.0) };
    for (counts, word) in [
        (vec![walk.clone()], "cycles were not counted"),
        (vec![not_counted("cycles"), walk.clone()], "no performance counter"),
        (vec![count("cycles", 5e5), walk], "only 500000 cycles"),
        (vec![count("cycles", 1e9)], "no TLB event"),
        (vec![count("cycles", 1e9), not_counted("dTLB-load-misses")], "no TLB event"),
        (vec![], "cycles were not counted"),
    ] {
        let estimate = interpret(&counts, Context::default());
        assert!(estimate.reason().is_some_and(|why| why.contains(word)), "{estimate:?}");
        assert_eq!((estimate.share, estimate.gain), (None, None));
    }
}

#[test]
fn shared_counters_and_missing_ones_are_told() {
    let mut shared = count("dtlb_load_misses.walk_active", 1e8);
    shared.counted = Some(0.25);
    let mut missing = count("itlb_misses.walk_active", 0.0);
    missing.value = None;
    let estimate = interpret(&[count("cycles", 1e9), shared, missing], Context::default());
    let notes = estimate.notes.join("\n");
    assert!(notes.contains("25 %") && notes.contains("itlb_misses.walk_active"), "{notes}");
    assert!(estimate.itlb.is_none());
}

proptest! {
    #[test]
    fn any_counts_give_a_sound_estimate(
        values in prop::collection::vec((0usize..40, any::<f64>(), any::<Option<f64>>(), 0u32..3), 0..12),
        cost in any::<Option<(f64, f64)>>(),
    ) {
        let names: Vec<&str> = events::tables()
            .flat_map(|table| table.groups.iter().copied().flatten())
            .map(|event| event.name)
            .chain(["cycles", "cycles:u", "dTLB-load-misses"])
            .collect();
        let counts: Vec<Count> = values
            .into_iter()
            .map(|(name, value, counted, group)| Count {
                group,
                counted,
                ..count(names[name % names.len()], value)
            })
            .collect();
        let cost = cost.map(|(walk, hit)| MissCost {
            walk: Some(walk),
            second_level_hit: Some(hit),
            is_of_cached_tables: false,
            source: String::new(),
        });
        for table in [None, table("Skylake"), table("Armv8")] {
            let estimate = interpret(&counts, Context { table, cost: cost.as_ref() });
            prop_assert_eq!(estimate.share.is_none(), estimate.reason().is_some());
            prop_assert_eq!(estimate.share.is_none(), estimate.gain.is_none());
        }
    }
}
