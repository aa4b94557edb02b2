//! `superpage manage` as packaging/superpage-manage.service.in starts it: its capabilities, its system calls, its messages
//! to the service manager, in mounts of its own. systemd is not needed.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::common::{comes_true, has_thp, refused, run, send, stderr, stdout, wait_until};

/// Touched memory of the service in bytes.
const TOUCHED: usize = 64 << 20;

/// Values of a key of the unit, in order.
fn values(key: &str) -> Vec<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(file.join("../../../packaging/superpage-manage.service.in"));
    let value = |line: &str| line.strip_prefix(key)?.strip_prefix('=').map(str::to_string);
    text.expect("the unit's file").lines().filter_map(value).collect()
}

/// System calls of a group such as `@system-service`, by systemd's own tables; `None`: systemd is not installed.
fn group(name: &str) -> Option<BTreeSet<String>> {
    let words = ["syscall-filter", "--no-pager", name];
    let output = Command::new("systemd-analyze").args(words).output().ok()?;
    let mut calls = BTreeSet::new();
    for line in stdout(&output).lines().skip(1).map(str::trim) {
        match line.starts_with('@') {
            true => calls.extend(group(line)?),
            false if !line.is_empty() && !line.starts_with('#') => {
                calls.insert(line.to_string());
            }
            false => {}
        }
    }
    (!calls.is_empty()).then_some(calls)
}

/// The unit's system calls, as systemd reads the lines: later ones add to earlier ones, or take from them.
fn allowed() -> BTreeSet<String> {
    let mut allowed = BTreeSet::new();
    for value in values("SystemCallFilter") {
        let (is_taken, names) = match value.strip_prefix('~') {
            Some(names) => (true, names),
            None => (false, value.as_str()),
        };
        for name in names.split(' ') {
            let calls = match name.starts_with('@') {
                true => group(name).unwrap_or_else(|| panic!("{name} is no group")),
                false => BTreeSet::from([name.to_string()]),
            };
            match is_taken {
                true => allowed = &allowed - &calls,
                false => allowed.extend(calls),
            }
        }
    }
    allowed
}

/// The system calls in a log of strace(1). Lines of signals and of ends have none.
fn made(trace: &str) -> BTreeSet<String> {
    let call = |line: &str| {
        let (_, rest) = line.split_once(' ')?;
        let (name, _) = rest.trim_start().split_once('(')?;
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        is_name.then(|| name.to_string())
    };
    trace.lines().filter_map(call).collect()
}

/// A process that is killed when the test ends.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// tail(1) of another user, which keeps the end of its input in memory until the input ends.
fn service() -> Ended {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "tail", "-c"]);
    command.arg(TOUCHED.to_string()).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut service = Ended(command.spawn().expect("setpriv"));
    service.0.stdin.as_mut().unwrap().write_all(&vec![0; TOUCHED]).expect("tail reads");
    service
}

/// Share of the memory of a process that is on superpages.
fn coverage(pid: u32) -> f64 {
    let document: Value = serde_json::from_str(&stdout(&run(&["map", "--json", &pid.to_string()])))
        .expect("JSON of map");
    document["processes"][0]["coverage"].as_f64().expect("a share")
}

