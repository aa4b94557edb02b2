//! The meaning of rules: the tables of the presets, FreeBSD's promotion, conditions.

mod ahead;
mod expressions;
mod promotion;
mod surface;
mod tables;

/// The laboratory returns such a value for each simulated fault, so it should be small.
#[test]
fn how_a_fault_is_served_fits_a_word() {
    assert_eq!(size_of::<superpage_policy::FaultAction>(), 8);
}
