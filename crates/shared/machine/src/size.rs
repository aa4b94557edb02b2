//! `Size`: the page sizes that one address space may mix.

/// The size of a mapped page, in base pages: the range that one TLB entry may translate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Size {
    /// One base page.
    Base = 0,
    /// 16 base pages, aligned: Arm's contiguous bit, 64 KiB of mTHP.
    Cont = 1,
    /// 512 base pages, aligned: a region, the superpage of the simulated operating system.
    Large = 2,
    /// 512 regions, aligned.
    Huge = 3,
}

/// Number of sizes, for tables indexed by size.
pub const SIZES: usize = 4;

impl Size {
    /// All sizes, ascending.
    pub const ALL: [Self; SIZES] = [Self::Base, Self::Cont, Self::Large, Self::Huge];

    /// log2 of the number of base pages.
    #[inline(always)]
    pub const fn shift(self) -> u32 {
        match self {
            Self::Base => 0,
            Self::Cont => 4,
            Self::Large => 9,
            Self::Huge => 18,
        }
    }
    /// Number of base pages.
    pub const fn pages(self) -> u32 {
        1 << self.shift()
    }
    /// The next smaller size.
    pub const fn smaller(self) -> Option<Self> {
        match self {
            Self::Base => None,
            Self::Cont => Some(Self::Base),
            Self::Large => Some(Self::Cont),
            Self::Huge => Some(Self::Large),
        }
    }
    /// Its name in machine files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Cont => "cont",
            Self::Large => "large",
            Self::Huge => "huge",
        }
    }
}
