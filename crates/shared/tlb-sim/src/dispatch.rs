//! `dispatch`: selects the code that simulates a machine's TLB.

use machine::Machine;

use crate::fast::{Arrays, Fast, Full, Scalar, Sets, Vectors};
use crate::{Naive, Translate};

/// A function that is generic over the type of the TLB.
pub trait Visitor {
    /// Result of the visit.
    type Output;
    /// Uses the TLB.
    fn visit<T: Translate>(self, tlb: T) -> Self::Output;
}

/// Makes an empty TLB of `machine`, of the type that simulates it fastest on this host, and passes
/// it to `visitor`.
///
/// A visitor is compiled for ten types. Nine are three shapes (a set-associative first level; a
/// fully associative one; and the latter with more than 16 ways in the second level) for three
/// widths of vectors. The tenth is [`Naive`], for all other geometries. All types count the same.
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

/// A set-associative first level of up to 8 ways. 128 sets suffice for the arrays of every preset.
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
