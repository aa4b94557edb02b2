//! What another user on the machine can do to a run, and how a run behaves where systemd and similar programs restrict
//! it. The tests need root, to become another user.

mod common;

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{has_thp, stderr, stdout, superpage};
use testkit::require;

const NOBODY: u32 = 65534;

fn is_root() -> bool {
    sys::param::effective_user() == 0
}

/// Returns whether a program of the system exists and this command succeeds.
fn works(command: &[&str]) -> bool {
    let run = Command::new(command[0]).args(&command[1..]).output();
    run.is_ok_and(|output| output.status.success())
}

/// Runs `superpage run --heap --mmap -- COMMAND`; returns its output, and the messages at the end.
fn counted(command: &[&str]) -> (String, String) {
    let output =
        superpage(&[&["run", "--heap", "--mmap", "--"], command].concat()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", stderr(&output));
    (stdout(&output), stderr(&output))
}

/// Prints a line for everything that it can do to processes $PIDS and to files of a run: the action, and its object.
/// $VALUE is a value that only the run's own processes get.
const INTRUDER: &str = r#"
can() { echo "$1: $2"; }
for pid in $PIDS; do
    kill -0 $pid 2>/dev/null && can signal $pid
    for file in environ maps smaps mem auxv syscall io stack pagemap cwd/. root/.; do
        [ -r /proc/$pid/$file ] && head -c 1 /proc/$pid/$file >/dev/null 2>&1 && can "read $file" $pid
    done
    for directory in fd map_files; do
        ls /proc/$pid/$directory >/dev/null 2>&1 && can "list $directory" $pid
    done
    grep -q "[[:space:]]$pid[[:space:]]" /proc/sysvipc/shm && can "see System V memory" $pid
    # What root is not to do to its own test.
    [ -n "$HARMLESS" ] && continue
    fd=0
    while [ $fd -lt 32 ]; do
        ( : < /proc/$pid/fd/$fd ) 2>/dev/null && can "open fd/$fd" $pid
        ( : >> /proc/$pid/fd/$fd ) 2>/dev/null && can "append to fd/$fd" $pid
        truncate -s 0 /proc/$pid/fd/$fd 2>/dev/null && can "shorten fd/$fd" $pid
        fd=$((fd + 1))
    done
    ( echo 1000 > /proc/$pid/oom_score_adj ) 2>/dev/null && can "set oom_score_adj" $pid
    prlimit --pid $pid --nofile=10 >/dev/null 2>&1 && can "set a limit" $pid
    renice -n 5 -p $pid >/dev/null 2>&1 && can renice $pid
done
# Names that it could see, guess, or see made: whatever holds the project's name, and is new. Deeper down lie files of others: builds,
# and what other tests write.
for directory in /dev/shm /tmp /var/tmp /run /dev/mqueue; do
    find $directory -maxdepth 1 -newer $MARK -name '*superpage*' ! -path /run/superpage \
        \( -readable -o -writable \) 2>/dev/null | while read -r name; do can find $name; done
done
ls /run/superpage >/dev/null 2>&1 && can list /run/superpage
for name in /run/superpage/* /run/superpage/run-*; do
    [ -e "$name" ] && can guess "$name"
done
[ -z "$HARMLESS" ] && ( : > /run/superpage/new ) 2>/dev/null && can fill /run/superpage
grep superpage /proc/net/unix | grep -v 'superpage-record\|superpage-differential/' | while read -r line; do can "see a socket" "$line"; done
# Even told the path and the directory: neither is a way to the counters of others.
sealed=${VALUE%%:*}
( : <> $sealed ) 2>/dev/null && can "open by path" $sealed
truncate -s 0 $sealed 2>/dev/null && can "shorten by path" $sealed
[ -n "$HARMLESS" ] && exit 0
beside=${VALUE##*:}
ls $beside >/dev/null 2>&1 && can list $beside
for file in $beside/1; do
    ( : < $file ) 2>/dev/null && can read $file
    truncate -c -s 0 $file 2>/dev/null && can shorten $file
    rm -f $file 2>/dev/null && can remove $file
    mv $file $file.gone 2>/dev/null && can move $file
done
rmdir $beside 2>/dev/null && can remove $beside
exit 0
"#;

fn intrude(as_user: Option<u32>, pids: &str, mark: &Path, value: &str) -> Vec<String> {
    let mut command = Command::new("sh");
    command.args(["-c", INTRUDER]).env("PIDS", pids).env("MARK", mark).env("VALUE", value);
    command.env("HARMLESS", if as_user.is_none() { "1" } else { "" });
    if let Some(user) = as_user {
        // With another user, std also drops root's supplementary groups.
        command.gid(user).uid(user);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output).lines().map(str::to_string).collect()
}

/// Returns whether another user can read the command and the library: a checkout below /root is closed to others.
fn others_can_run_it() -> bool {
    let other = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    // A shell executes the command, because setpriv itself has root's capabilities until it executes a program.
    let run = ["sh", "-c", "exec \"$0\" --version", env!("CARGO_BIN_EXE_superpage")];
    works(&[&other[..], &run].concat())
}

#[test]
fn another_user_can_open_signal_shorten_fill_or_guess_nothing_of_a_run() {
    require!(has_thp(), "THP are off on this machine");
    require!(is_root() && works(&["setpriv", "--version"]), "needs root and setpriv");
    require!(others_can_run_it(), "this build lies where only root may read");
    let directory = tempfile::tempdir().unwrap();
    // The other user must be able to read this directory, for comparison.
    set_mode(directory.path(), 0o755);
    let mark = directory.path().join("mark");
    std::fs::write(&mark, "").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    // A process of root, and one that became user 1 and has its own counters.
    let script = "setpriv --reuid 1 --regid 1 --clear-groups sh -c 'echo $$; exec sleep 60' & \
                  echo $$; echo SUPERPAGE_LEDGER=$SUPERPAGE_LEDGER; read x; kill $!; wait; true";
    let mut command = superpage(&["run", "--heap", "--mmap", "--", "bash", "-c", script]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = command.spawn().unwrap();
    let mut said = BufReader::new(run.stdout.take().unwrap());
    let (mut pids, mut value) = (vec![run.id().to_string()], String::new());
    while pids.len() < 3 || value.is_empty() {
        let mut line = String::new();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended early");
        match line.trim().strip_prefix("SUPERPAGE_LEDGER=") {
            Some(given) => value = given.to_string(),
            None => pids.push(line.trim().to_string()),
        }
    }
    let pids = pids.join(" ");
    let done = intrude(Some(NOBODY), &pids, &mark, &value);
    assert_eq!(done, [""; 0], "another user could do this");
    // Run as root, the same script succeeds with every action except for truncating the sealed file, so it does find
    // what is possible.
    let by_root = intrude(None, &pids, &mark, &value);
    for way in ["signal", "read environ", "list fd", "list map_files", "open by path", "guess"] {
        assert!(
            by_root.iter().any(|line| line.starts_with(way)),
            "{way} is not tried: {by_root:?}"
        );
    }
    let sealed = by_root.iter().any(|line| line.starts_with("shorten by path"));
    assert!(!sealed, "the counters can be shortened: {by_root:?}");
    drop(run.stdin.take());
    let output = run.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(!Path::new(value.rsplit(':').next().unwrap()).exists());
}

fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Prints how many counter files are mapped in a process of the program executed last.
const WHERE: &str = "grep -cE 'rw-s.*(memfd:superpage-ledger|/run/superpage/run-)' /proc/self/maps";

#[test]
fn an_executed_program_counts_whatever_it_became() {
    require!(has_thp(), "THP are off on this machine");
    require!(is_root() && works(&["setpriv", "--version"]), "needs root and setpriv");
    require!(others_can_run_it(), "this build lies where only root may read");
    require!(Path::new("/run").exists(), "there is no /run");
    let became: [&[&str]; 5] = [
        &[],
        &["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"],
        &["setpriv", "--bounding-set=-all", "--inh-caps=-all"],
        &["setpriv", "--no-new-privs"],
        &["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs"],
    ];
    let namespaces: [&[&str]; 2] = [&["unshare", "-U"], &["unshare", "-p", "-f", "--mount-proc"]];
    let possible = namespaces.into_iter().filter(|way| works(&[way, &["true"][..]].concat()));
    for way in became.into_iter().chain(possible) {
        let (printed, said) = counted(&[way, &["sh", "-c", WHERE]].concat());
        assert_eq!(printed, "1\n", "{way:?}: {said}");
        assert!(said.contains("process"), "{way:?}: {said}");
    }
}

#[test]
fn a_program_sees_no_descriptor_of_ours_and_may_close_all() {
    require!(has_thp(), "THP are off on this machine");
    // Print the open descriptors first, then close all others. The list is printed separately, so that it has the same
    // length in both cases.
    let list = format!(
        "import os\nprint(sorted(os.listdir('/proc/self/fd')), flush=True)\nos.closerange(2, 1024)\n\
         os.close(0)\nos.execv('/bin/sh', ['sh', '-c', \"\"\"{WHERE}\"\"\"])"
    );
    require!(works(&["python3", "-c", ""]), "needs python3");
    let (printed, _) = counted(&["python3", "-c", &list]);
    let bare = Command::new("python3").args(["-c", &list]).output().unwrap();
    // Without the library nothing is counted, and the descriptors are the same.
    assert!(stdout(&bare).ends_with("\n0\n"), "{}", stdout(&bare));
    assert_eq!(printed, stdout(&bare).replace("\n0\n", "\n1\n"));
}

#[test]
fn a_process_without_a_ledger_is_told_and_not_taken_for_one_that_asked_for_nothing() {
    require!(has_thp(), "THP are off on this machine");
    require!(is_root() && works(&["setpriv", "--version"]), "needs root and setpriv");
    require!(works(&["unshare", "-m", "true"]), "needs mount namespaces");
    let reached = superpage(&["--version"]).uid(NOBODY).gid(NOBODY).output();
    require!(reached.is_ok(), "another user cannot reach the library");
    // /run is read-only, so no directory can be made there, and the process belongs to another user: it cannot reach
    // the counters.
    let script = "mount -t tmpfs -o ro none /run && exec \"$0\" run --heap --mmap -- \
                  setpriv --reuid 65534 --regid 65534 --clear-groups sleep 3";
    let command = ["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_superpage")];
    let output = Command::new("unshare").args(command).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("at least 1 more process is not counted"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_full_file_system_costs_counts_and_no_process() {
    require!(has_thp(), "THP are off on this machine");
    require!(is_root() && works(&["setpriv", "--version"]), "needs root and setpriv");
    require!(works(&["unshare", "-m", "true"]), "needs mount namespaces");
    let script = "mount -t tmpfs -o size=64k none /run && { cat /dev/zero > /run/full 2>/dev/null; \
                  exec \"$0\" run --heap --mmap -- setpriv --reuid 65534 --regid 65534 --clear-groups \
                  sh -c 'true; echo ok'; }";
    let command = ["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_superpage")];
    let output = Command::new("unshare").args(command).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output), "ok\n");
    assert!(stderr(&output).contains("in 1 process:"), "{}", stderr(&output));
}

#[test]
fn a_run_works_where_systemd_takes_things_away_or_says_what_cannot_be_counted() {
    require!(has_thp(), "THP are off on this machine");
    require!(is_root() && works(&["unshare", "-m", "true"]), "needs root and mount namespaces");
    let private =
        "mount -t tmpfs none /tmp; mount -t tmpfs none /dev/shm; mount -t tmpfs none /run";
    let read_only = "for d in /tmp /var/tmp /dev/shm /run; do mount -t tmpfs -o ro none $d; done";
    let uncounted = "counters are not available: /proc is not mounted";
    for (restriction, setup, wanted) in [
        (
            "ProtectSystem=strict",
            "mount -o remount,bind,ro / ; ! touch /x 2>/dev/null",
            "in 1 process",
        ),
        ("PrivateTmp", private, "in 1 process"),
        ("nothing to write", read_only, "in 1 process"),
        ("no /dev/shm", "mount -t tmpfs none /dev", "in 1 process"),
        ("no /proc", "umount -l /proc", uncounted),
    ] {
        let own = env!("CARGO_BIN_EXE_superpage");
        let is_hidden = ["/tmp/", "/var/tmp/", "/run/"].iter().any(|dir| own.starts_with(dir));
        if is_hidden && [private, read_only].contains(&setup) {
            testkit::skipped!("{restriction}: this build lies in a directory that it hides");
            continue;
        }
        let script = format!(
            "{setup}; exec setpriv --no-new-privs \"$0\" run --heap --mmap -- sh -c 'echo ok; exit 7'"
        );
        let command = ["-m", "sh", "-c", &script, own];
        let output = Command::new("unshare").args(command).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(7), "{restriction}: {said}");
        assert_eq!(stdout(&output), "ok\n", "{restriction}: {said}");
        assert!(said.contains(wanted), "{restriction}: {said}");
    }
}

/// Returns files in /dev/shm with the name of the counters.
fn shared_names() -> Vec<String> {
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("superpage-ledger")).collect()
}

#[test]
fn nothing_stays_of_a_killed_run() {
    require!(has_thp(), "THP are off on this machine");
    require!(is_root(), "needs root, whose directory is known");
    let before = shared_names();
    let mut command =
        superpage(&["run", "--heap", "--mmap", "--", "sh", "-c", "echo $SUPERPAGE_LEDGER; read x"]);
    let mut run = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut value = String::new();
    BufReader::new(run.stdout.take().unwrap()).read_line(&mut value).unwrap();
    let beside = Path::new(value.trim().rsplit(':').next().unwrap()).to_path_buf();
    assert!(beside.exists());
    run.kill().unwrap();
    run.wait().unwrap();
    assert_eq!(shared_names(), before);
    // The next run removes the directory.
    counted(&["true"]);
    assert!(!beside.exists());
}
