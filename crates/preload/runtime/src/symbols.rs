//! Finds the next definition of a symbol after this library's (RTLD_NEXT) in the loader's own list of objects. `dlsym`
//! may allocate and takes locks.
//!
//! The list is in symbol search order, except for objects that `dlopen` adds later.
//! See docs/decisions/heap.md#5.

use std::ffi::c_void;

use crate::loaded::{self, Object};

/// Finds the next definition of `name` after this library's in search order, or else libc's. Returns the function and
/// whether it is libc's; `None`: there is none.
pub fn next(name: &[u8]) -> Option<(*mut c_void, bool)> {
    let after = loaded::objects().skip_while(|it| !it.is_ours()).skip(1);
    let libc = loaded::objects().filter(|it| is_libc(it));
    let mut found = after.chain(libc).filter_map(|it| Some((it.function(name)?, is_libc(it))));
    found.next()
}

fn is_libc(object: &Object) -> bool {
    object.is_file_of(b"libc.so", &[b"."])
}
