//! How libsuperpage.so is linked: so that its constructor runs before all others (see `malloc`).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
}
