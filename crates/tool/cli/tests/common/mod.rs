//! Shared helpers of the command's tests.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Returns the command, in an environment without variables that would affect it.
pub fn superpage(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_superpage"));
    command.args(arguments).env_remove("LD_PRELOAD").env_remove("GLIBC_TUNABLES");
    // `cargo run` sets these too, and with them `superpage lab` would build the laboratory first.
    command.env_remove("CARGO").env_remove("CARGO_MANIFEST_DIR");
    // A shell without job control starts background programs with these signals ignored, and the command would keep
    // ignoring them. SAFETY: async-signal-safe calls, between fork and exec.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGINT, libc::SIGQUIT] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    command
}

/// Returns whether `superpage-lab` is built, as it is in a build of the whole workspace.
pub fn has_lab() -> bool {
    Path::new(env!("CARGO_BIN_EXE_superpage")).with_file_name("superpage-lab").is_file()
}

/// Why a test of the laboratory is skipped.
pub const NO_LAB: &str = "superpage-lab was not built (cargo build -p superpage-lab-cli)";

/// Runs the command to its end, and checks each document that it prints or writes against docs/schemas.
pub fn run(arguments: &[&str]) -> Output {
    let output = superpage(arguments).output().expect("the command starts");
    testkit::schemas::check_output(arguments, &output);
    output
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// Checks that the command ended with this code and printed one line to standard error that contains `part`.
pub fn refused(output: &Output, code: i32, part: &str) {
    let line = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{line}");
    assert_eq!(line.trim_end().lines().count(), 1, "{line}");
    assert!(line.starts_with("superpage: ") && line.contains(part), "lacks {part}: {line}");
}

/// The setting that a comparison may change.
pub const OVERCOMMIT: &str = "/proc/sys/vm/nr_overcommit_hugepages";

pub fn overcommit() -> Option<String> {
    std::fs::read_to_string(OVERCOMMIT).ok()
}

pub fn has_thp() -> bool {
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    mode.is_ok_and(|mode| !mode.contains("[never]"))
}

/// Returns whether a condition becomes true, within a time that is long on any machine.
pub fn comes_true(mut holds: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    loop {
        if holds() {
            return true;
        }
        if began.elapsed() > Duration::from_secs(90) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until a condition is true, and fails if it does not become true.
pub fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    assert!(comes_true(holds), "waited in vain: {what}");
}

/// Sends a signal to a child.
pub fn send(child: &std::process::Child, signal: i32) {
    sys::signal::send(units::Pid(child.id() as i32), signal)
        .expect("a child that was not waited for");
}

/// Returns the processes whose command line contains this text, with their ids. A process that has ended has no command
/// line.
pub fn processes_with(text: &str) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let named = entries.filter_map(|entry| {
        let pid =
            entry.file_name().into_string().ok().filter(|name| name.parse::<i32>().is_ok())?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(text).then(|| format!("{pid}: {line}"))
    });
    named.collect()
}

/// Returns how often the kernel found no free superpage for memory that was to get one, on the whole machine.
pub fn thp_fallbacks() -> u64 {
    const NAMES: [&str; 3] =
        ["thp_fault_fallback", "thp_file_fallback", "thp_collapse_alloc_failed"];
    let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let counts = text.lines().filter_map(|line| line.split_once(' '));
    let counts = counts.filter(|(name, _)| NAMES.contains(name));
    counts.filter_map(|(_, count)| count.parse::<u64>().ok()).sum()
}

/// Returns whether the 2 MiB pool is exhausted: no page is free, and none may be added on demand.
pub fn pool_is_empty() -> bool {
    let number = |file: &str| {
        let text = std::fs::read_to_string(format!("{POOL}/{file}")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let is_free = number("free_hugepages") > number("resv_hugepages");
    let is_on_demand = number("nr_overcommit_hugepages") > number("surplus_hugepages");
    !is_free && !is_on_demand
}

/// The pool of 2 MiB pages.
pub const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// Why a test is skipped if there is no pool.
pub const NO_POOL: &str = "no pool of 2 MiB pages";

pub fn has_pool() -> bool {
    Path::new(POOL).exists()
}

/// Returns `--pages` for tests in which the pages do not matter: the default, or base pages if THP are off.
pub fn any_pages() -> &'static str {
    if has_thp() { "thp" } else { "base" }
}
