use super::*;
use crate::Kind;

fn facts() -> Facts {
    Facts {
        thp_mode: Some("madvise".to_string()),
        thp_sizes: Vec::new(),
        thp_sizes_off: Vec::new(),
        may_change_settings: false,
        free_in_superpages: Some(0.9),
        thp_only_advised: true,
        thp_largest: PageSize::new(2 << 20).ok(),
        pools: vec![Pool {
            size: PageSize::new(2 << 20).unwrap(),
            total: 10,
            free: 8,
            reserved: 3,
            overcommit_left: 0,
            is_gigantic: false,
        }],
        runtime: Some(PathBuf::from("/opt/lib/libsuperpage.so")),
        ld_preload: None,
        glibc_tunables: None,
    }
}

fn program(kind: Kind) -> Program {
    Program { path: PathBuf::from("/bin/app"), kind, allocator: None, runtime: None }
}

fn resolve(recipe: &str, facts: &Facts) -> Result<Plan, LaunchError> {
    Plan::resolve(&recipe.parse().unwrap(), program(Kind::Glibc), None, vec![], facts)
}

fn variable<'a>(plan: &'a Plan, name: &str) -> Option<&'a str> {
    plan.environment.iter().find(|change| change.variable == name).map(|c| c.value.as_str())
}

#[test]
fn base_disables_thp_and_undoes_inherited_tunables() {
    let plan = resolve("base", &facts()).unwrap();
    assert_eq!((plan.thp, plan.promise), (ThpRequest::Disabled, Promise::BasePages));
    assert_eq!(plan.environment, []);
    let inherited =
        Facts { glibc_tunables: Some("glibc.malloc.hugetlb=2:a.b=1".to_string()), ..facts() };
    let plan = resolve("base", &inherited).unwrap();
    assert_eq!(variable(&plan, "GLIBC_TUNABLES"), Some("a.b=1:glibc.malloc.hugetlb=0"));
}

#[test]
fn a_design_in_force_finds_base_pages() {
    let recipe = "x: pages=collapsed design=freebsd";
    let plan = resolve(recipe, &facts()).unwrap();
    assert_eq!((plan.thp, plan.promise), (ThpRequest::OnlyAdvised, Promise::Nothing));
    let old = Facts { thp_only_advised: false, ..facts() };
    assert_eq!(resolve(recipe, &old).unwrap().thp, ThpRequest::System);
    let always = Facts { thp_mode: Some("always".to_string()), ..old };
    assert!(matches!(resolve(recipe, &always), Err(LaunchError::ThpAlways)));
    assert!(matches!(resolve("x: pages=collapsed", &facts()), Err(LaunchError::NoDesign)));
}

#[test]
fn thp_uses_the_library_and_the_tunable_where_that_cannot_be_preloaded() {
    let inherited = Facts { ld_preload: Some("/lib/other.so".to_string()), ..facts() };
    let recipe: Recipe = "x: pages=thp".parse().unwrap();
    let fixed = program(Kind::Static);
    let plan = Plan::resolve(&recipe, fixed, None, Vec::new(), &inherited).unwrap();
    assert_eq!(variable(&plan, "GLIBC_TUNABLES"), Some("glibc.malloc.hugetlb=1"));
    let plan = resolve("x: pages=thp preload=/lib/mi.so", &inherited).unwrap();
    assert_eq!(variable(&plan, "GLIBC_TUNABLES"), None);
    assert_eq!(
        variable(&plan, "LD_PRELOAD"),
        Some("/lib/mi.so:/opt/lib/libsuperpage.so:/lib/other.so")
    );
    assert_eq!(variable(&plan, "SUPERPAGE_PAGES"), Some("thp"));
    assert_eq!(plan.notes, Notes::default());
}

