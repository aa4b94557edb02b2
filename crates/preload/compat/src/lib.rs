//! Paths of the compatible `libhugetlbfs.so.0`, for tests and installers.
//!
//! `build.rs` compiles the library from `hugetlbfs.c` and puts it beside libsuperpage.so in cargo's profile directory.
#![forbid(unsafe_code)]

/// Path of the built library.
pub const LIBRARY: &str = env!("LIBHUGETLBFS");

/// Path of the built `libhugetlbfs_privutils.so`.
pub const PRIVUTILS: &str = env!("LIBHUGETLBFS_PRIVUTILS");

/// File names under which programs look for the library: the file, then a link to it.
pub const NAMES: [&str; 2] = ["libhugetlbfs.so.0", "libhugetlbfs.so"];
