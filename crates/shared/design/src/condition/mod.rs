//! Parser of conditions: `when = "benefit > cost and not advised"`.
//!
//! Operators by precedence, lowest first: `or`; `and`; `not`; one comparison (`<` `<=` `>` `>=` `==` `!=`); `+` `-`;
//! `*` `/`. Operands are whole numbers, facts, `min(a, b)`, `max(a, b)` and parenthesized parts. There are no loops and
//! no other calls. docs/facts.md lists the facts and their units.

mod write;

pub(crate) use write::text;

use policy::{Condition, Fact, Kind, Malformed, Operation, Rule, Step};
use toml_keys::{guess, nearest};

/// Maximum length of a condition in bytes.
const MAX_LENGTH: usize = 1000;

/// Parses the condition of a rule. Error messages list the facts that the rule may use.
pub(crate) fn read(text: &str, rule: Rule) -> Result<Condition, String> {
    let long = || Err(format!("is longer than {MAX_LENGTH} letters"));
    let read = if text.len() > MAX_LENGTH { long() } else { condition(text, rule) };
    let joint = |what: &str| if what.ends_with('?') { "" } else { ";" };
    read.map_err(|what| format!("{what}{} known facts: {}", joint(&what), facts(rule)))
}

/// The facts that the conditions of a rule may name, as a list in words.
pub(crate) fn facts(rule: Rule) -> String {
    let mut names: Vec<&str> = known(rule).map(Fact::name).collect();
    names.sort_unstable();
    names.join(", ")
}

fn known(rule: Rule) -> impl Iterator<Item = Fact> {
    Fact::ALL.iter().copied().filter(move |fact| fact.rules().contains(&rule))
}

/// Describes where a rule applies, for messages.
fn place(rule: Rule) -> &'static str {
    match rule {
        Rule::Fault => "at a fault",
        Rule::Scan => "of a scan's candidate",
        Rule::Split => "of a superpage that was watched",
    }
}

// Recursive-descent compiler from tokens to a postfix program; each part is a number or a boolean.

/// Maximum nesting depth of parentheses and unary operators.
const MAX_DEPTH: usize = 64;

pub(super) fn condition(text: &str, rule: Rule) -> Result<Condition, String> {
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens: &tokens, at: 0, rule, steps: vec![], depth: 0 };
    let whole = parser.either()?;
    if let Some(token) = parser.next() {
        return Err(match comparison(token) {
            Some(_) => format!("`{token}`: one comparison at a time; join two with `and`"),
            None => format!("`{token}` is too much"),
        });
    }
    if whole.kind != Kind::Truth {
        return Err(format!("`{}` is a number: must be true or false", whole.text));
    }
    Condition::new(parser.steps).map_err(|malformed| match malformed {
        Malformed::TooDeep => format!("needs more than {} values at once", Condition::MAX_VALUES),
        Malformed::Kinds => "is no condition".to_string(),
    })
}

struct Parser<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    rule: Rule,
    steps: Vec<Step>,
    depth: usize,
}

struct Part {
    kind: Kind,
    text: String,
}

