//! Mechanisms of the systems with reservations, step by step.

use superpage_mm_sim::memory::Frame;
use superpage_mm_sim::reservation::{
    Config, Depopulated, Flags, Key, Populated, ReservationId, Reservations,
};

fn table(tick: u64, preemption_sizes: Vec<u8>) -> Reservations {
    Reservations::new(&Config { tick, queues: 1, preemption_sizes })
}

fn superpage(table: &mut Reservations, number: u32, now: u64) -> ReservationId {
    let key = Key { page: number << 9, order: 9 };
    table.create(key, Frame(number << 9), 0, now)
}

#[test]
fn one_fills_up_and_empties() {
    let mut table = table(10, Vec::new());
    let id = superpage(&mut table, 3, 0);
    assert_eq!(table.populate(id, 7, 1), Populated::First);
    assert_eq!(table.populate(id, 9, 1), Populated::Partly(2));
    assert_eq!(table.partly_populated(0), 1);
    for slot in (0..512).filter(|slot| ![7, 9, 511].contains(slot)) {
        assert!(matches!(table.populate(id, slot, 2), Populated::Partly(_)));
    }
    assert_eq!(table.populate(id, 511, 2), Populated::Full);
    assert_eq!(table.partly_populated(0), 0, "a full one cannot be broken by age");
    assert_eq!(table.depopulate(id, 0, 2), Depopulated::Partly(511));
    assert_eq!(table.partly_populated(0), 1);
    assert_eq!(table.clear_frames(), 1);
    assert_eq!(
        table.depopulate_run(id, 1, 511, 3),
        Depopulated::Empty { base: Frame(3 << 9), order: 9 }
    );
    assert!(table.is_empty() && table.find(3 << 9).is_none());
}

#[test]
fn one_moves_to_the_tail_once_a_tick() {
    let mut table = table(10, Vec::new());
    let [first, second] = [0, 1].map(|number| superpage(&mut table, number, 0));
    table.populate(first, 0, 0);
    table.populate(second, 0, 1);
    table.populate(first, 1, 9);
    assert_eq!(table.newer(0, None), Some(first), "the same tick: it stays");
    table.populate(first, 2, 10);
    assert_eq!(table.newer(0, None), Some(second), "the next tick: it moves");
    assert_eq!(table.break_oldest(0).unwrap().key.page, 1 << 9);
}

/// Frag-100 under Quicksilver (docs/sources/policies.md 3.5): breaking 14,848 idle reservations with 16 pages each
/// moves 237,568 pages, which one pass with a budget of 262,144 can do. One pass can also break 16,384.
#[test]
fn one_pass_evicts_16384_reservations_of_16_pages() {
    for reservations in [14_848, 16_384] {
        let mut table = table(3_000_000, Vec::new());
        for number in 0..reservations {
            let id = superpage(&mut table, number, 0);
            table.populate_run(id, 0, 16, 0);
        }
        let (now, after) = (60 * 3_000_000_000, 5 * 3_000_000_000);
        let busy = superpage(&mut table, reservations, now);
        table.populate(busy, 0, now);
        let (mut moved, mut evicted) = (0, 0);
        while moved < 262_144 {
            let Some(id) = table.oldest_inactive(0, None, now, after) else { break };
            moved += table.popcnt(id);
            assert_eq!(table.break_reservation(id).base, Frame(evicted << 9));
            evicted += 1;
        }
        assert_eq!((evicted, moved), (reservations, reservations * 16));
        assert_eq!(table.len(), 1, "the active one stays");
    }
}

#[test]
fn a_displaced_one_is_migrated_whatever_its_age() {
    let mut table = table(10, Vec::new());
    let [old, young] = [0, 1].map(|number| superpage(&mut table, number, 0));
    table.populate(old, 5, 100);
    table.populate(young, 5, 100);
    assert_eq!(table.oldest_inactive(0, None, 100, 50), None);
    table.rename(old, 1 << 9);
    assert!(table.flags(old).has(Flags::NEEDS_MIGRATION));
    assert_eq!(table.find((1 << 9) + 5), Some(young));
    assert_eq!(table.oldest_inactive(0, None, 100, 50), Some(old));
    assert_eq!(table.oldest_inactive(0, Some(old), 100, 50), None);
    assert_eq!(table.newest_partial(0, None, 1), Some(young), "displaced ones are not filled");
}

#[test]
fn preemption_takes_the_smallest_sufficient_list_oldest_first() {
    // Sizes of 64 KB, 512 KB and 2 MB over 4 KB pages.
    let mut table = table(1, vec![4, 7, 9]);
    let [fragmented, first, second] = [0, 1, 2].map(|number| superpage(&mut table, number, 0));
    // Every 64 KB extent but one has a page, so this reservation can yield 64 KB and no more.
    for slot in (0..496).step_by(16) {
        table.populate(fragmented, slot, 0);
    }
    table.populate(first, 0, 1);
    table.populate(second, 0, 2);
    // The time of a reservation is that of its last allocation, so `second` is older now.
    table.populate(first, 1, 3);

    let preempted = table.preempt(7).unwrap();
    assert_eq!(preempted.broken, 1);
    assert_eq!(preempted.free_runs, [(Frame(1024 + 128), 384)]);
    let rest = table.find(1024).unwrap();
    assert_eq!((table.key(rest).order, table.popcnt(rest)), (7, 1));

    // For 64 KB, the list of 64 KB has `fragmented` (oldest) and the rest of `second`. The last quarter of `fragmented`
    // is split down to the free extent.
    let preempted = table.preempt(4).unwrap();
    assert_eq!((preempted.broken, preempted.free_runs), (2, vec![(Frame(496), 16)]));
    assert!(table.find(496).is_none() && table.find(480).is_some());
    table.verify().unwrap();
}

/// A reservation of 16M has eight population maps. It is full when all its pages are populated, and gone when the last
/// page is freed.
#[test]
fn a_larger_one_is_full_when_all_of_its_parts_are() {
    let mut table = table(1, Vec::new());
    let id = table.create(Key { page: 8192, order: 12 }, Frame(4096), 0, 0);
    assert!(table.overlaps(Key { page: 8192 + 4095, order: 9 }));
    assert!(!table.overlaps(Key { page: 4096, order: 12 }));
    assert_eq!((table.find(8192 + 4095), table.at(Frame(4096 + 3000))), (Some(id), Some(id)));
    for part in 0..8 {
        let done = table.populate_run(id, part * 512, 512, 1);
        let expected = match part {
            0 => Populated::First,
            7 => Populated::Full,
            part => Populated::Partly((part + 1) * 512),
        };
        assert_eq!(done, expected);
    }
    assert_eq!((table.clear_frames(), table.partly_populated(0)), (0, 0));
    table.depopulate(id, 513, 2);
    assert_eq!((table.clear_frames(), table.partly_populated(0)), (1, 1));
    let broken = table.break_oldest(0).unwrap();
    assert_eq!(broken.count, 4095);
    assert_eq!(broken.free_runs().collect::<Vec<_>>(), [(Frame(4096 + 513), 1)]);
    assert!(table.is_empty() && table.find(8192).is_none() && table.clear_frames() == 0);
    table.verify().unwrap();
}
