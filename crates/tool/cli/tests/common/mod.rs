//! What the command's tests share.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// The command, with nothing of the surroundings that would change what it does.
pub fn superpage(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_superpage"));
    command.args(arguments).env_remove("LD_PRELOAD").env_remove("GLIBC_TUNABLES");
    // As `cargo run` sets them too, for which `superpage lab` is built first.
    command.env_remove("CARGO").env_remove("CARGO_MANIFEST_DIR");
    // A shell without job control has what it starts in the background ignore these, and the command heeds that.
    // SAFETY: async-signal-safe calls, between fork and exec.
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

/// Whether `superpage lab` was built, as it is with the whole workspace.
pub fn has_lab() -> bool {
    Path::new(env!("CARGO_BIN_EXE_superpage")).with_file_name("superpage-lab").is_file()
}

/// Why a test leaves it out.
pub const NO_LAB: &str = "superpage-lab was not built (cargo build -p superpage-lab-cli)";

/// Runs it to its end, and checks each document that it prints or writes against docs/schemas.
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

/// That it ended with this code and one line of ours on standard error that has `part` in it.
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

/// Whether a condition comes true, within a time that is long on any machine.
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

/// Waits for a condition, and fails if it does not come true.
pub fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    assert!(comes_true(holds), "waited in vain: {what}");
}

/// Sends a signal to a child.
pub fn send(child: &std::process::Child, signal: i32) {
    sys::signal::send(units::Pid(child.id() as i32), signal)
        .expect("a child that was not waited for");
}

/// Processes whose command line has this text, with their ids. A process that has ended has no command line.
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

/// How often the kernel found no free superpage for memory that was to have one, on the whole machine.
pub fn thp_fallbacks() -> u64 {
    const NAMES: [&str; 3] =
        ["thp_fault_fallback", "thp_file_fallback", "thp_collapse_alloc_failed"];
    let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let counts = text.lines().filter_map(|line| line.split_once(' '));
    let counts = counts.filter(|(name, _)| NAMES.contains(name));
    counts.filter_map(|(_, count)| count.parse::<u64>().ok()).sum()
}

/// Whether the 2 MiB pool has no page to give: none is free, and none may be made on demand.
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

/// Why a test is skipped where the pool is not there.
pub const NO_POOL: &str = "no pool of 2 MiB pages";

pub fn has_pool() -> bool {
    Path::new(POOL).exists()
}

/// The pages of a run whose pages do not matter: as without the flag, or base pages where THP are off.
pub fn any_pages() -> &'static str {
    if has_thp() { "thp" } else { "base" }
}