#[test]
fn what_is_prepared_ahead_is_asked_of_the_library_or_said_to_be_impossible() {
    let words = "prezero=256M prefault=1M";
    for (memory, malloc) in [("mmap", 0), ("heap,mmap", 1)] {
        let plan = resolve(&format!("x: pages=thp memory={memory} {words}"), &facts()).unwrap();
        assert_eq!(variable(&plan, "SUPERPAGE_PREZERO"), Some("268435456"));
        assert_eq!(variable(&plan, "SUPERPAGE_PREFAULT"), Some("1048576"));
        let notes: Vec<&Note> = plan.warnings().collect();
        let of_malloc = notes.iter().filter(|note| **note == &Note::MallocNotAhead);
        assert_eq!((of_malloc.count(), notes.len()), (malloc, malloc), "{notes:?}");
    }
    for other in [
        "pages=thp",
        "pages=thp memory=heap",
        "pages=thp memory=shm",
        "pages=hugetlb memory=mmap",
        "pages=system",
    ] {
        let plan = resolve(&format!("x: {other} {words}"), &facts()).unwrap();
        assert_eq!(variable(&plan, "SUPERPAGE_PREZERO"), None, "{other}");
        let notes: Vec<&Note> = plan.warnings().collect();
        assert!(matches!(notes[0], Note::NothingAhead { .. }), "{other}: {notes:?}");
    }
    let plan = resolve("x: pages=thp memory=mmap prezero=0", &facts()).unwrap();
    assert_eq!(variable(&plan, "SUPERPAGE_PREZERO"), None);
    assert_eq!(plan.notes, Notes::default());
}

#[test]
fn thp_says_what_it_cannot_reach() {
    for (facts, kind, part) in [
        (Facts { runtime: None, ..facts() }, Kind::Glibc, "not beside"),
        (Facts { runtime: Some("/a b/x.so".into()), ..facts() }, Kind::Glibc, "space"),
        (facts(), Kind::Static, "statically"),
        (facts(), Kind::Privileged, "set-user-id"),
    ] {
        let recipe = Recipe::new(Pages::Thp);
        let plan = Plan::resolve(&recipe, program(kind), None, vec![], &facts).unwrap();
        assert!(
            plan.notes.iter().any(|note| note.to_string().contains(part)),
            "{part}: {:?}",
            plan.notes
        );
    }
}

#[test]
fn a_machine_that_cannot_is_an_error_with_a_remedy() {
    let off = Facts { thp_mode: Some("never".to_string()), ..facts() };
    let error = resolve("thp", &off).unwrap_err().to_string();
    assert!(error.contains("echo madvise") && error.contains("hugepages-<size>"), "{error}");
    let without = Facts { thp_mode: None, ..facts() };
    assert!(matches!(resolve("thp", &without), Err(LaunchError::NoThp)));
    let mut empty = facts();
    empty.pools[0].free = 3;
    assert!(resolve("hugetlb", &empty).unwrap_err().to_string().contains("--pool lend"));
    empty.pools[0].is_gigantic = true;
    let error = resolve("hugetlb", &empty).unwrap_err().to_string();
    assert!(error.ends_with("superpage pool set 2M:+N"), "{error}");
    empty.pools[0].is_gigantic = false;
    empty.pools[0].overcommit_left = 1;
    assert!(resolve("hugetlb", &empty).is_ok());
    let error = resolve("hugetlb:1G", &facts()).unwrap_err().to_string();
    assert!(error.contains("no hugetlb pool of 1 GiB pages; it has 2 MiB"), "{error}");
}

#[test]
fn hugetlb_reserves_and_names_its_risks() {
    let plan = resolve("hugetlb:2M", &facts()).unwrap();
    assert_eq!(
        variable(&plan, "GLIBC_TUNABLES"),
        Some("glibc.malloc.hugetlb=2097152:glibc.malloc.arena_max=1")
    );
    assert!(plan.notes.iter().any(|note| note.to_string().contains("SIGBUS")));
}

#[test]
fn system_changes_nothing_but_what_the_recipe_says() {
    let plan = resolve("x: A=1", &facts()).unwrap();
    assert_eq!((plan.thp, plan.promise), (ThpRequest::Inherit, Promise::Nothing));
    assert_eq!(variable(&plan, "A"), Some("1"));
    assert_eq!(plan.environment.len(), 1);
}

