//! Designs for the property tests.

use std::time::Duration;

use policy::Rules;
use policy::table::{Keys, Limit, Slot};
use proptest::prelude::*;

use crate::{Design, designs, schema};

/// A preset.
pub fn preset() -> impl Strategy<Value = Design> {
    (0..designs::list().len()).prop_map(|at| designs::list()[at].design().unwrap())
}

/// Combines parts of six presets, valid or not.
pub fn mixed() -> impl Strategy<Value = Design> {
    let six = (preset(), preset(), preset(), preset(), preset(), preset());
    six.prop_map(|(a, b, c, d, e, f)| {
        let rules = Rules {
            allocation: a.rules.allocation,
            preparation: b.rules.preparation,
            mapping: c.rules.mapping,
            unmapping: d.rules.unmapping,
            deallocation: e.rules.deallocation,
            memory: f.rules.memory,
            fault: a.rules.fault,
            estimate: a.rules.estimate,
            profile: None,
        };
        Design::new(a.name, b.summary, rules)
    })
}

/// A number for a file: small values, the type's maximum, and values in between.
fn number(most: u64) -> impl Strategy<Value = u64> {
    prop_oneof![4 => 1..=100u64, 1 => 0..=1001u64, 1 => 0..=most, 1 => Just(most)]
        .prop_map(move |n| n.min(most))
}

/// Any time that fits a file: up to 584 years.
fn time() -> impl Strategy<Value = Duration> {
    let unit = prop::sample::select(vec![1u64, 1000, 1_000_000, 1_000_000_000, 60_000_000_000]);
    (0..50_000u64, unit).prop_map(|(n, unit)| Duration::from_nanos(n * unit))
}

/// Redraws some numbers, times and texts of a design.
pub fn renumbered(design: impl Strategy<Value = Design>) -> impl Strategy<Value = Design> {
    // Changes few values at a time, so that most designs stay valid and their numbers are compared.
    let chance = prop::collection::vec(prop::bool::weighted(0.12), KEYS);
    let numbers = prop::collection::vec(number(i64::MAX as u64), KEYS);
    let times = prop::collection::vec(time(), KEYS);
    (design, chance, numbers, times, ".{0,12}").prop_map(|(mut design, chance, n, times, text)| {
        let drawn = chance.into_iter().zip(n).zip(times).collect();
        schema::design(&mut Renumber { drawn, text }, &mut design);
        design
    })
}

/// Upper bound of the number of keys.
const KEYS: usize = 80;

/// Sets keys to drawn values.
struct Renumber {
    /// For each key: whether to set it, a number, and a time.
    drawn: Vec<((bool, u64), Duration)>,
    text: String,
}

impl Keys for Renumber {
    fn key(&mut self, name: &'static str, _: Option<Limit>, slot: Slot<'_>) {
        let ((is_drawn, number), time) = self.drawn.pop().expect("as many as there are keys");
        match slot {
            _ if !is_drawn => {}
            Slot::Text(text) if name == "summary" => text.clone_from(&self.text),
            Slot::Number(to) => to.set(number.min(to.max())),
            Slot::Size(size) => *size = units::ByteSize(number),
            Slot::Time(to) => *to = time,
            _ => {}
        }
    }

    fn only_with(&mut self, _: &[&'static str], _: &'static str) {}

    fn enter(&mut self, _: &'static str, is_there: bool) -> bool {
        is_there
    }

    fn leave(&mut self) {}
}
