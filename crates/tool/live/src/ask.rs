//! Asks the policy about growth of an extent, by presenting the growth as a fault.

use policy::{Action, Event, Facts, FaultAction, Mapping, Page, Policy};

use crate::extent::{Extent, PAGES, SCALE, first_bits};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Nothing to do.
    Nothing,
    /// Make a superpage.
    Superpage,
    /// Add the extent to the scan's candidates.
    Candidate,
}

/// Asks the policy about an extent that gained pages. Calls `is_shared` only if the policy reads that fact.
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

/// Returns whether the first fault of the extent reserves a superpage. Smaller reservations are not made.
fn is_reserved(policy: &mut Policy, extent: &Extent, is_shared: bool) -> bool {
    let facts = extent.facts_when_empty(policy, is_shared);
    let mut action = policy.fault(true, &facts);
    while let FaultAction::Reserve { order, .. } = action {
        if order == SCALE.superpage {
            return true;
        }
        action = policy.no_memory(action, &facts);
    }
    false
}

/// Returns whether the reservation should become a superpage now: it is full, or the policy fills and maps the rest at
/// once.
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
        Action::Populate => {
            let facts = facts_once_filled(policy, extent, is_shared());
            is_superpage(policy.on(Event::Prepared { write: true }, &facts))
        }
        _ => false,
    }
}

/// Returns the minimum number of populated pages at which the policy fills and maps a reservation; at most [`PAGES`].
pub fn least_filled(policy: &Policy) -> u16 {
    let fills = |&populated: &u16| {
        let extent = Extent { populated, is_reserved: true, ..Extent::default() };
        let action = policy.clone().on(Event::Populated, &extent.facts(policy, false));
        action == Action::Populate
    };
    (1..PAGES).find(fills).unwrap_or(PAGES)
}

/// Returns whether the policy fills and maps the superpage at the first fault. See docs/decisions/live.md#13.
pub fn is_at_first_fault(policy: &Policy) -> bool {
    let mapping = Mapping { writable: true, ..Mapping::default() };
    let mut extent = Extent { mapping, populated: 1, ..Extent::default() };
    grew(&mut policy.clone(), &mut extent, 0, || false) == Wanted::Superpage
}

/// Returns whether the next fault maps a reservation that a daemon filled. MADV_COLLAPSE fills and maps in one step.
pub(crate) fn is_mapped_once_filled(policy: &mut Policy, extent: &Extent, is_shared: bool) -> bool {
    let mut facts = facts_once_filled(policy, extent, is_shared);
    facts.page = Page::Resident { cow: is_shared, shared: is_shared };
    matches!(policy.fault(true, &facts), FaultAction::MapInPlace { .. })
}

/// Returns the facts about the extent once it has all its pages. Pages that were filled are clean.
fn facts_once_filled(policy: &Policy, extent: &Extent, is_shared: bool) -> Facts {
    let filled = Extent { populated: PAGES, ..*extent };
    let mut facts = filled.facts(policy, is_shared);
    facts.region.dirty = first_bits(extent.populated);
    facts
}
