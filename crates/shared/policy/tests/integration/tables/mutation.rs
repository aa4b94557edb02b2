//! Tests whether the tables cover every key of a design. Each key of each preset is changed, one at a time, to every
//! other value or to its neighbours (conditions in each of their places). If the table still holds after a change, no
//! line covers that key.
//!
//! Tables are data, so nothing is compiled again. `survivors.txt` lists changes that no table can detect, with the
//! reasons.

use std::collections::BTreeSet;

use design::{Design, DesignError, Value};

use super::dsl::{SCALE, Table};
use super::expressions;
use super::presets::{SUCCESSORS, presets, table};

/// Optional tables of a design, with a key that such a table needs.
pub const OPTIONAL: [(&str, &str); 8] = [
    ("preparation.background", ""),
    ("preparation.prezero", ""),
    ("mapping.scan.sampling", ""),
    ("mapping.scan", ""),
    ("unmapping.scan", "unmapping.when"),
    ("deallocation.bloat", ""),
    ("memory.periodic-compaction", ""),
    ("estimate", ""),
];

pub type Keys = Vec<(String, String)>;

/// A preset with one key changed that is still valid, and behaves differently.
pub struct Mutant {
    pub key: String,
    pub value: String,
    pub design: Design,
}

pub fn keys(design: &Design) -> Keys {
    design.keys().into_iter().map(|(key, value)| (key, value.to_string())).collect()
}

pub fn read(keys: &Keys) -> Result<Design, DesignError> {
    let lines: Vec<String> = keys.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    Design::from_toml("mutant", &lines.join("\n"))
}

/// Returns the design if it is valid, without keys that are valid only with the old value.
pub fn good(mut keys: Keys) -> Option<Design> {
    let problems = match read(&keys) {
        Err(DesignError::File { problems, .. }) => problems,
        read => return read.ok(),
    };
    let without = |problem: &design::Problem| problem.what.contains("goes only with");
    let dropped: Vec<String> =
        problems.into_iter().filter(without).map(|problem| problem.key).collect();
    keys.retain(|(key, _)| !dropped.contains(key));
    read(&keys).ok()
}

