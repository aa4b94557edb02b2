//! Reads TOML files key by key, and reports every error with its line, its key and the allowed values. Unknown keys are
//! errors too.
//!
//! ```
//! # use superpage_toml_keys as toml_keys;
//! let text = "[[pool]]\nsize = \"2M\"\ncuont = 3\n\n[[pool]]\nsize = 7\ncount = -1\n";
//! let mut pools = Vec::new();
//! let read = toml_keys::read("pools.toml", text, |keys| {
//!     keys.tables("pool", |keys| {
//!         let (size, count): (units::ByteSize, u64) = (keys.must("size"), keys.within("count", 1..=999));
//!         pools.push((size, count, keys.optional::<u32>("node")));
//!     });
//! });
//! let error = read.unwrap_err();
//! assert_eq!(error.to_string(), "\
//! pools.toml:3: pool.cuont: unknown key: did you mean `count`? known keys: size, count, node
//! pools.toml:6: pool.size: is an integer: must be a size like \"64K\" or \"2M\"
//! pools.toml:7: pool.count: -1 is out of range: must be a whole number from 0 to 9223372036854775807");
//! ```
#![forbid(unsafe_code)]

mod field;
mod problem;
mod reader;
mod text;

pub use field::{Field, TIMES, list, parsed, word, wrong};
pub use problem::{FileError, Problem};
pub use reader::{Found, Reader, deserialize, line_of, problems, read};
pub use text::{guess, nearest, one_of, quoted};
/// A raw value, for implementations of [`Field`].
pub use toml::de::DeValue;
