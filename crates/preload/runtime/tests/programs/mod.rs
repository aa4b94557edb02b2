//! C programs that the tests build and run under the library, and the pool for them.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::PathBuf;
use std::process::{Command, Output};

use crate::common::library;

pub fn has(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Returns whether advised memory can get THP of the size that the programs expect.
pub fn has_thp() -> bool {
    let dir = std::path::Path::new("/sys/kernel/mm/transparent_hugepage");
    let mode = std::fs::read_to_string(dir.join("enabled"));
    let size = std::fs::read_to_string(dir.join("hpage_pmd_size"));
    mode.is_ok_and(|mode| !mode.contains("[never]"))
        && size.is_ok_and(|size| size.trim() == "2097152")
}

/// Builds a program of `tests/programs` as `name`.
pub fn build(source: &str, name: &str, compiler: &str, flags: &[&str]) -> PathBuf {
    let sources = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut command = Command::new(compiler);
    command.arg("-g1").arg(sources.join(source)).arg("-o").arg(&program).args(flags);
    let status = command.status().expect("the compiler starts");
    assert!(status.success(), "{command:?}");
    program
}

/// Returns the library's settings for a program.
pub fn under(pages: &str, memory: &str, fallback: &str) -> Vec<(&'static str, String)> {
    vec![
        ("LD_PRELOAD", library().to_str().expect("a path in UTF-8").into()),
        ("SUPERPAGE_PAGES", pages.into()),
        ("SUPERPAGE_MEMORY", memory.into()),
        ("SUPERPAGE_FALLBACK", fallback.into()),
    ]
}

/// Runs the program to its end, which must be successful; returns its output.
pub fn run(mut command: Command) -> String {
    let output: Output = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}\n{text}\n{errors}", output.status);
    text
}

/// Returns the number after a word of the program's output.
pub fn number(output: &str, word: &str) -> u64 {
    let mut words = output.split_whitespace();
    words.find(|it| *it == word).unwrap_or_else(|| panic!("no {word:?} in {output:?}"));
    words.next().and_then(|number| number.parse().ok()).expect("a number")
}
