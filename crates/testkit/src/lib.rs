//! Shared parts of all crates' tests: skipping a test with a counted reason, and the machine's
//! lock.
//!
//! Tiers: pure, fixture, kernel (`require!`), privileged (`machine_lock`). A test that needs a
//! feature tries the feature. If the machine lacks it, the test prints `skipped: ...`, so that the
//! test command can count and list what was not tested.
#![forbid(unsafe_code)]

mod as_found;
pub mod cluster;
mod control_group;
pub mod figures;
pub mod schemas;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use as_found::{AsFound, PoolsAsFound};
pub use control_group::ControlGroup;

/// Returns from the test with a counted `skipped:` line unless `condition` holds. The reason is a
/// format string.
#[macro_export]
macro_rules! require {
    ($condition:expr, $($reason:tt)+) => {
        if !$condition {
            $crate::skipped!($($reason)+);
            return;
        }
    };
}

/// Counts a part of a test as skipped, with a reason, and continues the test.
#[macro_export]
macro_rules! skipped {
    ($($reason:tt)+) => {
        $crate::skip(env!("CARGO_PKG_NAME"), &format!($($reason)+))
    };
}

/// Prints to the real stderr, past the test harness's capture, that a test was skipped.
pub fn skip(package: &str, reason: &str) {
    let test = std::thread::current().name().unwrap_or("?").to_string();
    // Write the line with one call, because other threads could write between the pieces of a
    // formatted line.
    let line = format!("skipped: {package}::{test}: {reason}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Number of cases that a statistical, property or mutation test runs: `full` in the nightly set
/// (`SUPERPAGE_TESTS=nightly`), otherwise a tenth of it, at least one. Tests draw cases from their own seed, so each
/// run has the same cases.
pub fn cases(full: usize) -> usize {
    if is_nightly() { full } else { (full / 10).max(1) }
}

/// Whether these tests run as part of the nightly set (`scripts/nightly`).
pub fn is_nightly() -> bool {
    std::env::var_os("SUPERPAGE_TESTS").is_some_and(|set| set == "nightly")
}

/// Takes the machine's lock and holds it until the end of the test; if that is impossible, returns from the test with a
/// counted `skipped:` line. Use `lock_machine!()` for a test that changes machine-wide state, `lock_machine!(shared)`
/// for one that depends on it.
#[macro_export]
macro_rules! lock_machine {
    () => {
        let Some(_lock) = $crate::machine_lock() else { return };
    };
    (shared) => {
        let Some(_lock) = $crate::shared_machine_lock() else { return };
    };
}

/// The machine's lock, held while a test changes or depends on machine-wide state (pools, knobs,
/// free memory).
#[derive(Debug)]
pub struct MachineLock {
    _file: File,
}

/// Waits for the lock `/run/lock/superpage-tests`, which all tests and tools that change machine state hold. The kernel
/// releases it when the process ends for any reason. Returns `None` after counting a skipped test.
pub fn machine_lock() -> Option<MachineLock> {
    locked(File::lock)
}

/// Like [`machine_lock`], but shared with other such tests. For tests that depend on machine state and do not change
/// it.
pub fn shared_machine_lock() -> Option<MachineLock> {
    locked(File::lock_shared)
}

fn locked(lock: fn(&File) -> std::io::Result<()>) -> Option<MachineLock> {
    let locked = lock_file().and_then(|file| lock(&file).map(|()| file));
    if let Err(error) = &locked {
        skipped!("{LOCK_FILE} cannot be locked: {error}");
    }
    Some(MachineLock { _file: locked.ok()? })
}

/// Compiles a C source text with further arguments of `cc`; returns whether `cc` did.
pub fn compile(source: &str, out: &Path, arguments: &[&str]) -> bool {
    let file = format!("{}.c", out.display());
    fs::write(&file, source).expect("the directory is writable");
    let status = Command::new("cc").arg("-o").arg(out).arg(&file).args(arguments).status();
    status.expect("cc is installed").success()
}

/// Builds a program in a directory that is linked with a library of jemalloc's name.
pub fn linked_with_jemalloc(directory: &Path) -> PathBuf {
    let [library, program] = ["libjemalloc.so.2", "app"].map(|name| directory.join(name));
    let shared = ["-shared", "-fPIC", "-Wl,-soname,libjemalloc.so.2"];
    assert!(compile("void jemalloc_stats(void) {}", &library, &shared));
    let with = ["-Wl,--no-as-needed", library.to_str().expect("UTF-8")];
    assert!(compile("int main(void) { return 0; }", &program, &with));
    program
}

/// Whether a process has a handler for a signal.
pub fn catches(pid: u32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process is there");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.expect("SigCgt").trim(), 16).expect("a mask");
    caught & (1 << (signal - 1)) != 0
}

/// Whether the kernel uses THP for all memory (`always`).
pub fn thp_are_for_all() -> bool {
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    mode.is_ok_and(|mode| mode.contains("[always]"))
}

/// Copies a program that the test will execute. Another process makes the copy: if this one did, a child that another
/// test forks meanwhile could inherit the descriptor open for writing, and executing the copy would fail with ETXTBSY.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let copied = Command::new("cp").arg(from.as_ref()).arg(to.as_ref()).status();
    assert!(copied.expect("cp starts").success());
}

/// Writes a script that the test will execute. Another process writes it, as in [`copy_program`].
pub fn write_script(path: impl AsRef<Path>, text: &str) {
    let write = r#"printf %s "$2" > "$1" && chmod +x "$1""#;
    let written =
        Command::new("sh").args(["-c", write, "sh"]).arg(path.as_ref()).arg(text).status();
    assert!(written.expect("sh starts").success());
}

const LOCK_FILE: &str = "/run/lock/superpage-tests";

/// Opens the lock file. Other users can lock root's file although they may only read it; they must not open it with
/// O_CREAT (fs.protected_regular).
fn lock_file() -> std::io::Result<File> {
    let created = OpenOptions::new().create(true).truncate(false).write(true).open(LOCK_FILE);
    created.or_else(|error| File::open(LOCK_FILE).map_err(|_| error))
}

/// Whether this process is root, tested by opening a sysctl for writing.
pub fn is_root() -> bool {
    OpenOptions::new().write(true).open("/proc/sys/vm/nr_overcommit_hugepages").is_ok()
}

/// Whether no page of the 2 MiB pool is in use or reserved. Tests that count pages need an unused
/// pool.
pub fn pool_is_unused() -> bool {
    let number = |file: &str| {
        let text = fs::read_to_string(format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{file}"));
        text.ok().and_then(|text| text.trim().parse::<u64>().ok())
    };
    let (all, free, reserved) =
        (number("nr_hugepages"), number("free_hugepages"), number("resv_hugepages"));
    reserved == Some(0) && free == all && number("surplus_hugepages") == Some(0)
}

/// Resizes the 2 MiB pool so that exactly `count` pages are free and unreserved, and disables surplus pages. Returns
/// whether this succeeded. Restore the pool with [`PoolsAsFound`].
pub fn leave_free(count: u64) -> bool {
    let dir = PathBuf::from("/sys/kernel/mm/hugepages/hugepages-2048kB");
    let number = |file: &str| {
        let text = fs::read_to_string(dir.join(file)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let free = || Some(number("free_hugepages")?.saturating_sub(number("resv_hugepages")?));
    let write = |file: &str, value: u64| fs::write(dir.join(file), value.to_string()).ok();
    let set = || {
        write("nr_overcommit_hugepages", 0)?;
        let taken = number("nr_hugepages")? - free()?;
        write("nr_hugepages", taken + count)?;
        (free()? == count).then_some(())
    };
    set().is_some()
}
