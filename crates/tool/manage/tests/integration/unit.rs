//! The systemd unit: what it allows is what making superpages in other users' processes needs, and no more.
//!
//! systemd is not needed: setpriv(1) gives the capabilities of the unit's file. What the whole manager does under the
//! unit is tested with the command (`manage_service`). See docs/decisions/manage.md#4.

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

/// Makes superpages in a new target with these capabilities only; returns the share that is on superpages then.
fn share_with(capabilities: &[String]) -> f64 {
    let target = Target::start().expect("setpriv(1) and tail(1)");
    let words: String = capabilities
        .iter()
        .map(|name| format!(",+{}", name.to_lowercase().trim_start_matches("cap_")))
        .collect();
    let bounding = format!("-all{words}");
    let mut manager = Command::new("setpriv");
    manager.args(["--no-new-privs", "--inh-caps", "-all", "--bounding-set", &bounding]);
    manager.arg(std::env::current_exe().unwrap()).args(["--exact", MANAGER]);
    manager.env(TARGET, target.pid().to_string()).stdout(Stdio::null());
    let status = manager.status().unwrap();
    assert!(status.success(), "{manager:?}: {status}");
    let (covered, all) = target.memory();
    covered as f64 / all as f64
}

fn capabilities() -> Vec<String> {
    values("CapabilityBoundingSet")[0].split(' ').map(str::to_string).collect()
}

#[test]
fn the_units_capabilities_suffice_and_without_one_nothing_is_made() {
    testkit::require!(testkit::is_root(), "needs root");
    testkit::require!(!testkit::thp_are_for_all(), "the target has superpages at its faults");
    testkit::require!(Thp::pmd_size_of(&Root::real()).is_ok(), "no THP");
    let capabilities = capabilities();
    let with = share_with(&capabilities);
    assert!(with > 0.9, "{with}");
    // Newer kernels (6.18, for one) let CAP_PERFMON read what older ones let CAP_SYS_PTRACE read.
    let reading = &["CAP_SYS_PTRACE", "CAP_PERFMON"][..];
    for needed in [&["CAP_SYS_NICE"][..], reading, &["CAP_DAC_READ_SEARCH"]] {
        let is_kept = |one: &&String| !needed.contains(&one.as_str());
        let others: Vec<String> = capabilities.iter().filter(is_kept).cloned().collect();
        assert_eq!(others.len() + needed.len(), capabilities.len(), "{needed:?}");
        let without = share_with(&others);
        assert!(without < 0.1, "{needed:?}: {without}");
    }
}

#[test]
fn systemd_calls_the_units_exposure_low() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("superpage-manage.service");
    std::fs::write(&file, unit().replace("@prefix@", "/usr")).unwrap();
    // Since systemd 250. The figure is in tenths; 1.8 by systemd 252.
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
