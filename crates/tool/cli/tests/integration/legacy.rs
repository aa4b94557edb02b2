//! The commands of libhugetlbfs under their own names: output, exit codes and errors.

mod contract;
mod hugeadm;
mod hugectl;
mod hugeedit;
mod names;

use std::path::Path;
use std::process::{Command, Output};

/// Runs a command under its old name, which is a link to this build.
fn tool(name: &str, words: &[&str]) -> Output {
    command(name).args(words).output().expect("the command starts")
}

fn command(name: &str) -> Command {
    let dir = Path::new(env!("CARGO_BIN_EXE_superpage")).parent().unwrap();
    // The links are beside the build, so that the library is found. The first test that needs a link creates it.
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

/// Arguments, and texts that the line on standard error must contain.
type Refusal = (&'static [&'static str], &'static [&'static str]);

/// Checks that each list of arguments gives exit code 1, one line with the command's name (the usage may follow), and
/// nothing on standard output.
fn refuses(name: &str, cases: &[Refusal]) {
    for (words, parts) in cases {
        let output = tool(name, words);
        let text = crate::common::stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{name} {words:?}: {text}");
        assert_eq!(crate::common::stdout(&output), "", "{name} {words:?}");
        let (line, usage) = text.split_once('\n').unwrap_or((&text, ""));
        let error = if name == "hugeadm" { ":ERROR: " } else { ": ERROR: " };
        assert!(line.starts_with(&format!("{name}{error}")), "{line}");
        assert!(usage.is_empty() || usage.starts_with(&format!("{name} [options]")), "{usage}");
        for part in *parts {
            assert!(line.contains(part), "{name} {words:?} lacks {part}: {line}");
        }
    }
}
