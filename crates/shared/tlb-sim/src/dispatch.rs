//! `dispatch`: from a machine to the code that simulates its TLB.

use machine::Machine;

use crate::fast::{Arrays, Fast, Full, Scalar, Sets, Vectors};
use crate::{Naive, Translate};

/// What is done with a TLB once its type is known.
pub trait Visitor {
    /// What it yields.
    type Output;
    /// Does it.
    fn visit<T: Translate>(self, tlb: T) -> Self::Output;
}

/// Makes the empty TLB of `machine`, of the type that simulates it fastest on this host, and has it
/// visited.
///
/// A visitor is compiled for ten types: three shapes (a set-associative first level; a fully
/// associative one; the same with more than 16 ways in the second) for three widths of vectors, and
/// [`Naive`] for every other geometry. What they count is the same.
pub fn dispatch<V: Visitor>(machine: &Machine, visitor: V) -> V::Output {
    #[cfg(target_arch = "x86_64")]
    {
        use crate::fast::{V3, V4};
        if let Some(vectors) = V4::try_new() {
            return shaped(vectors, machine, visitor);
        }
        if let Some(vectors) = V3::try_new() {
            return shaped(vectors, machine, visitor);
        }
    }
    shaped(Scalar, machine, visitor)
}

/// A first level of up to 8 ways; 128 sets are enough for all sizes of any preset.
type Narrow = Sets<8, 128>;
/// A fully associative first level.
type Wide = Full<128, 1024>;
/// A second level.
type Second<const WAYS: usize> = Sets<WAYS, 512>;

fn shaped<W: Vectors, V: Visitor>(vectors: W, machine: &Machine, visitor: V) -> V::Output {
    if let Some(tlb) = shape::<W, Narrow, Second<16>>(vectors, machine) {
        visitor.visit(tlb)
    } else if let Some(tlb) = shape::<W, Wide, Second<16>>(vectors, machine) {
        visitor.visit(tlb)
    } else if let Some(tlb) = shape::<W, Wide, Second<32>>(vectors, machine) {
        visitor.visit(tlb)
    } else {
        visitor.visit(Naive::new(machine))
    }
}

fn shape<W: Vectors, A: Arrays, B: Arrays>(vectors: W, machine: &Machine) -> Option<Fast<W, A, B>> {
    Fast::new(vectors, machine)
}
