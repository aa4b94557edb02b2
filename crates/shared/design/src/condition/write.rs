//! Formats a condition as text that parses to the same condition.

use policy::{Condition, Operation, Step};

/// The text of a part, and the precedence of its outermost operator.
type Part = (String, u8);

const NOT: u8 = 3;
const COMPARES: u8 = 4;
const SINGLE: u8 = 7;

pub(crate) fn text(condition: &Condition) -> String {
    let mut parts: Vec<Part> = Vec::new();
    for step in condition.steps() {
        let part = match *step {
            Step::Number(number) => (number.to_string(), SINGLE),
            Step::Fact(fact) => (fact.name().to_string(), SINGLE),
            Step::Not => {
                let of = parts.pop().unwrap_or_default();
                (format!("not {}", within(of, NOT)), NOT)
            }
            Step::Apply(operation) => {
                let (b, a) = (parts.pop().unwrap_or_default(), parts.pop().unwrap_or_default());
                apply(operation, a, b)
            }
        };
        parts.push(part);
    }
    parts.pop().unwrap_or_default().0
}

fn apply(operation: Operation, a: Part, b: Part) -> Part {
    let (sign, binds) = match operation {
        Operation::Min => return (format!("min({}, {})", a.0, b.0), SINGLE),
        Operation::Max => return (format!("max({}, {})", a.0, b.0), SINGLE),
        Operation::Or => ("or", 1),
        Operation::And => ("and", 2),
        Operation::Less => ("<", COMPARES),
        Operation::AtMost => ("<=", COMPARES),
        Operation::More => (">", COMPARES),
        Operation::AtLeast => (">=", COMPARES),
        Operation::Equal => ("==", COMPARES),
        Operation::Differs => ("!=", COMPARES),
        Operation::Plus => ("+", 5),
        Operation::Minus => ("-", 5),
        Operation::Times => ("*", 6),
        Operation::Over => ("/", 6),
    };
    // Left-associative: a right operand of the same precedence needs parentheses.
    let left = if binds == COMPARES { binds + 1 } else { binds };
    (format!("{} {sign} {}", within(a, left), within(b, binds + 1)), binds)
}

fn within((text, binds): Part, least: u8) -> String {
    if binds < least { format!("({text})") } else { text }
}
