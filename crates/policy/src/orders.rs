//! A set of page sizes.

/// Page sizes as orders: a page of order `n` has 2^n base pages. Orders up to 31.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Orders(u32);

impl Orders {
    /// No size.
    pub const NONE: Self = Self(0);

    /// The same with one more size.
    #[must_use]
    pub const fn with(self, order: u8) -> Self {
        Self(self.0 | 1 << (order & 31))
    }

    /// Whether this size is in it.
    #[inline]
    pub const fn has(self, order: u8) -> bool {
        self.0 >> (order & 31) & 1 != 0
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those that are in both.
    #[must_use]
    #[inline]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those that are in one of them.
    #[must_use]
    #[inline]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those below an order.
    #[must_use]
    #[inline]
    pub const fn below(self, order: u8) -> Self {
        Self(self.0 & ((1 << (order & 31)) - 1))
    }

    /// Those above an order.
    #[must_use]
    #[inline]
    pub const fn above(self, order: u8) -> Self {
        Self(self.0 & !((2u32 << (order & 31)).wrapping_sub(1)))
    }

    /// The largest order.
    #[inline]
    pub const fn largest(self) -> Option<u8> {
        if self.0 == 0 { None } else { Some(self.0.ilog2() as u8) }
    }

    /// The smallest order.
    pub const fn smallest(self) -> Option<u8> {
        if self.0 == 0 { None } else { Some(self.0.trailing_zeros() as u8) }
    }

    /// Every order in it, ascending.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = u8> {
        (0..32).filter(move |&order| self.has(order))
    }
}

impl FromIterator<u8> for Orders {
    fn from_iter<I: IntoIterator<Item = u8>>(orders: I) -> Self {
        orders.into_iter().fold(Self::NONE, Self::with)
    }
}
