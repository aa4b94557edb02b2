//! Tests that each key has an effect: a design with a key is compared with the same design without it. If both always
//! behave alike, `design check` must refuse the key.
//!
//! Both policies get the same random events, with facts that are possible under such a design ([`world`]), and their
//! constants are compared. Designs are the presets, presets with one key changed, and mixes of their tables. See
//! docs/decisions/policy.md#10.

mod world;

use design::{Design, Difference, Value};

use super::expressions::rule;
use super::mutation::{Keys, OPTIONAL, changed, good, keys, mutants, others};
use world::{Random, is_told_apart};

/// Presets whose keys are changed one by one: one preset of each kind.
const CHANGED: [&str; 8] = [
    "base",
    "cbmm",
    "elastic",
    "hawkeye-pmu",
    "hugetlb",
    "ingens-star",
    "linux-6-mthp",
    "quicksilver-async-64",
];

/// Conditions for the comparison. A condition with only one place changed (`mutation.rs`) hardly ever differs for
/// random facts.
const CONDITIONS: [&str; 2] = ["populated > 9", "advised"];

/// Number of mixes of presets' tables; most are invalid designs.
const MIXES: usize = 400;

/// Returns the designs whose keys are tested.
fn designs() -> Vec<Design> {
    let presets: Vec<Design> = design::designs::list()
        .iter()
        .map(|preset| preset.design().expect("presets are good"))
        .collect();
    let mut all = presets.clone();
    for preset in presets.iter().filter(|preset| CHANGED.contains(&preset.name.as_str())) {
        let mutants = mutants(preset).into_iter();
        let kept = mutants.filter(|mutant| mutant.value == "none" || rule(&mutant.key).is_none());
        all.extend(kept.map(|mutant| mutant.design));
    }
    let mut random = Random(1);
    for _ in 0..MIXES {
        all.extend(good(mixed(&presets, &mut random)));
    }
    all
}

/// Mixes tables of several presets.
fn mixed(presets: &[Design], random: &mut Random) -> Keys {
    let base = random.of(presets.len());
    let mut taken = keys(&presets[base]);
    let tables = ["allocation", "preparation", "mapping", "unmapping", "deallocation", "memory"];
    for _ in 0..=random.of(2) {
        let table = tables[random.of(tables.len())];
        let is_of = |key: &str| key.starts_with(&format!("{table}."));
        taken.retain(|(key, _)| !is_of(key));
        let other = keys(&presets[random.of(presets.len())]);
        taken.extend(other.into_iter().filter(|(key, _)| is_of(key)));
    }
    taken
}

/// Whether two numbers are so close that a random pass hardly ever ends between them.
fn is_hardly(differs: &Difference) -> bool {
    matches!((&differs.a, &differs.b), (Some(Value::Number(a)), Some(Value::Number(b))) if a.abs_diff(*b) * 20 <= *a)
}

/// Returns the same design without a key or a table, if that is valid and different.
fn without(design: &Design, name: &str) -> Option<Design> {
    let mut kept = keys(design);
    let within = format!("{name}.");
    kept.retain(|(key, _)| key != name && !key.starts_with(&within));
    good(kept).filter(|other| {
        let differs = design::diff(design, other);
        !differs.is_empty() && !differs.iter().all(is_hardly)
    })
}

/// Returns the same design with other words for a key, if the key's values are words.
fn words(design: &Design, name: &str) -> Vec<Design> {
    let all = keys(design);
    let value = design.keys().into_iter().find(|(key, _)| key == name).map(|(_, value)| value);
    let Some(value @ (Value::Text(_) | Value::Flag(_))) = value else { return Vec::new() };
    if ["name", "summary"].contains(&name) {
        return Vec::new();
    }
    let others = match rule(name) {
        Some(_) => CONDITIONS.map(|text| Value::Text(text.to_string()).to_string()).to_vec(),
        None => others(&all, name, &value),
    };
    let others = others.into_iter();
    let other = others.filter_map(|word| good(changed(&all, name, &word)));
    other.filter(|other| !design::diff(design, other).is_empty()).collect()
}

/// Whether a key without effect is allowed, because it is a default, or turns off something that the design lacks.
fn is_true(name: &str, design: &Design) -> bool {
    let says = |key: &str, value: &str| {
        design.keys().iter().any(|(name, found)| name == key && found.to_string() == value)
    };
    match name {
        // The design does not compact, so it has no compaction to defer.
        "memory.defer-shift" => says(name, "0") && !says("memory.reclaim", "\"compaction\""),
        // Without the table its keys have their defaults, and each key is tested by itself.
        "estimate" => true,
        // Random passes complete far fewer reservations; tables/reservations.rs has the border.
        "preparation.background.budget-reservations" => true,
        // Superpages of a pool are never split.
        "unmapping.on" => says(name, "[]") && says("allocation.form", "\"pool\""),
        _ => false,
    }
}

/// Returns the keys that a design sets and that differ from an empty file.
fn said(design: &Design) -> String {
    let empty = Design::from_toml("empty", "name = \"x\"").expect("a design");
    let differs = design::diff(&empty, design);
    let each = differs.into_iter().map(|one| {
        format!("{} = {}", one.key, one.b.map_or_else(String::new, |value| value.to_string()))
    });
    each.collect::<Vec<_>>().join("; ")
}

#[test]
fn what_a_design_says_has_an_effect() {
    let mut designs = designs();
    // In the nightly set all designs are tested, otherwise a tenth of each kind: presets, presets with one key changed,
    // and mixes.
    let every = designs.len() / testkit::cases(designs.len());
    designs = designs.into_iter().step_by(every).collect();
    let found = std::thread::scope(|scope| {
        let parts = designs.chunks(designs.len().div_ceil(4));
        let threads: Vec<_> = parts.map(|part| scope.spawn(|| in_vain(part))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
    });
    let looked: usize = found.iter().map(|(looked, _)| looked).sum();
    let mut vain: Vec<String> = found.into_iter().flat_map(|(_, vain)| vain).collect();
    vain.sort_by_key(String::len);
    println!("{looked} keys looked at");
    assert!(looked > testkit::cases(10_000), "{looked} only");
    assert!(vain.is_empty(), "{} without effect, the shortest:\n{}", vain.len(), vain[0]);
}

/// Returns the number of tested keys of these designs, and the keys without effect, each with its whole design.
fn in_vain(designs: &[Design]) -> (usize, Vec<String>) {
    let (mut looked, mut vain) = (0, Vec::new());
    for design in designs {
        let names: Vec<String> = design.keys().into_iter().map(|(key, _)| key).collect();
        let has = |table: &&str| names.iter().any(|name| name.starts_with(&format!("{table}.")));
        let tables = OPTIONAL.into_iter().map(|(table, _)| table).filter(has);
        for name in names.iter().map(String::as_str).chain(tables) {
            for other in words(design, name).into_iter().chain(without(design, name)) {
                looked += 1;
                if !is_true(name, design) && !is_told_apart(design, &other) {
                    vain.push(format!("{name} in: {}", said(design)));
                }
            }
        }
    }
    (looked, vain)
}
