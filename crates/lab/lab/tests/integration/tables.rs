//! Published tables are rerun, with the tolerances claimed for them. Those that take long are rerun in the nightly set,
//! or by the command (`superpage lab table NAME`).

use superpage_lab::tables;

fn agreement(name: &str) -> tables::Agreement {
    let table = tables::find(name).expect("a table").run(&mut |_| {}).expect("it runs");
    table.agreement()
}

#[test]
fn every_table_has_its_own_name() {
    let mut names: Vec<&str> = tables::list().map(|entry| entry.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), tables::list().count());
    assert!(names.len() >= 9);
}

/// All cells of this table are inputs of the model, so they must be reproduced exactly.
#[test]
fn zeroing_costs_what_was_published() {
    let agreement = agreement("quicksilver-zeroing");
    assert!(agreement.order.wrong.is_empty(), "{:?}", agreement.order.wrong);
    assert!(agreement.typical_error.expect("cells") < 1e-9);
}

/// Redis at Frag-0: every pair is in the paper's order.
#[test]
#[ignore = "nightly: a published table at full size, 26 s"]
fn redis_on_fresh_memory_agrees() {
    let agreement = agreement("quicksilver-redis-frag0");
    assert_eq!(agreement.order.pairs, 17);
    assert!(agreement.order.wrong.is_empty(), "{:?}", agreement.order.wrong);
    assert!(agreement.typical_error.expect("cells") < 0.06);
}

/// STREAM of 2010: superpages of 16 MiB on one machine, of 2 MiB on the other.
#[test]
#[ignore = "nightly: a published table, 7 s"]
fn stream_of_2010_is_in_order() {
    for (name, pairs) in [("stream-2010", 4), ("stream-2010-speedup", 4), ("stream-2010-misses", 2)]
    {
        let agreement = agreement(name);
        assert_eq!((agreement.order.pairs, agreement.order.wrong.len()), (pairs, 0), "{name}");
        assert!(agreement.held_out_error.expect("cells") < 0.18, "{name}");
    }
}