type Read = Result<Part, String>;

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).copied()
    }

    fn next(&mut self) -> Option<Token<'a>> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        match self.next() {
            Some(token) if token == sign => Ok(()),
            Some(token) => Err(format!("expected `{sign}`, found `{token}`")),
            None => Err(format!("expected `{sign}`, found the end")),
        }
    }

    fn either(&mut self) -> Read {
        self.chain(Self::both, |token| (token == "or").then_some(Operation::Or))
    }

    fn both(&mut self) -> Read {
        self.chain(Self::negated, |token| (token == "and").then_some(Operation::And))
    }

    fn negated(&mut self) -> Read {
        if self.peek() != Some("not") {
            return self.compared();
        }
        self.at += 1;
        let part = self.deeper(Self::negated)?;
        self.must_be(&part, Kind::Truth, "`not` negates what is true or false")?;
        self.steps.push(Step::Not);
        Ok(Part { text: format!("not {}", part.text), ..part })
    }

    fn compared(&mut self) -> Read {
        let a = self.sum()?;
        let Some(operation) = self.peek().and_then(comparison) else { return Ok(a) };
        let sign = self.next().unwrap_or_default();
        let b = self.sum()?;
        self.join(a, sign, operation, b)
    }

    fn sum(&mut self) -> Read {
        self.chain(Self::product, |token| match token {
            "+" => Some(Operation::Plus),
            "-" => Some(Operation::Minus),
            _ => None,
        })
    }

    fn product(&mut self) -> Read {
        self.chain(Self::single, |token| match token {
            "*" => Some(Operation::Times),
            "/" => Some(Operation::Over),
            _ => None,
        })
    }

    /// Parses a left-associative chain of parts with operators of one precedence.
    fn chain(
        &mut self,
        part: fn(&mut Self) -> Read,
        operation: fn(Token<'_>) -> Option<Operation>,
    ) -> Read {
        let mut a = part(self)?;
        while let Some(found) = self.peek().and_then(operation) {
            let sign = self.next().unwrap_or_default();
            let b = part(self)?;
            a = self.join(a, sign, found, b)?;
        }
        Ok(a)
    }

    fn join(&mut self, a: Part, sign: Token<'_>, operation: Operation, b: Part) -> Read {
        let (of, kind) = operation.kinds();
        let does = match operation {
            Operation::And | Operation::Or => format!("`{sign}` joins what is true or false"),
            _ if kind == Kind::Truth => format!("`{sign}` compares numbers"),
            _ => format!("`{sign}` needs numbers"),
        };
        self.must_be(&a, of, &does)?;
        self.must_be(&b, of, &does)?;
        if operation == Operation::Over && self.steps.last() == Some(&Step::Number(0)) {
            return Err(format!("`{}` is divided by zero", a.text));
        }
        self.steps.push(Step::Apply(operation));
        Ok(Part { kind, text: format!("{} {sign} {}", a.text, b.text) })
    }

    fn must_be(&self, part: &Part, kind: Kind, does: &str) -> Result<(), String> {
        let is = match part.kind {
            _ if part.kind == kind => return Ok(()),
            Kind::Number => "a number",
            Kind::Truth => "true or false",
        };
        Err(format!("`{}` is {is}, and {does}", part.text))
    }

    fn single(&mut self) -> Read {
        match self.next() {
            None => Err("something is missing at the end".to_string()),
            Some("(") => {
                let part = self.deeper(Self::either)?;
                self.expect(")")?;
                Ok(Part { text: format!("({})", part.text), ..part })
            }
            Some("-") => self.negative(),
            Some("min") => self.one_of_two("min", Operation::Min),
            Some("max") => self.one_of_two("max", Operation::Max),
            Some(token) if token.starts_with(|c: char| c.is_ascii_digit()) => self.number(token),
            Some(token) if token.starts_with(|c: char| c.is_ascii_alphabetic()) => self.fact(token),
            Some(token) => Err(format!("expected a number or a fact, found `{token}`")),
        }
    }

    fn negative(&mut self) -> Read {
        let before = self.steps.len();
        self.steps.push(Step::Number(0));
        let part = self.deeper(Self::single)?;
        self.must_be(&part, Kind::Number, "`-` needs numbers")?;
        match self.steps[before..] {
            [_, Step::Number(number)] => {
                self.steps.truncate(before);
                self.steps.push(Step::Number(-number));
            }
            _ => self.steps.push(Step::Apply(Operation::Minus)),
        }
        Ok(Part { text: format!("-{}", part.text), ..part })
    }

    fn one_of_two(&mut self, name: &str, operation: Operation) -> Read {
        self.expect("(")?;
        let a = self.deeper(Self::either)?;
        self.expect(",")?;
        let b = self.deeper(Self::either)?;
        self.expect(")")?;
        let part = self.join(a, name, operation, b)?;
        Ok(Part { text: format!("{name}(…)"), ..part })
    }

    fn number(&mut self, token: Token<'_>) -> Read {
        let digits: String = token.chars().filter(|c| *c != '_').collect();
        if !digits.chars().all(|c| c.is_ascii_digit()) {
            return Err(format!("`{token}` is no number: numbers are whole, without a unit"));
        }
        let number = digits.parse().map_err(|_| format!("`{token}` is too large"))?;
        self.steps.push(Step::Number(number));
        Ok(Part { kind: Kind::Number, text: token.to_string() })
    }

    fn fact(&mut self, token: Token<'_>) -> Read {
        let Some(fact) = Fact::ALL.iter().copied().find(|fact| fact.name() == token) else {
            let near = nearest(token, known(self.rule).map(Fact::name));
            let near = near.map_or(String::new(), |near| guess(Some(near), "`"));
            return Err(format!("unknown fact `{token}`{near}"));
        };
        if !fact.rules().contains(&self.rule) {
            return Err(format!("`{token}` is not known {}", place(self.rule)));
        }
        self.steps.push(Step::Fact(fact));
        Ok(Part { kind: fact.kind(), text: token.to_string() })
    }

    fn deeper(&mut self, part: fn(&mut Self) -> Read) -> Read {
        if self.depth == MAX_DEPTH {
            return Err("is nested too deep".to_string());
        }
        self.depth += 1;
        let read = part(self);
        self.depth -= 1;
        read
    }
}

fn comparison(token: Token<'_>) -> Option<Operation> {
    Some(match token {
        "<" => Operation::Less,
        "<=" => Operation::AtMost,
        ">" => Operation::More,
        ">=" => Operation::AtLeast,
        "==" => Operation::Equal,
        "!=" => Operation::Differs,
        _ => return None,
    })
}

// Tokenizer of conditions.

/// A word or sign, as written.
pub(super) type Token<'a> = &'a str;

/// Signs, longer ones first.
const SIGNS: [&str; 16] =
    ["<=", ">=", "==", "!=", "<", ">", "+", "-", "*", "/", "(", ")", ",", "=", "!", "."];

/// Splits a condition into tokens.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            Some(sign) => sign.len(),
            None if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            None => return Err(format!("`{first}` means nothing here")),
        };
        let (token, after) = rest.split_at(length);
        match token {
            "=" => return Err("`=` is no operator: write `==`".to_string()),
            "!" => return Err("`!` is no operator: write `not`, or `!=`".to_string()),
            "." => return Err("numbers are whole: `.` means nothing here".to_string()),
            _ => tokens.push(token),
        }
        rest = after.trim_start();
    }
    Ok(tokens)
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
        mistake("not pages", "`pages` is a number, and `not` negates what is true or false");
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
