use super::*;
use crate::Kind;

fn facts() -> Facts {
    Facts {
        thp_mode: Some("madvise".to_string()),
        pools: vec![Pool {
            size: PageSize::new(2 << 20).unwrap(),
            total: 10,
            free: 8,
            reserved: 3,
            overcommit_left: 0,
        }],
        runtime: Some(PathBuf::from("/opt/lib/libsuperpage.so")),
        ld_preload: None,
        glibc_tunables: None,
    }
}

fn program(kind: Kind) -> Program {
    Program { path: PathBuf::from("/bin/app"), kind }
}

fn resolve(recipe: &str, facts: &Facts) -> Result<Plan, LaunchError> {
    Plan::resolve(&recipe.parse().unwrap(), program(Kind::Glibc), vec![], facts)
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
fn thp_uses_tunable_and_preload() {
    let inherited = Facts { ld_preload: Some("/lib/other.so".to_string()), ..facts() };
    let plan = resolve("x: pages=thp preload=/lib/mi.so", &inherited).unwrap();
    assert_eq!(variable(&plan, "GLIBC_TUNABLES"), Some("glibc.malloc.hugetlb=1"));
    assert_eq!(
        variable(&plan, "LD_PRELOAD"),
        Some("/lib/mi.so:/opt/lib/libsuperpage.so:/lib/other.so")
    );
    assert_eq!(variable(&plan, "SUPERPAGE_PAGES"), Some("thp"));
    assert_eq!(plan.notes, Vec::<String>::new());
}

#[test]
fn thp_says_what_it_cannot_reach() {
    for (facts, kind, part) in [
        (Facts { runtime: None, ..facts() }, Kind::Glibc, "not beside"),
        (Facts { runtime: Some("/a b/x.so".into()), ..facts() }, Kind::Glibc, "space"),
        (facts(), Kind::Static, "statically"),
        (facts(), Kind::Privileged, "set-user-id"),
    ] {
        let recipe = Recipe::of(Pages::Thp);
        let plan = Plan::resolve(&recipe, program(kind), vec![], &facts).unwrap();
        assert!(plan.notes.iter().any(|note| note.contains(part)), "{part}: {:?}", plan.notes);
    }
}

#[test]
fn a_machine_that_cannot_is_an_error_with_a_remedy() {
    let off = Facts { thp_mode: Some("never".to_string()), ..facts() };
    assert!(resolve("thp", &off).unwrap_err().to_string().contains("echo madvise"));
    let without = Facts { thp_mode: None, ..facts() };
    assert!(matches!(resolve("thp", &without), Err(LaunchError::NoThp)));
    let mut empty = facts();
    empty.pools[0].free = 3;
    assert!(resolve("hugetlb", &empty).unwrap_err().to_string().contains("--pool lend"));
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
    assert!(plan.notes.iter().any(|note| note.contains("SIGBUS")));
}

#[test]
fn system_changes_nothing_but_what_the_recipe_says() {
    let plan = resolve("x: A=1", &facts()).unwrap();
    assert_eq!((plan.thp, plan.promise), (ThpRequest::Inherit, Promise::Nothing));
    assert_eq!(variable(&plan, "A"), Some("1"));
    assert_eq!(plan.environment.len(), 1);
}
