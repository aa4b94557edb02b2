//! Compiled conditions: which are well-formed, and their values.

use superpage_policy::Malformed::{Kinds, TooDeep};
use superpage_policy::Step::{Apply, Not, Number};
use superpage_policy::{Condition, Fact, Malformed, Operation, Step};

use Operation::*;

fn malformed(steps: &[Step]) -> Option<Malformed> {
    Condition::new(steps.to_vec()).err()
}

#[test]
fn only_programs_that_leave_one_truth_are_conditions() {
    let advised = Step::Fact(Fact::Advised);
    for steps in [
        &[][..],
        &[Number(1)],
        &[Apply(Less)],
        &[Number(1), Apply(Less)],
        &[Number(1), Number(2), Apply(Plus)],
        &[Number(1), Number(2), Apply(And)],
        &[advised, Number(2), Apply(Less)],
        &[advised, advised],
        &[Number(1), Not],
        &[Not],
        &[Number(1), Number(2), Number(3), Apply(Less)],
    ] {
        assert_eq!(malformed(steps), Some(Kinds), "{steps:?}");
    }
    assert_eq!(malformed(&[advised]), None);
    assert_eq!(malformed(&[Number(1), Number(2), Apply(Less), advised, Not, Apply(Or)]), None);
}

#[test]
fn sixteen_values_may_wait_and_no_more() {
    let deep = |values: usize| {
        let mut steps = vec![Number(1); values];
        steps.extend(vec![Apply(Plus); values - 2]);
        steps.push(Apply(More));
        malformed(&steps)
    };
    assert_eq!(deep(Condition::MAX_VALUES), None);
    assert_eq!(deep(Condition::MAX_VALUES + 1), Some(TooDeep));
}

#[test]
fn operations_on_numbers() {
    let (most, least) = (i64::MAX, i64::MIN);
    for (operation, a, b, is) in [
        (Plus, 2, 3, 5),
        (Plus, most, 1, most),
        (Minus, 2, 3, -1),
        (Minus, least, 1, least),
        (Times, -2, 3, -6),
        (Times, most, 2, most),
        (Over, 7, 2, 3),
        (Over, -7, 2, -3),
        (Over, 7, 0, 0),
        (Over, least, -1, most),
        (Min, 2, 3, 2),
        (Min, 3, 2, 2),
        (Max, 2, 3, 3),
        (Max, 3, 2, 3),
    ] {
        let steps = vec![Number(a), Number(b), Apply(operation), Number(is), Apply(Equal)];
        let condition = Condition::new(steps).expect("well-formed");
        assert!(condition.holds(|_| 0), "{operation:?} {a} {b}");
    }
}

#[test]
fn comparisons_and_truths() {
    let holds = |operation, a: i64, b: i64| {
        let steps = vec![Number(a), Number(b), Apply(operation)];
        Condition::new(steps).expect("well-formed").holds(|_| 0)
    };
    for (operation, below, same, above) in [
        (Less, true, false, false),
        (AtMost, true, true, false),
        (More, false, false, true),
        (AtLeast, false, true, true),
        (Equal, false, true, false),
        (Differs, true, false, true),
    ] {
        assert_eq!(holds(operation, 1, 2), below, "{operation:?}");
        assert_eq!(holds(operation, 2, 2), same, "{operation:?}");
        assert_eq!(holds(operation, 3, 2), above, "{operation:?}");
    }
    let (a, b) = (Step::Fact(Fact::Advised), Step::Fact(Fact::Prezeroed));
    for at in 0..4i64 {
        let value = |fact| if fact == Fact::Advised { at & 1 } else { at >> 1 };
        let holds = |steps: &[Step]| Condition::new(steps.to_vec()).expect("good").holds(value);
        assert_eq!(holds(&[a, b, Apply(And)]), at == 3);
        assert_eq!(holds(&[a, b, Apply(Or)]), at > 0);
        assert_eq!(holds(&[a, Not]), at & 1 == 0);
    }
}
