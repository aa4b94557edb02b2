//! A test that starts itself again with the library preloaded.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::common::{hand_on_skips, has_passed};

pub fn library() -> PathBuf {
    let exe = std::env::current_exe().expect("our own path");
    let deps = exe.parent().expect("a directory");
    let places = [deps.join("libsuperpage.so"), deps.join("../libsuperpage.so")];
    places.into_iter().find(|path| path.is_file()).expect("libsuperpage.so is built with its tests")
}

/// Returns a command that runs one of the ignored tests below in a new process under the library.
pub fn child(test: &str) -> Command {
    child_by(&[], test)
}

/// The same, but `starter` runs first, and starts the test.
pub fn child_by(starter: &[&str], test: &str) -> Command {
    let exe = std::env::current_exe().expect("our own path");
    let mut words = starter.to_vec();
    let exe = exe.to_str().expect("a path in UTF-8");
    words.extend([exe, "--ignored", "--exact", test, "--test-threads=1", "--nocapture"]);
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("LD_PRELOAD", library());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("HUGETLB_")) {
        command.env_remove(name);
    }
    command
}

#[track_caller]
pub fn succeeds(mut command: Command) -> String {
    let output = command.output().expect("it starts");
    passed(&output, &format!("{command:?}"))
}

/// Checks that the child passed; returns its stderr.
#[track_caller]
pub fn passed(output: &Output, what: &str) -> String {
    hand_on_skips(&output.stderr);
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let signal = output.status.signal();
    assert!(output.status.success(), "{what}: signal {signal:?}\n{out}\n{err}");
    assert!(has_passed(output), "{what} ran nothing:\n{out}");
    err.into_owned()
}
