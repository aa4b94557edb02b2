//! What the command's tests share.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

/// The command, with nothing of the surroundings that would change what it does.
pub fn superpage(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_superpage"));
    command.args(arguments).env_remove("LD_PRELOAD").env_remove("GLIBC_TUNABLES");
    // As `cargo run` sets them too, for which `superpage lab` is built first.
    command.env_remove("CARGO").env_remove("CARGO_MANIFEST_DIR");
    // A shell without job control has what it starts in the background ignore these, and the command heeds that.
    // SAFETY: async-signal-safe calls, between fork and exec.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGINT, libc::SIGQUIT] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    command
}

/// Whether `superpage lab` was built, as it is with the whole workspace.
pub fn has_lab() -> bool {
    Path::new(env!("CARGO_BIN_EXE_superpage")).with_file_name("superpage-lab").is_file()
}

/// Why a test leaves it out.
pub const NO_LAB: &str = "superpage-lab was not built (cargo build -p superpage-lab-cli)";

/// Runs it to its end, and checks each document that it prints or writes against docs/schemas.
pub fn run(arguments: &[&str]) -> Output {
    let output = superpage(arguments).output().expect("the command starts");
    testkit::schemas::check_output(arguments, &output);
    output
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// That it ended with this code and one line of ours on standard error that has `part` in it.
pub fn refused(output: &Output, code: i32, part: &str) {
    let line = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{line}");
    assert_eq!(line.trim_end().lines().count(), 1, "{line}");
    assert!(line.starts_with("superpage: ") && line.contains(part), "lacks {part}: {line}");
}

/// The setting that a comparison may change.
pub const OVERCOMMIT: &str = "/proc/sys/vm/nr_overcommit_hugepages";

pub fn overcommit() -> Option<String> {
    std::fs::read_to_string(OVERCOMMIT).ok()
}

pub fn has_thp() -> bool {
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    mode.is_ok_and(|mode| !mode.contains("[never]"))
}
