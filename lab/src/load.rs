//! Designs, which are files, as the policies that this crate carries out. Nothing else here knows them.

pub use design::Design;
use hardware::Machine;
use policy::Policy;

use crate::faults::{self, Kernel};
use crate::system;

/// What a design means on a machine.
pub(crate) fn policy(design: &Design, machine: &Machine) -> Policy {
    design.policy(system::scale(machine))
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
