//! Designs, which are files, as the policies that this crate carries out. Nothing else here knows them.

pub use design::Design;
use fault_scaling::Kernel;
use machine::Machine;
pub use mm_sim::NotSimulated;
use policy::Policy;

/// What a design means on a machine.
pub(crate) fn policy(design: &Design, machine: &Machine) -> Policy {
    mm_sim::policy_on(machine, |scale| design.policy(scale))
}

/// Bytes of a design's superpages on a machine: of its largest, and of a region's at least.
pub(crate) fn superpage(design: &Design, machine: &Machine) -> u64 {
    let group = mm_sim::regions_of_superpage(&policy(design, machine), machine);
    (machine.base_page.bytes() * u64::from(trace::SLOTS)) << group
}

/// What of a design is not simulated on a machine.
pub(crate) fn not_simulated_on(design: &Design, machine: &Machine) -> Option<NotSimulated> {
    mm_sim::not_simulated_on(&design.policy(policy::Scale::X86), machine)
}

/// What of a design is not simulated.
pub fn not_simulated(design: &Design) -> Option<NotSimulated> {
    mm_sim::not_simulated(&design.policy(policy::Scale::X86))
}

/// What of a design the model of many CPUs' faults has not.
pub fn not_simulated_of_faults(design: &Design) -> Option<NotSimulated> {
    mm_sim::not_simulated_of_faults(&design.policy(policy::Scale::X86))
}

/// Whether a design asks which pages hold zeros only: those that were never touched.
pub fn watches_contents(design: &Design) -> bool {
    design.policy(policy::Scale::X86).reads().has(policy::Reads::ZEROS)
}

/// Whether a design says how faults take locks and count pages (its `[fault]` table). Only `lab faults` simulates that:
/// [`crate::run`] makes the same report without it.
pub fn has_fault_table(design: &Design) -> bool {
    let of = |design: &Design| {
        let path = design.policy(policy::Scale::X86).fault_path();
        (path.locking, path.resident)
    };
    of(design) != of(&preset("base"))
}

/// The preset of this name.
pub(crate) fn preset(name: &str) -> Design {
    design::designs::find(name).expect("a preset")
}

/// The same on a machine: a pool has its smallest superpages.
pub(crate) fn preset_on(name: &str, machine: &Machine) -> Design {
    let smallest = machine.superpages().first().copied();
    let design = preset(name);
    smallest.map_or(design.clone(), |size| design.with_pool_of(units::ByteSize(size)))
}

/// What a design says of faults, for the model of many CPUs.
pub fn fault_kernel(design: &Design, machine: &fault_scaling::Machine) -> Kernel {
    let scale = policy::Scale { base_page: machine.base_page.bytes(), superpage: 9, ticks: 1000 };
    Kernel::new(&design.policy(scale).fault_path(), machine)
}
