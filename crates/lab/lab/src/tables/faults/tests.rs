//! Published rows against the model, with the tolerances that are claimed.

use fault_scaling::{Patches, names, preset};

use super::{compare, published};
use crate::tables::Role;

#[test]
fn every_machine_is_read_and_every_published_patch_is_known() {
    for name in names() {
        assert_eq!(preset(name).unwrap().name, name);
        for row in published(name) {
            row.patches.parse::<Patches>().unwrap();
            assert!(row.samples > 0 && row.pages_per_wall_second > 0.0);
        }
    }
    assert_eq!(published("altix-128").len(), 32);
    assert!(published("none").is_empty());
}

/// Constants are fitted to four of the 28 rows with more than one thread, and to those with one.
#[test]
fn the_altix_with_128_cpus_scales_as_published() {
    let comparison = compare(&preset("altix-128").unwrap()).unwrap();
    let fitted = |threads: bool| {
        let is =
            |line: &&super::Line| line.role == Role::Fitted && (line.row.threads > 1) == threads;
        comparison.lines.iter().filter(is).count()
    };
    assert_eq!((comparison.lines.len(), fitted(true), fitted(false)), (32, 4, 4));
    assert!(comparison.scaling_error.unwrap() < 0.15, "{:?}", comparison.scaling_error);
    assert!(comparison.held_out_error.unwrap() < 0.15, "{:?}", comparison.held_out_error);
    assert!(comparison.single_error.unwrap() < 0.03, "{:?}", comparison.single_error);
    for peak in &comparison.peaks {
        assert_eq!(peak.published, peak.simulated, "{peak:?}");
    }
}

/// One thread only, so nothing but prices is shown; prezeroing's wall-clock time is the daemon's.
#[test]
fn the_pc_is_as_published() {
    let comparison = compare(&preset("i386-up").unwrap()).unwrap();
    assert!(comparison.single_error.unwrap() < 0.05, "{:?}", comparison.single_error);
    assert_eq!(comparison.scaling_error, None);
}

/// Constants are fitted to eight of the 30 rows with more than one thread.
#[test]
fn the_altix_with_8_cpus_is_near_what_was_published() {
    let comparison = compare(&preset("altix-8").unwrap()).unwrap();
    let is_held_out = |line: &&super::Line| line.role == Role::HeldOut;
    assert_eq!(comparison.lines.iter().filter(is_held_out).count(), 22);
    assert!(comparison.scaling_error.unwrap() < 0.12, "{:?}", comparison.scaling_error);
    assert!(comparison.held_out_error.unwrap() < 0.12, "{:?}", comparison.held_out_error);
    assert!(comparison.single_error.unwrap() < 0.06, "{:?}", comparison.single_error);
    assert_eq!(comparison.peaks.len(), 10);
    for peak in &comparison.peaks {
        assert_eq!(peak.published, peak.simulated, "{peak:?}");
    }
}

#[test]
fn a_mistake_in_a_machine_has_its_line() {
    let text = fault_scaling::preset_text("altix-128").unwrap();
    let error =
        |text: String| fault_scaling::Machine::from_toml(&text, "m.toml").unwrap_err().to_string();
    let line = 1 + text.lines().position(|line| line.starts_with("cpus =")).unwrap();
    let said = error(text.replace("cpus = 128", "cpus = 1000"));
    assert_eq!(said, format!("m.toml:{line}: 1000 is not within 1 to 512"));
    assert!(error(text.replace("zero =", "zeroo =")).contains("unknown field `zeroo`"));
    assert!(error(text.replace("entry = ", "entry = -")).contains("nanoseconds"));
    assert!(error(text.replace("largest = 512", "largest = 8")).contains("`largest` is less than"));
}
