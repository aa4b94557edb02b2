//! Memory on superpages for Rust programs: an owned [`Region`] that says what it is made of.
//!
//! ```
//! use superpage_api::{Backing, Fallback, Region};
//!
//! let mut table = Region::get(64 << 20, Fallback::Thp)?;
//! table.bytes_mut().fill(1);
//! match table.backing() {
//!     Backing::Superpages(size) => println!("{} pages", size),
//!     Backing::Advised(why) | Backing::Base(why) => println!("no superpages of the pool: {why}"),
//! }
//! println!("{:?} of {} bytes on superpages", table.coverage()?, table.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A region's superpages are there when [`Request::get`] returns, not merely reserved: a limit of a
//! cgroup, a memory policy or a cpuset can make a later fault fail although the pool has reserved
//! its page, and then it is the program that dies. So no touch of a region by this process raises
//! SIGBUS. A child of fork does not have it at all (`MADV_DONTFORK`): there a write would need a
//! second superpage, for which nobody asked the pool.
//!
//! This room is for programs that link Rust code. libsuperpage.so has the same for C, with
//! reservations where they hold, because there the program may want first-touch placement.
#![forbid(unsafe_code)]

mod region;
mod why;

pub use region::{Backing, Fallback, Region, Request};
pub use sys::numa::Binding;
pub use units::{ByteSize, NodeId, PageSize};
pub use why::{Refused, Why};
