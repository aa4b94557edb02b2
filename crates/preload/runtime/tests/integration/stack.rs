//! Stacks of a fixed size: the main thread's and those of threads.
//!
//! Kernel tier: needs THP. Privileged tier: needs a pool. `programs/stacks.c` checks itself: deep
//! recursion, fork from it, thousands of threads joined, detached and cancelled, C11 threads,
//! attributes, guard zones of its own; and prints what /proc/self/smaps says of its stacks.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use crate::programs::*;

fn program() -> &'static PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("stacks.c", "stacks", "cc", &["-O1", "-pthread"]))
}

/// With stacks of 4 MiB.
fn command(pages: &str, fallback: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(arguments).envs(under(pages, "stack=4194304", fallback));
    command
}

const MIB: u64 = 1 << 10;

#[test]
fn stacks_lie_on_thp() {
    let _lock = testkit::shared_machine_lock();
    testkit::require!(has_thp(), "THP of 2 MiB are off on this machine");
    testkit::require!(has("cc"), "no C compiler");
    let text = run(command("thp", "base", &[]));
    assert!(number(&text, "main") >= 2 * MIB, "{text}");
    assert_eq!(number(&text, "thread"), 4 * MIB, "{text}");
    assert_eq!(number(&text, "thread-size"), 4 * MIB, "{text}");
}

#[test]
fn stacks_lie_on_hugetlb() {
    testkit::require!(has("cc"), "no C compiler");
    let pool = pool_of(200);
    testkit::require!(pool.is_some(), "{NEEDS_POOL}");
    let pool = pool.unwrap();
    let text = run(command("hugetlb:2097152", "base", &[]));
    assert!(number(&text, "main") >= 2 * MIB, "{text}");
    // libc takes the size for what it says it is.
    assert!((4 * MIB..7 * MIB).contains(&number(&text, "main-size")), "{text}");
    assert_eq!(number(&text, "thread"), 4 * MIB, "{text}");
    assert!(pool.is_empty());
}

#[test]
fn a_pool_that_runs_short_or_is_empty_costs_superpages_and_nothing_else() {
    testkit::require!(has("cc"), "no C compiler");
    let pool = pool_of(6);
    testkit::require!(pool.is_some(), "{NEEDS_POOL}");
    let pool = pool.unwrap();
    // Forks from stacks that hold the last pages of the pool among them.
    for pages in [6, 4, 2, 0] {
        pool.allow(pages);
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
fn an_overflow_still_ends_the_program() {
    testkit::require!(has_thp(), "THP of 2 MiB are off on this machine");
    testkit::require!(has("cc"), "no C compiler");
    let overflow = |pages| command(pages, "base", &["overflow"]).output().expect("it starts");
    assert_eq!(overflow("thp").status.signal(), Some(libc::SIGSEGV));
    let pool = pool_of(16);
    testkit::require!(pool.is_some(), "{NEEDS_POOL}");
    assert_eq!(overflow("hugetlb:2097152").status.signal(), Some(libc::SIGSEGV));
}

#[test]
fn a_debugger_sees_through_the_stacks_boundary() {
    testkit::require!(has("cc") && has("gdb"), "no C compiler or no gdb");
    let pool = pool_of(16);
    testkit::require!(pool.is_some(), "{NEEDS_POOL}");
    let mut gdb = Command::new("gdb");
    gdb.args(["-batch", "-nx", "-ex", "set startup-with-shell off", "-ex", "set pagination off"]);
    for (name, value) in under("hugetlb:2097152", "stack=4194304", "base") {
        gdb.arg("-ex").arg(format!("set environment {name} {value}"));
    }
    for line in ["break nothing", "run", "bt -2", "kill"] {
        gdb.args(["-ex", line]);
    }
    gdb.arg(program());
    let text = run(gdb);
    let last = text.lines().rfind(|line| line.starts_with('#')).unwrap_or("");
    assert!(last.contains("main"), "{text}");
}

/// Rust's own threads, in this test itself.
#[test]
fn threads_of_rust_work() {
    testkit::require!(has_thp(), "THP of 2 MiB are off on this machine");
    let mut child = Command::new(std::env::current_exe().expect("our own path"));
    child.args(["--ignored", "--exact", "stack::child_threads"]);
    child.envs(under("thp", "stack=4194304", "base"));
    run(child);
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
        // The deadline ends it if it waits for ever.
        let mut command = Command::new("timeout");
        command.arg("30").arg(&program).arg(&library).envs(under("thp", memory, "base"));
        assert_eq!(run(command).trim(), "error kept: 1\nloaded: 1", "{memory}");
    }
}