#[test]
fn memory_without_superpages_is_said_to_ask_for_nothing() {
    let asks_for_nothing = |recipe: &str| {
        let plan = resolve(recipe, &facts()).unwrap();
        let said =
            plan.notes.iter().any(|note| note.to_string().contains("asks for no superpages"));
        (said, plan.uses_library())
    };
    assert_eq!(asks_for_nothing("x: memory=heap"), (true, false));
    assert_eq!(asks_for_nothing("x: memory=heap,mmap pages=base"), (true, false));
    assert_eq!(asks_for_nothing("x: memory=heap pages=thp"), (false, true));
    assert_eq!(asks_for_nothing("x: A=1"), (false, false));
}

#[test]
fn what_the_recipe_sets_joins_what_the_plan_needs() {
    let inherited = Facts {
        ld_preload: Some("/lib/inherited.so".to_string()),
        glibc_tunables: Some("glibc.malloc.arena_max=9".to_string()),
        ..facts()
    };
    let recipe = "x: pages=thp preload=/lib/mi.so LD_PRELOAD=/lib/own.so A=1 A=2 \
                  GLIBC_TUNABLES=glibc.malloc.tcache_count=0";
    let plan = resolve(recipe, &inherited).unwrap();
    assert_eq!(variable(&plan, "GLIBC_TUNABLES"), Some("glibc.malloc.tcache_count=0"));
    assert_eq!(
        variable(&plan, "LD_PRELOAD"),
        Some("/lib/mi.so:/opt/lib/libsuperpage.so:/lib/own.so")
    );
    assert_eq!(variable(&plan, "A"), Some("2"));
    assert_eq!(plan.notes, Notes::default());
    // If the plan needs neither variable, the recipe's value is used unchanged.
    let plan = resolve("x: LD_PRELOAD= GLIBC_TUNABLES=a.b=1", &inherited).unwrap();
    assert_eq!(variable(&plan, "LD_PRELOAD"), Some(""));
    assert_eq!(variable(&plan, "GLIBC_TUNABLES"), Some("a.b=1"));
}

#[test]
fn where_recipe_and_plan_differ_on_a_tunable_the_recipe_stands_and_a_note_says_so() {
    let plan =
        resolve("x: pages=hugetlb GLIBC_TUNABLES=glibc.malloc.arena_max=4", &facts()).unwrap();
    assert_eq!(
        variable(&plan, "GLIBC_TUNABLES"),
        Some("glibc.malloc.arena_max=4:glibc.malloc.hugetlb=2")
    );
    assert!(
        plan.notes.iter().any(|note| note.to_string().contains("arena_max=4 stands")),
        "{:?}",
        plan.notes
    );
    let same = resolve("x: pages=thp GLIBC_TUNABLES=glibc.malloc.hugetlb=1", &facts()).unwrap();
    assert_eq!(variable(&same, "GLIBC_TUNABLES"), Some("glibc.malloc.hugetlb=1"));
    assert_eq!(same.notes, Notes::default());
}

#[test]
fn each_variable_is_set_once() {
    for pages in ["system", "base", "thp", "hugetlb"] {
        let recipe = format!(
            "x: pages={pages} preload=/a.so LD_PRELOAD=/b.so LD_PRELOAD=/c.so GLIBC_TUNABLES=a.b=1 \
             GLIBC_TUNABLES=a.b=2 SUPERPAGE_PAGES=none A=1 A=2"
        );
        let plan = resolve(&recipe, &facts()).unwrap();
        let mut names: Vec<_> = plan.environment.iter().map(|change| &change.variable).collect();
        names.sort();
        assert_eq!(names, ["A", "GLIBC_TUNABLES", "LD_PRELOAD", "SUPERPAGE_PAGES"], "{pages}");
        assert_eq!(variable(&plan, "SUPERPAGE_PAGES"), Some("none"));
    }
}

