//! Tests the Python package as built: this machine's Python imports the module, and must get the same bytes as the
//! command prints.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// Returns the directory in which cargo puts programs; libraries are below it.
fn built() -> PathBuf {
    let own = std::env::current_exe().expect("this test");
    own.parent().and_then(Path::parent).expect("below the target directory").to_path_buf()
}

/// Lays the package out like a wheel, in a directory for PYTHONPATH. An error says why that is impossible.
fn package() -> Result<TempDir, String> {
    let asked = "import sys; sys.exit(sys.version_info < (3, 9))";
    let python = Command::new("python3").args(["-c", asked]).status();
    if !python.is_ok_and(|status| status.success()) {
        return Err("there is no python3 of 3.9 or later".to_string());
    }
    let directory = tempfile::tempdir().expect("a directory");
    let package = directory.path().join("superpage");
    fs::create_dir_all(package.join("bin")).expect("a directory");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/superpage");
    for file in fs::read_dir(sources).expect("sources").flatten().filter(|one| one.path().is_file())
    {
        symlink(file.path(), package.join(file.file_name())).expect("a link");
    }
    let module = built().join("deps/lib_superpage.so");
    assert!(module.is_file(), "{} was not built", module.display());
    symlink(module, package.join("_superpage.abi3.so")).expect("a link");
    for program in ["superpage", "superpage-lab"] {
        let file = built().join(program);
        if !file.is_file() {
            return Err(format!("{program} is not built; cargo test --workspace builds it"));
        }
        symlink(file, package.join("bin").join(program)).expect("a link");
    }
    Ok(directory)
}

/// Runs the function of `checks.py` with this name.
fn run(package: &TempDir, check: &str) -> Output {
    let mut python = Command::new("python3");
    python.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration/checks.py"));
    python.arg(check).env("PYTHONPATH", package.path()).env("PYTHONDONTWRITEBYTECODE", "1");
    python.output().expect("python3 starts")
}

#[track_caller]
fn passes(check: &str) {
    let package = match package() {
        Ok(package) => package,
        Err(why) => return testkit::skipped!("{why}"),
    };
    let output = run(&package, check);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{check}: {said}");
}

#[test]
fn simulations_are_those_of_the_command() {
    passes("simulations");
}

#[test]
fn a_comparison_is_the_document_that_the_command_wrote() {
    passes("comparison");
}

#[test]
fn columns_have_the_names_of_metrics_and_numbers_are_numeric() {
    passes("frames");
}

#[test]
fn every_option_is_a_keyword() {
    passes("keywords");
}

#[test]
fn a_failure_is_the_line_of_the_command() {
    passes("failures");
}

#[test]
fn interrupts_end_simulations_and_comparisons() {
    passes("interrupts");
}

#[test]
fn the_guides_examples_run() {
    passes("guide");
}

#[test]
fn a_trace_is_its_records() {
    passes("trace");
}
