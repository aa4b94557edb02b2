#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod error;
mod kernel;
mod region;

pub use error::{Error, Reason};
pub use region::{Backing, Fallback, Region, Request};
pub use sys::SysError;
pub use sys::numa::Binding;
pub use units::{ByteSize, NodeId, PageSize};
