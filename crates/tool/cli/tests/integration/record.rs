//! `superpage record`: a program is recorded, its exit status is passed on, and an error says why a program cannot be
//! recorded.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Output;

use crate::common::{NO_LAB, has_lab, run, stderr, stdout, superpage, wait_until};

/// Runs `superpage record` in a directory of its own, with the cache of these tests; `None`, counted as skipped, if
/// programs cannot be recorded.
fn record(dir: &Path, words: &[&str]) -> Option<Output> {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
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
    if has_lab() {
        let lab = run(&["lab", "run", "-d", "linux-6", "-w", path, "--memory", "1G", "--json"]);
        assert!(lab.status.success(), "{}", stderr(&lab));
    } else {
        testkit::skipped!("{NO_LAB}");
    }

    let again = record(dir.path(), &["--", "sh", "-c", "kill -9 $$"]).unwrap();
    assert_eq!(again.status.code(), Some(2), "{}", stderr(&again));
    assert!(stderr(&again).contains("--force"));
    let killed = record(dir.path(), &["--force", "-q", "--", "sh", "-c", "kill -9 $$"]).unwrap();
    assert_eq!((killed.status.signal(), stderr(&killed).as_str()), (Some(9), ""));
}

/// Returns whether any process is alive that was started with this TMPDIR.
fn any_process_of(room: &Path) -> bool {
    let variable = format!("TMPDIR={}", room.to_str().unwrap());
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|one| one == variable.as_bytes())
    })
}

/// Returns the processes that have one of these files open, with their command lines.
fn holders(files: &[std::path::PathBuf]) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let holding = processes.filter(|process| {
        let open = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        let mut open = open.filter_map(|it| std::fs::read_link(it.path()).ok());
        open.any(|it| files.contains(&it))
    });
    let named = holding.map(|process| {
        let words = std::fs::read_to_string(process.join("cmdline")).unwrap_or_default();
        format!("{}: {}", process.display(), words.replace('\0', " "))
    });
    named.collect()
}

#[test]
fn a_killed_recorder_takes_its_program_along_and_leaves_what_it_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_) = record(dir.path(), &["-o", "first.spt", "--", "true"]) else { return };
    let room = dir.path().join("tmp");
    std::fs::create_dir(&room).unwrap();
    // A program that sleeps, one that computes, and one that does both in turn; none of them ends.
    let script = "sleep 1000 & (while :; do :; done) & while :; do sleep 0.01; done";
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    for moment in 0..10u64 {
        let output = format!("{moment}.spt");
        let words = ["record", "-q", "--filter", "none", "-o", &output, "--", "sh", "-c", script];
        let mut command = superpage(&words);
        command.current_dir(dir.path()).env("XDG_CACHE_HOME", &cache).env("TMPDIR", &room);
        let mut recorder = command.stderr(std::process::Stdio::null()).spawn().unwrap();
        let part = || {
            let names = std::fs::read_dir(dir.path()).unwrap().flatten().map(|entry| entry.path());
            let begin = format!(".{output}");
            let mut names = names.filter(|path| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&begin))
            });
            names.next()
        };
        wait_until("a process is recorded", || any_process_of(&room));
        // Wait until the file has grown this often, and then until a chunk is complete: how much of a chunk is written
        // at once varies.
        let (mut length, mut grown) = (0, 0);
        wait_until("the file grows", || {
            let Some(part) = part() else { return false };
            let now = part.metadata().map_or(0, |it| it.len());
            grown += u64::from(now > length);
            length = length.max(now);
            if grown <= moment || moment == 0 {
                return grown > moment;
            }
            let info = run(&["trace", "info", "--json", part.to_str().unwrap()]);
            let info: Result<serde_json::Value, _> = serde_json::from_str(&stdout(&info));
            info.is_ok_and(|info| info["accesses"].as_u64() > Some(0))
        });
        recorder.kill().unwrap();
        recorder.wait().unwrap();
        wait_until("no process is left", || !any_process_of(&room));
        assert!(!dir.path().join(&output).exists(), "it is no whole trace");
        let part = part().unwrap();
        let part = part.to_str().unwrap();
        let info = run(&["trace", "info", "--json", part]);
        assert!(info.status.success(), "{}", stderr(&info));
        assert!(
            stderr(&info).contains("warning: ") && stderr(&info).contains("truncated at byte ")
        );
        let info: serde_json::Value = serde_json::from_str(&stdout(&info)).unwrap();
        assert!(info["cut"].as_u64() <= info["bytes"].as_u64());
        assert!(moment == 0 || info["accesses"].as_u64() > Some(0), "{info}");
        // The trace can be read up to the truncation, and is valid up to there.
        let verified = run(&["trace", "verify", part]);
        assert_eq!(verified.status.code(), Some(1), "{}", stderr(&verified));
        assert!(stdout(&verified).contains("truncated: the footer"), "{}", stdout(&verified));
    }
    // The next recorder removes directories of killed ones, unless a process that is ending still has a directory open.
    wait_until("what killed recorders left is gone", || {
        let words = ["record", "-q", "--force", "-o", "first.spt", "--", "true"];
        let mut command = superpage(&words);
        command.current_dir(dir.path()).env("XDG_CACHE_HOME", &cache).env("TMPDIR", &room);
        assert!(command.status().unwrap().success());
        let left: Vec<_> =
            std::fs::read_dir(&room).unwrap().flatten().map(|it| it.path()).collect();
        println!("left: {left:?}, held open: {:?}", holders(&left));
        left.is_empty()
    });
}

/// Kills a recorder whose program has started, and waits until all its processes are gone.
fn killed_recorder_leaves_nothing(dir: &Path, words: &[&str], script: &str) {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    let room = dir.join("tmp");
    std::fs::create_dir_all(&room).unwrap();
    let arguments = [&["record", "-q", "--force", "-o", "x.spt"], words].concat();
    let script = format!("{script} & echo > started; while :; do sleep 0.01; done");
    let mut command = superpage(&arguments);
    command.args(["--", "sh", "-c", &script]).current_dir(dir);
    command.env("XDG_CACHE_HOME", &cache).env("TMPDIR", &room);
    let mut recorder = command.spawn().unwrap();
    wait_until("the program has started", || dir.join("started").exists());
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    wait_until(&format!("no process of {words:?} {script} is left"), || !any_process_of(&room));
    std::fs::remove_file(dir.join("started")).unwrap();
}

#[test]
fn a_killed_recorder_takes_along_what_runs_natively() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_) = record(dir.path(), &["-o", "x.spt", "--", "true"]) else { return };
    // Processes that are hard to find: in another session, without a parent in the tree, and started by the kernel
    // because the program gains privileges.
    let sleep = dir.path().join("sleep");
    testkit::copy_program("/bin/sleep", &sleep);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o4755);
    std::fs::set_permissions(&sleep, mode).unwrap();
    for script in ["sleep 1000", "setsid sleep 1000", "(sleep 1000 &)", "./sleep 1000"] {
        killed_recorder_leaves_nothing(dir.path(), &[], script);
    }
    killed_recorder_leaves_nothing(dir.path(), &["--no-follow"], "(setsid sleep 1000 &)");
}

#[test]
fn a_killed_recorder_of_faults_takes_its_programs_along() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_) = record(dir.path(), &["--faults", "-o", "x.spt", "--", "true"]) else { return };
    for script in ["sleep 1000", "setsid sleep 1000", "(sleep 1000 &)", "(while :; do :; done)"] {
        killed_recorder_leaves_nothing(dir.path(), &["--faults"], script);
    }
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
        // A home directory, or a cache in it, that belongs to another user.
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
