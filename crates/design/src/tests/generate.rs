//! Designs for the property tests.

use proptest::prelude::*;

use crate::{Design, designs};
use policy::Rules;

/// A preset.
pub fn preset() -> impl Strategy<Value = Design> {
    (0..designs::list().len()).prop_map(|at| designs::list()[at].design().unwrap())
}

/// The parts of six presets put together: good or bad.
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

/// A number as a file may hold it: the edges of its type, of what is allowed, and anything.
fn number(most: u64) -> impl Strategy<Value = u64> {
    prop_oneof![4 => 1..=100u64, 1 => 0..=1001u64, 1 => 0..=most, 1 => Just(most)]
        .prop_map(move |n| n.min(most))
}

/// Any time that fits a file: up to 584 years.
fn time() -> impl Strategy<Value = std::time::Duration> {
    let unit = prop::sample::select(vec![1u64, 1000, 1_000_000, 1_000_000_000, 60_000_000_000]);
    (0..50_000u64, unit).prop_map(|(n, unit)| std::time::Duration::from_nanos(n * unit))
}

/// The same with its numbers, times and texts drawn anew.
pub fn renumbered(design: impl Strategy<Value = Design>) -> impl Strategy<Value = Design> {
    let numbers = prop::collection::vec(number(i64::MAX as u64), 24);
    let times = prop::collection::vec(time(), 12);
    // Few at a time: most designs should stay good, so that their numbers are compared.
    let chance = prop::collection::vec(prop::bool::weighted(0.12), 36);
    (design, numbers, times, chance, ".{0,12}").prop_map(|(mut design, n, t, chance, summary)| {
        let mut chance = chance.into_iter();
        let mut draw = |draw: &mut dyn FnMut()| {
            if chance.next().unwrap_or(false) {
                draw();
            }
        };
        draw(&mut || design.summary = summary.clone());
        let d = &mut design.rules;
        let p = &mut d.preparation;
        draw(&mut || p.fill_at = Some(n[0] as u16));
        draw(&mut || p.bulk = units::ByteSize(n[1]));
        if let Some(fill) = &mut p.background {
            draw(&mut || fill.at = n[2] as u16);
            draw(&mut || fill.every = t[0]);
            draw(&mut || fill.budget_pages = n[3] as u32);
        }
        if let Some(prezero) = &mut p.prezero {
            draw(&mut || prezero.order = n[4] as u8);
            draw(&mut || prezero.blocks = n[5] as u32);
            draw(&mut || prezero.every = t[1]);
            draw(&mut || prezero.start_permille = n[6] as u16);
            draw(&mut || prezero.stop_permille = n[7] as u16);
        }
        if let Some(scan) = &mut d.mapping.scan {
            draw(&mut || scan.every = t[2]);
            draw(&mut || scan.regions = n[8] as u32);
            draw(&mut || scan.after_failure = t[3]);
            draw(&mut || scan.least_present = n[9] as u16);
            draw(&mut || scan.most_swapped = n[16] as u16);
            draw(&mut || scan.cpu_percent = n[10] as u8);
            if let Some(sampling) = &mut scan.sampling {
                draw(&mut || sampling.window = t[4]);
                draw(&mut || sampling.newest_percent = n[11] as u8);
            }
        }
        draw(&mut || d.memory.pool_pages = Some(n[12]));
        draw(&mut || d.memory.periodic_compaction = Some((n[13] as u32, t[5])));
        draw(&mut || d.memory.defer_shift = n[14] as u8);
        draw(&mut || d.memory.proactiveness = n[15] as u8);
        design
    })
}
