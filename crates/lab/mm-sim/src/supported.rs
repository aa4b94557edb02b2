//! What policies ask that is not simulated.

use policy::{LaunchPages, Policy, Scale};

/// A rule that is not simulated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotSimulated {
    /// Its key.
    pub key: &'static str,
    /// Why, and what would be.
    pub why: String,
}

/// What of a policy at [`Scale::X86`] is not simulated: frames and TLBs of other sizes than the page table's superpage
/// and smaller ones.
pub fn not_simulated(policy: &Policy) -> Option<NotSimulated> {
    let (sizes, large) = (policy.sizes(), Scale::X86.superpage);
    let has_superpages = policy.launch().pages != LaunchPages::Base;
    let other = match sizes.above(large).smallest() {
        Some(larger) => size(larger),
        None if has_superpages && !sizes.has(large) => "sizes without 2M".to_string(),
        None => return None,
    };
    let why =
        format!("{other}: not simulated; the laboratory has superpages of 2M and smaller sizes");
    Some(NotSimulated { key: "allocation.sizes", why })
}

/// The size of an order, as a design has it.
fn size(order: u8) -> String {
    match order {
        18.. => format!("{}G", 1u64 << (order - 18)),
        _ => format!("{}M", 1u64 << (order - 8)),
    }
}
