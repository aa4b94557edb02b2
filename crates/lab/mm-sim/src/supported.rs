//! What policies ask that is not simulated; and how many regions a superpage of theirs has.
//! See docs/decisions/lab-model.md#12.

use machine::Machine;
use policy::{LaunchPages, Policy, Scale};
use units::ByteSize;

/// A rule that is not simulated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotSimulated {
    /// Its key.
    pub key: &'static str,
    /// Why, and what would be.
    pub why: String,
}

fn refused(why: String) -> Option<NotSimulated> {
    Some(NotSimulated { key: "allocation.sizes", why })
}

/// What of a policy at [`Scale::X86`] is simulated on no machine of 4 KiB pages: superpages larger than a region of 512 base
/// pages come from a pool only, which has one size.
pub fn not_simulated(policy: &Policy) -> Option<NotSimulated> {
    let (sizes, large) = (policy.sizes(), Scale::X86.superpage);
    let other = match (policy.launch().pages, sizes.above(large).smallest()) {
        (LaunchPages::Pool, Some(_)) => return None,
        (_, Some(larger)) => short(bytes(larger)),
        (LaunchPages::Base, None) => return None,
        _ if !sizes.has(large) => "sizes without 2M".to_string(),
        _ => return None,
    };
    refused(format!(
        "{other}: not simulated; the laboratory has superpages of 2M and smaller sizes, and larger ones of a pool (form = \
         \"pool\")"
    ))
}

/// The same on a machine.
pub fn not_simulated_on(policy: &Policy, machine: &Machine) -> Option<NotSimulated> {
    if let found @ Some(_) = not_simulated(policy).filter(|_| is_x86(machine)) {
        return found;
    }
    let offered = machine.superpages();
    let names: Vec<String> =
        offered.iter().map(|&size| format!("\"{}\"", short(ByteSize(size)))).collect();
    let (name, names) = (&machine.name, names.join(", "));
    let region = region(machine);
    match policy.launch().pages {
        LaunchPages::Base => None,
        LaunchPages::Pool => {
            if policy.sizes().largest().is_some_and(|one| offered.contains(&bytes(one).bytes())) {
                return None;
            }
            refused(format!(
                "the superpages of {name} are of {names}: name one of these in a copy (superpage design show)"
            ))
        }
        _ if offered.contains(&region) && policy.sizes().has((region / 4096).ilog2() as u8) => None,
        _ => refused(format!(
            "the superpages of {name} are of {names}, which are simulated of a pool only: take a design with form = \"pool\""
        )),
    }
}

fn is_x86(machine: &Machine) -> bool {
    region(machine) == bytes(Scale::X86.superpage).bytes()
}

/// Bytes of a region: 512 base pages.
fn region(machine: &Machine) -> u64 {
    machine.base_page.bytes() * u64::from(trace::SLOTS)
}

/// log2 of the regions that a superpage of this policy has on a machine: more than one in a pool of large superpages.
pub fn regions_of_superpage(policy: &Policy, machine: &Machine) -> u32 {
    let launch = policy.launch();
    match (launch.pages, launch.size) {
        (LaunchPages::Pool, Some(size)) => (size.bytes() / region(machine)).max(1).ilog2(),
        _ => 0,
    }
}

/// Bytes of a size of [`Scale::X86`].
fn bytes(order: u8) -> ByteSize {
    ByteSize(Scale::X86.base_page << order)
}

/// A size as a design has it: `2M`.
fn short(size: ByteSize) -> String {
    size.to_string().replace(" GiB", "G").replace(" MiB", "M").replace(" KiB", "K")
}
