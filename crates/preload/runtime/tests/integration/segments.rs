//! Text, data and bss of unmodified programs on superpages.
//!
//! Kernel tier: needs THP. Privileged tier: needs a pool. The programs check themselves, and print what
//! /proc/self/smaps says about their segments.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::common::{NEEDS_FREE, NEEDS_POOL, Pool, has_free_superpages, library};
use crate::programs::*;

/// Returns `programs/segments.c`, built position independent or not, aligned to superpages or not.
fn program(kind: &str) -> &'static PathBuf {
    static BUILT: OnceLock<[PathBuf; 3]> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let aligned = "-Wl,-z,max-page-size=0x200000,-z,common-page-size=0x200000";
        [
            ("segments-pie", ["-fPIE", "-pie"]),
            ("segments-fixed", ["-fno-pie", "-no-pie"]),
            ("segments-aligned", ["-no-pie", aligned]),
        ]
        .map(|(name, flags)| build("segments.c", name, "cc", &[flags[0], flags[1], "-O1", "-ldl"]))
    });
    &built[["pie", "fixed", "aligned"].iter().position(|it| *it == kind).expect("a kind")]
}

fn command(program: &PathBuf, variables: Vec<(&str, String)>) -> Command {
    let mut command = Command::new(program);
    command.envs(variables);
    command
}

const MIB: u64 = 1 << 10;

#[test]
fn text_data_and_bss_lie_on_thp() {
    testkit::lock_machine!(shared);
    testkit::require!(has_thp(), "THP of 2 MiB are off on this machine");
    testkit::require!(has("cc"), "no C compiler");
    testkit::require!(has_free_superpages(128), "{NEEDS_FREE}");
    for kind in ["pie", "fixed", "aligned"] {
        let mut command = command(program(kind), under("thp", "text=copy,data", "base"));
        command.arg("parts");
        let text = run(command);
        // 6.6 MiB of code contain two whole superpages, wherever the code begins.
        assert!(number(&text, "text") >= 2 * 2 * MIB, "{kind}: {text}");
        assert!(number(&text, "bss") >= 62 * MIB, "{kind}: {text}");
        assert!(number(&text, "data") >= 8 * MIB, "{kind}: {text}");
    }
}

#[test]
fn each_is_moved_only_when_asked() {
    testkit::lock_machine!(shared);
    testkit::require!(!testkit::thp_are_for_all(), "all memory gets THP here");
    testkit::require!(has_thp(), "THP of 2 MiB are off on this machine");
    testkit::require!(has("cc"), "no C compiler");
    testkit::require!(has_free_superpages(128), "{NEEDS_FREE}");
    let text = run(command(program("pie"), under("thp", "text=copy", "base")));
    assert!(number(&text, "text") > 0 && number(&text, "data") == 0, "{text}");
    let text = run(command(program("pie"), under("thp", "data", "base")));
    assert!(number(&text, "bss") > 0, "{text}");
    let text = run(command(program("pie"), under("thp", "mmap", "base")));
    assert_eq!(number(&text, "bss") + number(&text, "data"), 0, "{text}");
}

mod exclusive {
    use super::*;

    #[test]
    fn text_data_and_bss_lie_on_hugetlb() {
        testkit::require!(has("cc"), "no C compiler");
        let Some(pool) = Pool::of(64) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        for kind in ["pie", "fixed", "aligned"] {
            for argument in ["", "parts"] {
                let mut command =
                    command(program(kind), under("hugetlb:2097152", "text=copy,data", "base"));
                command.arg(argument);
                let text = run(command);
                assert!(number(&text, "text") >= 2 * 2 * MIB, "{kind}: {text}");
                // A part of bss with another protection left the pool.
                assert!(number(&text, "bss") >= 70 * MIB, "{kind}: {text}");
            }
        }
        assert!(pool.is_empty());
    }

