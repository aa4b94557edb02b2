//! Reference models of the TLBs of built-in machines.

use machine::{Level, Replacement, Size, names, preset};
use superpage_tlb_sim::{Naive, Translate};

#[test]
fn as_many_pages_as_entries_fit_and_one_more_does_not() {
    for name in names() {
        let machine = preset(name).unwrap();
        let tlb = machine.l1.iter().find(|tlb| tlb.holds[0]).unwrap();
        // All pages are in one set, so that the order of replacement is tested.
        let (ways, sets) = (u32::from(tlb.array.ways), u32::from(tlb.array.sets()));
        for (pages, hits) in [(ways, true), (ways + 1, false)] {
            let mut naive = Naive::new(&machine);
            for round in 0..4 {
                for page in 0..pages {
                    let level = naive.look_up(page * sets, Size::Base);
                    let hit = level == Level::L1;
                    assert_eq!(hit, hits && round > 0, "{name}: {pages} pages, round {round}");
                }
            }
        }
    }
}

#[test]
fn a_tree_keeps_the_page_used_last_but_not_always_the_oldest_out() {
    let mut machine = preset("e3-1245v6").unwrap();
    machine.l1[0].replacement = Replacement::TreePlru;
    let sets = u32::from(machine.l1[0].array.sets());
    let mut naive = Naive::new(&machine);
    let mut look_up = |n: u32| naive.look_up(n * sets, Size::Base);
    // Four ways: 0 and 1 in the left half, 2 and 3 in the right.
    (0..4).for_each(|n| assert_eq!(look_up(n), Level::Walk));
    // 0 is used last, so the root of the tree points right, and there to 2, because 3 was used after it. So 1, which
    // LRU would have replaced, stays.
    assert_eq!(look_up(0), Level::L1);
    assert_eq!(look_up(4), Level::Walk);
    assert_eq!([0, 1, 3, 4].map(&mut look_up), [Level::L1; 4]);
    assert_eq!(look_up(2), Level::L2);
}
