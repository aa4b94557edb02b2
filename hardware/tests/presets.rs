//! The machines that are built in are read, and are what they say.

use superpage_hardware::{Level, Naive, Size, Translate, names, preset};

#[test]
fn all_are_read_under_their_own_names() {
    for name in names() {
        let machine = preset(name).unwrap();
        assert_eq!(machine.name, name);
        assert!(machine.costs.fault_base > 0.0 && machine.costs.zero.temporal[0] > 0.0, "{name}");
    }
}

#[test]
fn reach_is_entries_by_size() {
    let skylake = preset("e3-1245v6").unwrap();
    assert_eq!(skylake.reach(&skylake.l2, Size::Base), 6 << 20);
    assert_eq!(skylake.reach(&skylake.l2, Size::Large), 3 << 30);
    assert_eq!(skylake.reach(&skylake.l1, Size::Huge), 4 << 30);
}

#[test]
fn as_many_pages_as_entries_fit_and_one_more_does_not() {
    for name in names() {
        let machine = preset(name).unwrap();
        let tlb = machine.l1.iter().find(|tlb| tlb.holds[0]).unwrap();
        // Pages of one set, so that the order of replacement is what is tested.
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