    #[test]
    fn without_a_pool_the_fallback_decides() {
        testkit::require!(has("cc"), "no C compiler");
        let Some(_pool) = Pool::of(0) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        testkit::require!(!testkit::thp_are_for_all(), "all memory gets THP here");
        testkit::require!(has_thp(), "THP of 2 MiB are off on this machine");
        let report = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("segments-report");
        let _ = std::fs::remove_file(&report);
        let variables = under("hugetlb:2097152", "text=copy,data", "base");
        let mut command = command(program("pie"), variables);
        command.env("SUPERPAGE_REPORT", format!("json:{}", report.display()));
        let text = run(command);
        assert_eq!(number(&text, "text") + number(&text, "bss"), 0, "{text}");
        let told = std::fs::read_to_string(&report).expect("a report");
        // The program forks a child, which writes a separate report only if it ends by `exit`.
        let number_of = |text: &str, name: &str| -> u64 {
            let rest = text.split_once(&format!("\"{name}\":")).expect("it is in the report").1;
            let end = rest.find(|c: char| !c.is_ascii_digit()).expect("more follows");
            rest[..end].parse().expect("a number")
        };
        assert!(number_of(&told, "pool-short") > 0, "{told}");
        let data = told.split_once("\"data\":").expect("a kind").1;
        assert!(number_of(data, "fell_back_bytes") > 0, "{told}");

        let strict = under("hugetlb:2097152", "text=copy,data", "error");
        let output = self::command(program("pie"), strict).output().expect("it starts");
        assert_eq!(output.status.code(), Some(127));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("SUPERPAGE_FALLBACK=error"), "{errors}");

        testkit::require!(has_free_superpages(128), "{NEEDS_FREE}");
        let text =
            run(self::command(program("pie"), under("hugetlb:2097152", "text=copy,data", "thp")));
        assert!(number(&text, "bss") >= 62 * MIB, "{text}");
    }

    #[test]
    fn exceptions_pass_through_code_on_the_pool() {
        testkit::require!(has("c++"), "no C++ compiler");
        let Some(_pool) = Pool::of(16) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        assert_eq!(caught("hugetlb:2097152"), 300);
    }

    #[test]
    #[ignore = "nightly: a large program of others"]
    fn a_debugger_names_functions_on_the_pool_and_stops_in_them() {
        testkit::require!(has("cc") && has("gdb"), "no C compiler or no gdb");
        let Some(_pool) = Pool::of(64) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        is_debugged("hugetlb:2097152");
    }

    #[test]
    fn the_environment_of_libhugetlbfs_is_understood() {
        testkit::require!(has("cc"), "no C compiler");
        let Some(pool) = Pool::of(64) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        let with = |kind: &str, elfmap: &str, more: &str| {
            let library = library().to_str().expect("a path in UTF-8").to_string();
            let mut variables = vec![("LD_PRELOAD", library), ("HUGETLB_ELFMAP", elfmap.into())];
            variables.extend((!more.is_empty()).then(|| (more, "yes".into())));
            let mut command = command(program(kind), variables);
            command.arg("pool");
            let text = run(command);
            (number(&text, "text") > 0, number(&text, "bss") > 0)
        };
        assert_eq!(with("aligned", "R", ""), (true, false));
        assert_eq!(with("aligned", "W", ""), (false, true));
        assert_eq!(with("aligned", "RW", ""), (true, true));
        assert_eq!(with("aligned", "R=2M:W=2048k", "HUGETLB_MINIMAL_COPY"), (true, true));
        assert_eq!(with("aligned", "no", ""), (false, false));
        assert_eq!(with("aligned", "RW", "HUGETLB_SHARE"), (true, true));
        // Segments that were not linked for relocation are moved only if forced.
        assert_eq!(with("pie", "RW", ""), (false, false));
        assert_eq!(with("pie", "RW", "HUGETLB_FORCE_ELFMAP"), (true, true));
        // In programs with other names nothing is moved.
        assert_eq!(with("aligned", "RW", "HUGETLB_RESTRICT_EXE"), (false, false));
        // The name in argv[0] counts, whatever the name of the file.
        for (called, is_meant) in [("/any/where", true), ("program", false)] {
            let library = library().to_str().expect("a path in UTF-8").to_string();
            let restricted = ("HUGETLB_RESTRICT_EXE", "other:where".into());
            let elfmap = ("HUGETLB_ELFMAP", "RW".into());
            let mut command =
                command(program("aligned"), vec![("LD_PRELOAD", library), elfmap, restricted]);
            std::os::unix::process::CommandExt::arg0(&mut command, called);
            command.arg("pool");
            let text = run(command);
            assert_eq!(number(&text, "text") > 0, is_meant, "{called}: {text}");
        }
        assert!(pool.is_empty());
    }
}

