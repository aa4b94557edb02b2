//! What rules mean: the tables of the presets, FreeBSD's promotion, conditions, programs that run.

mod ahead;
mod expressions;
mod promotion;
mod surface;
mod tables;

/// The laboratory returns one for each fault that it simulates.
#[test]
fn how_a_fault_is_served_fits_a_word() {
    assert_eq!(size_of::<superpage_policy::FaultAction>(), 8);
}
