use std::ops::ControlFlow;

use units::ByteSize;

use super::*;
use super::{longest_first, passes};

const SMALL: Conditions = Conditions {
    machine: "e3-1245v6",
    memory: ByteSize::mib(256),
    fragmentation: "none",
    workload: "gups:size=8M,operations=1K",
    seed: 1,
};
const LARGE: Conditions = Conditions { workload: "gups:size=16M,operations=100K", ..SMALL };
const FRAGMENTED: Conditions = Conditions { fragmentation: "frag-50", ..SMALL };

/// Makes a table of the reports' times, which differ between designs and conditions.
fn times(entry: &Entry, reports: &Reports<'_>) -> Table {
    let cell = |report: &&Report| Cell {
        published: None,
        simulated: Some(report.wall_cycles as f64),
        role: Role::HeldOut,
    };
    let row = |reports: &Vec<&Report>| Row {
        name: reports[0].cell.workload.clone(),
        cells: reports.iter().map(cell).collect(),
    };
    Table {
        name: entry.name.to_string(),
        source: String::new(),
        left_out: String::new(),
        figure: "cycles".to_string(),
        better: Better::Lower,
        columns: Vec::new(),
        rows: reports.iter().map(row).collect(),
    }
}

const fn entry(name: &'static str, runs: fn() -> Vec<Runs>) -> Entry {
    Entry { name, source: "", summary: "", left_out: "", runs, table: times }
}

fn runs(conditions: Conditions, designs: &'static [&'static str]) -> Runs {
    Runs { name: "GUPS", conditions, designs }
}

const NOTHING: Entry = entry("nothing", Vec::new);
const FIRST: Entry = entry("first", || {
    vec![runs(SMALL, &["base", "linux-4.3", "sync-64"]), runs(FRAGMENTED, &["linux-4.3"])]
});
/// Has two cells in common with `FIRST`, in another order.
const SECOND: Entry = entry("second", || {
    vec![runs(LARGE, &["sync-64", "base"]), runs(SMALL, &["sync-64", "ingens", "base"])]
});

fn alone(entry: &Entry) -> Table {
    entry.run(&mut |_| ()).expect("it runs")
}

#[test]
fn tables_together_come_in_order_and_are_those_of_each_alone() {
    let mut tables = Vec::new();
    let mut whole = |table| {
        tables.push(table);
        ControlFlow::Continue(())
    };
    run(&[&SECOND, &NOTHING, &FIRST], &mut |_| (), &mut whole, TO_THE_END).expect("they run");
    assert_eq!(tables, [alone(&SECOND), alone(&NOTHING), alone(&FIRST)]);
    let [second, _, first] = &tables[..] else { unreachable!() };
    let figures = |table: &Table, row: usize| -> Vec<Option<f64>> {
        table.rows[row].cells.iter().map(|cell| cell.simulated).collect()
    };
    let (small, other) = (figures(first, 0), figures(second, 1));
    assert_eq!((small[2], small[0]), (other[0], other[2]), "one cell in two tables");
    assert!(small[0] != small[2] && small[0] != figures(second, 0)[1], "cells differ");
}

#[test]
fn what_several_tables_need_is_simulated_once() {
    let mut told = Vec::new();
    let mut step = |step: Step<'_>| told.push((step.done, step.of));
    run(&[&FIRST, &SECOND], &mut step, &mut |_| ControlFlow::Continue(()), TO_THE_END)
        .expect("they run");
    // Seven of nine cells are distinct: four on small memory, two on large, one fragmented.
    assert!(told.iter().all(|&(done, of)| of == 7 && done < of), "{told:?}");
    assert!(told.is_sorted() && told[0].0 == 0, "{told:?}");
}

#[test]
fn every_published_cell_is_in_one_pass() {
    let all: Vec<&Entry> = list().collect();
    let mut cells = Vec::new();
    for pass in passes(&all) {
        cells.extend(pass.designs.iter().map(|&design| (pass.conditions, design)));
    }
    let count = cells.len();
    cells.sort_unstable();
    cells.dedup();
    assert_eq!(cells.len(), count, "a cell is in two passes");
    for Runs { conditions, designs, .. } in all.iter().flat_map(|entry| (entry.runs)()) {
        for &design in designs {
            assert!(cells.contains(&(conditions, design)), "{conditions:?}: {design}");
        }
    }
    // Redis latency uses the runs of the throughputs. A fresh boot uses runs of slide 21. All of STREAM uses two runs on
    // each of two machines.
    assert_eq!(count, 11 * 6 + 11 * 6 + 3 * 7 + 3 * 7 + 3 + 2 * 2);
}

#[test]
fn the_longest_pass_is_first() {
    let order = longest_first(passes(&[&FIRST, &SECOND])).expect("workloads");
    let order: Vec<_> =
        order.iter().map(|pass| (pass.conditions.workload, pass.designs.len())).collect();
    assert_eq!(order[0], (LARGE.workload, 2));
    assert_eq!(order.last(), Some(&(SMALL.workload, 1)));
    let mixed = longest_first(passes(&[&FIRST])).expect("workloads");
    let of_one: Vec<_> = mixed.iter().filter(|pass| pass.designs.len() == 1).collect();
    assert_eq!(of_one[0].conditions, FRAGMENTED, "fragmented memory takes longer");
}

#[test]
fn who_has_seen_enough_gets_no_further_table() {
    let mut names = Vec::new();
    let mut whole = |table: Table| {
        names.push(table.name);
        ControlFlow::Break(())
    };
    run(&[&FIRST, &NOTHING], &mut |_| (), &mut whole, TO_THE_END).expect("they run");
    assert_eq!(names, ["first"]);
}

#[test]
fn a_design_that_cannot_be_run_is_the_end() {
    const BAD: Entry =
        entry("bad", || vec![runs(Conditions { machine: "ppc970", ..SMALL }, &["linux-6"])]);
    let mut names = Vec::new();
    let mut whole = |table: Table| {
        names.push(table.name);
        ControlFlow::Continue(())
    };
    let ran = run(&[&NOTHING, &BAD, &FIRST], &mut |_| (), &mut whole, TO_THE_END);
    assert!(matches!(ran, Err(LabError::NotSimulated { design, .. }) if design == "linux-6"));
    assert_eq!(names, ["nothing"]);
}