/// Returns the number of exceptions caught by a program that throws them through code on these pages.
fn caught(pages: &str) -> u64 {
    let flags = ["-O1", "-ftemplate-depth=2000"];
    let program = build("throws.cc", &format!("throws-{}", &pages[..3]), "c++", &flags);
    number(&run(command(&program, under(pages, "text=copy,data", "base"))), "caught")
}

#[test]
fn exceptions_pass_through_code_on_superpages() {
    testkit::require!(has_thp(), "THP of 2 MiB are off on this machine");
    testkit::require!(has("c++"), "no C++ compiler");
    assert_eq!(caught("thp"), 300);
}

#[test]
#[ignore = "nightly: a large program of others"]
fn a_debugger_names_functions_and_stops_in_them() {
    testkit::require!(has_thp(), "THP of 2 MiB are off on this machine");
    testkit::require!(has("cc") && has("gdb"), "no C compiler or no gdb");
    is_debugged("thp");
}

fn is_debugged(pages: &str) {
    let frames = |variables: Vec<(&str, String)>| {
        let mut gdb = Command::new("gdb");
        gdb.args(["-batch", "-nx", "-ex", "set startup-with-shell off"]);
        for (name, value) in variables {
            gdb.arg("-ex").arg(format!("set environment {name} {value}"));
        }
        // At the first stop the code is not moved yet, and the breakpoint was set in the original code. At the second
        // stop the code is moved.
        for line in ["break f1000", "run", "break f2500", "delete 1", "continue", "bt", "kill"] {
            gdb.args(["-ex", line]);
        }
        let output = gdb.arg(program("fixed")).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let frames = text.lines().filter(|line| line.starts_with('#'));
        frames.map(str::to_string).collect::<Vec<_>>()
    };
    let native = frames(Vec::new());
    testkit::require!(native.len() == 2, "gdb stops in no function here, also without the library");
    let frames = frames(under(pages, "text=copy,data", "base"));
    assert!(frames.len() == 2, "{pages}: {frames:?}");
    assert!(frames[0].contains("f2500") && frames[1].contains("main"), "{pages}: {frames:?}");
}

#[test]
#[ignore = "nightly: how many samples a short run gives depends on the machine"]
fn a_profiler_names_functions() {
    testkit::require!(has_thp(), "THP of 2 MiB are off on this machine");
    testkit::require!(has("cc") && has("perf"), "no C compiler or no perf");
    let data = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("segments-perf");
    let mut record = Command::new("perf");
    record.args(["record", "-q", "-e", "cpu-clock:u", "-F", "20000", "-o"]).arg(&data).arg("--");
    record
        .arg("env")
        .args(under("thp", "text=copy", "base").iter().map(|(k, v)| format!("{k}={v}")));
    record.arg(program("fixed"));
    let recorded = record.output().is_ok_and(|output| output.status.success());
    testkit::require!(recorded, "perf cannot record here");
    let mut report = Command::new("perf");
    report.args(["report", "--stdio", "--sort", "sym", "-i"]).arg(&data);
    let text = run(report);
    let named = text
        .lines()
        .filter(|line| line.split("[.] f").nth(1).is_some_and(|rest| rest.starts_with(['1', '2'])));
    let named = named.count();
    println!("{named} of 2000 functions named");
    assert!(named > 20, "{text}");
}

