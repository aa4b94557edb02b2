//! Facts in conditions have the values that their names say.

use design::Design;
use superpage_policy::{Action, Event, Extent, Fact, Facts, FaultAction, Policy, Region, Rule};

use super::dsl::*;
use super::successors::roomy;

/// Facts about 2 MiB on base pages, with 400 pages resident.
fn known() -> Facts {
    let region = |region: &mut Region| {
        (region.accessed, region.has_table, region.has_writable) = (true, true, true);
    };
    roomy(fresh())
        .region(region)
        .advised(true)
        .extent(|extent| {
            *extent =
                Extent { order: 9, populated: 400, coverage: 100, misses: 70, profiled: 6000 };
        })
        .machine(|machine| machine.free_superpages = 3)
}

fn design(condition: &str, name: &str, rule: Rule) -> Design {
    let text = match rule {
        Rule::Fault => format!("name = \"x\"\nallocation.when = \"{condition}\""),
        _ => {
            let order =
                if name == "accessed" { "" } else { ", order = \"coverage\", sampling = {}" };
            format!("name = \"x\"\nmapping.scan = {{ when = \"{condition}\"{order} }}")
        }
    };
    let text = format!("{text}\npreparation.prezero = {{}}");
    Design::from_toml("test", &text).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_fact_is_what_it_says() {
    let conditions = [
        ("pages == 512", Rule::Scan),
        ("populated == 400", Rule::Scan),
        ("accessed", Rule::Scan),
        ("coverage == 100", Rule::Scan),
        ("skew == 75", Rule::Scan),
        ("misses == 70", Rule::Scan),
        ("profiled == 6000", Rule::Fault),
        ("benefit == 300000", Rule::Fault),
        ("cost == 200000", Rule::Fault),
        ("not prezeroed", Rule::Fault),
        ("free_superpages == 3", Rule::Fault),
        ("free_percent == 90", Rule::Fault),
        ("advised", Rule::Fault),
    ];
    assert_eq!(conditions.len(), Fact::ALL.len());
    for (condition, rule) in conditions {
        let name = condition.trim_start_matches("not ").split(' ').next().unwrap();
        let fact = Fact::ALL.iter().find(|fact| fact.name() == name).expect(name);
        assert!(fact.rules().contains(&rule), "{condition}");
        let mut policy: Policy = design(condition, name, rule).policy(SCALE);
        let is = match rule {
            Rule::Fault => policy.on(WRITE, &known().region(|region| region.has_table = false)),
            _ => policy.on(Event::Inspected { requested: false }, &known()),
        };
        let makes = matches!(
            is,
            Action::MakeSuperpage { .. } | Action::Fault(FaultAction::MakeSuperpage { .. })
        );
        assert!(makes, "{condition}: {is:?}");
    }
}
