//! Outputs of a calibration: JSON, a machine file, variables, a picture.

use crate::common::simulated::Simulated;
use crate::common::{EXACT, altered, found};
use host::{TlbArray, TlbKind};
use machine::{Machine, Size};
use superpage_tlb_probe::{
    Accesses, Calibration, OnPages, Options, Processor, SCHEMA, THIS, calibrate,
};
use units::PageSize;

const LARGE: u64 = 2 << 20;

/// Returns the calibration of a Zen 2 guest on a host with base pages, made once for all tests.
fn zen2() -> Calibration {
    static FOUND: std::sync::LazyLock<Calibration> = std::sync::LazyLock::new(|| guest("zen2"));
    FOUND.clone()
}

/// Returns the calibration of a guest of this preset, on a host with base pages.
fn guest(name: &str) -> Calibration {
    let nested = "[nested]\nhost-page = \"base\"\nlevels = 4\n\n[walk]\n";
    let machine = altered(name, &[("[walk]\n", nested)]);
    let page = PageSize::new(LARGE).unwrap();
    let mut calibration = found(&mut Simulated::new(machine), EXACT, &[page]);
    calibration.processor.vendor = Some("AuthenticAMD".to_string());
    calibration.processor.model = Some("A \"model\"\n[name]".to_string());
    calibration.processor.guest = Some(true);
    calibration
}

#[test]
fn a_machine_that_was_measured_is_written_as_it_is() {
    let machine = altered("cascade-lake", &[]);
    let page = PageSize::new(LARGE).unwrap();
    let mut calibration = found(&mut Simulated::new(machine.clone()), EXACT, &[page]);
    calibration.processor.vendor = Some("GenuineIntel".to_string());
    let text = calibration.to_machine();
    let read =
        Machine::from_toml(&text, "this.toml").unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(read.name, THIS);
    assert_eq!((&read.l1, &read.l2), (&machine.l1, &machine.l2), "{text}");
    assert_eq!((read.mhz, read.base_page, read.nested), (machine.mhz, machine.base_page, None));
    assert_eq!((read.caches, read.costs), (machine.caches, machine.costs));
}

#[test]
fn a_guest_without_superpage_reach_is_written_so() {
    let mut calibration = guest("zen4");
    // As measured on a Zen 4 guest: a hash function distributes the pages unevenly over the sets.
    let second = &mut calibration.sizes[0].levels[1];
    (second.entries, second.ways) = (Some(2226), None);
    let text = calibration.to_machine();
    let read =
        Machine::from_toml(&text, "this.toml").unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(read.nested.map(|nested| nested.host_page), Some(Size::Base));
    let array = read.l2[0].array;
    assert_eq!((array.entries, array.ways), (17 * 128, 17), "{text}");
    assert!(text.contains("entries = 2176   # (measured) 2226, in 128 sets (assumed)"), "{text}");
}

#[test]
fn what_is_not_known_is_assumed_and_said() {
    let mut calibration = zen2();
    calibration.sizes.truncate(1);
    calibration.sizes[0].levels.clear();
    calibration.walk_steps.clear();
    calibration.backing = None;
    let text = calibration.to_machine();
    let read =
        Machine::from_toml(&text, "this.toml").unwrap_or_else(|error| panic!("{error}\n{text}"));
    let preset = machine::preset("zen1").unwrap();
    assert_eq!(read.l1, preset.l1);
    assert!(!text.contains("entries = 64   # (measured)"), "{text}");
    // Nothing is known about the host, so the file assumes that superpages of the guest have their own TLB entries.
    assert_eq!(read.nested.map(|nested| nested.host_page), Some(Size::Large));
}

#[test]
fn accesses_that_were_measured_replace_what_is_assumed() {
    let on = |base_ns, superpage_ns| OnPages { base_ns, superpage_ns };
    let mut calibration = zen2();
    let mhz = calibration.clock.core_mhz;
    let read = |calibration: &Calibration| {
        let text = calibration.to_machine();
        Machine::from_toml(&text, "this.toml").unwrap_or_else(|error| panic!("{error}\n{text}"))
    };
    assert!(read(&calibration).far.is_empty());
    let (dependent, independent) = (on(120.0, 80.0), on(24.0, 16.0));
    calibration.accesses = Some(Accesses { bytes: 1 << 30, dependent, independent });
    let nearer = Accesses { bytes: 1 << 28, dependent: on(90.0, 80.0), independent };
    calibration.nearer_accesses = vec![nearer];
    let machine = read(&calibration);
    assert_eq!(machine.memory_cycles, (80.0 * mhz / 1000.0).round() as u16);
    let found = machine.far_at(1 << 30).unwrap();
    let near = |found: f64, ns: f64| assert!((found - ns * mhz / 1000.0).abs() < 0.06, "{found}");
    near(found.walk, 40.0);
    near(found.independent.cycles, 16.0);
    // Base pages add 8 ns to an update, a fifth of what they add to a load that waits.
    assert!((found.independent.walk - 0.2).abs() < 0.001, "{found:?}");
    near(machine.far_at(1 << 29).unwrap().walk, 25.0);
    near(machine.far_at(1 << 20).unwrap().walk, 10.0);
    near(machine.far_at(1 << 40).unwrap().walk, 40.0);
    let text = serde_json::to_string(&calibration).unwrap();
    assert_eq!(serde_json::from_str::<Calibration>(&text).unwrap(), calibration);
    // If superpages made no difference, accesses do not wait for walks.
    let independent = on(15.9, 16.0);
    calibration.accesses = Some(Accesses { bytes: 1 << 30, dependent, independent });
    assert_eq!(read(&calibration).far_at(1 << 30).unwrap().independent.walk, 0.0);
}

