//! Properties of the refill rule: hysteresis, back-off on a busy CPU, and that refilling ends.

use proptest::prelude::*;
use superpage_policy::ahead::{Decision, Facts, Refill};

const RULE: Refill = Refill { start: 6, stop: 10, load: 2, patience_ms: 1000 };

#[test]
fn it_starts_below_one_mark_and_stops_at_the_other() {
    let at = |ready, is_filling| RULE.decide(&Facts { ready, is_filling, ..Facts::default() });
    assert_eq!(at(5, false), Decision::Fill(5));
    assert_eq!(at(6, false), Decision::Rest);
    assert_eq!(at(6, true), Decision::Fill(4));
    assert_eq!(at(10, true), Decision::Rest);
    assert_eq!(at(12, true), Decision::Shrink(2));
}

#[test]
fn it_rests_while_the_cpus_have_other_work() {
    let at = |running| RULE.decide(&Facts { running, ..Facts::default() });
    assert_eq!(at(Some(1)), Decision::Fill(10));
    assert_eq!(at(Some(2)), Decision::Rest);
    assert_eq!(at(None), Decision::Fill(10));
}

#[test]
fn it_works_only_where_a_cpu_was_to_spare() {
    let at = |spare| RULE.decide(&Facts { running: Some(0), spare, ..Facts::default() });
    assert_eq!(at(Some(Refill::SPARE)), Decision::Fill(10));
    assert_eq!(at(Some(Refill::SPARE - 1)), Decision::Rest);
    assert_eq!(at(None), Decision::Fill(10));
    // An idle CPU; a CPU that only the refill used; and a CPU that the refill shared with another program, half each.
    assert_eq!(Refill::spare(50, 50, 0, 0), 1000);
    assert_eq!(Refill::spare(50, 0, 50, 0), 1000);
    assert_eq!(Refill::spare(50, 0, 25, 25), 0);
    assert_eq!(Refill::spare(0, u64::MAX, u64::MAX, 0), u64::MAX);
}

#[test]
fn it_gives_way_to_memory_and_to_time() {
    let facts = Facts { ready: 9, ..Facts::default() };
    assert_eq!(RULE.decide(&Facts { is_pressed: true, ..facts }), Decision::Shrink(5));
    assert_eq!(RULE.decide(&Facts { headroom: Some(0), ready: 3, ..facts }), Decision::Rest);
    assert_eq!(RULE.decide(&Facts { idle_ms: 1000, ..facts }), Decision::Shrink(5));
    let empty = Facts { is_pressed: true, ..Facts::default() };
    assert_eq!(RULE.decide(&empty), Decision::Rest);
    let tight = Facts { headroom: Some(3), ..Facts::default() };
    assert_eq!(RULE.decide(&tight), Decision::Fill(3));
}

#[test]
fn a_stock_grows_with_what_is_asked_of_it() {
    assert_eq!(Refill::grown(0, 3, 100), 3);
    assert_eq!(Refill::grown(3, 1, 100), 6);
    assert_eq!(Refill::grown(60, 1, 100), 100);
    assert_eq!(Refill::grown(0, u64::MAX, 100), 100);
    assert_eq!(Refill::new(16, 2, 0).start, 12);
}

fn facts() -> impl Strategy<Value = Facts> {
    let known = || prop::option::of(0u64..100);
    let spare = prop::option::of(0u64..2000);
    (0u64..100, any::<bool>(), known(), spare, known(), any::<bool>(), 0u64..5000).prop_map(
        |(ready, is_filling, running, spare, headroom, is_pressed, idle_ms)| Facts {
            ready,
            is_filling,
            running,
            spare,
            headroom,
            is_pressed,
            idle_ms,
        },
    )
}

proptest! {
    /// An amount is never above the mark, the headroom or the free memory, and never zero.
    #[test]
    fn amounts_are_possible(facts in facts(), start in 0u64..50, more in 0u64..50, load in 0u64..8) {
        let rule = Refill { start, stop: start + more, load, patience_ms: 1000 };
        match rule.decide(&facts) {
            Decision::Fill(count) => {
                prop_assert!(count > 0 && facts.ready + count <= rule.stop);
                prop_assert!(facts.headroom.is_none_or(|headroom| count <= headroom));
                prop_assert!(facts.running.is_none_or(|running| running < load));
                prop_assert!(facts.spare.is_none_or(|spare| spare >= Refill::SPARE));
                prop_assert!(!facts.is_pressed && facts.idle_ms < 1000);
            }
            Decision::Shrink(count) => prop_assert!(count > 0 && count <= facts.ready),
            Decision::Rest => {}
        }
    }

    /// For any constant facts, following the rule ends: the stock does not oscillate.
    #[test]
    fn it_comes_to_rest(mut facts in facts()) {
        for _ in 0..300 {
            match RULE.decide(&facts) {
                Decision::Fill(_) => (facts.ready, facts.is_filling) = (facts.ready + 1, true),
                Decision::Shrink(count) => (facts.ready, facts.is_filling) = (facts.ready - count, false),
                Decision::Rest => return Ok(()),
            }
        }
        prop_assert!(false, "{facts:?}");
    }
}
