//! Conditions as files have them: `when = "benefit > cost and not advised"`.
//!
//! From the loosest: `or`; `and`; `not`; one comparison (`<` `<=` `>` `>=` `==` `!=`); `+` `-`; `*` `/`; whole
//! numbers, facts, `min(a, b)`, `max(a, b)`, parentheses. No loops, and no calls but those two. Facts and what each is
//! measured in: docs/facts.md.

mod parse;
mod tokens;
mod write;

use policy::{Condition, Fact, Rule};

pub(crate) use write::text;

/// The length of a condition, in bytes.
const MAX_LENGTH: usize = 1000;

/// Reads a condition of a rule. What is wrong is said with the facts that the rule knows.
pub(crate) fn read(text: &str, rule: Rule) -> Result<Condition, String> {
    let long = || Err(format!("is longer than {MAX_LENGTH} letters"));
    let read = if text.len() > MAX_LENGTH { long() } else { parse::condition(text, rule) };
    let joint = |what: &str| if what.ends_with('?') { "" } else { ";" };
    read.map_err(|what| format!("{what}{} known facts: {}", joint(&what), facts(rule)))
}

/// The facts that a rule knows, by name.
fn facts(rule: Rule) -> String {
    let mut names: Vec<&str> = known(rule).map(Fact::name).collect();
    names.sort_unstable();
    names.join(", ")
}

fn known(rule: Rule) -> impl Iterator<Item = Fact> {
    Fact::ALL.iter().copied().filter(move |fact| fact.rules().contains(&rule))
}

/// Where a rule is asked.
fn place(rule: Rule) -> &'static str {
    match rule {
        Rule::Fault => "at a fault",
        Rule::Scan => "of a scan's candidate",
        Rule::Split => "of a superpage that was watched",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn mistake(text: &str, says: &str) {
        let what = read(text, Rule::Fault).expect_err(text);
        assert!(what.contains(says), "{text}: {what}");
        assert!(what.ends_with(&facts(Rule::Fault)), "{what}");
    }

    #[test]
    fn mistakes_are_named() {
        mistake("", "something is missing at the end");
        mistake("benefit > costs", "unknown fact `costs`: did you mean `cost`? known facts: ");
        mistake("misses > 3", "`misses` is not known at a fault");
        mistake("benefit", "is a number: must be true or false");
        mistake("benefit > cost > 1", "one comparison at a time");
        mistake("prezeroed > 1", "`prezeroed` is true or false, and `>` compares numbers");
        mistake("pages and advised", "`pages` is a number, and `and` joins what is true or false");
        mistake("not pages", "`pages` is a number, and `not` turns round what is true or false");
        mistake("min(pages) > 1", "expected `,`, found `)`");
        mistake("(pages > 1", "expected `)`, found the end");
        mistake("pages > 1)", "`)` is too much");
        mistake("pages > 1 cost", "`cost` is too much");
        mistake("pages > 1.5", "numbers are whole");
        mistake("pages = 1", "`=` is no operator: write `==`");
        mistake("pages > 99999999999999999999", "is too large");
        mistake("pages / 0 > 1", "is divided by zero");
        mistake("sqrt(pages) > 1", "unknown fact `sqrt`; known facts: ");
        mistake("pages > $", "`$` means nothing here");
        mistake("max > 1", "expected `(`, found `>`");
        mistake(&format!("{}1{} > 0", "(".repeat(99), ")".repeat(99)), "is nested too deep");
        mistake(
            &format!("{}1{} > 0", "1 + (".repeat(17), ")".repeat(17)),
            "needs more than 16 values",
        );
        mistake(&"1 + ".repeat(300), "is longer than");
    }

    #[test]
    fn what_it_means() {
        let holds = |text: &str| {
            let value = |fact| match fact {
                Fact::Pages => 512,
                Fact::Populated => 100,
                Fact::Advised => 1,
                _ => 0,
            };
            read(text, Rule::Fault).expect(text).holds(value)
        };
        for text in [
            "pages == 512",
            "advised and not prezeroed or 1 > 2",
            "not prezeroed and advised",
            "1 + 2 * 3 == 7",
            "10 - 2 - 3 == 5",
            "100 / 7 / 2 == 7",
            "(1 + 2) * 3 == 9",
            "-3 < 0 - 2",
            "min(pages, populated) == 100 and max(pages, populated) == 512",
            "populated * 100 >= 15 * pages",
            "pages / (populated - 100) == 0",
            "9223372036854775807 * pages == 9223372036854775807",
            "1_000 == 1000",
            "not (advised and pages < 512)",
            "pages != populated",
            "populated <= 100",
        ] {
            assert!(holds(text), "{text}");
        }
        for text in ["prezeroed", "pages < 512", "not advised", "1 > 2 and 1 < 2 or prezeroed"] {
            assert!(!holds(text), "{text}");
        }
    }

    fn number() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            (0..i64::MAX).prop_map(|number| number.to_string()),
            prop::sample::select(vec!["pages", "cost", "free_percent"]).prop_map(str::to_string),
        ];
        leaf.prop_recursive(3, 12, 2, |inner| {
            let operation = prop::sample::select(vec!["+", "-", "*"]);
            prop_oneof![
                (inner.clone(), operation, inner.clone())
                    .prop_map(|(a, op, b)| format!("({a} {op} {b})")),
                (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("min({a}, {b})")),
                inner.prop_map(|a| format!("-({a})")),
            ]
        })
    }

    fn truth() -> impl Strategy<Value = String> {
        let operation = prop::sample::select(vec!["<", "<=", ">", ">=", "==", "!="]);
        let leaf = prop_oneof![
            (number(), operation, number()).prop_map(|(a, op, b)| format!("{a} {op} {b}")),
            Just("advised".to_string()),
        ];
        leaf.prop_recursive(3, 12, 2, |inner| {
            let operation = prop::sample::select(vec!["and", "or"]);
            prop_oneof![
                (inner.clone(), operation, inner.clone())
                    .prop_map(|(a, op, b)| format!("({a}) {op} ({b})")),
                inner.prop_map(|a| format!("not ({a})")),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(text in truth()) {
            if let Ok(condition) = read(&text, Rule::Fault) {
                let written = super::text(&condition);
                prop_assert_eq!(read(&written, Rule::Fault), Ok(condition), "{}", written);
            }
        }

        #[test]
        fn nothing_makes_it_panic(text in "[a-z0-9 ()<>=!+*/,._-]{0,40}") {
            let _ = read(&text, Rule::Scan);
        }
    }
}
