//! Policy rules that the simulation does not support, and the number of regions per superpage of a policy.
//! See docs/decisions/lab-model.md#12.

use machine::{Machine, Size};
use policy::{LaunchPages, Orders, Policy, Reads, Scale};
use units::ByteSize;

/// A policy rule that is not simulated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotSimulated {
    /// Key of the rule.
    pub key: &'static str,
    /// Reason, and the values that are simulated.
    pub why: String,
}

fn refused(why: String) -> Option<NotSimulated> {
    Some(NotSimulated { key: "allocation.sizes", why })
}

/// Returns the part of a policy that is not simulated on machines with 4 KiB pages. Sizes are those of [`Scale::X86`],
/// as in the whole file.
pub fn not_simulated(policy: &Policy) -> Option<NotSimulated> {
    let (sizes, region) = (policy.sizes(), Scale::X86.superpage);
    let is_simple = sizes.above(region).is_empty() && sizes.has(region);
    match policy.launch().pages {
        LaunchPages::Base if sizes.above(region).is_empty() => None,
        LaunchPages::Pool => None,
        _ if is_simple => None,
        _ => unfit(policy, region),
    }
}

/// Returns why superpages of other sizes than a region's are not simulated.
fn unfit(policy: &Policy, region: u8) -> Option<NotSimulated> {
    let (sizes, physical) = (policy.sizes(), policy.physical());
    let larger = sizes.above(region);
    let first = larger.smallest().or(sizes.smallest()).unwrap_or(region);
    let name = short(bytes(first));
    let reserves = !physical.reserved.is_empty();
    if reserves && !larger.is_empty() && sizes.iter().count() > 1 {
        return refused(format!(
            "{name}: not simulated beside reservations of other sizes; name it alone, or sizes up to {}",
            short(bytes(region))
        ));
    }
    if reserves && !larger.is_empty() && !policy.scanned_sizes().is_empty() {
        return refused(format!(
            "{name}: reservations are not simulated with a scan beside them ([mapping.scan]); leave it out"
        ));
    }
    if larger.iter().count() > 1 {
        let names: Vec<String> = larger.iter().map(|order| short(bytes(order))).collect();
        return refused(format!(
            "{}: not simulated together; the laboratory has one size above {}",
            names.join(" and "),
            short(bytes(region))
        ));
    }
    let made =
        physical.smaller.or(physical.larger).or(physical.reserved).or(policy.scanned_sizes());
    if let Some(none) = sizes.iter().find(|&order| order != region && !made.has(order)) {
        return refused(format!(
            "{}: no rule of the design makes superpages of it; see trigger, [preparation] grain, [mapping] when",
            short(bytes(none))
        ));
    }
    let counts =
        [Reads::AT_FAULT, Reads::OF_CANDIDATES, Reads::COVERAGE, Reads::MISSES, Reads::ZEROS];
    let is_plain = !counts.iter().any(|&facts| policy.reads().has(facts))
        && !policy.is_crossed(0, trace::SLOTS as u16)
        && !physical.is_ideal;
    if !larger.is_empty() && !is_plain {
        return refused(format!(
            "{name}: not simulated with conditions (`when`), scans by access or population, bloat recovery or ideal memory; \
             leave these out, or the size"
        ));
    }
    None
}

/// Returns the part of a policy at [`Scale::X86`] that the model of fault scaling lacks: the model has superpages of 2M
/// and smaller.
pub fn not_simulated_of_faults(policy: &Policy) -> Option<NotSimulated> {
    let (sizes, large) = (policy.sizes(), Scale::X86.superpage);
    let other = match (policy.launch().pages, sizes.above(large).smallest()) {
        (LaunchPages::Pool, Some(_)) => return None,
        (_, Some(larger)) => short(bytes(larger)),
        (LaunchPages::Base, None) => return None,
        _ if !sizes.has(large) => "sizes without 2M".to_string(),
        _ => return None,
    };
    refused(format!(
        "{other}: not simulated; the model of concurrent faults has superpages of 2M and smaller sizes, and larger ones of a \
         pool (form = \"pool\")"
    ))
}

