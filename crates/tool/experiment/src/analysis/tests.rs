//! Tests of arms and the pages read back from their runs.

use launch::{Facts, Kind, Pool, Program};

use super::*;

fn coverage(eligible: u64, huge: u64) -> Coverage {
    let (eligible, eligible_huge) = (ByteSize::mib(eligible), ByteSize::mib(huge));
    Coverage { eligible, eligible_huge, ..Coverage::default() }
}

/// Plans a recipe on a machine with THP, a pool of 10 pages, and this share of free memory in superpages.
pub(crate) fn planned(
    recipe: &str,
    free_in_superpages: f64,
    thp_sizes: Vec<PageSize>,
) -> (Recipe, Plan) {
    let recipe: Recipe = recipe.parse().expect("a recipe");
    let pool = Pool {
        size: PageSize::new(2 << 20).expect("a size"),
        total: 10,
        free: 10,
        reserved: 0,
        overcommit_left: 0,
        is_gigantic: false,
    };
    let facts = Facts {
        thp_mode: Some("madvise".to_string()),
        free_in_superpages: Some(free_in_superpages),
        thp_sizes,
        pools: vec![pool],
        runtime: Some("/lib/libsuperpage.so".into()),
        ..Facts::default()
    };
    let program =
        Program { path: "/bin/x".into(), kind: Kind::Glibc, allocator: None, runtime: None };
    let plan = Plan::resolve(&recipe, program, None, Vec::new(), &facts).expect("a plan");
    (recipe, plan)
}

#[test]
fn an_arm_that_asked_for_some_superpages_and_got_none_did_not_take_effect() {
    let [none, some] = [coverage(512, 0), coverage(512, 2)];
    let shared = Coverage { shmem_pmd: ByteSize::mib(2), ..none.clone() };
    let file = Coverage { file_pmd: ByteSize::mib(2), ..none.clone() };
    let pool = BTreeMap::from([(PageSize::new(2 << 20).expect("a size"), ByteSize::mib(2))]);
    let buffers = Coverage { hugetlb_shared: pool, ..none.clone() };
    for (recipe, runs, kept) in [
        ("jvm-thp", &[&none, &none][..], false),
        ("jvm-thp", &[&none, &some], true),
        ("jvm-thp", &[], true),
        ("jvm-thp", &[&file], false),
        ("tcmalloc", &[&none], true),
        ("x: A=1", &[&none], true),
        ("x: pages=hugetlb memory=heap fallback=base", &[&none, &none], false),
        ("x: pages=hugetlb memory=heap fallback=base", &[&none, &some], true),
        ("x: pages=hugetlb memory=heap fallback=base", &[], true),
        ("x: pages=hugetlb memory=shm SUPERPAGE_POOL=always", &[&none], false),
        ("x: pages=hugetlb memory=shm SUPERPAGE_POOL=always", &[&buffers], true),
        ("x: pages=thp memory=shm", &[&shared], true),
        ("x: pages=thp memory=text", &[&file], true),
        ("x: pages=thp memory=heap", &[&file], false),
        ("x: pages=auto memory=mmap", &[&none], false),
        // This recipe requests no superpages.
        ("x: memory=heap", &[&none], true),
    ] {
        let (recipe, plan) = planned(recipe, 0.9, Vec::new());
        assert_eq!(plan.promise, Promise::Nothing, "{recipe:?}");
        let effect = own_effect(&recipe, &plan, runs);
        assert_eq!(effect == Effect::AsPromised, kept, "{recipe:?}: {effect:?}");
    }
    // With hardly any free superpages, the arm may get smaller THP, which are read back as base pages.
    let sizes = vec![PageSize::new(64 << 10).expect("a size")];
    for (sizes, kept) in [(sizes, true), (Vec::new(), false)] {
        let (recipe, plan) = planned("x: pages=thp memory=heap", 0.01, sizes);
        assert_eq!(own_effect(&recipe, &plan, &[&none]) == Effect::AsPromised, kept);
    }
}

/// A design promises the superpages that it decides to make, however much of the memory that is.
#[test]
fn a_design_took_effect_where_what_it_wanted_was_made() {
    let report = |made, by_fault, unmade, held| live::Report {
        made,
        by_fault,
        unmade,
        held,
        ..live::Report::default()
    };
    for (runs, kept) in [
        (&[(4, 0, 0, 0)][..], true),
        (&[(2, 0, 198, 0)], false),
        (&[(2, 198, 10, 0)], true),
        (&[(2, 0, 0, 198)], false),
        (&[(100, 0, 0, 0), (2, 0, 198, 0), (90, 0, 10, 0)], true),
        (&[(0, 0, 0, 0)], true),
        (&[(0, 0, 0, 0), (0, 0, 1, 0)], false),
        (&[], true),
    ] {
        let reports: Vec<live::Report> =
            runs.iter().map(|&(a, b, c, d)| report(a, b, c, d)).collect();
        let effect = design_effect(&reports.iter().collect::<Vec<_>>(), 0.8);
        assert_eq!(effect.is_none(), kept, "{runs:?}: {effect:?}");
    }
}

#[test]
fn a_missing_superpage_has_a_cause_where_the_runs_or_the_plan_show_one() {
    let alone = |recipe| malloc_alone(&planned(recipe, 0.9, Vec::new()).1);
    let of_both = "x: pages=hugetlb memory=heap,mmap";
    assert!(alone("hugetlb").is_some_and(|why| why.contains("pages=hugetlb memory=heap,mmap")));
    assert_eq!((alone(of_both), alone("thp")), (None, None));
    let forks = |of: &[Option<u64>]| {
        let run = |forks: &Option<u64>| Sample { library_forks: *forks, ..Sample::default() };
        let runs: Vec<Sample> = of.iter().map(run).collect();
        forked(runs.iter())
    };
    assert!(forks(&[None, Some(3), Some(4), Some(4)]).is_some_and(|why| why.contains("4 times")));
    assert_eq!((forks(&[Some(0), Some(0), Some(1)]), forks(&[None])), (None, None));
}

/// Asserts that runs with these (bytes, bytes on superpages) keep or break a promise.
fn promised(promise: Promise, runs: &[(u64, u64)], kept: bool) {
    let runs: Vec<Coverage> = runs.iter().map(|&(all, huge)| coverage(all, huge)).collect();
    let runs: Vec<&Coverage> = runs.iter().collect();
    let effect = took_effect(promise, Pages::Thp, &runs, 0.8);
    assert_eq!(effect == Effect::AsPromised, kept, "{runs:?}: {effect:?}");
}

#[test]
fn smaller_superpages_are_not_the_largest() {
    for (runs, kept) in [
        (&[(512, 0)][..], true),
        (&[(512, 16), (0, 0)], true),
        (&[(512, 0), (516, 514)], false),
        (&[(512, 256)], false),
    ] {
        promised(Promise::SmallerSuperpages, runs, kept);
    }
}

#[test]
fn superpages_were_got_where_a_mapping_can_hold_one() {
    for (runs, kept) in [
        (&[(512, 512)][..], true),
        (&[(512, 410), (512, 512)], true),
        (&[(512, 409), (512, 512)], false),
        (&[(512, 512), (0, 0)], true),
        (&[(0, 0)], false),
    ] {
        promised(Promise::Superpages, runs, kept);
    }
}
