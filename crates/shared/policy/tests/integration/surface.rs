//! docs/policy.md lists the whole public interface of `policy`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const LIB: &str = include_str!("../../src/lib.rs");

/// Returns the page's text in backticks.
fn code() -> String {
    let page = include_str!("../../../../../docs/policy.md");
    let (_, surface) = page.split_once("\n## The public surface on one page\n").expect("the part");
    let (surface, _) = surface.split_once("\n## ").expect("its end");
    surface.split('`').skip(1).step_by(2).collect::<Vec<_>>().join("\n")
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the name, or the names between braces, after each occurrence of `before`.
fn names<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
    let lists = text.split(before).skip(1).filter_map(|rest| rest.split_once(';'));
    let names = lists.flat_map(|(list, _)| list.rsplit("::").next());
    names
        .flat_map(|list| list.split(['{', '}', ',']).map(str::trim))
        .filter(|name| !name.is_empty())
        .collect()
}

/// Returns the functions of `impl Policy`, without those for conditions.
fn questions() -> BTreeSet<String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = fs::read_dir(sources).expect("sources").map(|entry| entry.expect("a file").path());
    let mut found = BTreeSet::new();
    for file in files.filter(|path| path.is_file()) {
        let text = fs::read_to_string(&file).expect("a source");
        for own in text.split("\nimpl Policy {").skip(1) {
            let (own, _) = own.split_once("\n}").expect("its end");
            let functions = own.split("\n    pub ").skip(1);
            let functions =
                functions.filter_map(|rest| rest.trim_start_matches("const ").strip_prefix("fn "));
            found.extend(functions.filter_map(|rest| rest.split('(').next()).map(String::from));
        }
    }
    found
}

#[track_caller]
fn all_are_there(names: &[&str], least: usize) {
    assert!(names.len() > least, "{names:?}");
    let code = code();
    let words: BTreeSet<&str> = code.split(|c| !is_word(c)).collect();
    let missing: Vec<_> = names.iter().filter(|name| !words.contains(**name)).collect();
    assert!(missing.is_empty(), "docs/policy.md does not say: {missing:?}");
}

#[test]
fn every_public_name_is_on_the_page() {
    all_are_there(&names(LIB, "\npub use "), 30);
    all_are_there(&names(LIB, "\npub mod "), 1);
}

#[test]
fn every_question_is_on_the_page() {
    let questions = questions();
    assert!(questions.len() > 15, "{questions:?}");
    let code = code();
    let asked = |name: &&String| {
        let call = format!("{name}(");
        code.match_indices(&call).any(|(at, _)| !code[..at].ends_with(is_word))
    };
    let missing: Vec<_> = questions.iter().filter(|name| !asked(name)).collect();
    assert!(missing.is_empty(), "docs/policy.md does not say: {missing:?}");
}

#[test]
fn every_event_is_on_the_page() {
    all_are_there(&variants(include_str!("../../src/event.rs"), "pub enum Event {"), 15);
    all_are_there(&variants(include_str!("../../src/event.rs"), "pub enum Result {"), 4);
}

#[test]
fn every_action_is_on_the_page() {
    let source = include_str!("../../src/action.rs");
    for (name, least) in
        [("Action", 20), ("FaultAction", 15), ("ScanAction", 4), ("UpkeepAction", 7)]
    {
        all_are_there(&variants(source, &format!("pub enum {name} {{")), least);
    }
}

/// Returns the variants of an enum.
fn variants<'a>(source: &'a str, head: &str) -> Vec<&'a str> {
    let (_, variants) = source.split_once(head).expect(head);
    let (variants, _) = variants.split_once("\n}").expect("its end");
    let lines = variants.lines().filter_map(|line| line.strip_prefix("    "));
    let lines = lines.filter(|line| line.starts_with(char::is_uppercase));
    lines.filter_map(|line| line.split(|c| !is_word(c)).next()).collect()
}
