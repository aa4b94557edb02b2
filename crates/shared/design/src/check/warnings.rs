//! Warnings about a valid design: keys without effect beside the other keys, or with one that is hardly meant. No
//! design is refused for them: the laboratory shows what they do.

use super::predicates::*;
use super::{Rule, table};
use crate::*;

/// Filled pages are clean, as nothing wrote them; `uniform` maps a region only where all pages are dirty, or none is.
const CLEAN: &str = "the pages that it fills are clean, and with clean-pages = \"uniform\" clean pages beside written ones \
                     are never mapped as a superpage: each takes its fault as if it were not filled; say clean-pages = \
                     \"relaxed\" (as the quicksilver designs do)";
const NOT_MAPPED: &str =
    "fills reservations that nothing maps as superpages: say mapping.when = \"prepared\"";
const NO_SUPERPAGE: &str = "has no effect: the design makes no superpages (a reservation with mapping.when = \"never\", and \
                            no [mapping.scan])";
const TOO_SMALL: &str =
    "has no effect: it splits superpages of 2M or more, which sizes do not have";
const NO_COMPACTION: &str = "has no effect: nothing compacts; say effort = \"direct\", background-compaction or \
                             periodic-compaction";
const IS_IDEAL: &str =
    "has no effect on superpages: with memory.ideal one is always free, and zeroed at no cost";

pub(super) const RULES: &[Rule] = table! { |r|
    [FILL_AT, "mapping.clean-pages"] CLEAN
        => r.preparation.fill_at.is_some() && is_uniform(r);
    [BACKGROUND, "mapping.clean-pages"] CLEAN
        => r.preparation.background.is_some() && is_uniform(r);
    [FILL_AT, WHEN] NOT_MAPPED
        => r.preparation.fill_at.is_some() && makes_none(r);
    [BACKGROUND, WHEN] NOT_MAPPED
        => r.preparation.background.is_some() && makes_none(r);
    [FORM, "allocation.break-reservations"]
        "no reservation is ever broken, so a program is killed when the rest of memory is used up, however much is unused \
         in reservations: say break-reservations = true (as all presets with reservations do)"
        => form(r, Form::Reservation) && !r.allocation.break_reservations;
    [BLOAT, WHEN] NO_SUPERPAGE
        => r.deallocation.bloat.is_some() && makes_none(r);
    ["unmapping.on", WHEN] NO_SUPERPAGE
        => !(r.unmapping.on.free && r.unmapping.on.protect) && makes_none(r);
    [BLOAT, SIZES] TOO_SMALL
        => r.deallocation.bloat.is_some() && only_small(r);
    ["unmapping.scan", SIZES] TOO_SMALL
        => r.unmapping.scan.is_some() && only_small(r);
    ["allocation.eligible", TRIGGER] "has no effect: with trigger = \"never\" no mapping has superpages"
        => r.allocation.eligible != Eligible::Always && trigger(r, Trigger::Never);
    [RECLAIM, EFFORT] "has no effect: no effort to get a superpage reclaims; say effort = \"direct\""
        => r.memory.reclaim == Reclaim::Lumpy && !makes_effort(r);
    ["memory.contended-permille", EFFORT] NO_COMPACTION
        => r.memory.contended_permille > 0 && compacts(r) && !compacts_ever(r);
    ["memory.defer-shift", EFFORT] NO_COMPACTION
        => !matches!(r.memory.defer_shift, 0 | 6) && !compacts_ever(r);
    ["mapping.needs-accessed", "preparation.prefault.kind"]
        "has no effect: only pages that a fault on another page mapped can lack an access, and preparation.prefault maps \
         none"
        => r.mapping.needs_accessed && r.preparation.prefault == Prefault::None;
    [EFFORT, "memory.ideal"] IS_IDEAL
        => r.allocation.effort != Effort::None && is_ideal(r);
    [ADVISED, "memory.ideal"] IS_IDEAL
        => r.allocation.effort_advised != Effort::None && is_ideal(r);
    ["preparation.prezero", "memory.ideal"] IS_IDEAL
        => r.preparation.prezero.is_some() && is_ideal(r) && r.preparation.grain == Grain::Superpage;
    ["preparation.zeroing", "memory.ideal"] IS_IDEAL
        => r.preparation.stores != ZeroStores::Temporal && is_ideal(r) && r.preparation.grain == Grain::Superpage;
};

/// Whether regions with clean and written pages are not mapped in place.
fn is_uniform(r: &Rules) -> bool {
    r.mapping.when == MapWhen::Prepared && r.mapping.clean_pages == CleanPages::Uniform
}

/// Whether reservations are made, and never become superpages.
fn makes_none(r: &Rules) -> bool {
    form(r, Form::Reservation) && r.mapping.when == MapWhen::Never && r.mapping.scan.is_none()
}

/// Whether a fault, a scan or a pool compacts or reclaims for a superpage.
fn makes_effort(r: &Rules) -> bool {
    let Rules { allocation, .. } = r;
    is_direct(allocation.effort)
        || is_direct(allocation.effort_advised)
        || scan(r, |scan| is_direct(scan.effort))
        || form(r, Form::Pool)
}

