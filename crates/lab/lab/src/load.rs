//! Designs, which are files, as the policies that this crate carries out. Nothing else here knows them.

pub use design::Design;
use machine::Machine;
use policy::Policy;

use crate::faults::{self, Kernel};
use crate::system;

/// What a design means on a machine.
pub(crate) fn policy(design: &Design, machine: &Machine) -> Policy {
    design.policy(system::scale(machine))
}

/// A rule that is not simulated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotSimulated {
    /// Its key.
    pub key: &'static str,
    /// Why, and what would be.
    pub why: String,
}

/// What of a design is not simulated: frames and TLBs of other sizes than the page table's superpage and smaller ones.
pub fn not_simulated(design: &Design) -> Option<NotSimulated> {
    let policy = design.policy(policy::Scale::X86);
    let (sizes, large) = (policy.sizes(), policy::Scale::X86.superpage);
    let has_superpages = policy.launch().pages != policy::LaunchPages::Base;
    let other = match sizes.above(large).smallest() {
        Some(larger) => size(larger),
        None if has_superpages && !sizes.has(large) => "sizes without 2M".to_string(),
        None => return None,
    };
    let why = format!(
        "{other}: not simulated; the laboratory has superpages of 2M, and smaller sizes beside them"
    );
    Some(NotSimulated { key: "allocation.sizes", why })
}

/// The size of an order, as a design has it.
fn size(order: u8) -> String {
    match order {
        18.. => format!("{}G", 1u64 << (order - 18)),
        _ => format!("{}M", 1u64 << (order - 8)),
    }
}

/// Whether a design asks which pages hold zeros only: those that were never touched.
pub fn watches_contents(design: &Design) -> bool {
    design.policy(policy::Scale::X86).reads().has(policy::Reads::ZEROS)
}

/// The preset of this name.
pub(crate) fn preset(name: &str) -> Design {
    design::designs::find(name).expect("a preset")
}

impl Kernel {
    /// What a design says of faults.
    pub fn of(design: &Design, machine: &faults::Machine) -> Self {
        let scale =
            policy::Scale { base_page: machine.base_page.bytes(), superpage: 9, ticks: 1000 };
        Self::new(&design.policy(scale).fault_path(), machine)
    }
}
