//! How the command is linked.
//! See docs/decisions/launch.md#2.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // At a fixed address: relocations would make half a megabyte of constant tables private to each
    // process, and `superpage run` waits in memory for as long as its program runs.
    println!("cargo::rustc-link-arg-bins=-no-pie");
}
