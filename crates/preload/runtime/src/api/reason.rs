//! Why the last request of a thread got no superpages.

use std::cell::Cell;
use std::ffi::{CStr, c_int};

/// The numbers are those of the header (`enum superpage_reason`) and never change.
macro_rules! reasons {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(i32)]
        pub enum Reason {
            $($name = $number),*
        }

        impl Reason {
            pub fn text(self) -> &'static CStr {
                match self {
                    $(Self::$name => $text),*
                }
            }

            pub fn from_number(number: c_int) -> Self {
                match number {
                    $($number => Self::$name,)*
                    _ => Self::Unknown,
                }
            }
        }
    };
}

reasons! {
    None = 0, c"superpages as asked for";
    PoolShort = 1, c"the pool has too few free superpages";
    NoPool = 2, c"this machine has no pool of that page size";
    NotSupported = 3, c"the kernel has no hugetlb support";
    NoPermission = 4, c"no permission";
    CgroupLimit = 5, c"a hugetlb limit of the cgroup";
    NotAligned = 6, c"the page size is no power of two, or smaller than a page";
    NoMemory = 7, c"no memory or address space";
    Node = 8, c"the NUMA node is unknown or has no free superpages";
    BadArgument = 9, c"a bad argument";
    NotOurs = 10, c"the address was not handed out by this library";
    ThpOff = 11, c"transparent superpages are off";
    Unknown = 12, c"unknown";
}

/// Error of a request.
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
    // Const and without a destructor: needs no allocation and no registration.
    static LAST: Cell<Reason> = const { Cell::new(Reason::None) };
}

pub fn remember(reason: Reason) {
    LAST.set(reason);
}

pub fn last() -> Reason {
    LAST.get()
}
