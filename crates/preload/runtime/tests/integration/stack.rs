//! Stacks of a fixed size: the main thread's and those of threads.
//!
//! Kernel tier: needs THP. Privileged tier: needs a pool. `programs/stacks.c` checks itself: deep recursion, a fork
//! inside it, thousands of threads that are joined, detached and cancelled, C11 threads, attributes, its own guard
//! zones. It prints what /proc/self/smaps says about its stacks.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use crate::common::{NEEDS_FREE, NEEDS_POOL, Pool, has_free_superpages, has_passed, output};
use crate::programs::*;

fn program() -> &'static PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("stacks.c", "stacks", "cc", &["-O1", "-pthread"]))
}

/// Returns the command with stacks of 4 MiB.
fn command(pages: &str, fallback: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(arguments).envs(under(pages, "stack=4194304", fallback));
    command
}

const MIB: u64 = 1 << 10;

#[test]
fn stacks_lie_on_thp() {
    testkit::lock_machine!(shared);
    testkit::require!(has_thp(), "THP of 2 MiB are off on this machine");
    testkit::require!(has("cc"), "no C compiler");
    testkit::require!(has_free_superpages(64), "{NEEDS_FREE}");
    let text = run(command("thp", "base", &[]));
    assert!(number(&text, "main") >= 2 * MIB, "{text}");
    assert_eq!(number(&text, "thread"), 4 * MIB, "{text}");
    assert_eq!(number(&text, "thread-size"), 4 * MIB, "{text}");
}

mod exclusive {
    use super::*;

    #[test]
    fn stacks_lie_on_hugetlb() {
        testkit::require!(has("cc"), "no C compiler");
        let Some(pool) = Pool::of(200) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        let text = run(command("hugetlb:2097152", "base", &[]));
        assert!(number(&text, "main") >= 2 * MIB, "{text}");
        // The size that libc reports agrees with the stack's.
        assert!((4 * MIB..7 * MIB).contains(&number(&text, "main-size")), "{text}");
        assert_eq!(number(&text, "thread"), 4 * MIB, "{text}");
        assert!(pool.is_empty());
    }

    #[test]
    fn a_pool_that_runs_short_or_is_empty_costs_superpages_and_nothing_else() {
        testkit::require!(has("cc"), "no C compiler");
        let Some(pool) = Pool::of(6) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        // Threads fork whose stacks hold the last pages of the pool.
        for pages in [6, 4, 2, 0] {
            testkit::require!(pool.allow(pages), "{NEEDS_POOL}");
            for _ in 0..3 {
                let text = run(command("hugetlb:2097152", "base", &["", "3", "120"]));
                assert!(pages < 2 || number(&text, "main") > 0, "{pages}: {text}");
            }
            assert!(pool.is_empty());
        }
        let output = command("hugetlb:2097152", "error", &[]).output().expect("it starts");
        assert_eq!(output.status.code(), Some(127));
    }

    #[test]
    fn an_overflow_of_the_pools_pages_ends_the_program() {
        testkit::require!(has("cc"), "no C compiler");
        let Some(_pool) = Pool::of(16) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        assert_eq!(signal_of_an_overflow("hugetlb:2097152"), Some(libc::SIGSEGV));
    }

    #[test]
    fn a_debugger_sees_through_the_stacks_boundary() {
        testkit::require!(has("cc") && has("gdb"), "no C compiler or no gdb");
        let Some(_pool) = Pool::of(16) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        let last_frame = |variables: Vec<(&str, String)>| {
            let mut gdb = Command::new("gdb");
            gdb.args(["-batch", "-nx", "-ex", "set startup-with-shell off"]);
            gdb.args(["-ex", "set pagination off"]);
            for (name, value) in variables {
                gdb.arg("-ex").arg(format!("set environment {name} {value}"));
            }
            for line in ["break nothing", "run", "bt -2", "kill"] {
                gdb.args(["-ex", line]);
            }
            let output = gdb.arg(program()).output().expect("it starts");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.lines().rfind(|line| line.starts_with('#')).unwrap_or("").to_string()
        };
        let native = last_frame(Vec::new());
        testkit::require!(
            native.contains("main"),
            "gdb stops nowhere here, also without the library"
        );
        let last = last_frame(under("hugetlb:2097152", "stack=4194304", "base"));
        assert!(last.contains("main"), "{last}");
    }
}

#[test]
fn an_overflow_still_ends_the_program() {
    testkit::require!(has_thp(), "THP of 2 MiB are off on this machine");
    testkit::require!(has("cc"), "no C compiler");
    assert_eq!(signal_of_an_overflow("thp"), Some(libc::SIGSEGV));
}

fn signal_of_an_overflow(pages: &str) -> Option<i32> {
    command(pages, "base", &["overflow"]).output().expect("it starts").status.signal()
}

/// Threads of Rust, in this test itself.
#[test]
fn threads_of_rust_work() {
    testkit::require!(has_thp(), "THP of 2 MiB are off on this machine");
    let mut child = Command::new(std::env::current_exe().expect("our own path"));
    child.args(["--ignored", "--exact", "stack::child_threads"]);
    child.envs(under("thp", "stack=4194304", "base"));
    assert!(has_passed(&output(child)));
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn child_threads() {
    for _ in 0..50 {
        let sum: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..10).map(|at| scope.spawn(move || at)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!(sum, 45);
        drop(std::thread::spawn(|| ()));
    }
    assert!(std::thread::spawn(|| std::panic::resume_unwind(Box::new(1))).join().is_err());
}

#[test]
fn a_thread_that_a_plugins_constructor_waits_for_is_not_held_up() {
    testkit::require!(has("cc"), "no C compiler");
    let flags = ["-O1", "-pthread", "-shared", "-fPIC", "-DPLUGIN"];
    let library = build("plugin.c", "libplugin.so", "cc", &flags);
    let program = build("plugin.c", "plugin", "cc", &["-O1", "-pthread", "-ldl"]);
    for memory in ["stack=4194304", "heap"] {
        // `timeout` ends the program if it hangs.
        let mut command = Command::new("timeout");
        command.arg("90").arg(&program).arg(&library).envs(under("thp", memory, "base"));
        assert_eq!(run(command).trim(), "error kept: 1\nloaded: 1", "{memory}");
    }
}
