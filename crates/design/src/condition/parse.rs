//! Words and signs to a program in postfix, by recursive descent; every part knows whether it is a number or a truth.

use policy::{Condition, Fact, Kind, Malformed, Operation, Rule, Step};

use super::tokens::{Token, tokens};
use super::{known, place};
use toml_keys::{guess, nearest};

/// How deep parentheses and signs may be nested.
const DEEPEST: usize = 64;

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

/// A part that was read.
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
        self.must_be(&part, Kind::Truth, "`not` turns round what is true or false")?;
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

    /// Parts with operators of one rank between them, from the left.
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
            _ => format!("`{sign}` reckons with numbers"),
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
        self.must_be(&part, Kind::Number, "`-` reckons with numbers")?;
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
        if self.depth == DEEPEST {
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
