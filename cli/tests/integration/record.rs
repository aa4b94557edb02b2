//! `superpage record`: a program recorded, its end passed through, and what is told where it cannot be.

use std::os::unix::process::ExitStatusExt;
use std::process::Output;

use crate::common::{run, stderr, stdout, superpage};

/// Runs `superpage record` in a directory of its own, with the cache of these tests; `None`, counted as
/// skipped, where programs cannot be recorded.
fn record(dir: &std::path::Path, words: &[&str]) -> Option<Output> {
    let cache = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    let arguments = [&["record"], words].concat();
    let output =
        superpage(&arguments).current_dir(dir).env("XDG_CACHE_HOME", cache).output().unwrap();
    if output.status.code() == Some(3) {
        testkit::skipped!("{}", stderr(&output).trim());
        return None;
    }
    Some(output)
}

#[test]
fn a_recorded_program_ends_as_itself_and_the_trace_runs_in_the_laboratory() {
    let dir = tempfile::tempdir().unwrap();
    let script = "echo out; echo err >&2; exit 7";
    let Some(output) = record(dir.path(), &["--", "sh", "-c", script]) else { return };
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(7), "out\n"));
    let said = stderr(&output);
    assert!(
        said.starts_with("err\n") && said.contains("sh.spt: ") && said.lines().count() == 2,
        "{said}"
    );
    let path = dir.path().join("sh.spt");
    let path = path.to_str().unwrap();
    let verified = run(&["trace", "verify", path]);
    assert!(verified.status.success(), "{}", stderr(&verified));
    let lab = run(&["lab", "run", "-d", "linux-6", "-w", path, "--memory", "1G", "--json"]);
    assert!(lab.status.success(), "{}", stderr(&lab));

    let again = record(dir.path(), &["--", "sh", "-c", "kill -9 $$"]).unwrap();
    assert_eq!(again.status.code(), Some(2), "{}", stderr(&again));
    assert!(stderr(&again).contains("--force"));
    let killed = record(dir.path(), &["--force", "-q", "--", "sh", "-c", "kill -9 $$"]).unwrap();
    assert_eq!((killed.status.signal(), stderr(&killed).as_str()), (Some(9), ""));
}

#[test]
fn json_is_one_document_and_limits_are_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    let words = [
        "--json",
        "-q",
        "--max-accesses",
        "500000",
        "-o",
        "a.spt",
        "--",
        "sh",
        "-c",
        "echo x; while :; do :; done",
    ];
    let Some(output) = record(dir.path(), &words) else { return };
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), "x\n"));
    let document: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(document["schema"], "superpage.record/1");
    assert_eq!(
        (&document["accesses"], &document["ended"]),
        (&500_000.into(), &"max-accesses".into())
    );
    assert_eq!(document["native_seconds"], serde_json::Value::Null);
}

#[test]
fn what_cannot_be_recorded_is_told_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("qemu-x86_64"), "").unwrap();
    let none = superpage(&["record", "--", "/bin/sh"]).env("PATH", dir.path()).output().unwrap();
    assert_eq!(none.status.code(), Some(3));
    assert!(stderr(&none).contains("apt-get install qemu-user"), "{}", stderr(&none));
    let missing = run(&["record", "--", "no-such-program"]);
    assert_eq!(missing.status.code(), Some(127));
    let arm = dir.path().join("arm");
    let mut elf = b"\x7fELF\x02\x01".to_vec();
    elf.resize(18, 0);
    elf.extend(183u16.to_le_bytes());
    std::fs::write(&arm, elf).unwrap();
    std::fs::set_permissions(&arm, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let Some(output) = record(dir.path(), &["--", arm.to_str().unwrap()]) else { return };
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("64-bit Arm"), "{}", stderr(&output));
    let full = record(dir.path(), &["-o", "/dev/full", "--", "sh", "-c", "exit 0"]).unwrap();
    assert_eq!(full.status.code(), Some(2));
    assert!(
        stderr(&full).contains("/dev/full") && stderr(&full).lines().count() == 1,
        "{}",
        stderr(&full)
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "no half file is left");
}

#[test]
fn root_takes_no_plugin_from_another_users_home() {
    testkit::require!(testkit::is_root(), "not root, who alone could be given another's home");
    let home = tempfile::tempdir().unwrap();
    let cache = home.path().join(".cache/superpage");
    std::fs::create_dir_all(&cache).unwrap();
    let plan = || {
        let dry_run = ["record", "--dry-run", "--json", "-o", "x.spt", "--", "true"];
        let mut command = superpage(&dry_run);
        command.current_dir(home.path()).env_remove("XDG_CACHE_HOME").env("HOME", home.path());
        let output = command.output().unwrap();
        let plan: Option<serde_json::Value> = serde_json::from_str(&stdout(&output)).ok();
        plan.and_then(|plan| plan["plugin"].as_str().map(std::path::PathBuf::from))
    };
    let Some(own) = plan() else {
        testkit::skipped!("programs cannot be recorded here");
        return;
    };
    assert!(own.starts_with(home.path()), "{}", own.display());
    for path in [home.path(), &cache] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
        let used = plan().unwrap();
        std::os::unix::fs::chown(path, Some(0), Some(0)).unwrap();
        // A home, or a cache in it, that belongs to somebody else.
        let is_home = path == home.path();
        assert_eq!(used.starts_with("/var/cache/superpage"), is_home, "{}", used.display());
    }
    std::os::unix::fs::chown(&cache, Some(65534), Some(65534)).unwrap();
    let mut command = superpage(&["record", "-o", "x.spt", "--", "true"]);
    command.current_dir(home.path()).env_remove("XDG_CACHE_HOME").env("HOME", home.path());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("belongs to user 65534"), "{}", stderr(&output));
}