#[test]
fn the_library_goes_only_where_it_can_be_loaded() {
    let musl = || Kind::OtherLoader("/lib/ld-musl-x86_64.so.1".to_string());
    let script = || Kind::Script("/bin/sh".to_string());
    for (started, wrapped, is_preloaded) in [
        (Kind::Glibc, None, true),
        (script(), None, true),
        (Kind::Unknown, None, true),
        (musl(), None, false),
        (Kind::Static, None, false),
        (Kind::Privileged, None, false),
        (Kind::Glibc, Some(Kind::Glibc), true),
        (Kind::Static, Some(Kind::Glibc), true),
        (script(), Some(Kind::Unknown), true),
        (Kind::Glibc, Some(musl()), false),
        (Kind::Glibc, Some(Kind::Static), false),
        (musl(), Some(Kind::Glibc), false),
        (Kind::Privileged, Some(Kind::Glibc), false),
    ] {
        let case = format!("{started:?} {wrapped:?}");
        let unreached =
            started.unreached().iter().count() + wrapped.iter().filter_map(Kind::unreached).count();
        let wrapped = wrapped.map(program);
        let recipe = Recipe::new(Pages::Thp);
        let plan =
            Plan::resolve(&recipe, program(started), wrapped.as_ref(), vec![], &facts()).unwrap();
        assert_eq!(variable(&plan, "LD_PRELOAD").is_some(), is_preloaded, "{case}");
        assert_eq!(variable(&plan, "SUPERPAGE_PAGES").is_some(), is_preloaded, "{case}");
        assert_eq!(plan.notes.len(), unreached, "{case}: {:?}", plan.notes);
    }
}

fn with_library(pools: Vec<Pool>) -> Facts {
    Facts {
        thp_mode: Some("madvise".into()),
        runtime: Some(PathBuf::from("/lib/libsuperpage.so")),
        pools,
        ..Facts::default()
    }
}

fn pool(free: u64, reserved: u64) -> Pool {
    let size = PageSize::new(2 << 20).unwrap();
    Pool { size, total: free, free, reserved, overcommit_left: 0, is_gigantic: false }
}

#[test]
fn the_library_is_told_what_to_back_and_malloc_is_left_alone() {
    let facts = with_library(vec![pool(10, 0)]);
    let recipe: Recipe =
        "x: pages=hugetlb memory=heap,mmap,stack=4M fallback=error".parse().unwrap();
    let plan = Plan::resolve(&recipe, program(Kind::Glibc), None, Vec::new(), &facts).unwrap();
    let value = |name: &str| variable(&plan, name);
    assert_eq!(value("SUPERPAGE_PAGES"), Some("hugetlb:2M"));
    assert_eq!(value("SUPERPAGE_MEMORY"), Some("heap,mmap,stack=4194304"));
    assert_eq!(value("SUPERPAGE_FALLBACK"), Some("error"));
    assert_eq!(value("SUPERPAGE_CHILDREN"), Some("base"));
    assert_eq!(value("LD_PRELOAD"), Some("/lib/libsuperpage.so"));
    assert_eq!(value("GLIBC_TUNABLES"), None);
    assert_eq!(plan.promise, Promise::Superpages);
    assert_eq!(plan.stack, Some(ByteSize::mib(4)));
    assert_eq!(plan.thp, ThpRequest::Disabled, "what falls back is an error, not THP");
}

/// glibc would advise memory that the program does not touch.
#[test]
fn glibc_advises_no_heap_that_the_library_backs() {
    for recipe in ["x: pages=thp", "x: pages=thp memory=heap,mmap", "x: pages=thp memory=mmap"] {
        let facts = Facts { free_in_superpages: Some(0.9), ..with_library(Vec::new()) };
        let parsed: Recipe = recipe.parse().unwrap();
        let plan = Plan::resolve(&parsed, program(Kind::Glibc), None, Vec::new(), &facts).unwrap();
        assert_eq!(variable(&plan, "GLIBC_TUNABLES"), None, "{recipe}");
        assert_eq!(variable(&plan, "SUPERPAGE_PAGES"), Some("thp"), "{recipe}");
    }
}

