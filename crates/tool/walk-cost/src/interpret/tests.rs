use proptest::prelude::*;

use super::*;

fn count(event: &str, value: f64) -> Count {
    let (event, source) = (event.to_string(), "test".to_string());
    Count { event, value: Some(value), counted: Some(1.0), group: 0, source }
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
        walk: 30.0,
        second_level_hit: Some(7.0),
        is_of_cached_tables: false,
        source: "test".into(),
    };
    let context = Context { table: table("Zen 3 to 5"), cost: Some(&cost) };
    let estimate = interpret(&counts, context);
    assert_eq!(estimate.method, Method::PmuMissesTimesCost);
    assert!((estimate.dtlb.unwrap().mid() - 0.1).abs() < 1e-9, "{estimate:?}");
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
        walk: 10.0,
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
fn without_loads_or_stores_there_is_no_largest_speedup() {
    let cost = MissCost {
        walk: 30.0,
        second_level_hit: None,
        is_of_cached_tables: false,
        source: "test".into(),
    };
    let context = Context { table: None, cost: Some(&cost) };
    for (load, store, note) in [
        (
            "dtlb_load_misses.walk_active",
            "dtlb_store_misses.walk_active",
            "walks for stores were not counted",
        ),
        ("dTLB-load-misses", "dTLB-store-misses", "misses of stores were not counted"),
    ] {
        let counts = [count("cycles", 1e9), count(load, 1e6), count(store, 1e6)];
        let told = |counts: &[Count]| {
            let estimate = interpret(counts, context);
            let has_note = estimate.notes.iter().any(|one| one == note);
            (has_note, estimate.gain.unwrap().speedup_at_most.is_some())
        };
        assert_eq!(told(&counts), (false, true));
        assert_eq!(told(&counts[..2]), (true, false));
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

#[test]
fn misses_that_would_take_more_than_all_the_time_are_unknown() {
    let cost = MissCost {
        walk: 700.0,
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
            walk,
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
