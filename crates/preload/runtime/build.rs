//! How libsuperpage.so is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Calls within the library stay within it, whatever names the program exports.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    // Its constructor runs before all others (see `start`).
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
    // The name that programs linked with it, and libhugetlbfs.so.0, ask the loader for.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsuperpage.so");
}