#[test]
fn an_error_in_the_place_of_base_pages_is_never_ignored() {
    let facts = with_library(vec![pool(10, 0)]);
    let plan = |recipe: &str, kind: Kind, facts: &Facts| {
        let recipe: Recipe = recipe.parse().unwrap();
        Plan::resolve(&recipe, program(kind), None, Vec::new(), facts)
    };
    for (recipe, memory) in [
        ("x: pages=hugetlb fallback=error", "heap,mmap"),
        ("x: pages=auto fallback=error", "heap,mmap"),
        ("x: pages=auto memory=heap fallback=error", "heap"),
    ] {
        let made = plan(recipe, Kind::Glibc, &facts).unwrap();
        assert_eq!(variable(&made, "SUPERPAGE_PAGES"), Some("hugetlb:2M"), "{recipe}");
        assert_eq!(variable(&made, "SUPERPAGE_MEMORY"), Some(memory), "{recipe}");
        assert_eq!(variable(&made, "SUPERPAGE_FALLBACK"), Some("error"), "{recipe}");
        assert_eq!(variable(&made, "GLIBC_TUNABLES"), None, "{recipe}");
        // The plan does not fall back to THP either.
        let empty = with_library(vec![pool(10, 10)]);
        let refused = plan(recipe, Kind::Glibc, &empty);
        assert!(matches!(refused, Err(LaunchError::PoolEmpty { .. })), "{recipe}");
        for kind in [Kind::Static, Kind::Privileged, Kind::OtherLoader("/lib/ld-musl.so".into())] {
            let refused = plan(recipe, kind, &facts);
            assert!(matches!(refused, Err(LaunchError::NotReached(..))), "{recipe}");
        }
    }
    for pages in ["thp", "base", "system"] {
        let refused =
            plan(&format!("x: pages={pages} memory=heap fallback=error"), Kind::Glibc, &facts);
        assert!(matches!(refused, Err(LaunchError::NothingToRefuse(_))), "{pages}");
    }
}

#[test]
fn auto_takes_the_pool_if_it_has_pages_then_thp_then_smaller_ones() {
    let recipe = Recipe::superpage();
    let pages = |facts: &Facts| {
        Plan::resolve(&recipe, program(Kind::Glibc), None, Vec::new(), facts).map(|plan| plan.pages)
    };
    assert_eq!(pages(&with_library(vec![pool(10, 3)])).unwrap(), Pages::Hugetlb(None));
    assert_eq!(pages(&with_library(vec![pool(10, 10)])).unwrap(), Pages::Thp);
    // A pool that may only grow is not chosen, unless there is nothing else.
    let grows = vec![Pool { overcommit_left: 5, ..pool(0, 0) }];
    assert_eq!(pages(&with_library(grows.clone())).unwrap(), Pages::Thp);
    let small = PageSize::new(64 << 10).unwrap();
    let never = Some("never".to_string());
    let facts = Facts { thp_mode: never, thp_sizes: vec![small], ..with_library(grows) };
    assert_eq!(pages(&facts).unwrap(), Pages::ThpOf(small));
    let only_grows = Facts { thp_sizes: Vec::new(), ..facts };
    assert_eq!(pages(&only_grows).unwrap(), Pages::Hugetlb(None));
    let nothing = Facts { pools: Vec::new(), ..only_grows };
    assert!(matches!(pages(&nothing), Err(LaunchError::NoSuperpages)));
}

