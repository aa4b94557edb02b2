//! The order of runs: balanced, mirrored, reproducible.

use superpage_experiment::schedule::{Schedule, Slot};

#[test]
fn every_block_is_a_permutation_and_its_reverse() {
    for arms in 1..6u32 {
        let mut schedule = Schedule::new(arms, 42);
        for block in 0..50 {
            let slots: Vec<Slot> = schedule.by_ref().take(2 * arms as usize).collect();
            let order: Vec<u32> = slots.iter().map(|s| s.arm).collect();
            let mirrored: Vec<u32> = order.iter().rev().copied().collect();
            assert_eq!(order, mirrored);
            let mut half = order[..arms as usize].to_vec();
            half.sort_unstable();
            assert_eq!(half, (0..arms).collect::<Vec<u32>>());
            assert!(slots.iter().all(|s| s.block == block));
            assert!(slots.iter().map(|s| s.slot).eq(0..2 * arms));
        }
    }
}

#[test]
fn each_arm_takes_each_place_equally_often() {
    let mut seen = [[0u32; 3]; 3];
    for seed in 0..6_000 {
        for slot in Schedule::new(3, seed).take(3) {
            seen[slot.slot as usize][slot.arm as usize] += 1;
        }
    }
    // Binomial(6000, 1/3): allow four standard deviations of 36.5.
    assert!(seen.iter().flatten().all(|n| n.abs_diff(2_000) < 146), "{seen:?}");
}

#[test]
fn blocks_of_one_seed_take_both_orders_independently() {
    let first: Vec<u32> =
        Schedule::new(2, 9).filter(|s| s.slot == 0).take(4_000).map(|s| s.arm).collect();
    let ones: u32 = first.iter().sum();
    let changes = first.windows(2).filter(|w| w[0] != w[1]).count();
    assert!(ones.abs_diff(2_000) < 127 && changes.abs_diff(2_000) < 127, "{ones} {changes}");
}

#[test]
fn the_same_seed_gives_the_same_schedule_for_ever() {
    let orders = |seed| Schedule::new(3, seed).take(60).map(|s| s.arm).collect::<Vec<u32>>();
    assert_eq!(orders(1), orders(1));
    assert_ne!(orders(1), orders(2));
    // Pinned: a later version must rebuild today's report identically.
    assert_eq!(orders(1)[..12], PINNED);
    assert_eq!(Schedule::new(3, 1).block_len(), 6);
    assert_eq!(Schedule::new(0, 1).next(), None);
}

const PINNED: [u32; 12] = [2, 1, 0, 0, 1, 2, 1, 2, 0, 0, 2, 1];
