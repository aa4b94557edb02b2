//! Conditions with one place changed, for the mutation test.

use superpage_policy::{Fact, Rule};

/// The keys whose values are conditions, and the rules that evaluate them.
pub const CONDITIONS: [(&str, Rule); 3] = [
    ("allocation.when", Rule::Fault),
    ("mapping.scan.when", Rule::Scan),
    ("unmapping.when", Rule::Split),
];

/// Returns the rule that evaluates a key's condition.
pub fn rule(key: &str) -> Option<Rule> {
    CONDITIONS.iter().find(|(name, _)| *name == key).map(|&(_, rule)| rule)
}

/// Splits a condition into words and signs.
fn tokens(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut before = ' ';
    for c in text.chars() {
        let goes_on = is_word(c) && is_word(before) || c == '=' && "<>=!".contains(before);
        match all.last_mut() {
            Some(last) if goes_on => last.push(c),
            _ if c == ' ' => {}
            _ => all.push(c.to_string()),
        }
        before = c;
    }
    all
}

/// Returns the tokens that may replace a token.
fn others(token: &str, rule: Rule) -> Vec<String> {
    const GROUPS: [&[&str]; 4] = [
        &["<", "<=", ">", ">=", "==", "!="],
        &["+", "-", "*", "/"],
        &["and", "or"],
        &["min", "max"],
    ];
    let but = |all: Vec<&str>| -> Vec<String> {
        all.into_iter().filter(|&other| other != token).map(str::to_string).collect()
    };
    if let Some(group) = GROUPS.iter().find(|group| group.contains(&token)) {
        return but(group.to_vec());
    }
    if let Ok(number) = token.parse::<u64>() {
        let near = [number.saturating_sub(1), number + 1, number / 2, number * 2, 0];
        let near: std::collections::BTreeSet<u64> = near.into();
        return near.into_iter().filter(|&other| other != number).map(|n| n.to_string()).collect();
    }
    let Some(fact) = Fact::ALL.iter().find(|fact| fact.name() == token) else {
        return Vec::new();
    };
    let known = Fact::ALL.iter().filter(|other| other.rules().contains(&rule));
    but(known.filter(|other| other.kind() == fact.kind()).map(|other| other.name()).collect())
}

/// Returns changed conditions: each operator, number and fact replaced by each other one of its kind; the whole
/// condition, or an operand of `and` or `or`, negated; and an operand of `and` or `or` removed.
pub fn mutants(condition: &str, rule: Rule) -> Vec<String> {
    let tokens = tokens(condition);
    let mut found = vec![format!("not ({condition})")];
    for (at, token) in tokens.iter().enumerate() {
        for other in others(token, rule) {
            let mut changed = tokens.clone();
            changed[at] = other;
            found.push(changed.join(" "));
        }
    }
    let joins = |token: &String| token == "and" || token == "or";
    let operands: Vec<String> = tokens.split(joins).map(|operand| operand.join(" ")).collect();
    let joined = tokens.iter().find(|token| joins(token));
    for at in 0..operands.len() {
        let Some(joined) = joined else { break };
        let mut turned = operands.clone();
        turned[at] = format!("not {}", operands[at]);
        found.push(turned.join(&format!(" {joined} ")));
        let mut less = operands.clone();
        less.remove(at);
        found.push(less.join(&format!(" {joined} ")));
    }
    found
}

#[test]
fn a_condition_is_changed_in_each_place() {
    let found = mutants("coverage > 0 and pages<=max(1, 70)", Rule::Split);
    for mutant in [
        "not (coverage > 0 and pages<=max(1, 70))",
        "coverage >= 0 and pages <= max ( 1 , 70 )",
        "coverage > 1 and pages <= max ( 1 , 70 )",
        "skew > 0 and pages <= max ( 1 , 70 )",
        "coverage > 0 or pages <= max ( 1 , 70 )",
        "coverage > 0 and pages < max ( 1 , 70 )",
        "coverage > 0 and pages <= min ( 1 , 70 )",
        "coverage > 0 and pages <= max ( 1 , 35 )",
        "not coverage > 0 and pages <= max ( 1 , 70 )",
        "pages <= max ( 1 , 70 )",
    ] {
        assert!(found.iter().any(|one| one == mutant), "{mutant}: {found:#?}");
    }
    // This rule does not know `misses`, and `advised` is not a number.
    assert!(!found.iter().any(|one| one.contains("misses") || one.contains("advised")));
}
