//! Runs `superpage-lab`.

use std::process::{Command, Output};

/// Returns the command, not yet started.
pub fn superpage_lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_superpage-lab"));
    command.args(arguments);
    command
}

/// Runs the command to its end, and checks each document that it prints or writes against docs/schemas.
pub fn lab(arguments: &[&str]) -> Output {
    let output = superpage_lab(arguments).output().expect("the program starts");
    testkit::schemas::check_output(arguments, &output);
    output
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}
