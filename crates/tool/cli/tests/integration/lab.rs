//! `superpage lab` executes a separate program: where it is searched, its arguments and environment, and its exit code.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::{refused, stderr, stdout};

/// Another process writes the script: a child forked meanwhile would inherit a descriptor that this process has open
/// for writing, and the script could not be executed ("Text file busy").
fn script(path: &Path, lines: &str) {
    testkit::write_script(path, &format!("#!/bin/sh\n{lines}\n"));
}

/// Returns a directory in which the command can be linked.
fn room() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Runs the command by its link in `directory`, with `path` as the only directory of PATH besides the system's.
fn superpage(
    directory: &Path,
    path: &Path,
    arguments: &[&str],
    environment: &[(&str, &Path)],
) -> Output {
    let own = directory.join("superpage");
    if !own.exists() {
        fs::hard_link(env!("CARGO_BIN_EXE_superpage"), &own).unwrap();
    }
    let mut command = Command::new(own);
    command.args(arguments).env("PATH", format!("{}:/bin:/usr/bin", path.display()));
    command.env_remove("CARGO").env_remove("CARGO_MANIFEST_DIR");
    command.envs(environment.iter().copied()).output().unwrap()
}

#[test]
fn it_is_found_beside_the_command_then_along_path() {
    let room = room();
    let (own, path) = (room.path().join("own"), room.path().join("path"));
    [&own, &path].into_iter().for_each(|directory| fs::create_dir(directory).unwrap());
    let lab = |arguments: &[&str]| superpage(&own, &path, arguments, &[]);
    let missing = lab(&["lab", "run"]);
    refused(&missing, 3, "superpage-lab: neither beside ");
    refused(&missing, 3, "cargo build --release -p superpage-lab-cli");
    let alone = lab(&["completions", "bash"]);
    assert!(stdout(&alone).contains("compare") && !stdout(&alone).contains("sweep"));
    assert!(stderr(&alone).contains("without those of `superpage lab`"), "{}", stderr(&alone));

    script(&path.join("superpage-lab"), "echo along PATH: \"$@\"; exit 7");
    let found = lab(&["lab", "run", "--help", "-x", "--", "a b"]);
    assert_eq!(
        (found.status.code(), stdout(&found)),
        (Some(7), "along PATH: run --help -x -- a b\n".into())
    );
    script(&own.join("superpage-lab"), "echo beside: \"$@\"; kill -9 $$");
    let found = lab(&["help", "lab", "run"]);
    assert_eq!(found.status.signal(), Some(9), "{}", stderr(&found));
    assert_eq!(stdout(&found), "beside: help run\n");
    assert_eq!(stdout(&lab(&["completions", "fish"])), "beside: completions fish\n");
}

#[test]
fn from_a_checkout_it_is_built_first() {
    let room = room();
    let release = room.path().join("target/release");
    fs::create_dir_all(&release).unwrap();
    let cargo = room.path().join("cargo");
    let log = room.path().join("log");
    let made = release.join("superpage-lab");
    let lines = [
        "echo \"$@\" >",
        log.to_str().unwrap(),
        "; printf '#!/bin/sh\\necho made\\n' >",
        made.to_str().unwrap(),
    ];
    script(&cargo, &format!("{}; chmod +x {}", lines.join(" "), made.display()));
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let run = || {
        let environment = [("CARGO", cargo.as_path()), ("CARGO_MANIFEST_DIR", package)];
        superpage(&release, room.path(), &["lab", "run"], &environment)
    };
    let built = run();
    assert_eq!((built.status.code(), stdout(&built)), (Some(0), "made\n".into()));
    assert_eq!(
        stderr(&built),
        "superpage: building superpage-lab (cargo build -p superpage-lab-cli)\n"
    );
    let told = fs::read_to_string(&log).unwrap();
    let target = room.path().join("target");
    for part in ["build --quiet --profile release", "lab/cli/Cargo.toml", target.to_str().unwrap()]
    {
        assert!(told.contains(part), "{told}");
    }
    script(&cargo, "exit 101");
    let failed = run();
    assert_eq!(failed.status.code(), Some(2));
    assert!(
        stderr(&failed).contains("superpage-lab was not built: cargo: exit status: 101"),
        "{}",
        stderr(&failed)
    );
}
