//! What the tests of every crate share: skipping with a counted reason, and the machine's lock.
//!
//! Tiers: pure, fixture, kernel (`require!`), privileged (`machine_lock`). A test that needs a
//! feature asks by trying it, and says `skipped: ...` when the machine cannot, so that the test
//! command can count and print what was not tested here.
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

/// Leaves the test with a counted line unless `condition` holds. The reason is a format string.
#[macro_export]
macro_rules! require {
    ($condition:expr, $($reason:tt)+) => {
        if !$condition {
            $crate::skipped!($($reason)+);
            return;
        }
    };
}

/// Counts a part of a test as skipped, with the reason, and goes on.
#[macro_export]
macro_rules! skipped {
    ($($reason:tt)+) => {
        $crate::skip(env!("CARGO_PKG_NAME"), &format!($($reason)+))
    };
}

/// Says on the real stderr, past the test harness's capture, that a test was skipped.
pub fn skip(package: &str, reason: &str) {
    let test = std::thread::current().name().unwrap_or("?").to_string();
    // Written at once: other threads write between the pieces of a formatted line.
    let line = format!("skipped: {package}::{test}: {reason}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// How many cases a statistical, property or mutation test takes of its `full` number: all of them in the nightly set
/// (`SUPERPAGE_TESTS=nightly`), else a tenth, at least one. The cases are drawn by the test's own seed, so the tenth is the
/// same in each run.
pub fn cases(full: usize) -> usize {
    if is_nightly() { full } else { (full / 10).max(1) }
}

/// Whether these tests run as part of the nightly set (`scripts/nightly`).
pub fn is_nightly() -> bool {
    std::env::var_os("SUPERPAGE_TESTS").is_some_and(|set| set == "nightly")
}

/// Leaves the test with a counted line unless the machine's lock can be had, and holds it to the end of the test:
/// `lock_machine!()` for a test that changes machine-wide state, `lock_machine!(shared)` for one that depends on it.
#[macro_export]
macro_rules! lock_machine {
    () => {
        let Some(_lock) = $crate::machine_lock() else { return };
    };
    (shared) => {
        let Some(_lock) = $crate::shared_machine_lock() else { return };
    };
}

/// Held while a test changes or depends on machine-wide state (pools, knobs, free memory).
#[derive(Debug)]
pub struct MachineLock {
    _file: File,
}

/// Waits for `/run/lock/superpage-tests`, which all tests and tools that change machine state
/// hold. The kernel releases it when the process ends, however it ends. `None` is counted as a skipped test.
pub fn machine_lock() -> Option<MachineLock> {
    locked(File::lock)
}

/// The same, shared: for a test that depends on machine state and changes none. Such run beside each other.
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

/// Whether all memory gets THP, asked for or not.
pub fn thp_are_for_all() -> bool {
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    mode.is_ok_and(|mode| mode.contains("[always]"))
}

/// Copies a program that is executed then. By another process: while this one has the copy open for writing, a child that
/// another test just forked has it open too, and executing it fails with ETXTBSY.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let copied = Command::new("cp").arg(from.as_ref()).arg(to.as_ref()).status();
    assert!(copied.expect("cp starts").success());
}

/// Writes a script that is executed then; by another process, as [`copy_program`] does.
pub fn write_script(path: impl AsRef<Path>, text: &str) {
    let write = r#"printf %s "$2" > "$1" && chmod +x "$1""#;
    let written =
        Command::new("sh").args(["-c", write, "sh"]).arg(path.as_ref()).arg(text).status();
    assert!(written.expect("sh starts").success());
}

const LOCK_FILE: &str = "/run/lock/superpage-tests";

/// Root's file can be locked by other users, who may only read it (and not open it with O_CREAT: fs.protected_regular).
fn lock_file() -> std::io::Result<File> {
    let created = OpenOptions::new().create(true).truncate(false).write(true).open(LOCK_FILE);
    created.or_else(|error| File::open(LOCK_FILE).map_err(|_| error))
}

/// Whether this process is root, judged by what a root can do and others cannot.
pub fn is_root() -> bool {
    OpenOptions::new().write(true).open("/proc/sys/vm/nr_overcommit_hugepages").is_ok()
}

/// Whether nobody has pages of the 2 MiB pool, in use or reserved: tests that count them need that.
pub fn pool_is_unused() -> bool {
    let number = |file: &str| {
        let text = fs::read_to_string(format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{file}"));
        text.ok().and_then(|text| text.trim().parse::<u64>().ok())
    };
    let (all, free, reserved) =
        (number("nr_hugepages"), number("free_hugepages"), number("resv_hugepages"));
    reserved == Some(0) && free == all && number("surplus_hugepages") == Some(0)
}

/// Sets the 2 MiB pool so that exactly `count` pages are free to be reserved, beside those that are in use
/// or reserved already, and none is made on demand. Whether that could be had. To be put back by
/// [`PoolsAsFound`].
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