#[test]
fn documents_say_their_schema_and_come_back() {
    let calibration = zen2();
    let text = serde_json::to_string(&calibration).unwrap();
    assert!(text.starts_with(&format!("{{\"schema\":\"{SCHEMA}\"")), "{text}");
    assert_eq!(serde_json::from_str::<Calibration>(&text).unwrap(), calibration);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["sizes"][1]["page"], LARGE);
    assert_eq!(value["sizes"][0]["levels"][0]["hit"], serde_json::Value::Null);
    assert_eq!(value["backing"]["verdict"], "fractured");
}

#[test]
fn a_confidence_that_is_null_or_missing_is_unknown() {
    let mut calibration = zen2();
    calibration.sizes[0].confidence = None;
    let mut value = serde_json::to_value(&calibration).unwrap();
    assert_eq!(value["sizes"][0]["confidence"], serde_json::Value::Null);
    assert_eq!(serde_json::from_value::<Calibration>(value.clone()).unwrap(), calibration);
    let size = value["sizes"][0].as_object_mut().unwrap();
    assert!(size.remove("confidence").is_some());
    // An older document has no field about instructions.
    assert!(value.as_object_mut().unwrap().remove("instructions").is_some());
    let old: Calibration = serde_json::from_value(value).unwrap();
    assert_eq!(old, calibration);
    assert_eq!(
        serde_json::from_str::<Calibration>(&serde_json::to_string(&old).unwrap()).unwrap(),
        old
    );
}

#[test]
fn scripts_read_what_was_measured_and_nothing_else() {
    let mut calibration = zen2();
    let text = calibration.to_variables();
    for line in [
        "TLB_L2_HIT_COST=7",
        "TLB_L2_HIT_COST_LOW=7",
        "TLB_L2_ENTRIES_HIGH=2048",
        "TLB_WARNINGS=0",
        "TLB_L1_ENTRIES=64",
        "TLB_L2_ENTRIES=2048",
        "TLB_CORE_MHZ=2250",
        "TLB_SUPERPAGES=fractured",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
    assert!(text.starts_with("TLB_MISS_COST="), "{text}");
    // Computed by hand, at 2,250 MHz.
    let miss = calibration.sizes[0].miss.as_ref().unwrap().cycles;
    let ns = format!("TLB_MISS_COST_NS={:.2}", miss / 2.25);
    let misses = format!("MISSES_COST_ONE_SECOND={:.0}", 2.25e9 / miss);
    assert!(text.contains(&ns) && text.contains(&misses), "{ns}, {misses}: {text}");
    calibration.sizes[0].miss = None;
    calibration.backing = None;
    let text = calibration.to_variables();
    for name in ["TLB_MISS_COST=", "TLB_MISS_COST_NS", "MISSES_COST", "TLB_SUPERPAGES"] {
        assert!(!text.contains(name), "{name} in {text}");
    }
}

#[test]
fn what_cpuid_contradicts_is_a_warning() {
    let page = PageSize::new(4096).unwrap();
    let array = |level, entries| TlbArray {
        level,
        kind: TlbKind::Data,
        page_sizes: vec![page],
        entries,
        ways: None,
    };
    let warnings_of = |vendor: &str, first, second| {
        let arrays = vec![array(1, first), array(2, second)];
        let vendor = Some(vendor.to_string());
        let processor = Processor { arrays, vendor, guest: Some(true), ..Processor::default() };
        let options = Options { effort: EXACT, pages: vec![page], seed: 1, limit: None, processor };
        let mut probe = Simulated::new(altered("cascade-lake", &[]));
        calibrate(&mut probe, None, &options, &mut |_| {}).unwrap().warnings
    };
    let warnings = |first, second| warnings_of("GenuineIntel", first, second);
    assert_eq!(warnings(64, 1536), [""; 0]);
    let [warning] = &warnings(64, 2048)[..] else { panic!("one level is smaller") };
    assert!(warning.contains("level 2 keeps 1536") && warning.contains("names 2048"), "{warning}");
    // AMD counts in units of 32, but the bit that says so is hidden. Other vendors have no such units.
    for (vendor, is_explained) in [("AuthenticAMD", true), ("GenuineIntel", false)] {
        let [warning] = &warnings_of(vendor, 64, 48)[..] else { panic!("one level is larger") };
        assert_eq!(warning.contains("names 48, which are 1536 if"), is_explained, "{warning}");
    }
}

#[test]
fn the_processor_decides_on_the_preset_whatever_was_measured() {
    let preset = |family, number, entries| {
        let mut calibration = zen2();
        calibration.processor.vendor = Some("GenuineIntel".to_string());
        (calibration.processor.family, calibration.processor.number) = (family, number);
        calibration.sizes[0].levels[1].entries = entries;
        let text = calibration.to_machine();
        let name = text.split('`').nth(3).expect("the preset is named");
        name.to_string()
    };
    for measured in [Some(1024), Some(2048), None] {
        assert_eq!(preset(Some(6), Some(143), measured), "golden-cove");
    }
    assert_eq!(preset(Some(6), Some(1), Some(1024)), "haswell");
    assert_eq!(preset(None, None, Some(2048)), "ice-lake");
}

#[test]
fn the_picture_shows_both_sizes_and_is_well_formed() {
    let calibration = zen2();
    let svg = calibration.to_svg();
    assert_eq!(svg, calibration.to_svg());
    assert_eq!(svg.matches("class=\"line spread\"").count(), 2);
    assert!(svg.contains("level 2: 2048 entries"));
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    // The name of the processor is untrusted text.
    assert!(svg.contains("A &quot;model&quot;"), "{}", &svg[..2000]);
}
