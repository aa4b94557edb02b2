//! Derives the design that `run --design` really applies. The laboratory simulates the derived design, for comparison
//! with a live run. See docs/decisions/lab.md#8.

use design::{Design, designs};
use launch::Executor;
use policy::{LaunchPages, Scale};

use super::recipe::{KERNEL, executor_of, gives_at_fault};
use crate::Failure;

/// Preset like [`KERNEL`], but with the greater allocation effort that faults in advised memory get.
const KERNEL_ADVISED: &str = "linux-6-always";

/// Returns the design that `run --design` applies instead of `design`, with a summary; `None`: it applies `design`
/// itself. In-place executors apply a design exactly, except that frames may be zeroed at another time.
pub fn as_live(design: &Design, executor: Executor) -> Result<Option<Design>, Failure> {
    let policy = design.policy(Scale::X86);
    if executor_of(design, executor) == Executor::InPlace {
        return Ok(None);
    }
    let plan = policy.launch();
    let (summary, rules) = match plan.pages {
        LaunchPages::Base | LaunchPages::Pool => return Ok(None),
        LaunchPages::Transparent => kernels(plan.compacts)?,
        LaunchPages::OwnKernel if gives_at_fault(design, executor) => kernels(false)?,
        LaunchPages::OwnKernel => beside(design, !policy.physical().reserved.is_empty()),
    };
    let memory = kernel(KERNEL, &["deallocation.", "memory.", "fault."])?;
    let name = format!("{}-as-live", design.name);
    let text = format!("name = {name:?}\nsummary = {summary:?}\n{rules}{memory}");
    Ok(Some(Design::from_toml(&name, &text)?))
}

/// Returns the rules of the kernel's own superpages at faults of advised memory: of all memory if the design `compacts`,
/// else of as much as superpages are free for. See docs/decisions/contiguity.md#8.
fn kernels(compacts: bool) -> Result<(String, String), Failure> {
    let (effort, advised) = match compacts {
        true => ("direct-retry", "of advised memory"),
        false => ("none", "of as much as is free in superpages"),
    };
    let rules = kernel(KERNEL_ADVISED, &["allocation.", "preparation.", "mapping."])?
        .replace("allocation.effort = \"direct\"", &format!("allocation.effort = {effort:?}"))
        .replace("effort-advised = \"direct-retry\"", &format!("effort-advised = {effort:?}"));
    Ok((format!("this kernel's transparent superpages, {advised}"), rules))
}

/// Returns rules for base pages at faults, and superpages made by copying: `superpage` polls reservations every 10 ms
/// for completion (docs/decisions/live.md#6). Scans keep their periods.
fn beside(design: &Design, reserves: bool) -> (String, String) {
    let keys = design.keys();
    let value = |key: &str| {
        let found = keys.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.to_string())
    };
    let (summary, scan) = if reserves {
        let every = value("preparation.background.every");
        let at = value("preparation.background.at").or_else(|| value("preparation.fill-at"));
        let every = every.unwrap_or_else(|| "\"10ms\"".to_string());
        let at = at.unwrap_or_else(|| "512".to_string());
        let scan = format!(
            "mapping.scan.every = {every}\nmapping.scan.regions = 1000000\nmapping.scan.after-failure = \"100ms\"\n\
             mapping.scan.least-present = {at}\nmapping.scan.referenced = false\n\
             mapping.scan.order = \"crossing\"\nmapping.scan.effort = \"direct-retry\"\n"
        );
        let every = every.trim_matches('"');
        (
            format!(
                "base pages at faults, copied into a superpage from {at} of 512 on, every {every}"
            ),
            scan,
        )
    } else {
        let own = keys.iter().filter(|(name, _)| name.starts_with("mapping.scan."));
        let scan = own.map(|(name, value)| format!("{name} = {value}\n")).collect();
        ("its scan, on this kernel's memory management".to_string(), scan)
    };
    let rules = "allocation.trigger = \"scan\"\nallocation.form = \"superpage\"\nmapping.when = \"never\"\n";
    (summary, format!("{rules}{scan}"))
}

/// Returns the keys of a kernel preset that start with one of `below`.
fn kernel(name: &str, below: &[&str]) -> Result<String, Failure> {
    let keys = designs::find(name)?.keys().into_iter();
    let own = keys.filter(|(key, _)| below.iter().any(|below| key.starts_with(below)));
    Ok(own.map(|(key, value)| format!("{key} = {value}\n")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(preset: &str) -> Option<Design> {
        as_live(&designs::find(preset).unwrap(), Executor::Collapse).unwrap()
    }

    fn value(design: &Design, key: &str) -> String {
        let keys = design.keys();
        keys.into_iter().find(|(name, _)| name == key).unwrap().1.to_string()
    }

    #[test]
    fn what_a_kernel_would_do_in_place_is_a_copy() {
        for (preset, at, every) in [
            ("freebsd", "512", "\"10ms\""),
            ("quicksilver-sync-64", "64", "\"10ms\""),
            ("quicksilver-async-256", "256", "\"1s\""),
        ] {
            let design = of(preset).unwrap();
            assert_eq!(value(&design, "mapping.scan.least-present"), at, "{preset}");
            assert_eq!(value(&design, "mapping.scan.every"), every, "{preset}");
            assert_eq!(value(&design, "allocation.trigger"), "\"scan\"");
            assert!(design.summary.contains("copied"), "{}", design.summary);
        }
        let ingens = of("ingens").unwrap();
        assert_eq!(value(&ingens, "mapping.scan.least-present"), "460");
        // This rule is the running kernel's.
        assert_eq!(value(&ingens, "memory.contended-permille"), "0");
    }

    #[test]
    fn in_place_reservations_are_what_a_design_says() {
        let in_place = |preset| as_live(&designs::find(preset).unwrap(), Executor::InPlace);
        assert!(in_place("freebsd").unwrap().is_none());
        assert!(in_place("quicksilver-sync-64").unwrap().is_none());
        // ingens makes no reservations.
        assert_eq!(in_place("ingens").unwrap(), of("ingens"));
    }

    #[test]
    fn transparent_superpages_are_this_kernels() {
        let linux = of("linux-4.3").unwrap();
        assert_eq!(value(&linux, "allocation.effort"), "\"direct-retry\"");
        assert_eq!(value(&linux, "memory.contended-permille"), "0");
        // This one's faults take only what is free, and so does the library.
        assert_eq!(value(&of("linux-6").unwrap(), "allocation.effort-advised"), "\"none\"");
        // This design prepares its reservations at the first fault.
        assert_eq!(value(&of("quicksilver-sync-1").unwrap(), "allocation.form"), "\"superpage\"");
        assert!(of("base").is_none() && of("hugetlb").is_none());
    }

    #[test]
    fn every_preset_that_runs_live_is_a_design_then() {
        let mut live = 0;
        for preset in designs::list() {
            let name = of(preset.name).map(|design| design.name);
            live += usize::from(name.is_some());
            assert!(name.is_none_or(|name| name == format!("{}-as-live", preset.name)));
        }
        assert!(live >= 5, "only {live} presets run live");
    }
}
