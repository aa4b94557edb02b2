//! The commands of libhugetlbfs under their own names: what they print, return and refuse.

mod hugeadm;
mod hugectl;
mod hugeedit;
mod names;

use std::path::Path;
use std::process::{Command, Output};

/// A command under its old name, which is a link to this build.
fn tool(name: &str, words: &[&str]) -> Output {
    command(name).args(words).output().expect("the command starts")
}

fn command(name: &str) -> Command {
    let dir = Path::new(env!("CARGO_BIN_EXE_superpage")).parent().unwrap();
    // The links lie beside the build, so that the library is found; made anew by whoever comes first.
    let link = dir.join(name);
    if !link.is_symlink() {
        let _ = std::os::unix::fs::symlink("superpage", &link);
    }
    let mut command = Command::new(link);
    for variable in
        ["LD_PRELOAD", "GLIBC_TUNABLES", "HUGETLB_VERBOSE", "HUGETLB_DEBUG", "LD_LIBRARY_PATH"]
    {
        command.env_remove(variable);
    }
    command
}

/// Words, exit code, and what the one line on standard error must hold.
type Refusal = (&'static [&'static str], i32, &'static [&'static str]);

/// Checks that each line of words ends with its code, one line in the command's name, and nothing on
/// standard output.
fn refuses(name: &str, cases: &[Refusal]) {
    for (words, code, parts) in cases {
        let output = tool(name, words);
        let line = crate::common::stderr(&output);
        assert_eq!(output.status.code(), Some(*code), "{name} {words:?}: {line}");
        assert_eq!(line.trim_end().lines().count(), 1, "{name} {words:?}: {line}");
        assert!(line.starts_with(&format!("{name}:")), "{line}");
        assert!(line.contains("ERROR: "), "{line}");
        assert_eq!(crate::common::stdout(&output), "", "{name} {words:?}");
        for part in *parts {
            assert!(line.contains(part), "{name} {words:?} lacks {part}: {line}");
        }
    }
}
