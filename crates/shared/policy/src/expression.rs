//! Conditions: expressions over facts, stored as postfix programs.
//!
//! `design` parses conditions such as `when = "benefit > cost"`. Every [`Condition`] is well-formed: its evaluation
//! leaves one truth value, on a stack of at most [`Condition::MAX_VALUES`] values. So evaluation needs no allocation
//! and always ends. Numbers are integers with saturating arithmetic. See docs/decisions/policy.md#6.

use alloc::vec::Vec;

use crate::Fact;

/// A step of a program. A step pops its operands off the stack, the right operand first, and pushes its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A number.
    Number(i64),
    /// The current value of a fact: a number or a truth value.
    Fact(Fact),
    /// An operation on two numbers, or two truth values.
    Apply(Operation),
    /// Negation of a truth value.
    Not,
}

/// A binary operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Logical or.
    Or,
    /// Logical and.
    And,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    More,
    /// `>=`
    AtLeast,
    /// `==`
    Equal,
    /// `!=`
    Differs,
    /// `+`
    Plus,
    /// `-`
    Minus,
    /// `*`
    Times,
    /// `/`, rounded towards zero; division by zero yields zero.
    Over,
    /// The smaller operand.
    Min,
    /// The larger operand.
    Max,
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An integer.
    Number,
    /// True or false.
    Truth,
}

impl Operation {
    /// Returns the type of the operands and the type of the result.
    pub const fn kinds(self) -> (Kind, Kind) {
        match self {
            Self::Or | Self::And => (Kind::Truth, Kind::Truth),
            Self::Less
            | Self::AtMost
            | Self::More
            | Self::AtLeast
            | Self::Equal
            | Self::Differs => (Kind::Number, Kind::Truth),
            Self::Plus | Self::Minus | Self::Times | Self::Over | Self::Min | Self::Max => {
                (Kind::Number, Kind::Number)
            }
        }
    }

    const fn apply(self, a: i64, b: i64) -> i64 {
        match self {
            Self::Or => a | b,
            Self::And => a & b,
            Self::Less => (a < b) as i64,
            Self::AtMost => (a <= b) as i64,
            Self::More => (a > b) as i64,
            Self::AtLeast => (a >= b) as i64,
            Self::Equal => (a == b) as i64,
            Self::Differs => (a != b) as i64,
            Self::Plus => a.saturating_add(b),
            Self::Minus => a.saturating_sub(b),
            Self::Times => a.saturating_mul(b),
            Self::Over if b == 0 => 0,
            Self::Over => a.saturating_div(b),
            Self::Min if a < b => a,
            Self::Max if a > b => a,
            Self::Min | Self::Max => b,
        }
    }
}

/// A condition of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition(Vec<Step>);

/// Why a program is not a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// An operand is missing or of the wrong type, or the result is not one truth value.
    Kinds,
    /// The stack exceeds [`Condition::MAX_VALUES`].
    TooDeep,
}

impl Condition {
    /// Maximum depth of the stack.
    pub const MAX_VALUES: usize = 16;

    /// Makes a condition of a program, if the program is well-formed.
    ///
    /// # Errors
    /// [`Malformed`]: operands are missing or of the wrong type, or the stack gets too deep.
    pub fn new(steps: Vec<Step>) -> Result<Self, Malformed> {
        let mut kinds = [Kind::Number; Self::MAX_VALUES];
        let mut count = 0;
        for step in &steps {
            let (takes, of, gives) = match *step {
                Step::Number(_) => (0, Kind::Number, Kind::Number),
                Step::Fact(fact) => (0, Kind::Number, fact.kind()),
                Step::Not => (1, Kind::Truth, Kind::Truth),
                Step::Apply(operation) => {
                    let (of, gives) = operation.kinds();
                    (2, of, gives)
                }
            };
            if count < takes || kinds[count - takes..count].iter().any(|kind| *kind != of) {
                return Err(Malformed::Kinds);
            }
            count -= takes;
            *kinds.get_mut(count).ok_or(Malformed::TooDeep)? = gives;
            count += 1;
        }
        match (count, kinds[0]) {
            (1, Kind::Truth) => Ok(Self(steps)),
            _ => Err(Malformed::Kinds),
        }
    }

    /// The condition's program.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// The facts that the condition names.
    pub fn facts(&self) -> impl Iterator<Item = Fact> {
        self.0
            .iter()
            .filter_map(|step| if let Step::Fact(fact) = step { Some(*fact) } else { None })
    }

    /// Whether the condition holds. `value` returns the value of a fact; truth values are 1 and 0.
    pub fn holds(&self, value: impl Fn(Fact) -> i64) -> bool {
        let mut stack = [0; Self::MAX_VALUES];
        let mut top = 0;
        for step in &self.0 {
            let result = match *step {
                Step::Number(number) => number,
                Step::Fact(fact) => value(fact),
                Step::Not => {
                    top -= 1;
                    1 - stack[top]
                }
                Step::Apply(operation) => {
                    top -= 2;
                    operation.apply(stack[top], stack[top + 1])
                }
            };
            stack[top] = result;
            top += 1;
        }
        stack[0] != 0
    }
}