/// Returns the part of a policy at [`Scale::X86`] that is not simulated on a machine.
pub fn not_simulated_on(policy: &Policy, machine: &Machine) -> Option<NotSimulated> {
    let offered = machine.superpages();
    let is_offered = |order: u8| offered.contains(&bytes(order).bytes());
    let names: Vec<String> =
        offered.iter().map(|&size| format!("\"{}\"", short(ByteSize(size)))).collect();
    let (name, names) = (&machine.name, names.join(", "));
    let other = || {
        refused(format!(
            "the superpages of {name} are of {names}: name one of these in a copy (superpage design show)"
        ))
    };
    let (sizes, region) = (policy.sizes(), order_of_region(machine));
    match policy.launch().pages {
        LaunchPages::Base if is_x86(machine) => return not_simulated(policy),
        LaunchPages::Base => return None,
        LaunchPages::Pool if sizes.largest().is_some_and(is_offered) => return None,
        LaunchPages::Pool => return other(),
        _ => {}
    }
    if let found @ Some(_) = not_simulated(policy).filter(|_| is_x86(machine)) {
        return found;
    }
    let from_region = sizes.above(region - 1);
    if !from_region.iter().all(is_offered) {
        return other();
    }
    if !is_x86(machine) && from_region.is_empty() && !sizes.is_empty() {
        return other();
    }
    let kernel_page = machine.kernel_page.bytes();
    if kernel_page > machine.base_page.bytes()
        && let Some(small) = sizes.iter().map(bytes).find(|size| size.bytes() <= kernel_page)
    {
        return refused(format!(
            "{}: the base pages of {name} have {}; name larger sizes only",
            short(small),
            short(ByteSize(kernel_page))
        ));
    }
    if from_region != Orders::NONE.with(region)
        && let found @ Some(_) = unfit(policy, region)
    {
        return found;
    }
    // The TLB would confuse parts of a split larger superpage with superpages of one region.
    let has_own = regions_of(from_region, region) == Size::Huge.shift() - Size::Large.shift();
    match from_region.above(region).smallest() {
        Some(larger) if has_regions(machine) && !has_own => refused(format!(
            "{}: not simulated at a fault where the machine has superpages of {} too; take form = \"pool\"",
            short(bytes(larger)),
            short(bytes(region))
        )),
        _ => None,
    }
}

fn is_x86(machine: &Machine) -> bool {
    order_of_region(machine) == Scale::X86.superpage
}

/// Returns the bytes of a region: 512 base pages.
fn region(machine: &Machine) -> u64 {
    machine.base_page.bytes() * u64::from(trace::SLOTS)
}

/// Returns whether a machine has superpages of exactly one region.
pub(crate) fn has_regions(machine: &Machine) -> bool {
    machine.superpages().contains(&region(machine))
}

/// Returns a design's policy on a machine; `of` gives the policy at a scale. If superpages have several regions, the
/// policy is computed at a larger scale. For a pool the base page is scaled up, so that the pool's superpage gets the
/// order that the PMD-level size has on other machines. For reservations the PMD-level size is scaled up.
pub fn policy_on(machine: &Machine, of: impl Fn(Scale) -> Policy) -> Policy {
    let scale = crate::scale(machine);
    let policy = of(scale);
    let group = regions_of_superpage(&policy, machine);
    match policy.launch().pages {
        LaunchPages::Pool => of(Scale { base_page: scale.base_page << group, ..scale }),
        _ if policy.physical().reserved.is_empty() => policy,
        _ => of(Scale { superpage: scale.superpage + group as u8, ..scale }),
    }
}

/// Returns log2 of the number of regions in a policy's largest superpage on a machine; 0 without larger superpages.
pub fn regions_of_superpage(policy: &Policy, machine: &Machine) -> u32 {
    let launch = policy.launch();
    match (launch.pages, launch.size) {
        (LaunchPages::Base, _) | (_, None) => 0,
        (_, Some(size)) => (size.bytes() / region(machine)).max(1).ilog2(),
    }
}

/// As [`regions_of_superpage`], for sizes.
fn regions_of(sizes: Orders, region: u8) -> u32 {
    sizes.largest().map_or(0, |largest| u32::from(largest.saturating_sub(region)))
}

/// Returns the order of a region at [`Scale::X86`].
fn order_of_region(machine: &Machine) -> u8 {
    (region(machine) / Scale::X86.base_page).ilog2() as u8
}

/// Returns the bytes of an order at [`Scale::X86`].
fn bytes(order: u8) -> ByteSize {
    ByteSize(Scale::X86.base_page << order)
}

/// Formats a size as in designs: `2M`.
fn short(size: ByteSize) -> String {
    size.to_string().replace(" GiB", "G").replace(" MiB", "M").replace(" KiB", "K")
}
