//! How libsuperpage.so is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Calls within the library stay within it, whatever names the program exports.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    // Its constructor runs before all others (see `start`).
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
    // What mimalloc asks of libc comes to `heap::system` and `heap::gate` instead.
    for name in ["mmap", "munmap", "mprotect", "madvise", "prctl"] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--wrap={name}");
    }
    for name in ["pthread_mutex_lock", "pthread_mutex_trylock", "pthread_mutex_unlock"] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--wrap={name}");
    }
    // The name that programs linked with it, and libhugetlbfs.so.0, ask the loader for.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsuperpage.so");
}