/// Whether anything compacts.
fn compacts_ever(r: &Rules) -> bool {
    makes_effort(r) || r.memory.background_compaction || r.memory.periodic_compaction.is_some()
}

fn is_ideal(r: &Rules) -> bool {
    r.memory.ideal
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESERVE: &str = "name = \"x\"\nallocation = {form = \"reservation\", break-reservations = true}\n\
                           preparation.grain = \"page\"\nmapping.when = \"prepared\"\ndeallocation.when = \"when-empty\"\n";
    const FAULT: &str = "name = \"x\"\n";
    const NEVER: &str = "name = \"x\"\nallocation.trigger = \"never\"\nmapping.when = \"never\"\n\
                         preparation.grain = \"page\"\n";

    fn warned(text: &str) -> Vec<(Option<usize>, String)> {
        let design = Design::from_toml("x.toml", text).unwrap_or_else(|error| panic!("{error}"));
        design.warnings(text).into_iter().map(|problem| (problem.line, problem.key)).collect()
    }

    /// A base, what is added, what is added instead so that no warning remains, and the key of the warning.
    #[rustfmt::skip]
    const CASES: &[(&str, &str, &str, &str)] = &[
        (RESERVE, "preparation.fill-at = 256", "preparation.fill-at = 256\nmapping.clean-pages = \"relaxed\"", "preparation.fill-at"),
        (RESERVE, "preparation.background = {}", "preparation.background = {}\nmapping.clean-pages = \"relaxed\"", "preparation.background"),
        (RESERVE, "preparation.fill-at = 256\nmapping.when = \"never\"", "mapping.when = \"never\"", "preparation.fill-at"),
        (RESERVE, "preparation.background = {}\nmapping.when = \"never\"", "mapping.when = \"never\"", "preparation.background"),
        (RESERVE, "allocation = {form = \"reservation\"}", "", "allocation.form"),
        (RESERVE, "deallocation.bloat = {}\nmapping.when = \"never\"", "deallocation.bloat = {}", "deallocation.bloat"),
        (RESERVE, "unmapping.on = [\"partial-free\"]\nmapping.when = \"never\"", "unmapping.on = [\"partial-free\"]", "unmapping.on"),
        (FAULT, "allocation.sizes = [\"64K\"]\ndeallocation.bloat.more-zero-than = 9", "deallocation.bloat.more-zero-than = 9", "deallocation.bloat"),
        (FAULT, "allocation.sizes = [\"64K\"]\nunmapping = {when = \"coverage < 9\", scan = {}}", "unmapping = {when = \"coverage < 9\", scan = {}}", "unmapping.scan"),
        (NEVER, "allocation.eligible = \"advised\"", "", "allocation.eligible"),
        (FAULT, "memory.reclaim = \"lumpy\"", "memory.reclaim = \"lumpy\"\nallocation.effort = \"direct\"", "memory.reclaim"),
        (FAULT, "memory.contended-permille = 9", "memory.contended-permille = 9\nmapping.scan = {}", "memory.contended-permille"),
        (FAULT, "memory.defer-shift = 9", "memory.defer-shift = 9\nallocation.effort = \"direct\"", "memory.defer-shift"),
        (RESERVE, "mapping.needs-accessed = true", "mapping.needs-accessed = true\npreparation.prefault.kind = \"resident\"", "mapping.needs-accessed"),
        (FAULT, "memory.ideal = true\nallocation.effort = \"direct\"", "allocation.effort = \"direct\"", "allocation.effort"),
        (FAULT, "memory.ideal = true\nallocation.effort-advised = \"direct\"", "memory.ideal = true", "allocation.effort-advised"),
        (FAULT, "memory.ideal = true\npreparation.prezero = {}", "preparation.prezero = {}", "preparation.prezero"),
        (FAULT, "memory.ideal = true\npreparation.zeroing = \"non-temporal\"", "preparation.zeroing = \"non-temporal\"", "preparation.zeroing"),
    ];

    #[test]
    fn every_case_is_warned_of_and_every_warning_has_a_case() {
        let text = crate::check::tests::text;
        for (base, with, without, key) in CASES {
            let (with, without) = (text(base, with), text(base, without));
            let keys: Vec<String> = warned(&with).into_iter().map(|(_, key)| key).collect();
            assert_eq!(keys, [*key], "{with}");
            assert_eq!(warned(&without), [], "{without}");
        }
        let cases: std::collections::BTreeSet<&str> = CASES.iter().map(|(.., key)| *key).collect();
        assert!(RULES.iter().all(|rule| cases.contains(rule.keys[0])));
        assert_eq!(CASES.len(), RULES.len());
    }

    #[test]
    fn a_warning_has_the_line_of_its_key() {
        let text = format!("{RESERVE}preparation.fill-at = 256\n");
        assert_eq!(warned(&text), [(Some(6), "preparation.fill-at".to_string())]);
    }

    #[test]
    fn presets_have_no_warnings() {
        for preset in crate::designs::list() {
            assert_eq!(warned(preset.text), [], "{}", preset.name);
        }
    }
}
