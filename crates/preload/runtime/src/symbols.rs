//! Which function a name would have reached without this library, found in the loader's own list of
//! objects: `dlsym` may allocate and takes locks.
//!
//! The list is in the order in which names are searched for, but for what `dlopen` adds later.
//! See docs/decisions/heap.md#5.

use std::ffi::c_void;

use crate::loaded::{self, Object};

/// The definition of `name` that comes after this library's in the order of search, or else libc's, and
/// whether it is libc's; `None` if there is none.
pub fn next(name: &[u8]) -> Option<(*mut c_void, bool)> {
    let after = loaded::objects().skip_while(|it| !it.is_ours()).skip(1);
    let libc = loaded::objects().filter(|it| is_libc(it));
    let mut found = after.chain(libc).filter_map(|it| Some((it.function(name)?, is_libc(it))));
    found.next()
}

fn is_libc(object: &Object) -> bool {
    object.is_file_of(b"libc.so", &[b"."])
}
