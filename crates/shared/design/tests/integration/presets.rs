//! The presets are valid designs, and the files at the repository's root are the same.

use superpage_design::{Design, designs};

#[test]
fn every_preset_is_a_good_design_of_its_name() {
    for preset in designs::list() {
        let design = preset.design().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(design.name, preset.name);
        assert!(!design.summary.is_empty(), "{}", preset.name);
        assert_eq!(Design::from_toml("again", &design.to_toml()), Ok(design));
    }
}

#[test]
fn every_file_is_a_preset() {
    let files =
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../designs")).unwrap();
    let mut names: Vec<String> = files
        .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_string())
        .collect();
    names.sort();
    let mut known: Vec<&str> = designs::list().iter().map(|preset| preset.name).collect();
    known.sort();
    assert_eq!(names, known);
}

/// docs/facts.md lists exactly the facts of `policy`. If it does not, the test prints the table as it should be.
#[test]
fn the_page_of_facts_is_up_to_date() {
    use policy::{Fact, Kind, Rule};

    let page = include_str!("../../../../../docs/facts.md");
    let rule = |rule: &Rule| match rule {
        Rule::Fault => "`allocation.when`",
        Rule::Scan => "`mapping.scan.when`",
        Rule::Split => "`unmapping.when`",
    };
    let line = |fact: &Fact| {
        let unit = if fact.kind() == Kind::Truth { "true or false" } else { fact.unit() };
        let rules: Vec<&str> = fact.rules().iter().map(rule).collect();
        format!("| `{}` | {unit} | {} | {} |", fact.name(), rules.join(", "), fact.says())
    };
    let expected: Vec<String> = Fact::ALL.iter().map(line).collect();
    let found: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(found, expected, "\n{}\n", expected.join("\n"));
}
