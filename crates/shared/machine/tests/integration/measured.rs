//! Walks of a machine whose random accesses were measured.

use superpage_machine::{Footprint, Machine, Size, Tally, preset_text};

const MEASURED: &str =
    "[[far]]\nsize = \"256M\"\nwalk = 40\nindependent = { cycles = 20, walk = 0.1 }\n";

/// A preset with measured accesses, whose host has pages of a size.
fn measured(host_page: &str) -> Machine {
    let nested = format!("[nested]\nhost-page = \"{host_page}\"\nlevels = 4\n");
    let text = format!("{}\n{nested}{MEASURED}", preset_text("zen4").unwrap());
    Machine::from_toml(&text, "measured.toml").unwrap()
}

/// A walk for a page of a size, in memory of `regions` superpages of which `base` are in base pages.
fn cycles(machine: &Machine, size: Size, regions: u64, base: u64) -> f64 {
    let mut walks = Tally::default();
    walks.walks[size as usize][1] = 1000;
    machine.walk_cycles(&walks, Footprint::new(base * 512, regions, 1 << 34)) / 1000.0
}

#[test]
fn base_pages_add_what_was_measured() {
    for host in ["base", "large"] {
        let machine = measured(host);
        let found = cycles(&machine, Size::Base, 128, 128);
        // Some of the walks of random accesses read two entries.
        assert!((20.0..=40.0).contains(&found), "{host}: {found}");
    }
}

#[test]
fn superpages_that_miss_as_often_as_base_pages_add_nothing() {
    assert_eq!(cycles(&measured("base"), Size::Large, 128, 0), 0.0);
    assert_eq!(cycles(&measured("base"), Size::Large, 128, 64), 0.0);
    // They miss seldom otherwise: no measured cost includes their walks.
    assert!(cycles(&measured("large"), Size::Large, 128, 0) > 12.0);
}
