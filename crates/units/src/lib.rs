//! Byte sizes, page sizes and process ids: the words every other room speaks in.
//!
//! No I/O, no kernel: `design` and `lab` use these too.
//! See docs/decisions/crates.md#3.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod byte_size;
mod page_size;
mod pid;

pub use byte_size::{ByteSize, ParseSizeError};
pub use page_size::{NotAPageSize, PageSize};
pub use pid::{NodeId, Pid};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
