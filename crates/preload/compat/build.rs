//! Compiles `libhugetlbfs.so.0` and puts it, with the name `libhugetlbfs.so`, beside libsuperpage.so
//! in cargo's profile directory (`target/release`), from where `$ORIGIN` finds the latter; and
//! `libhugetlbfs_privutils.so`, which needs neither.
//!
//! libsuperpage.so is not built yet at this moment, and need not be: what is linked is an empty
//! library with its name, so that the loader is told the name, and the symbols stay open.
//! See docs/decisions/libhugetlbfs.md#3, #4 and #6.

use std::path::{Path, PathBuf};
use std::process::Command;

const NAME: &str = "libhugetlbfs.so.0";
const SHORT_NAME: &str = "libhugetlbfs.so";
/// The soname of libsuperpage.so.
const FORWARDS_TO: &str = "libsuperpage.so.0";
const PRIVUTILS: &str = "libhugetlbfs_privutils.so";
const LINKER: &str = "ld.hugetlbfs";

fn main() {
    for input in [
        "hugetlbfs.c",
        "hugetlbfs.map",
        "privutils.c",
        "privutils.map",
        "include",
        LINKER,
        "../../../include/superpage.h",
        "build.rs",
    ] {
        println!("cargo::rerun-if-changed={input}");
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let stub = out.join("libsuperpage.so");
    let source = out.join("stub.c");
    std::fs::write(&source, "").expect("OUT_DIR is writable");
    run(shared(&stub, FORWARDS_TO).arg(&source));

    let library = out.join(NAME);
    run(shared(&library, NAME)
        .args(COMPILED)
        .arg("hugetlbfs.c")
        .args(["-Wl,--no-as-needed", "-Wl,--enable-new-dtags", "-Wl,-rpath,$ORIGIN"])
        .args(["-Wl,--version-script=hugetlbfs.map"])
        .arg(format!("-Wl,--auxiliary={FORWARDS_TO}"))
        .arg(&stub));
    let privutils = out.join(PRIVUTILS);
    run(shared(&privutils, PRIVUTILS)
        .args(COMPILED)
        .arg("privutils.c")
        .arg("-Wl,--version-script=privutils.map"));

    // OUT_DIR is <profile>/build/<package>-<hash>/out; cargo names no variable for the profile.
    let profile = out.ancestors().nth(3).expect("OUT_DIR lies in the profile's directory");
    install(&library, profile, NAME);
    link(profile, NAME, SHORT_NAME);
    install(&privutils, profile, PRIVUTILS);
    // gcc looks for `ld` in the directory that -B names.
    let linkers = profile.join("libhugetlbfs");
    std::fs::create_dir_all(&linkers)
        .unwrap_or_else(|error| panic!("{}: {error}", linkers.display()));
    install(Path::new(LINKER), &linkers, LINKER);
    link(&linkers, LINKER, "ld");
    println!("cargo::rustc-env=LIBHUGETLBFS={}", library.display());
    println!("cargo::rustc-env=LIBHUGETLBFS_PRIVUTILS={}", privutils.display());
}

const COMPILED: [&str; 6] =
    ["-O2", "-Wall", "-Wextra", "-Werror", "-Iinclude", "-I../../../include"];

fn shared(output: &Path, soname: &str) -> Command {
    let mut command = cc::Build::new().get_compiler().to_command();
    command.args(["-shared", "-fPIC", "-o"]).arg(output).arg(format!("-Wl,-soname,{soname}"));
    command
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}

/// Replaced by renaming: programs may be running with the old one.
fn install(file: &Path, directory: &Path, name: &str) {
    let new = directory.join(format!("{name}.new"));
    let place = directory.join(name);
    std::fs::copy(file, &new)
        .and_then(|_| std::fs::rename(&new, &place))
        .unwrap_or_else(|error| panic!("{}: {error}", place.display()));
}

fn link(directory: &Path, name: &str, short_name: &str) {
    let link = directory.join(short_name);
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(name, &link)
        .unwrap_or_else(|error| panic!("{}: {error}", link.display()));
}
