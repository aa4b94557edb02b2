//! The page about the public surface has all of it.

const LIB: &str = include_str!("../src/lib.rs");
const PAGE: &str = include_str!("../../docs/policy.md");

/// Names between braces, or the one name, after each of these.
fn names<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
    let lists = text.split(before).skip(1).filter_map(|rest| rest.split_once(';'));
    let names = lists.flat_map(|(list, _)| list.rsplit("::").next());
    names
        .flat_map(|list| list.split(['{', '}', ',']).map(str::trim))
        .filter(|name| !name.is_empty())
        .collect()
}

fn has(page: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    page.match_indices(name).any(|(at, _)| {
        let (before, after) = (&page[..at], &page[at + name.len()..]);
        !before.ends_with(is_word) && !after.starts_with(is_word)
    })
}

#[test]
fn every_public_name_is_on_the_page() {
    let names = names(LIB, "\npub use ");
    assert!(names.len() > 30, "{names:?}");
    let missing: Vec<_> = names.into_iter().filter(|name| !has(PAGE, name)).collect();
    assert!(missing.is_empty(), "docs/policy.md does not say: {missing:?}");
}

#[test]
fn every_question_and_event_is_on_the_page() {
    let sources = [
        include_str!("../src/acquire.rs"),
        include_str!("../src/daemon.rs"),
        include_str!("../src/fault.rs"),
        include_str!("../src/scan.rs"),
        include_str!("../src/settings.rs"),
        LIB,
    ];
    let functions = sources.iter().flat_map(|source| source.split("    pub fn ").skip(1));
    let functions = functions.filter_map(|rest| rest.split('(').next());
    let events =
        LIB.split("Event::").skip(1).map(|rest| rest.split(|c: char| !c.is_alphanumeric()).next());
    let all: Vec<&str> = functions.chain(events.flatten()).collect();
    assert!(all.len() > 25, "{all:?}");
    let missing: Vec<_> = all.into_iter().filter(|name| !has(PAGE, name)).collect();
    assert!(missing.is_empty(), "docs/policy.md does not say: {missing:?}");
}

#[test]
fn every_action_is_on_the_page() {
    let (_, actions) = include_str!("../src/action.rs").split_once("pub enum Action {").unwrap();
    let (actions, _) = actions.split_once("\n}").unwrap();
    let variants = actions.lines().filter_map(|line| line.strip_prefix("    "));
    let variants = variants.filter(|line| line.starts_with(char::is_uppercase));
    let variants: Vec<&str> =
        variants.filter_map(|line| line.split(|c: char| !c.is_alphanumeric()).next()).collect();
    assert!(variants.len() > 40, "{variants:?}");
    let missing: Vec<_> = variants.into_iter().filter(|name| !has(PAGE, name)).collect();
    assert!(missing.is_empty(), "docs/policy.md does not say: {missing:?}");
}
