//! Facts are what they say.

use crate::*;

#[test]
fn every_fact_is_what_it_says() {
    let facts = known(|facts| {
        facts.extent =
            Extent { order: 9, populated: 400, coverage: 100, misses: 70, profiled: 6000 };
        facts.region = Region { accessed: true, has_table: true, ..facts.region };
        facts.mapping.advised = Some(true);
        (facts.machine.free_superpages, facts.machine.is_prezeroed) = (3, false);
    });
    for (condition, rule) in [
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
    ] {
        let name = condition.trim_start_matches("not ").split(' ').next().unwrap();
        let fact = Fact::ALL.iter().find(|fact| fact.name() == name).expect(name);
        assert!(fact.rules().contains(&rule), "{condition}");
        let text = match rule {
            Rule::Fault => format!("name = \"x\"\nallocation.when = \"{condition}\""),
            _ => {
                let order =
                    if name == "accessed" { "" } else { ", order = \"coverage\", sampling = {}" };
                format!("name = \"x\"\nmapping.scan = {{ when = \"{condition}\"{order} }}")
            }
        };
        let design = Design::from_toml("test", &text).unwrap_or_else(|error| panic!("{error}"));
        let mut policy: Policy = design.policy(SCALE);
        let is = match rule {
            Rule::Fault => policy.on(
                WRITE,
                &known(|other| {
                    *other = facts;
                    other.region.has_table = false;
                }),
            ),
            _ => policy.on(
                INSPECTED,
                &Facts { region: Region { has_writable: true, ..facts.region }, ..facts },
            ),
        };
        assert!(matches!(is, Action::MakeSuperpage { .. }), "{condition}: {is:?}");
    }
}