#[test]
fn larger_superpages_than_asked_for_are_named_up_front_or_refused() {
    let size = |kib: u64| PageSize::new(kib << 10).unwrap();
    let on = |mode: &str, sizes: &[u64]| Facts {
        thp_mode: Some(mode.to_string()),
        thp_sizes: sizes.iter().map(|kib| size(*kib)).collect(),
        ..with_library(Vec::new())
    };
    let usual = "x: pages=thp:64K memory=heap,mmap";
    let strict = "x: pages=thp:64K memory=heap,mmap fallback=error";
    for (mode, sizes, larger) in [
        ("never", &[64][..], None),
        ("never", &[64, 32], None),
        ("madvise", &[64], Some("(the largest size)")),
        ("never", &[1024, 64], Some("(1 MiB)")),
        ("always", &[1024, 64, 16], Some("(the largest size, 1 MiB)")),
    ] {
        let facts = on(mode, sizes);
        let plan = resolve(usual, &facts).unwrap();
        assert_eq!(plan.promise, Promise::SmallerSuperpages);
        let notes: Vec<&Note> = plan.warnings().collect();
        assert_eq!(notes.len(), usize::from(larger.is_some()), "{mode} {sizes:?}: {notes:?}");
        assert!(larger.is_none_or(|larger| notes[0].to_string().contains(larger)), "{notes:?}");
        let refused = matches!(resolve(strict, &facts), Err(LaunchError::LargerThp(..)));
        assert_eq!(refused, larger.is_some(), "{mode} {sizes:?}");
    }
    let off = resolve(usual, &on("madvise", &[32]));
    assert!(matches!(off, Err(LaunchError::ThpSizeOff(_))));
}

#[test]
fn a_program_the_library_cannot_reach_is_named_up_front() {
    let facts = with_library(Vec::new());
    for kind in [Kind::Static, Kind::Privileged, Kind::OtherLoader("/lib/ld-musl.so".into())] {
        let plan =
            Plan::resolve(&Recipe::superpage(), program(kind), None, Vec::new(), &facts).unwrap();
        assert!(plan.warnings().count() >= 1, "{:?}", plan.notes);
    }
    let plan = Plan::resolve(&Recipe::superpage(), program(Kind::Glibc), None, Vec::new(), &facts);
    assert_eq!(plan.unwrap().warnings().count(), 0);
}

#[test]
fn a_program_with_a_sanitizer_is_left_alone_and_that_is_said() {
    let asan = Kind::Instrumented(Instrumentation::AddressSanitizer);
    let resolve = |recipe: &str, kind: Kind, facts: &Facts| {
        let plan = Plan::resolve(&recipe.parse().unwrap(), program(kind), None, vec![], facts);
        plan.unwrap()
    };
    for recipe in ["thp", "x: pages=thp memory=heap,mmap", "x: pages=hugetlb memory=heap", "auto"] {
        let plan = resolve(recipe, asan.clone(), &facts());
        assert_eq!((plan.environment.len(), plan.thp), (0, ThpRequest::Inherit), "{recipe}");
        let notes: Vec<&Note> = plan.warnings().collect();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(
            notes[0].to_string().starts_with("/bin/app is built with AddressSanitizer"),
            "{notes:?}"
        );
        assert_eq!(plan.left_alone, Some(notes[0].to_string()));
    }
    // The program gets base pages anyway, so it is not marked as left alone.
    let plan = resolve("base", asan, &facts());
    assert_eq!((plan.left_alone, plan.thp), (None, ThpRequest::Disabled));
    let preloaded = Facts { ld_preload: Some("/usr/lib/libasan.so.8".to_string()), ..facts() };
    let plan = resolve("x: pages=thp memory=heap", Kind::Glibc, &preloaded);
    assert!(plan.left_alone.is_some() && !plan.sets("SUPERPAGE_PAGES"));
}

#[test]
fn only_private_memory_is_copied_at_a_fork() {
    let facts = with_library(vec![pool(10, 0)]);
    let notes = |recipe: &str| resolve(recipe, &facts).unwrap().notes.texts().join("; ");
    assert!(notes("x: pages=hugetlb memory=heap,shm").contains("a fork copies"));
    assert!(notes("x: pages=hugetlb memory=heap children=same").contains("a forked child shares"));
    for children in ["base", "same"] {
        let recipe = format!("x: pages=hugetlb memory=shm children={children}");
        assert!(!notes(&recipe).contains("fork"), "{}", notes(&recipe));
    }
}

