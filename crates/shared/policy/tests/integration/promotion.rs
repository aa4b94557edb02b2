//! FreeBSD's promotion truth table, exhaustively.

use superpage_policy::rules::CleanPages;
use superpage_policy::{Pages, Promotion, Refused, SoftFault, direct, promotion};

const CLEAN: [u64; 8] = [0; 8];
const DIRTY: [u64; 8] = [!0; 8];
/// All pages but page 77.
const ALMOST: [u64; 8] = [!0, !(1 << 13), !0, !0, !0, !0, !0, !0];
const MIXED: [u64; 8] = [!0, !0, 0, 0, !0, !0, !0, 0];

fn booleans<const N: usize>() -> impl Iterator<Item = [bool; N]> {
    (0..1u32 << N).map(|number| std::array::from_fn(|bit| number >> bit & 1 != 0))
}

#[test]
fn in_place_promotion() {
    for [full, mapped, uniform, accessed, writable] in booleans() {
        for dirty in [&CLEAN, &ALMOST, &MIXED, &DIRTY] {
            let made = promotion(&Pages { full, mapped, uniform, accessed, writable, dirty });
            // The expected result, derived from the rule: all 512 entries of a full reservation must be valid and
            // alike. Clean writable entries lose their write permission first, and then entries with and without it
            // must not be mixed.
            let writable_entries = match dirty {
                _ if !writable => 0,
                map => map.iter().map(|word| word.count_ones()).sum(),
            };
            let expected = match (full && mapped && uniform && accessed, writable_entries) {
                (true, 512) => Promotion::ReadWrite,
                (true, 0) => Promotion::ReadOnly,
                (true, _) => Promotion::None(Refused::MixedDirty),
                (false, _) if !full => Promotion::None(Refused::NotFull),
                (false, _) if !mapped => Promotion::None(Refused::NotMapped),
                (false, _) if !uniform => Promotion::None(Refused::NotUniform),
                (false, _) => Promotion::None(Refused::NotAccessed),
            };
            assert_eq!(made, expected, "{full} {mapped} {uniform} {accessed} {writable} {dirty:?}");
        }
    }
}

#[test]
fn direct_mapping_by_a_soft_fault() {
    let mut made = [0; 3];
    for [full, valid, inside, congruent, wired, writable, busy, anonymous] in booleans() {
        for rule in [CleanPages::Uniform, CleanPages::Relaxed] {
            for (dirty, slot) in
                [(&CLEAN, 0), (&ALMOST, 77), (&ALMOST, 78), (&MIXED, 128), (&DIRTY, 511)]
            {
                let fault = SoftFault {
                    full,
                    valid,
                    inside,
                    congruent,
                    wired,
                    writable,
                    busy,
                    dirty,
                    slot,
                    anonymous,
                };
                let possible = full && valid && inside && congruent && !wired;
                // All pages are dirty, except possibly the faulting one.
                let all_dirty = *dirty == DIRTY || (*dirty == ALMOST && slot == 77);
                let relaxed = rule == CleanPages::Relaxed && anonymous;
                let expected = match (possible, writable) {
                    (true, false) => Some(Promotion::ReadOnly),
                    (true, true) if !busy && (all_dirty || relaxed) => Some(Promotion::ReadWrite),
                    _ => None,
                };
                let got = direct(&fault, rule);
                match (got, expected) {
                    (Promotion::None(_), None) => made[0] += 1,
                    (got, Some(expected)) => {
                        assert_eq!(got, expected, "{fault:?} {rule:?}");
                        made[if writable { 2 } else { 1 }] += 1;
                    }
                    _ => panic!("{fault:?} {rule:?}: {got:?}"),
                }
            }
        }
    }
    // Read-only faults: 2 (busy) x 2 (anonymous) x 2 rules x 5 maps. Write faults: 2 of the 5 maps are all dirty, in 2
    // x 2 cases; the other 3 are accepted if the rule is relaxed and the memory is anonymous.
    assert_eq!(made, [2560 - 40 - 11, 40, 11]);
}
