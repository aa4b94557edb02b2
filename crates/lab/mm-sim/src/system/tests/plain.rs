//! The fast path for plain faults equals the path for single faults: random programs under random designs, on whole and
//! on fragmented memory, end with the same books.

use proptest::prelude::*;

use super::super::spaces::Spaces;
use trace::Region;

use super::super::spaces::region::Present;
use super::{Conditions, Run, all_conditions, cases, ops};

/// Returns a design that combines tables of random presets, if they fit together.
fn mixed() -> impl Strategy<Value = design::Design> {
    let tables = design::designs::list().len();
    let picks = prop::collection::vec(0..tables, 7);
    (picks, 0..tables).prop_map(|(picks, otherwise)| {
        let text = |at: usize| design::designs::list()[at].design().expect("a preset").to_toml();
        let mut mix = String::from("name = \"mixed\"\nsummary = \"random\"\n");
        for (table, at) in super::TABLES.iter().zip(picks) {
            mix += &table_of(&text(at), table);
        }
        let mixed = design::Design::from_toml("mixed", &mix);
        mixed.unwrap_or_else(|_| design::designs::list()[otherwise].design().expect("a preset"))
    })
}

/// Returns a table of a design's file, with its subtables.
fn table_of(text: &str, table: &str) -> String {
    let mut inside = false;
    let mut found = String::new();
    for line in text.lines() {
        if let Some(head) = line.strip_prefix('[') {
            let name = head.trim_end_matches(']');
            inside = name == table || name.starts_with(&format!("{table}."));
        }
        if inside {
            found += line;
            found.push('\n');
        }
    }
    found
}

fn of_region(spaces: &Spaces, region: Region) -> (Option<Present>, u16, u16) {
    let at = spaces.at(region);
    let present = (!spaces.is_large(region)).then(|| *spaces.present(region));
    (present, at.resident, at.flags)
}

/// Formats all counts of a run, and its memory.
fn books(run: &Run) -> String {
    let system = &run.engine.system;
    let spaces = &system.spaces;
    format!(
        "{:?} {:?} {:?} at {} with {} in {} superpages and {} swapped, {} free, regions {:?}",
        system.counters,
        system.clock.ledger(),
        system.clock.background(),
        system.clock.now(),
        spaces.resident(),
        spaces.superpages(),
        spaces.swapped(),
        system.memory.free_frames(),
        (0..spaces.region_count())
            .map(|region| of_region(spaces, Region(region)))
            .collect::<Vec<_>>(),
    )
}

/// Runs the program with or without the fast path. Returns its books and its number of accesses.
fn follow(
    design: &design::Design,
    conditions: &Conditions,
    ops: &[super::Op],
    singly: bool,
) -> (String, u64) {
    let mut run = Run::new(design, conditions);
    run.engine.system.serves_singly = singly;
    run.follow(ops);
    let accesses = run.engine.system.counters.accesses;
    (books(&run), accesses + run.log.len() as u64)
}

/// Runs more on request: PROPTEST_CASES=2000 gives over a million events.
#[test]
fn many_faults_at_once_are_as_many_single_ones() {
    let config = ProptestConfig {
        cases: 8 * cases(),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let events = std::cell::Cell::new(0);
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let tried = runner.run(&(mixed(), all_conditions(), ops(120)), |(design, conditions, ops)| {
        let (once, made) = follow(&design, &conditions, &ops, false);
        let (singly, _) = follow(&design, &conditions, &ops, true);
        events.set(events.get() + made);
        prop_assert_eq!(once, singly, "{}", design.to_toml());
        Ok(())
    });
    println!("{} events", events.get());
    tried.unwrap();
    assert!(events.get() > 100, "{} events", events.get());
}
