//! What grew is told to the policy, as if a fault had just done it.

use policy::{Action, Event, Facts, Mapping, Page, Policy, Result as Ended};

use crate::extent::{Extent, PAGES, SCALE, first_bits};

/// What the policy wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Nothing.
    Nothing,
    /// A superpage.
    Superpage,
    /// It is a candidate of the scan.
    Candidate,
}

/// An extent has more pages than before. `is_shared` is asked only where it matters.
pub(crate) fn grew(
    policy: &mut Policy,
    extent: &mut Extent,
    before: u16,
    mut is_shared: impl FnMut() -> bool,
) -> Wanted {
    if before == 0 && extent.populated > 0 && reserves(policy) {
        extent.is_reserved = is_reserved(policy, extent, is_shared());
    }
    if extent.is_reserved && wants_superpage(policy, extent, &mut is_shared) {
        return Wanted::Superpage;
    }
    if policy.is_crossed(before, extent.populated) {
        let event = Event::Grew { before, after: extent.populated };
        if policy.on(event, &extent.facts(policy, false)) == Action::List {
            return Wanted::Candidate;
        }
    }
    Wanted::Nothing
}

fn reserves(policy: &Policy) -> bool {
    !policy.physical().reserved.is_empty()
}

/// Whether its first fault reserves a superpage. Reservations of smaller sizes are not had.
fn is_reserved(policy: &mut Policy, extent: &Extent, is_shared: bool) -> bool {
    let facts = extent.facts_when_empty(policy, is_shared);
    let mut action = policy.on(Event::Fault { write: true }, &facts);
    while let Action::Reserve { order, .. } = action {
        if order == SCALE.superpage {
            return true;
        }
        let none = Event::Outcome { action, result: Ended::NoMemory, cost: 0 };
        action = policy.on(none, &facts);
    }
    false
}

/// Whether its reservation is to become a superpage now: all pages are there, or the rest is to be prepared at once and
/// mapped with them.
fn wants_superpage(
    policy: &mut Policy,
    extent: &Extent,
    is_shared: &mut impl FnMut() -> bool,
) -> bool {
    let is_superpage = |action| matches!(action, Action::MakeSuperpage { .. });
    if extent.populated == PAGES {
        let facts = extent.facts(policy, is_shared());
        return is_superpage(policy.on(Event::Mapped, &facts));
    }
    match policy.on(Event::Populated, &extent.facts(policy, false)) {
        Action::Populate { .. } => {
            let facts = facts_once_filled(policy, extent, is_shared());
            is_superpage(policy.on(Event::Prepared { write: true }, &facts))
        }
        _ => false,
    }
}

/// The fewest pages with which a reservation is prepared whole, or all pages of a superpage.
pub(crate) fn least_filled(policy: &Policy) -> u16 {
    let fills = |&populated: &u16| {
        let extent = Extent { populated, is_reserved: true, ..Extent::default() };
        let action = policy.clone().on(Event::Populated, &extent.facts(policy, false));
        matches!(action, Action::Populate { .. })
    };
    (1..PAGES).find(fills).unwrap_or(PAGES)
}

/// Whether the first fault of an extent has it prepared whole and mapped as a superpage. See docs/decisions/live.md#13.
pub fn is_at_first_fault(policy: &Policy) -> bool {
    let mapping = Mapping { writable: true, ..Mapping::default() };
    let mut extent = Extent { mapping, populated: 1, ..Extent::default() };
    grew(&mut policy.clone(), &mut extent, 0, || false) == Wanted::Superpage
}

/// Whether a reservation that a daemon completed is mapped as one by the next fault in it. MADV_COLLAPSE does both.
pub(crate) fn is_mapped_once_filled(policy: &mut Policy, extent: &Extent, is_shared: bool) -> bool {
    let mut facts = facts_once_filled(policy, extent, is_shared);
    facts.page = Page::Resident { cow: is_shared, shared: is_shared };
    let action = policy.on(Event::Fault { write: true }, &facts);
    matches!(action, Action::MakeSuperpage { .. })
}

/// What is known of the extent once all pages are there. Those that were filled were not written.
fn facts_once_filled(policy: &Policy, extent: &Extent, is_shared: bool) -> Facts {
    let filled = Extent { populated: PAGES, ..*extent };
    let mut facts = filled.facts(policy, is_shared);
    facts.region.dirty = first_bits(extent.populated);
    facts
}
