//! Linker arguments for libsuperpage.so, and a link with its SONAME beside it in cargo's profile directory: programs
//! linked with the library ask the loader for that name.

use std::path::PathBuf;

/// The number is raised when programs linked with an older library would not run with this one.
const SONAME: &str = "libsuperpage.so.0";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Calls within the library use its own definitions, whatever names the program exports.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    // The constructor runs before all others (see `start`).
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
    // The name that programs linked with the library, and libhugetlbfs.so.0, ask the loader for.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{SONAME}");
    // OUT_DIR is <profile>/build/<package>-<hash>/out; cargo names no variable for the profile.
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let profile = out.ancestors().nth(3).expect("OUT_DIR lies in the profile's directory");
    for directory in [profile.to_path_buf(), profile.join("deps")] {
        // Tests find the library in either directory.
        let link = directory.join(SONAME);
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink("libsuperpage.so", &link)
            .unwrap_or_else(|error| panic!("{}: {error}", link.display()));
    }
}
