//! The systemd unit: what it allows is what making superpages in other users' processes needs, and no more.
//!
//! systemd is not needed: the capabilities of the unit's file are given by setpriv(1), and its system calls are those
//! of `systemd-analyze syscall-filter` where that is installed. See docs/decisions/manage.md#4.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use design::designs;
use host::{Root, Thp};
use live::{Fresh, Live};
use policy::Scale;
use services::{AddressSpace, Process};
use units::Pid;

/// Set in the process that makes superpages: the pid of the target.
const TARGET: &str = "SUPERPAGE_TEST_TARGET";
/// The test that is that process.
const MANAGER: &str = "unit::makes_superpages_in_the_target";
/// Touched memory of the target in bytes.
const TOUCHED: u64 = 64 << 20;

fn unit() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../packaging/superpage-manage.service.in");
    std::fs::read_to_string(file).expect("the unit's file")
}

/// Values of a key of the unit, in order.
fn values(key: &str) -> Vec<String> {
    let text = unit();
    let value = |line: &str| line.strip_prefix(key)?.strip_prefix('=').map(str::to_string);
    text.lines().filter_map(value).collect()
}

/// A program of another user with memory on base pages; ended on drop.
struct Target(Child);

impl Target {
    fn start() -> Option<Self> {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "tail", "-c"]);
        command.arg(TOUCHED.to_string()).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::null()).spawn().ok()?;
        // tail(1) keeps the end of its input in memory, until the input ends.
        let zeros = vec![0; TOUCHED as usize];
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), &zeros).ok()?;
        let target = Self(child);
        let deadline = Instant::now() + Duration::from_secs(20);
        while target.memory().1 < TOUCHED / 10 * 9 {
            assert!(Instant::now() < deadline, "{:?}", target.memory());
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(target)
    }

    fn pid(&self) -> Pid {
        Pid(i32::try_from(self.0.id()).unwrap())
    }

    /// Bytes on superpages, and all resident bytes that could be.
    fn memory(&self) -> (u64, u64) {
        let root = Root::real();
        let process = Process::read(&root, self.pid()).unwrap().expect("it has memory");
        let pages = AddressSpace::read(&root, &process).unwrap().pages();
        (pages.huge.bytes(), pages.present.bytes())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The manager of the tests below, with the capabilities that it was given; without a target, nothing.
#[test]
fn makes_superpages_in_the_target() {
    let Ok(target) = std::env::var(TARGET) else { return };
    let target = Pid(target.parse().unwrap());
    let policy = designs::find("sync-64").unwrap().policy(Scale::X86);
    let live = Live::start(policy, Fresh::BasePages, Root::real(), move || vec![target]);
    std::thread::sleep(Duration::from_secs(4));
    live.stop();
}

/// Makes superpages in a new target with these capabilities only, by a command that executes the words after it; returns
/// the share that is on superpages then.
fn share_with(capabilities: &[String], through: &[&str]) -> f64 {
    let target = Target::start().expect("setpriv(1) and tail(1)");
    let words: String = capabilities
        .iter()
        .map(|name| format!(",+{}", name.to_lowercase().trim_start_matches("cap_")))
        .collect();
    let bounding = format!("-all{words}");
    let mut manager = Command::new("setpriv");
    manager.args(["--no-new-privs", "--inh-caps", "-all", "--bounding-set", &bounding]);
    manager.args(through).arg(std::env::current_exe().unwrap()).args(["--exact", MANAGER]);
    manager.env(TARGET, target.pid().to_string()).stdout(Stdio::null());
    let status = manager.status().unwrap();
    assert!(status.success(), "{manager:?}: {status}");
    let (covered, all) = target.memory();
    covered as f64 / all as f64
}

fn capabilities() -> Vec<String> {
    values("CapabilityBoundingSet")[0].split(' ').map(str::to_string).collect()
}

/// System calls of a group such as `@system-service`, by systemd's own tables.
fn group(name: &str) -> Option<BTreeSet<String>> {
    let output =
        Command::new("systemd-analyze").args(["syscall-filter", "--no-pager", name]).output();
    let text = String::from_utf8(output.ok()?.stdout).ok()?;
    let mut calls = BTreeSet::new();
    for line in text.lines().skip(1).map(str::trim) {
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

#[test]
fn the_units_system_calls_are_those_that_making_superpages_needs() {
    testkit::require!(testkit::is_root(), "needs root");
    testkit::require!(!testkit::thp_are_for_all(), "the target has superpages at its faults");
    testkit::require!(Thp::pmd_size_of(&Root::real()).is_ok(), "no THP");
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    testkit::require!(
        has("strace") && group("@default").is_some(),
        "no strace, no systemd-analyze"
    );
    // As systemd reads the lines: later ones add to earlier ones, or take from them.
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
    for refused in ["ptrace", "mount", "setuid", "bpf", "process_vm_writev", "kexec_load"] {
        assert!(!allowed.contains(refused), "{refused}");
    }
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let through = ["strace", "-f", "-qq", "-o", trace.to_str().unwrap()];
    let share = share_with(&capabilities(), &through);
    assert!(share > 0.9, "{share}");
    let text = std::fs::read_to_string(trace).unwrap();
    // `123  read(0, ...`; lines of signals and of ends have no call.
    let call = |line: &str| {
        let (_, rest) = line.split_once(' ')?;
        let (name, _) = rest.trim_start().split_once('(')?;
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        is_name.then(|| name.to_string())
    };
    let made: BTreeSet<String> = text.lines().filter_map(call).collect();
    assert!(made.contains("process_madvise"), "{made:?}");
    let refused: Vec<&String> = made.difference(&allowed).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

#[test]
fn the_units_capabilities_suffice_and_without_one_nothing_is_made() {
    testkit::require!(testkit::is_root(), "needs root");
    testkit::require!(!testkit::thp_are_for_all(), "the target has superpages at its faults");
    testkit::require!(Thp::pmd_size_of(&Root::real()).is_ok(), "no THP");
    let capabilities = capabilities();
    let with = share_with(&capabilities, &[]);
    assert!(with > 0.9, "{with}");
    // Newer kernels (6.18, for one) let CAP_PERFMON read what older ones let CAP_SYS_PTRACE read.
    let reading = &["CAP_SYS_PTRACE", "CAP_PERFMON"][..];
    for needed in [&["CAP_SYS_NICE"][..], reading, &["CAP_DAC_READ_SEARCH"]] {
        let is_kept = |one: &&String| !needed.contains(&one.as_str());
        let others: Vec<String> = capabilities.iter().filter(is_kept).cloned().collect();
        assert_eq!(others.len() + needed.len(), capabilities.len(), "{needed:?}");
        let without = share_with(&others, &[]);
        assert!(without < 0.1, "{needed:?}: {without}");
    }
}

#[test]
fn systemd_calls_the_units_exposure_low() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("superpage-manage.service");
    std::fs::write(&file, unit().replace("@prefix@", "/usr")).unwrap();
    // Since systemd 250. The figure is in tenths; 1.7 by systemd 252.
    let words = ["security", "--offline=true", "--no-pager", "--threshold=20"];
    let output = Command::new("systemd-analyze").args(words).arg(&file).output();
    let text = output.as_ref().map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
    let text = text.unwrap_or_default();
    testkit::require!(text.contains("exposure level"), "no systemd-analyze that reads files");
    let output = output.unwrap();
    assert!(output.status.success(), "{text}");
    // A key that systemd does not know would be ignored.
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!complaints.contains("Unknown"), "{complaints}");
}