/// Prints the times without judging them: on a loaded machine no bound would hold.
#[test]
#[ignore = "nightly: prints times, and judges none"]
fn what_it_costs_at_the_start() {
    testkit::require!(has_thp(), "THP of 2 MiB are off on this machine");
    testkit::require!(has("cc"), "no C compiler");
    let best = |program: &PathBuf, memory: &str| -> Duration {
        let times = (0..10).map(|_| {
            let mut command = command(program, under("thp", memory, "base"));
            command.arg("--version").stdout(std::process::Stdio::null());
            let start = Instant::now();
            assert!(command.status().expect("it starts").success());
            start.elapsed()
        });
        times.min().expect("some")
    };
    for program in [PathBuf::from("/bin/true"), program("pie").clone()] {
        let (without, with) = (best(&program, "mmap"), best(&program, "text=copy,data"));
        println!("{}: {without:?} without, {with:?} with text and data", program.display());
    }
}

#[test]
fn code_is_put_on_its_files_superpages_or_left_as_it_is() {
    testkit::require!(has_thp(), "THP of 2 MiB are off on this machine");
    testkit::require!(has("cc"), "no C compiler");
    for kind in ["pie", "fixed", "aligned"] {
        let shape = |variables| {
            let text = run(command(program(kind), variables));
            (number(&text, "copied"), number(&text, "mappings"))
        };
        let native = shape(Vec::new());
        assert_eq!(native.0, 0, "{kind}");
        assert_eq!(shape(under("thp", "text", "base")), native, "{kind}");
        let (copied, _) = shape(under("thp", "text=copy", "base"));
        println!("{kind}: {copied} KiB copied where that was asked for");
    }
}

#[test]
fn code_on_tmpfs_is_collapsed_where_it_is() {
    testkit::require!(has_thp(), "THP of 2 MiB are off on this machine");
    testkit::require!(has("cc"), "no C compiler");
    let shmem = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    let denied = shmem.is_ok_and(|mode| mode.contains("[deny]"));
    testkit::require!(!denied, "shmem_enabled is deny");
    let dir = tempfile::Builder::new().prefix("superpage-").tempdir_in("/dev/shm");
    testkit::require!(dir.is_ok(), "no /dev/shm to write to");
    testkit::require!(has_free_superpages(64), "{NEEDS_FREE}");
    let dir = dir.unwrap();
    let path = dir.path().join("segments");
    testkit::copy_program(program("aligned"), &path);
    // A page that is locked or isolated for a moment prevents one superpage.
    let collapsed = (0..3).any(|_| {
        let text = run(command(&path, under("thp", "text", "base")));
        assert_eq!(number(&text, "copied"), 0, "{text}");
        println!("{text}");
        number(&text, "text") >= 2 * 2 * MIB
    });
    assert!(collapsed, "in none of three runs");
}

/// V8 maps its code again from the file, which fails if the code is a copy (nodejs/node issue 64408).
#[test]
fn node_runs_with_its_code_on_superpages() {
    testkit::require!(has_thp(), "THP of 2 MiB are off on this machine");
    testkit::require!(has("node"), "no node");
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/programs/workers.js");
    let outcome = |memory: Option<&str>| {
        let report = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("segments-node");
        let _ = std::fs::remove_file(&report);
        let mut node = Command::new("node");
        node.arg(&script);
        if let Some(memory) = memory {
            node.envs(under("thp", memory, "base"));
            node.env("SUPERPAGE_REPORT", format!("json:{}", report.display()));
        }
        (run(node), std::fs::read_to_string(&report).unwrap_or_default())
    };
    let (native, _) = outcome(None);
    assert!(native.starts_with("done"), "{native}");
    let (text, report) = outcome(Some("text"));
    assert_eq!(text, native);
    assert!(report.contains("\"mapped-again\":0"), "{report}");
    let (text, report) = outcome(Some("text=copy"));
    assert_eq!(text, native);
    assert!(report.contains("\"mapped-again\":1"), "{report}");
}