#[test]
fn the_units_manager_makes_superpages_tells_systemd_and_keeps_what_is_in_force_after_a_typo() {
    testkit::require!(testkit::is_root(), "needs root");
    testkit::require!(has_thp() && !testkit::thp_are_for_all(), "THP are off, or for all memory");
    testkit::require!(live::check_machine(&host::Root::real()).is_ok(), "nothing can be collapsed");
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    testkit::require!(has("unshare") && has("nsenter") && has("setpriv"), "no util-linux");
    let can_trace = has("strace") && group("@default").is_some();
    if !can_trace {
        testkit::skipped!("system calls: no strace, or no systemd-analyze");
    }
    let dir = tempfile::tempdir().unwrap();
    let [file, socket, trace] = ["manage.toml", "notify", "trace"].map(|it| dir.path().join(it));
    let text = format!(
        "[[rule]]\ncommand = \"^tail -c {TOUCHED}$\"\nuser = 65534\ndesign = \"sync-64\"\nmode = \"enforce\"\n"
    );
    std::fs::write(&file, &text).unwrap();
    let notified = UnixDatagram::bind(&socket).unwrap();
    notified.set_read_timeout(Some(Duration::from_secs(90))).unwrap();
    let service = service();
    let before = coverage(service.0.id());
    assert!(before < 0.1, "{before}");

    let bounding: String = values("CapabilityBoundingSet")[0]
        .split(' ')
        .map(|name| format!(",+{}", name.trim_start_matches("CAP_").to_lowercase()))
        .collect();
    let through = match can_trace {
        // The tracer is the grandchild, so that the manager has the pid of the child.
        true => format!("strace -D -f -qq -o {}", trace.display()),
        false => String::new(),
    };
    // What ProtectSystem=strict and ProtectKernelTunables=yes do, except for the directory of this test.
    let mounts = format!(
        "mount -t tmpfs -o mode=755 tmpfs /run && mount --bind {0} {0} && mount -o remount,bind,ro / && \
         mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && \
         mount --bind /sys /sys && mount -o remount,bind,ro /sys",
        dir.path().display()
    );
    let unshared = ["--mount", "--net", "--ipc", "--uts", "sh", "-c"];
    // In a chroot, for example, `/` is no mount.
    let tried = Command::new("unshare").args(unshared).arg(&mounts).output().unwrap();
    testkit::require!(tried.status.success(), "no mounts as the unit's: {}", stderr(&tried).trim());
    let script = format!(
        "{mounts} && exec setpriv --no-new-privs --inh-caps -all --bounding-set -all{bounding} {through} \"$0\" \
         manage --config {}",
        file.display()
    );
    let mut command = Command::new("unshare");
    command.args(unshared).arg(&script).arg(env!("CARGO_BIN_EXE_superpage"));
    command.env("NOTIFY_SOCKET", &socket).env("WATCHDOG_USEC", "2000000");
    let mut manager = Ended(command.stderr(Stdio::piped()).spawn().unwrap());
    let pid = manager.0.id();
    let next = |wanted: &str| {
        let mut bytes = [0; 4096];
        loop {
            // Another test's child may end: EINTR, since the socket has a timeout (signal(7)).
            let length = match notified.recv(&mut bytes) {
                Err(why) if why.kind() == std::io::ErrorKind::Interrupted => continue,
                received => received.unwrap_or_else(|why| panic!("{wanted}: {why}")),
            };
            let message = String::from_utf8_lossy(&bytes[..length]).into_owned();
            if message.starts_with(wanted) {
                return message;
            }
        }
    };
    assert!(next("READY=1").contains("\nSTATUS="));
    next("WATCHDOG=1");
    assert!(comes_true(|| coverage(service.0.id()) > 0.9), "{}", coverage(service.0.id()));

    // Its state is written again and again.
    let state = format!("/proc/{pid}/root/run/superpage/manage.json");
    let written = || std::fs::metadata(&state).map(|it| it.ino()).ok();
    wait_until("the state", || written().is_some());
    let first = written();
    wait_until("the state again", || written().is_some_and(|it| Some(it) != first));

    let mut second = Command::new("nsenter");
    // The test may run in a chroot.
    second.arg(format!("--mount=/proc/{pid}/ns/mnt")).arg(format!("--root=/proc/{pid}/root"));
    second.arg(env!("CARGO_BIN_EXE_superpage"));
    let second = second.args(["manage", "--config"]).arg(&file).output().unwrap();
    refused(&second, 3, &format!("process {pid} manages this machine's processes"));

    std::fs::write(&file, text.replace("mode", "mood")).unwrap();
    send(&manager.0, libc::SIGHUP);
    assert!(next("RELOADING=1").contains("\nMONOTONIC_USEC="));
    next("READY=1");
    send(&manager.0, libc::SIGTERM);
    next("STOPPING=1");
    let status = manager.0.wait().unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(manager.0.stderr.as_mut().unwrap(), &mut said).unwrap();
    assert!(status.success(), "{status}: {said}");
    assert!(said.contains("manage.toml:5: rule.mood: unknown key"), "{said}");
    assert!(said.contains("did you mean `mode`?"), "{said}");

    if can_trace {
        let allowed = allowed();
        for refused in ["ptrace", "mount", "setuid", "bpf", "process_vm_writev", "kexec_load"] {
            assert!(!allowed.contains(refused), "{refused}");
        }
        wait_until("the log of strace", || {
            std::fs::read_to_string(&trace).is_ok_and(|text| text.contains("STOPPING=1"))
        });
        let text = std::fs::read_to_string(&trace).unwrap();
        // MemoryDenyWriteExecute, RestrictAddressFamilies.
        assert!(!text.contains("PROT_WRITE|PROT_EXEC"));
        let is_realtime = text.lines().any(|line| line.contains("SCHED_FIFO"));
        assert!(!is_realtime || values("RestrictRealtime").is_empty());
        for line in text.lines().filter(|line| line.contains(" socket(")) {
            assert!(line.contains("socket(AF_UNIX"), "{line}");
        }
        let made = made(&text);
        assert!(made.contains("process_madvise"), "{made:?}");
        let refused: Vec<&String> = made.difference(&allowed).collect();
        assert!(refused.is_empty(), "{refused:?}");
    }
}
