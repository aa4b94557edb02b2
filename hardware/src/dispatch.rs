//! `dispatch`: from a machine to the code that simulates its TLB.

use crate::{Machine, Naive, Translate};

/// What is done with a TLB once its type is known.
pub trait Visitor {
    /// What it yields.
    type Output;
    /// Does it.
    fn visit<T: Translate>(self, tlb: T) -> Self::Output;
}

/// Makes the empty TLB of `machine`, of the type that simulates it fastest, and has it visited.
pub fn dispatch<V: Visitor>(machine: &Machine, visitor: V) -> V::Output {
    visitor.visit(Naive::new(machine))
}
