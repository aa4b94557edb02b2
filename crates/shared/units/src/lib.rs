//! Byte sizes, page sizes, process and node ids, and ranges of other quantities. No I/O, no system calls. See
//! docs/decisions/crates.md#3.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod byte_size;
mod page_size;
mod pid;
mod quantity;

pub use byte_size::{ByteSize, ParseSizeError};
pub use page_size::{NotAPageSize, PageSize};
pub use pid::{NodeId, Pid};
pub use quantity::*;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
