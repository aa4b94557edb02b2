//! The built-in machine files are valid, and have the values of their sources.

use superpage_machine::{Size, names, preset};

#[test]
fn all_are_read_under_their_own_names() {
    assert!(names().count() > 10);
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
