//! Simulated machines for calibration.

mod caches;
#[allow(dead_code, reason = "exact readings need no noise")]
pub mod simulated;

use machine::Machine;
use superpage_tlb_probe::{Calibration, Effort, Options, Probe, Processor, calibrate};
use units::PageSize;

/// Exact readings need no repetition; a rank test needs at least seven samples.
#[allow(dead_code, reason = "with noise there is another")]
pub const EXACT: Effort = Effort {
    step: 1.12,
    readings: 1,
    rounds: (1, 1),
    turns: 1,
    samples: 7,
    attempts: 4,
    most_pages: 10_000,
};

/// Returns a preset with some of its text replaced.
pub fn altered(name: &str, changes: &[(&str, &str)]) -> Machine {
    let mut text = machine::preset_text(name).unwrap().to_string();
    for (from, to) in changes {
        assert!(text.contains(from), "{name} has no `{from}`");
        text = text.replace(from, to);
    }
    Machine::from_toml(&text, name).unwrap()
}

/// Calibrates a probe with these page sizes.
#[allow(dead_code, reason = "with noise code is always looked at too")]
pub fn found(probe: &mut dyn Probe, effort: Effort, pages: &[PageSize]) -> Calibration {
    with_code(probe, None, effort, pages)
}

/// The same with a probe for code.
pub fn with_code(
    probe: &mut dyn Probe,
    code: Option<&mut dyn Probe>,
    effort: Effort,
    pages: &[PageSize],
) -> Calibration {
    let processor = Processor::default();
    let options = Options { effort, pages: pages.to_vec(), seed: 1, limit: None, processor };
    calibrate(probe, code, &options, &mut |_| {}).unwrap()
}

/// Returns the same TLBs with a radix page table. Other tables would hide the TLB's shape: a walk of a hashed table
/// costs more the more pages are used, and a linear table takes entries of the second level.
pub fn on_a_tree(machine: Machine) -> Machine {
    Machine { organisation: machine::Organisation::Radix, ..machine }
}