/// Returns other values for a key, as text.
pub fn others(keys: &Keys, key: &str, value: &Value) -> Vec<String> {
    if let (Value::Text(text), Some(rule)) = (value, expressions::rule(key)) {
        let mutants = expressions::mutants(text, rule);
        return mutants.into_iter().map(|mutant| Value::Text(mutant).to_string()).collect();
    }
    match value {
        Value::Text(_) => words(keys, key),
        Value::Flag(flag) => vec![(!flag).to_string()],
        Value::Number(number) => neighbours(*number).iter().map(u64::to_string).collect(),
        Value::Size(size) => [size.0 / 2, size.0 * 2]
            .map(|bytes| Value::Size(units::ByteSize(bytes)).to_string())
            .to_vec(),
        Value::Time(time) => {
            [*time / 2, *time * 2].map(|time| Value::Time(time).to_string()).to_vec()
        }
        Value::List(_) if key == "unmapping.on" => {
            let all = [r#"[]"#, r#"["partial-free"]"#, r#"["partial-protect"]"#];
            all.into_iter()
                .chain([r#"["partial-free", "partial-protect"]"#])
                .map(Into::into)
                .collect()
        }
        Value::List(_) => {
            let sizes =
                [r#"["1M"]"#, r#"["2M"]"#, r#"["4M"]"#, r#"["64K", "2M"]"#, r#"["32K", "2M"]"#];
            let more = [r#"["64K", "1M", "2M"]"#, r#"["512K", "2M"]"#, r#"["64K", "512K"]"#];
            let large =
                [r#"["1G"]"#, r#"["2M", "1G"]"#, r#"["2M", "32M"]"#, r#"["64K", "2M", "1G"]"#];
            sizes.into_iter().chain(more).chain(large).map(Into::into).collect()
        }
    }
}

fn neighbours(number: u64) -> BTreeSet<u64> {
    [number.saturating_sub(1), number + 1, number / 2, number * 2].into()
}

/// Returns the words that a key accepts, from the reader's error for another word.
fn words(keys: &Keys, key: &str) -> Vec<String> {
    let Err(DesignError::File { problems, .. }) = read(&changed(keys, key, "\"?\"")) else {
        panic!("{key} takes any word");
    };
    let problem = problems.iter().find(|problem| problem.key == key).expect("it is told");
    let (_, allowed) = problem.what.split_once("must be").expect("what may be is told");
    allowed.split('"').skip(1).step_by(2).map(|word| format!("\"{word}\"")).collect()
}

pub fn changed(keys: &Keys, key: &str, value: &str) -> Keys {
    let change = |(name, old): &(String, String)| {
        let value = if name == key { value } else { old };
        (name.clone(), value.to_string())
    };
    keys.iter().map(change).collect()
}

pub fn mutants(design: &Design) -> Vec<Mutant> {
    let original = keys(design);
    let mut found = Vec::new();
    let mut add = |key: &str, value: &str, mutated: Keys| {
        if let Some(mutant) = good(mutated).filter(|mutant| mutant != design) {
            found.push(Mutant { key: key.to_string(), value: value.to_string(), design: mutant });
        }
    };
    for (key, value) in design.keys() {
        if key == "name" || key == "summary" {
            continue;
        }
        for other in others(&original, &key, &value) {
            add(&key, &other, changed(&original, &key, &other));
        }
    }
    for (key, _) in expressions::CONDITIONS {
        let mut without = original.clone();
        without.retain(|(name, _)| name != key);
        add(key, "none", without);
    }
    for (table, with) in OPTIONAL {
        let mut without = original.clone();
        without.retain(|(key, _)| !key.starts_with(&format!("{table}.")) && key != with);
        match without.len() < original.len() {
            true => add(table, "none", without),
            false => {
                without.push((table.to_string(), "{}".to_string()));
                add(table, "{}", without);
            }
        }
    }
    found
}

fn is_caught(table: &Table, mutant: &Design) -> bool {
    table.iter().any(|line| line.check(&mut mutant.policy(SCALE)).is_err())
}

/// Returns lines `preset key = value`; comments give the reason why no table can detect the change.
fn justified() -> BTreeSet<String> {
    let lines = include_str!("survivors.txt").lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_string).collect()
}

/// Number of changed presets, and of those that break a line of the tables.
#[derive(Clone, Copy, Default)]
struct Count {
    all: usize,
    caught: usize,
}

impl Count {
    fn add(&mut self, is_caught: bool) {
        self.all += 1;
        self.caught += usize::from(is_caught);
    }

    #[track_caller]
    fn is_good(self, what: &str, least: usize) {
        let Self { all, caught } = self;
        println!("{what}: {caught} of {all} caught");
        assert!(all >= least, "{what}: {all} mutants only");
        assert!(caught * 100 >= all * 95, "{what}: {caught} of {all} caught");
    }
}

#[test]
fn a_key_that_is_changed_breaks_a_line() {
    let mut survivors = BTreeSet::new();
    let (mut all, mut successors, mut conditions) =
        (Count::default(), Count::default(), Count::default());
    for preset in presets() {
        let table = table(preset.name);
        let (mut keys, mut own) = (Count::default(), Count::default());
        for Mutant { key, value, design } in mutants(&preset.design().expect("presets are good")) {
            let is_caught = is_caught(&table, &design);
            if !is_caught {
                survivors.insert(format!("{} {key} = {value}", preset.name));
            }
            let is_condition = expressions::rule(&key).is_some();
            if is_condition { &mut own } else { &mut keys }.add(is_caught);
            all.add(is_caught);
            if SUCCESSORS.contains(&preset.name) {
                successors.add(is_caught);
            }
            if is_condition {
                conditions.add(is_caught);
            }
        }
        let Count { all, caught } = keys;
        println!(
            "{}: {caught} of {all} caught, of conditions {} of {}",
            preset.name, own.caught, own.all
        );
    }
    println!("survivors:\n{}", survivors.iter().cloned().collect::<Vec<_>>().join("\n"));
    all.is_good("all", 1300);
    successors.is_good("designs with conditions or three sizes", 200);
    conditions.is_good("conditions", 100);
    let justified = justified();
    let unjustified: Vec<_> = survivors.difference(&justified).collect();
    assert!(
        unjustified.is_empty(),
        "these survive, and survivors.txt does not say why: {unjustified:#?}"
    );
    let caught: Vec<_> = justified.difference(&survivors).collect();
    assert!(caught.is_empty(), "survivors.txt has what is caught: {caught:#?}");
}
