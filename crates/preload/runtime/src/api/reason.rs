//! Why a request got no superpages: one small number per thread.

use std::cell::Cell;
use std::ffi::{CStr, c_int};

/// The numbers are the header's (`enum superpage_reason`) and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Reason {
    /// It got what it asked for.
    None = 0,
    PoolShort = 1,
    NoPool = 2,
    NotSupported = 3,
    NoPermission = 4,
    CgroupLimit = 5,
    NotAligned = 6,
    NoMemory = 7,
    Node = 8,
    BadArgument = 9,
    NotOurs = 10,
    ThpOff = 11,
    Unknown = 12,
}

impl Reason {
    const ALL: [Self; 13] = [
        Self::None,
        Self::PoolShort,
        Self::NoPool,
        Self::NotSupported,
        Self::NoPermission,
        Self::CgroupLimit,
        Self::NotAligned,
        Self::NoMemory,
        Self::Node,
        Self::BadArgument,
        Self::NotOurs,
        Self::ThpOff,
        Self::Unknown,
    ];

    pub fn text(self) -> &'static CStr {
        match self {
            Self::None => c"superpages as asked for",
            Self::PoolShort => c"the pool has too few free superpages",
            Self::NoPool => c"this machine has no pool of that page size",
            Self::NotSupported => c"the kernel has no hugetlb support",
            Self::NoPermission => c"no permission",
            Self::CgroupLimit => c"a hugetlb limit of the cgroup",
            Self::NotAligned => c"the page size is no power of two, or smaller than a page",
            Self::NoMemory => c"no memory or address space",
            Self::Node => c"the NUMA node is unknown or has no free superpages",
            Self::BadArgument => c"a bad argument",
            Self::NotOurs => c"the address was not handed out by this library",
            Self::ThpOff => c"transparent superpages are off",
            Self::Unknown => c"unknown",
        }
    }

    pub fn from_number(number: c_int) -> Self {
        Self::ALL.into_iter().find(|reason| *reason as c_int == number).unwrap_or(Self::Unknown)
    }
}

/// What a request ended with when it did not end well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub errno: c_int,
    pub reason: Reason,
}

impl Refusal {
    pub const fn new(errno: c_int, reason: Reason) -> Self {
        Self { errno, reason }
    }
}

thread_local! {
    // Const and without a destructor: no allocation, no registration.
    static LAST: Cell<Reason> = const { Cell::new(Reason::None) };
}

pub fn remember(reason: Reason) {
    LAST.set(reason);
}

pub fn last() -> Reason {
    LAST.get()
}
