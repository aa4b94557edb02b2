//! The compatible `libhugetlbfs.so.0`: where it is, for tests and for whoever installs it.
//!
//! The library itself is `hugetlbfs.c`, which `build.rs` compiles and puts beside libsuperpage.so
//! in cargo's profile directory.
#![forbid(unsafe_code)]

/// The file as it was built.
pub const LIBRARY: &str = env!("LIBHUGETLBFS");

/// `libhugetlbfs_privutils.so`, likewise.
pub const PRIVUTILS: &str = env!("LIBHUGETLBFS_PRIVUTILS");

/// The names under which programs look for it. The first is the file, the second a link to it.
pub const NAMES: [&str; 2] = ["libhugetlbfs.so.0", "libhugetlbfs.so"];