#[test]
fn an_allocator_of_its_own_is_said_where_only_malloc_is_asked() {
    let facts = Facts { thp_mode: Some("madvise".to_string()), ..with_library(vec![pool(10, 0)]) };
    let app = Program { allocator: Some("libjemalloc.so.2".to_string()), ..program(Kind::Glibc) };
    let said = |recipe: &str| {
        let recipe = recipe.parse().unwrap();
        let plan = Plan::resolve(&recipe, app.clone(), None, Vec::new(), &facts).unwrap();
        plan.warnings().any(|note| note.to_string().contains("(libjemalloc.so.2)"))
    };
    assert!(
        said("hugetlb") && said("x: pages=hugetlb memory=heap") && said("x: pages=thp memory=heap")
    );
    // The library reaches the program's mappings, so there is no note.
    assert!(!said("thp") && !said("x: pages=hugetlb memory=heap,mmap") && !said("base"));
}

/// docs/decisions/contiguity.md#6
#[test]
fn on_fragmented_memory_the_library_decides_and_is_supplied() {
    let sizes = [1 << 20, 64 << 10].map(|size| PageSize::new(size).unwrap()).to_vec();
    let fragmented =
        Facts { free_in_superpages: Some(0.01), thp_sizes_off: sizes.clone(), ..facts() };
    let root = Facts { may_change_settings: true, ..fragmented.clone() };
    let note = |plan: &Plan| {
        let mut notes = plan.notes.iter();
        notes.find(|it| matches!(it, Note::Fragmented { .. })).map(Note::to_string)
    };
    let plan = resolve("thp", &root).unwrap();
    assert!(plan.uses_library() && plan.promise == Promise::Nothing);
    assert_eq!(plan.supply, Some(sizes.clone()));
    assert!(note(&plan).is_some_and(|it| it.contains("THP of 1 MiB, 64 KiB are turned on")));
    let plan = resolve("thp", &fragmented).unwrap();
    assert!(plan.uses_library() && plan.supply.is_none());
    assert!(note(&plan).is_some_and(|it| it.contains("as root")));
    // If some superpages are free, superpages are promised.
    let some = Facts { free_in_superpages: Some(0.3), ..root.clone() };
    for (recipe, promise) in [
        ("thp", Promise::Superpages),
        ("x: pages=thp memory=heap,mmap", Promise::Superpages),
        ("x: pages=thp memory=heap", Promise::Nothing),
    ] {
        let plan = resolve(recipe, &some).unwrap();
        assert_eq!((plan.promise, plan.uses_library()), (promise, true), "{recipe}");
    }
    // Memory may become fragmented later, so the supply is planned, but no note is needed.
    let whole = Facts { free_in_superpages: Some(0.9), ..root.clone() };
    let plan = resolve("x: pages=thp memory=heap,mmap", &whole).unwrap();
    assert_eq!((plan.supply.as_ref(), note(&plan)), (Some(&sizes), None));
    let plan = resolve("thp", &whole).unwrap();
    assert_eq!(variable(&plan, "SUPERPAGE_MEMORY"), None, "glibc's advice, and the library");
    // A design whose faults compact has no supply, and says what they cost.
    let recipe = "x: pages=thp memory=heap,mmap".parse().unwrap();
    let recipe = Recipe { advice: Advice::All, ..recipe };
    let of = |facts| Plan::resolve(&recipe, program(Kind::Glibc), None, vec![], facts).unwrap();
    assert_eq!((of(&root).supply, note(&of(&whole))), (None, None));
    assert!(note(&of(&root)).is_some_and(|it| it.contains("compacts memory")));
    assert_eq!((of(&root).warnings().count(), of(&whole).warnings().count()), (1, 0));
    // Without the library, or on the pool, nothing changes.
    let without = Facts { runtime: None, ..root.clone() };
    assert!(!resolve("thp", &without).unwrap().uses_library());
    assert_eq!(resolve("x: pages=hugetlb memory=heap", &root).unwrap().supply, None);
}
