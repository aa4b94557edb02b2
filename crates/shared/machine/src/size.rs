//! `Size`: the sizes of page that one address space may mix. The simulator's smallest word.

/// The size of one mapped page, counted in base pages: what a TLB entry may translate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Size {
    /// A base page.
    Base = 0,
    /// 16 base pages, aligned: Arm's contiguous bit, 64 KiB of mTHP.
    Cont = 1,
    /// 512 base pages, aligned: a region, the superpage of the operating-system model.
    Large = 2,
    /// 512 regions, aligned.
    Huge = 3,
}

/// How many sizes there are: the length of every table that has a row for each.
pub const SIZES: usize = 4;

impl Size {
    /// All, ascending.
    pub const ALL: [Self; SIZES] = [Self::Base, Self::Cont, Self::Large, Self::Huge];

    /// log2 of its base pages.
    #[inline(always)]
    pub const fn shift(self) -> u32 {
        match self {
            Self::Base => 0,
            Self::Cont => 4,
            Self::Large => 9,
            Self::Huge => 18,
        }
    }
    /// Its base pages.
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
    /// Its name in a machine's file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Cont => "cont",
            Self::Large => "large",
            Self::Huge => "huge",
        }
    }
}
