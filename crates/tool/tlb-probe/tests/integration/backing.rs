//! Whether superpages of a virtual machine have TLB entries of their own size.

use crate::common::simulated::Simulated;
use crate::common::{EXACT, altered, found};
use machine::Machine;
use superpage_tlb_probe::{Backing, Verdict};
use units::PageSize;

fn backing(machine: Machine) -> Backing {
    let large = PageSize::new(2 << 20).unwrap();
    found(&mut Simulated::new(machine), EXACT, &[large]).backing.unwrap()
}

/// A guest on a host with pages of this size.
fn guest(host_page: &str) -> Machine {
    let nested = format!("[nested]\nhost-page = \"{host_page}\"\nlevels = 4\n\n[walk]\n");
    altered("cascade-lake", &[("[walk]\n", &nested)])
}

#[test]
fn the_bare_machine_has_superpages() {
    let backing = backing(altered("cascade-lake", &[]));
    assert_eq!((backing.verdict, backing.whole), (Verdict::Reaches, backing.looked_at));
}

#[test]
fn a_host_with_superpages_passes_them_on() {
    assert_eq!(backing(guest("large")).verdict, Verdict::Reaches);
}

#[test]
fn a_host_with_base_pages_fractures_them() {
    let backing = backing(guest("base"));
    assert_eq!((backing.verdict, backing.fractured), (Verdict::Fractured, backing.looked_at));
    assert!(backing.words().contains("host backs this machine with base pages"));
}

#[test]
fn where_a_miss_of_the_first_level_costs_nothing_nothing_can_be_told() {
    // Here the calibration finds only the second level, which a superpage's base pages do not overflow.
    let free = altered(
        "cascade-lake",
        &[("cycles = 9   # (assumed) 7 to 9 beyond a hit of the first level", "cycles = 0")],
    );
    assert_eq!(backing(free).verdict, Verdict::CannotTell);
}
