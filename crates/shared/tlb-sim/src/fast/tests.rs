//! `Fast` and `Naive` return the same results and counts for any stream.

use machine::{Array, Index, Machine, Nested, Replacement, SIZES, Size, Tlb, names, preset};
use proptest::prelude::*;

use super::{Arrays, Fast, Full, Scalar, Sets, Vectors};
use crate::{Naive, Translate};

#[derive(Debug, Clone)]
enum Step {
    LookUp(u32, Size),
    Sequence(u32, u32, Size),
    Invalidate(u32, Size),
    InvalidateRegion(u32),
    Flush,
}

fn size() -> impl Strategy<Value = Size> {
    prop_oneof![
        6 => Just(Size::Base),
        1 => Just(Size::Cont),
        4 => Just(Size::Large),
        1 => Just(Size::Huge),
    ]
}

/// Adjacent pages, pages in the same sets, and random pages.
fn page() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => 0u32..2048,
        2 => (0u32..40).prop_map(|n| n << 11),
        3 => (0u32..64).prop_map(|n| n << 9 | n),
        2 => (0u32..40).prop_map(|n| n << 18),
        1 => 0u32..1 << 31,
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        200 => (page(), size()).prop_map(|(page, size)| Step::LookUp(page, size)),
        6 => (page(), 1u32..200, size()).prop_map(|(page, n, size)| Step::Sequence(page, n, size)),
        8 => (page(), size()).prop_map(|(page, size)| Step::Invalidate(page, size)),
        4 => page().prop_map(|page| Step::InvalidateRegion(page >> 9)),
        1 => Just(Step::Flush),
    ]
}

fn agree<T: Translate>(mut fast: T, machine: &Machine, steps: &[Step]) {
    let mut naive = Naive::new(machine);
    let look_up = |fast: &mut T, naive: &mut Naive, page: u32, size| {
        let (is, should) = (fast.look_up(page, size), naive.look_up(page, size));
        assert_eq!(is, should, "{}: {page:#x} {size:?}", machine.name);
    };
    for step in steps {
        match *step {
            Step::LookUp(page, size) => look_up(&mut fast, &mut naive, page, size),
            Step::Sequence(page, count, size) => {
                for n in 0..count {
                    let page = (page + (n << size.shift())) & (u32::MAX >> 1);
                    look_up(&mut fast, &mut naive, page, size);
                }
            }
            Step::Invalidate(page, size) => {
                fast.invalidate(page, size);
                naive.invalidate(page, size);
            }
            Step::InvalidateRegion(region) => {
                fast.invalidate_region(region);
                naive.invalidate_region(region);
            }
            Step::Flush => {
                fast.flush();
                naive.flush();
            }
        }
    }
    assert_eq!(fast.tally(), naive.tally(), "{}", machine.name);
}

/// Compares every shape that can simulate the machine; returns the number of these shapes.
fn shapes<V: Vectors>(vectors: V, machine: &Machine, steps: &[Step]) -> usize {
    fn one<V: Vectors, A: Arrays, B: Arrays>(v: V, machine: &Machine, steps: &[Step]) -> usize {
        let fast = Fast::<V, A, B>::new(v, machine);
        usize::from(fast.map(|fast| agree(fast, machine, steps)).is_some())
    }
    one::<V, Sets<8, 128>, Sets<16, 512>>(vectors, machine, steps)
        + one::<V, Full<128, 1024>, Sets<16, 512>>(vectors, machine, steps)
        + one::<V, Full<128, 1024>, Sets<32, 512>>(vectors, machine, steps)
        // Few buckets, so that entries must share them.
        + one::<V, Full<128, 16>, Sets<32, 512>>(vectors, machine, steps)
}

fn hosts(machine: &Machine, steps: &[Step]) -> usize {
    let scalar = shapes(Scalar, machine, steps);
    #[cfg(target_arch = "x86_64")]
    {
        use super::{V3, V4};
        if let Some(vectors) = V3::try_new() {
            assert_eq!(shapes(vectors, machine, steps), scalar);
        }
        if let Some(vectors) = V4::try_new() {
            assert_eq!(shapes(vectors, machine, steps), scalar);
        }
    }
    scalar
}

/// A made-up machine that `Fast` can simulate.
fn machine() -> impl Strategy<Value = Machine> {
    let tlb = |ways: std::ops::RangeInclusive<u16>, most_sets: u32| {
        (ways, 0..=most_sets, any::<bool>()).prop_map(|(ways, sets, xor)| {
            let array = Array { entries: ways << sets, ways };
            let index = if xor { Index::Xor } else { Index::Modulo };
            let holds = [true; SIZES];
            Tlb { array, holds, index, replacement: Replacement::Lru, cycles: 0 }
        })
    };
    let first = prop_oneof![tlb(1..=8, 4), tlb(1..=80, 0)];
    let held = proptest::array::uniform4(any::<bool>());
    let nested = proptest::option::of(size());
    let caches = (1u16..=8, 0u32..=3, 1u16..=16, 1u16..=8);
    (first, tlb(1..=24, 5), held, nested, 1u8..=5, caches).prop_map(
        |(mut first, mut second, held, nested, levels, (ways, sets, pdpte, pml4e))| {
            let mut machine = preset("cascade-lake").unwrap();
            machine.name = "made up".to_string();
            first.holds = held;
            first.holds[0] = true;
            second.holds = first.holds;
            second.holds[2] &= held[1];
            (machine.l1, machine.l2) = (vec![first], vec![second]);
            machine.levels = levels;
            machine.nested = nested.map(|host_page| Nested { host_page, levels: 4 });
            machine.walk_caches.pde = Some(Array { entries: ways << sets, ways });
            machine.walk_caches.pdpte = Some(Array { entries: pdpte, ways: pdpte });
            machine.walk_caches.pml4e = Some(Array { entries: pml4e, ways: pml4e });
            machine
        },
    )
}

proptest! {
    // Few cases, because each case runs all built-in machines.
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn built_in_machines_agree(steps in proptest::collection::vec(step(), 1..800)) {
        for name in names() {
            hosts(&preset(name).unwrap(), &steps);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn made_up_machines_agree(
        machine in machine(),
        steps in proptest::collection::vec(step(), 1..1000),
    ) {
        let taken = hosts(&machine, &steps);
        prop_assert!(taken > 0 || machine.l2[0].array.ways > 16);
    }
}

#[test]
fn most_built_in_machines_are_fast() {
    let slow: Vec<_> = names().filter(|name| hosts(&preset(name).unwrap(), &[]) == 0).collect();
    // The Athlon and the Phenom have a fully associative array beside another one; Itanium's page
    // tables use TLB entries.
    assert_eq!(slow, ["athlon64-3000", "itanium2-16k", "itanium2-16k-long", "phenom-9950"]);
    #[cfg(target_arch = "x86_64")]
    {
        use super::{V3, V4};
        testkit::require!(V3::try_new().is_some(), "no AVX2: vectors are not compared");
        testkit::require!(V4::try_new().is_some(), "no AVX-512: its vectors are not compared");
    }
}
