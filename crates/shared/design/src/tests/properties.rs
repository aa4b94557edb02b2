//! Designs survive a round trip through text; parsing never panics; `diff` finds exactly the differences.

use proptest::prelude::*;

use super::generate::{mixed, preset, renumbered};
use crate::{Design, DesignError, Problem, designs, diff};

fn any_design() -> impl Strategy<Value = Design> {
    prop_oneof![mixed(), renumbered(preset()), renumbered(mixed())]
}

/// The first valid design of eight, or else a preset. Only one random design in six is valid, too few for rejection
/// sampling.
fn good_design() -> impl Strategy<Value = Design> {
    (prop::collection::vec(any_design(), 8), preset()).prop_map(|(designs, preset)| {
        designs.into_iter().find(|design| design.check().is_empty()).unwrap_or(preset)
    })
}

/// Text with lines removed, duplicated or swapped, and bytes changed.
fn damaged() -> impl Strategy<Value = String> {
    let text = (0..designs::list().len()).prop_map(|at| designs::list()[at].text);
    let edits = prop::collection::vec((0u8..6, any::<usize>(), any::<usize>(), ".{0,3}"), 1..6);
    (text, edits).prop_map(|(text, edits)| {
        let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
        for (kind, a, b, some) in edits {
            let (a, b) = (a % lines.len(), b % lines.len());
            match kind {
                0 if lines.len() > 1 => drop(lines.remove(a)),
                1 => lines.insert(b, lines[a].clone()),
                2 => lines.swap(a, b),
                3 => lines[a] += &some,
                4 => lines[a] = lines[a].chars().skip(b % 9).collect(),
                _ => {
                    let value = lines[b].split_once('=').map_or("", |(_, value)| value).to_string();
                    let key = lines[a].split('=').next().unwrap_or("").to_string();
                    lines[a] = format!("{key}={value}");
                }
            }
        }
        lines.join("\n")
    })
}

/// Checks properties that hold for any text.
fn sane(text: &str) -> Result<(), TestCaseError> {
    match Design::from_toml("x.toml", text) {
        Ok(design) => prop_assert_eq!(Design::from_toml("y", &design.to_toml()), Ok(design)),
        Err(DesignError::File { problems, .. }) => {
            prop_assert!(!problems.is_empty());
            for problem in problems {
                // An error may be located after a final line feed.
                let last = text.matches('\n').count() + 1;
                prop_assert!(problem.line.is_none_or(|line| (1..=last).contains(&line)));
                prop_assert!(!problem.to_string().contains('\n'), "{problem}");
            }
        }
        Err(other) => prop_assert!(false, "{}", other),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::cases(2000) as u32))]

    #[test]
    fn what_is_written_is_read(design in any_design()) {
        let text = design.to_toml();
        let found = design.check();
        match Design::from_toml("x.toml", &text) {
            Ok(read) => {
                prop_assert_eq!(&read, &design);
                prop_assert_eq!(found, []);
                prop_assert_eq!(read.to_toml(), text);
            }
            Err(DesignError::File { problems, .. }) => {
                let told = |p: &Problem| (p.key.clone(), p.what.clone());
                let mut problems: Vec<_> = problems.iter().map(told).collect();
                let mut found: Vec<_> = found.iter().map(told).collect();
                problems.sort();
                found.sort();
                prop_assert_eq!(problems, found);
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn any_text_is_judged(text in "\\PC{0,80}") {
        sane(&text)?;
    }

    #[test]
    fn anything_that_looks_like_toml_is_judged(
        text in "(\\[{1,2}[a-z.\"]{0,9}\\]{1,2}|[a-z.-]{1,9} ?= ?[\\[{\"a-z0-9,._=-]{0,9}|#|\n){0,12}",
    ) {
        sane(&text)?;
    }

    #[test]
    fn damaged_presets_are_judged(text in damaged()) {
        sane(&text)?;
    }

    #[test]
    fn differences_are_those_and_symmetric(a in any_design(), b in any_design()) {
        let ab = diff(&a, &b);
        let ba = diff(&b, &a);
        let same = a.rules == b.rules;
        prop_assert_eq!(ab.is_empty(), same);
        let mut swapped: Vec<_> = ba.into_iter().map(|d| (d.key, d.b, d.a)).collect();
        let mut forward: Vec<_> = ab.into_iter().map(|d| (d.key, d.a, d.b)).collect();
        for (key, a, b) in &forward {
            prop_assert!(a != b, "{}", key);
        }
        swapped.sort_by(|x, y| x.0.cmp(&y.0));
        forward.sort_by(|x, y| x.0.cmp(&y.0));
        prop_assert_eq!(forward, swapped);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A valid design has an action at each event, and each action has a description.
    #[test]
    fn good_designs_are_explained(design in good_design()) {
        prop_assert_eq!(design.check(), []);
        let lines = design.explain();
        prop_assert!(lines.len() > 15);
        prop_assert!(lines.iter().flat_map(|line| &line.actions).all(|words| !words.is_empty()));
    }
}
