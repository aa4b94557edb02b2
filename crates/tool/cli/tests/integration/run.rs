//! `superpage run`: the program runs as if superpage were not there, on the requested pages.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use crate::common::{
    NO_POOL, POOL, any_pages, has_pool, has_thp, pool_is_empty, run, send, stderr, stdout,
    superpage, thp_fallbacks, wait_until,
};

/// A static program of this glibc is reached by its malloc's tunables, and nothing says otherwise.
#[test]
fn a_static_glibc_is_reached_without_contradiction() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("x.c");
    let text = "#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\nint main(void) { char *p = malloc(64 << 20); \
                memset(p, 1, 64 << 20); usleep(500000); return p[9] != 1; }";
    std::fs::write(&source, text).unwrap();
    let binary = dir.path().join("x");
    let mut cc = std::process::Command::new("cc");
    testkit::require!(
        cc.args(["-static", "-o"]).args([&binary, &source]).status().unwrap().success(),
        "no static libc"
    );
    let output = run(&["run", "--", binary.to_str().unwrap()]);
    let said = stderr(&output);
    assert!(!said.contains("can be counted on"), "{said}");
    // With the library, which cannot reach it, a way is named.
    let output = run(&["run", "--heap", "--", binary.to_str().unwrap()]);
    let said = stderr(&output);
    assert!(said.contains("--design quicksilver-sync-64"), "{said}");
    let first = format!("superpage: use superpage run -- {}", binary.display());
    assert!(said.starts_with(&first), "{said}");
    // The library was active in no process for a reason that is known.
    let about_library = said.lines().filter(|line| line.contains("libsuperpage.so"));
    assert_eq!(about_library.count(), 1, "{said}");
}

#[test]
fn the_program_begins_at_the_first_word_that_is_no_option() {
    for dashes in [&[][..], &["--"]] {
        let words = ["sh", "-c", "echo $0 $1 $2", "-q", "--", "--pages"];
        let output = run(&[&["run", "--pages", "base", "-q"], dashes, &words].concat());
        assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("-q -- --pages\n", ""));
    }
}

#[test]
fn output_exit_code_and_signal_pass_through() {
    let output =
        run(&["run", "--pages", "base", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(stdout(&output), "out\n");
    assert!(stderr(&output).starts_with("err\n"), "{}", stderr(&output));
    for signal in [libc::SIGTERM, libc::SIGSEGV, libc::SIGKILL] {
        let output = run(&[
            "run",
            "-q",
            "--pages",
            any_pages(),
            "--",
            "sh",
            "-c",
            &format!("kill -{signal} $$"),
        ]);
        assert_eq!(output.status.signal(), Some(signal));
        assert_eq!(stderr(&output), "");
    }
}

#[test]
fn names_that_are_not_utf8_reach_the_program_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let [program, file] =
        [&b"caf\xe9"[..], b"menu\xe9"].map(|name| dir.path().join(OsStr::from_bytes(name)));
    std::os::unix::fs::symlink("/bin/cat", &program).unwrap();
    std::fs::write(&file, "eggs").unwrap();
    for words in [["run", "-q", "--"], ["run", "--json", "--"]] {
        let output = superpage(&words).arg(&program).arg(&file).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "eggs");
    }
    let document = dir.path().join("c.json");
    let words =
        ["compare", "--max-runs", "2", "--min-runs", "2", "--arm", "base", "--aa", "--json"];
    let mut compare = superpage(&words);
    compare.arg("-o").arg(&document).arg("--").arg(&program).arg(&file);
    let output = compare.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(std::fs::read_to_string(&document).unwrap().contains("menu\u{fffd}"));
    let missing = superpage(&["run", "--"]).arg(OsStr::from_bytes(b"caf\xe9")).output().unwrap();
    assert_eq!(missing.status.code(), Some(127));
    assert!(stderr(&missing).contains("`caf\u{fffd}` was not found"), "{}", stderr(&missing));
}

#[test]
fn base_means_base_pages_whatever_the_environment_says() {
    testkit::require!(has_thp(), "THP are off on this machine");
    let own = env!("CARGO_BIN_EXE_superpage");
    let under = |words: &[&str]| {
        let mut command =
            superpage(&[&["run", "--json", "--pages", "base", "--"][..], words].concat());
        command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1").output().unwrap()
    };
    let output = under(&[own, "workload", "gups", "--size", "64M", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_str(&stderr(&output)).unwrap();
    // On a busy machine the program's memory may be missed.
    let outcome = report["outcome"].as_str().unwrap();
    assert!(["as-asked", "unknown"].contains(&outcome), "{report:#}");
    let whole = under(&["grep", "THP_enabled", "/proc/self/status"]);
    assert_eq!(stdout(&whole).split_whitespace().last(), Some("0"));
}

#[test]
fn a_pool_that_is_to_grow_is_for_memory_on_it() {
    let planned = run(&["run", "--dry-run", "--json", "--grow-pool", "--", "true"]);
    let (plan, why) = (stdout(&planned), stderr(&planned));
    assert!(plan.contains("\"pages\": \"hugetlb") || why.contains("pool"), "{plan}{why}");
    for flags in [["--pages", "thp"], ["--pages", "base"], ["--design", "linux-6"]] {
        let output = run(&[&["run", "--grow-pool"], &flags[..], &["--", "true"]].concat());
        crate::common::refused(&output, 2, "--grow-pool is for a program on the hugetlb pool");
    }
}

/// Neither when the library requests superpages nor when it looks at the pages it got does it make a system call that
/// malloc does not make.
#[test]
fn a_filter_that_allows_what_malloc_calls_ends_no_program() {
    testkit::require!(has_thp(), "THP are off on this machine");
    testkit::require!(cfg!(target_arch = "x86_64"), "the filter is for x86-64");
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("filtered").display().to_string();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/integration/filtered.c");
    let built = Command::new("cc").args(["-O1", "-w", "-o", &program, source]).output();
    testkit::require!(built.is_ok_and(|built| built.status.success()), "needs a C compiler");
    for (size, mib) in [("100", "40"), ("5000", "100"), ("500000", "100"), ("9000000", "100")] {
        for flags in [vec![], vec!["--heap"], vec!["--heap", "--mmap", "--pages", "thp"]] {
            let words = [&["run", "-q"], &flags[..], &["--", &program, size, mib]].concat();
            let output = run(&words);
            assert_eq!(
                stdout(&output),
                "fine\n",
                "{words:?}: {:?} {}",
                output.status,
                stderr(&output)
            );
        }
    }
}

/// With --quiet no message of superpage appears in the program's output.
#[test]
fn quiet_prints_nothing() {
    let own = env!("CARGO_BIN_EXE_superpage");
    let mut flags = vec![
        vec![],
        vec!["--prezero"],
        vec!["--heap", "--mmap", "--text", "--stack"],
        vec!["--pages", "hugetlb"],
        vec!["--design", "linux-6"],
        vec!["--design", "hugescope", "--approximate"],
    ];
    if sys::pidfd::may_collapse().is_ok() {
        flags.push(vec!["--design", "quicksilver-sync-64"]);
    }
    for flags in flags {
        let words = [&["run", "-q"], &flags[..], &["--", own, "--version"]].concat();
        let output = run(&words);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{flags:?}");
        // Without -q each of these commands prints a message.
        let words = [&["run"], &flags[..], &["--", own, "--version"]].concat();
        assert!(stderr(&run(&words)).starts_with("superpage: "), "{flags:?}");
    }
}

#[test]
fn a_program_that_turned_thp_off_for_itself_is_named() {
    let has_perl = Command::new("perl").arg("-v").output().is_ok();
    testkit::require!(has_perl && cfg!(target_arch = "x86_64"), "needs perl on x86-64");
    // System call 157 is prctl, and 41 is PR_SET_THP_DISABLE.
    let program = |disable| {
        format!("syscall(157, 41, {disable}, 0, 0, 0); my $x = 'a' x (64 << 20); sleep 2")
    };
    for (disable, name) in [("1", Some("perl")), ("0", None)] {
        let words = ["run", "--json", "--", "perl", "-e", &program(disable)];
        let report: serde_json::Value = serde_json::from_str(&stderr(&run(&words))).unwrap();
        assert_eq!(report["thp_disabled_by"].as_str(), name, "{report:#}");
    }
    let line = stderr(&run(&["run", "--", "perl", "-e", &program("1")]));
    assert!(line.contains("perl turned THP off for itself"), "{line}");
    // Here superpage itself turned THP off.
    let line = stderr(&run(&["run", "--pages", "base", "--", "perl", "-e", &program("1")]));
    assert!(!line.contains("for itself"), "{line}");
}

#[test]
fn thp_reaches_the_heap_every_time_and_reads_it_back() {
    testkit::require!(has_thp(), "THP are off on this machine");
    testkit::lock_machine!(shared);
    let own = env!("CARGO_BIN_EXE_superpage");
    for _ in 0..testkit::cases(30) {
        let before = thp_fallbacks();
        let output = run(&["run", "--", own, "workload", "chase", "--size", "128M", "--json"]);
        assert!(output.status.success(), "{}", stderr(&output));
        let line = stderr(&output);
        let is_short = !line.contains("as requested") && thp_fallbacks() > before;
        testkit::require!(!is_short, "superpages were short: {line}");
        assert!(line.contains("took effect") || line.contains("unknown"), "{line}");
    }
}

/// Code is not in memory twice while it is copied, so the peak is that of the program.
#[test]
fn copied_code_replaces_the_files_pages_as_it_is_copied() {
    testkit::require!(has_thp(), "THP are off on this machine");
    testkit::lock_machine!(shared);
    let own = env!("CARGO_BIN_EXE_superpage");
    let of = |option: &str| -> serde_json::Value {
        let output = run(&["run", option, "--json", "--", own, "--version"]);
        serde_json::from_str(&stderr(&output)).unwrap()
    };
    let (without, copied) = (of("--text"), of("--text=copy"));
    let advised = copied["library"]["kinds"]["text"]["advised_bytes"].as_u64().unwrap();
    testkit::require!(advised >= 8 << 20, "little code was copied: {copied}");
    let [without, with] = [&without, &copied].map(|it| it["peak_at_most_bytes"].as_u64().unwrap());
    assert!(with < without + advised + (4 << 20), "{with}, {without} and {advised} copied");
}

#[test]
fn a_program_that_frees_all_when_it_ends_is_seen_at_its_peak_however_busy_the_machine_is() {
    testkit::require!(has_thp(), "THP are off on this machine");
    let can_look =
        host::coverage::Census::new(&host::Root::real(), sys::param::own_pid()).is_some();
    testkit::require!(
        can_look,
        "this kernel has no PAGEMAP_SCAN, or takes the huge zero page for memory"
    );
    let own = env!("CARGO_BIN_EXE_superpage");
    for _ in 0..testkit::cases(20) {
        let output =
            run(&["run", "--json", "--", own, "workload", "gups", "--size", "128M", "--json"]);
        let report: serde_json::Value = serde_json::from_str(&stderr(&output)).unwrap();
        // If the watch got no CPU, the program's own look gives the coverage.
        assert!(report["coverage_of_peak"].as_f64().unwrap() >= 0.95, "{report:#}");
        assert!(report["peak_bytes"].as_u64().unwrap() >= 128 << 20, "{report:#}");
        assert_ne!(report["outcome"], "unknown", "{report:#}");
        let end = &report["over_time"]["end_coverage"];
        assert!(end.is_number(), "{report:#}");
    }
}

#[test]
fn a_dry_run_prints_the_plan_and_starts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("mark");
    let mark = mark.to_str().unwrap();
    let human = run(&["run", "--pages", "base", "--dry-run", "--", "touch", mark]);
    assert!(stdout(&human).contains("PR_SET_THP_DISABLE 1"), "{}", stdout(&human));
    let json = run(&["run", "--pages", "base", "--dry-run", "--json", "--", "touch", mark]);
    let json: serde_json::Value = serde_json::from_str(&stdout(&json)).unwrap();
    assert_eq!(json["schema"], "superpage.plan/1");
    assert_eq!(json["plan"]["promise"], "base-pages");
    assert!(!std::path::Path::new(mark).exists());
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let mut child = superpage(&["completions", "bash"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_report_that_nobody_reads_leaves_the_program_its_own_exit_code() {
    let words = ["run", "--json", "--pages", any_pages(), "--", "sh", "-c", "sleep 0.2; exit 7"];
    let mut child = superpage(&words).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

#[test]
fn man_pages_and_completions_come_from_the_flags() {
    let dir = tempfile::tempdir().unwrap();
    assert!(run(&["man", dir.path().to_str().unwrap()]).status.success());
    let page = std::fs::read_to_string(dir.path().join("superpage-compare.1")).unwrap();
    assert!(page.contains("metric"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(stdout(&run(&["completions", shell])).contains("compare"));
    }
}

#[test]
fn a_design_is_carried_out_as_far_as_it_can_be() {
    let plan = |design: &str| run(&["run", "--dry-run", "--design", design, "--", "true"]);
    if has_thp() {
        let text = stdout(&plan("prezeroed-pool"));
        for part in
            ["SUPERPAGE_PAGES=thp", "SUPERPAGE_PREZERO=67108864", "SUPERPAGE_PREFAULT=67108864"]
        {
            assert!(text.contains(part), "{text}");
        }
    } else {
        testkit::skipped!("THP are off on this machine");
    }
    let refused = plan("hawkeye-g");
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr(&refused).contains("superpage lab run --design hawkeye-g"),
        "{}",
        stderr(&refused)
    );
    let in_force = stdout(&plan("freebsd"));
    assert!(in_force.contains("applied by other means: mapping.when"), "{in_force}");
    let unknown = plan("prezeroed-poo");
    assert!(stderr(&unknown).contains("prezeroed-pool"), "{}", stderr(&unknown));
    let both = run(&["run", "--design", "base", "--pages", "thp", "--", "true"]);
    assert_eq!(both.status.code(), Some(2));
}

/// If a condition or threshold of a design is not applied, other superpages are made than the design says.
#[test]
fn a_design_that_is_not_carried_out_is_refused_or_called_approximate() {
    let refused = |flags: &[&str]| run(&[&["run"], flags, &["--", "echo", "started"]].concat());
    for flags in [&["--design", "cbmm"][..], &["--design", "cbmm", "--dry-run"]] {
        let refused = refused(flags);
        crate::common::refused(&refused, 2, "designs/cbmm.toml:9: allocation.when: ");
        assert!(stderr(&refused).contains("--approximate"), "{}", stderr(&refused));
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("half.toml");
    let preset = stdout(&run(&["design", "show", "linux-6"]));
    let half = preset.replace("least-present = 1 ", "least-present = 256 ");
    assert_ne!(half, preset);
    std::fs::write(&file, half).unwrap();
    let file = file.display().to_string();
    crate::common::refused(&refused(&["--design", &file]), 2, ": mapping.scan.least-present: ");
    let arm = ["compare", "--dry-run", "--arm", "base", "--arm", "x: design=cbmm", "--", "true"];
    let arm = run(&arm);
    assert_eq!(arm.status.code(), Some(2), "{}", stderr(&arm));
    assert!(stderr(&arm).contains("approximate=yes"), "{}", stderr(&arm));
    testkit::require!(has_thp(), "THP are off on this machine");

    let named = ["--arm", "base", "--arm", "x: design=cbmm approximate=yes", "--", "true"];
    let planned = stdout(&run(&[&["compare", "--dry-run"], &named[..]].concat()));
    assert!(planned.contains("\nx (approximate)\n"), "{planned}");

    let output = run(&["run", "--json", "--approximate", "--design", "cbmm", "--", "true"]);
    let said = stderr(&output);
    let document: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&document["name"], &document["approximate"]),
        (&"cbmm (approximate)".into(), &true.into())
    );
    let output = run(&["run", "--approximate", "--design", &file, "--", "true"]);
    let said = stderr(&output);
    // After the messages before the start, each line belongs to the report.
    let report = said.lines().skip_while(|line| line.contains("not applied"));
    let report: Vec<&str> = report.collect();
    assert!(!report.is_empty(), "{said}");
    for line in report {
        assert!(line.contains("linux-6 (approximate): "), "{line}");
    }
    // A design that is carried out is not called approximate.
    let output = run(&["run", "--json", "--approximate", "--design", "linux-6", "--", "true"]);
    let said = stderr(&output);
    let document: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!((&document["name"], &document["approximate"]), (&"linux-6".into(), &false.into()));
}

#[test]
fn what_was_prepared_is_reported_apart() {
    testkit::require!(has_thp(), "THP are off on this machine");
    testkit::lock_machine!(shared);
    let python = std::process::Command::new("python3").arg("--version").output();
    let has_python = python.is_ok_and(|output| output.status.success());
    testkit::require!(has_python, "no python3 to map memory with");
    let maps = "import mmap\nfor i in range(3):\n  m = mmap.mmap(-1, 256 << 20, flags=mmap.MAP_PRIVATE | \
                mmap.MAP_ANONYMOUS)\n  m.write(b'x' * (256 << 20))\n  m.close()";
    let before = thp_fallbacks();
    let output = run(&["run", "--prezero", "--prefault", "--", "python3", "-c", maps]);
    assert!(output.status.success(), "{}", stderr(&output));
    let lines = stderr(&output);
    let is_short = !lines.contains("was the stock") && thp_fallbacks() > before;
    testkit::require!(!is_short, "superpages were short: {lines}");
    assert!(lines.contains("faulted in ahead"), "{lines}");
    assert!(lines.contains("was the stock of prepared superpages"), "{lines}");
}

/// Builds a program of `crates/preload/runtime/tests/programs` with gcc; `None` if that is impossible.
fn built(source: &str, name: &str, flags: &[&str]) -> Option<std::path::PathBuf> {
    let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../preload/runtime/tests/programs");
    let program = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut command = std::process::Command::new("gcc");
    command.arg(sources.join(source)).args(flags).arg("-o").arg(&program);
    command.status().is_ok_and(|status| status.success()).then_some(program)
}

#[test]
fn a_program_with_a_sanitizer_is_left_alone_and_that_is_said_before_it_starts() {
    testkit::require!(has_thp(), "THP are off on this machine");
    for (sanitizer, name) in [("address", "AddressSanitizer"), ("thread", "ThreadSanitizer")] {
        let flag = format!("-fsanitize={sanitizer}");
        let program = built("instrumented.c", &format!("run-{sanitizer}"), &[&flag]);
        let Some(program) = program else {
            testkit::skipped!("no gcc, or none with {flag}");
            continue;
        };
        let path = program.to_str().unwrap();
        let output = run(&["run", "--heap", "--mmap", "--pages", "thp", "--", path, "maps"]);
        assert_eq!(stdout(&output), "outside\n", "{}", stderr(&output));
        let lines = stderr(&output);
        let first =
            format!("superpage: {path} is built with {name}, which brings its own allocator");
        assert!(lines.starts_with(&first), "{lines}");
        let script = format!("{path} maps; exit $?");
        let output = run(&["run", "--heap", "--pages", "thp", "--", "sh", "-c", &script]);
        assert_eq!(stdout(&output), "outside\n", "{}", stderr(&output));
        assert!(stderr(&output).contains("a program with a sanitizer was left alone"));
        let arms = ["--arm", "base", "--arm", "x: pages=thp memory=heap,mmap"];
        let mut compare = vec!["compare", "--max-runs", "2"];
        compare.extend(arms);
        let output = run(&[&compare[..], &["--", path, "once"]].concat());
        assert!(stdout(&output).contains(name), "{}{}", stdout(&output), stderr(&output));
    }
}

fn pool_says(file: &str) -> u64 {
    let text = std::fs::read_to_string(format!("{POOL}/{file}")).unwrap();
    text.trim().parse().unwrap()
}

/// Starts a run that raises the pool's limit, and then waits.
fn raising(option: &str) -> std::process::Child {
    let script = "echo ready; exec sleep 60";
    let words = ["run", "-q", "--heap", "--pages", "hugetlb:2M", option, "--", "sh", "-c", script];
    let mut child = superpage(&words).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut reader = std::io::BufReader::new(child.stdout.as_mut().unwrap());
    std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

fn end(child: &mut std::process::Child, signal: i32) {
    let pid = units::Pid(child.id() as i32);
    let below = host::process::tree(&host::Root::real(), pid);
    sys::signal::send(pid, signal).unwrap();
    child.wait().unwrap();
    // When a launcher is killed its program goes on, so end the program here.
    for program in below.into_iter().filter(|one| *one != pid && signal == libc::SIGKILL) {
        let _ = sys::signal::send(program, libc::SIGKILL);
    }
}

/// A cgroup whose members may use no hugetlb pages; removed on drop.
struct NoHugetlb {
    mount: Option<std::path::PathBuf>,
    group: std::path::PathBuf,
}

impl NoHugetlb {
    /// Makes the group in the hierarchy of version 2 if that has the controller, otherwise in one of version 1 mounted
    /// for this test.
    fn make() -> Option<Self> {
        let unified = std::path::Path::new("/sys/fs/cgroup");
        let controllers = std::fs::read_to_string(unified.join("cgroup.controllers"));
        let name = format!("superpage-test-{}", std::process::id());
        if controllers.is_ok_and(|list| list.split_whitespace().any(|one| one == "hugetlb")) {
            let _ = std::fs::write(unified.join("cgroup.subtree_control"), "+hugetlb");
            let made = Self { mount: None, group: unified.join(name) };
            return made.limited("hugetlb.2MB.max");
        }
        let mount = std::env::temp_dir().join(&name);
        std::fs::create_dir(&mount).ok()?;
        let mut command = std::process::Command::new("mount");
        let mounted = command.args(["-t", "cgroup", "-o", "hugetlb", "none"]).arg(&mount).output();
        let group = mount.join("none");
        let made = Self { mount: Some(mount), group };
        if !mounted.is_ok_and(|output| output.status.success()) {
            return None;
        }
        made.limited("hugetlb.2MB.limit_in_bytes")
    }

    fn limited(self, file: &str) -> Option<Self> {
        std::fs::create_dir(&self.group).ok()?;
        std::fs::write(self.group.join(file), "0").ok()?;
        Some(self)
    }
}

impl Drop for NoHugetlb {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.group);
        if let Some(mount) = &self.mount {
            let _ = std::process::Command::new("umount").arg(mount).status();
            let _ = std::fs::remove_dir(mount);
        }
    }
}

#[test]
fn a_report_is_written_to_no_file_that_is_there_and_can_be_had_on_standard_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("there");
    std::fs::write(&file, "mine").unwrap();
    let path = file.to_str().unwrap();
    let refused = run(&["run", "-o", path, "--", "touch", "/nowhere/at/all"]);
    assert_eq!(refused.status.code(), Some(125), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("exists"), "{}", stderr(&refused));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    let pages = any_pages();
    let over = ["run", "--force", "-q", "-o", path, "--pages", pages, "--", "sh", "-c", "exit 3"];
    let written = run(&over);
    assert_eq!(written.status.code(), Some(3));
    assert!(std::fs::read_to_string(&file).unwrap().contains("\"exit_code\": 3"));
    let printed = run(&["run", "--json", "--pages", pages, "--", "sh", "-c", "kill -9 $$"]);
    let report: serde_json::Value = serde_json::from_str(&stderr(&printed)).unwrap();
    assert_eq!((&report["signal"], &report["exit_code"]), (&9.into(), &serde_json::Value::Null));
}

mod exclusive {
    use super::*;

    #[test]
    fn hugetlb_that_fell_back_to_thp_is_not_as_asked() {
        testkit::require!(has_thp(), "THP are off on this machine");
        testkit::require!(has_pool(), "{NO_POOL}");
        testkit::lock_machine!();
        testkit::require!(pool_is_empty(), "the pool has pages to give");
        let before = thp_fallbacks();
        let own = env!("CARGO_BIN_EXE_superpage");
        let program = ["workload", "chase", "--size", "256M"];
        let report = crate::peaks::reported(
            &[&["--pages", "hugetlb:2M", "--heap", "--mmap", "--", own], &program[..]].concat(),
        );
        let why = report["why"].as_str().unwrap_or_default();
        // On a busy machine the program's memory may be missed.
        testkit::require!(report["outcome"] != "unknown", "it was not seen what it had: {why}");
        let has_none = why.contains("; 0 B on THP instead");
        testkit::require!(!has_none || thp_fallbacks() == before, "superpages were short: {why}");
        assert_eq!(report["outcome"], "did-not-take-effect", "{report:#}");
        assert!(why.contains("on THP instead") && !has_none, "{why}");
    }

    #[test]
    fn it_ends_by_a_signal_also_while_it_waits_for_who_changes_the_pool() {
        testkit::require!(testkit::is_root(), "not root: no pool can be raised");
        testkit::require!(has_pool(), "{NO_POOL}");
        testkit::lock_machine!();
        let _found = testkit::PoolsAsFound::note();
        // This run creates the lock's file.
        run(&["run", "-q", "--pool", "lend", "--pages", "hugetlb:2M", "--", "true"]);
        let place = "/var/lib/superpage/journal/shared/,sys,kernel,mm,hugepages,hugepages-2048kB,nr_overcommit_hugepages";
        let held = std::fs::File::open(format!("{place}/lock")).unwrap();
        held.lock().unwrap();
        let waits = &["--pool", "lend", "--pages", "hugetlb:2M"][..];
        for words in [&["run", "-q"][..], &["compare", "-q", "--arm", "pool: pages=hugetlb:2M"]] {
            let waits = if words[0] == "run" { waits } else { &["--pool", "lend"] };
            let mut child = superpage(&[words, waits, &["--", "true"]].concat()).spawn().unwrap();
            // The command catches TERM from the beginning, so the lock is the only thing for which it can wait.
            wait_until("it catches TERM", || testkit::catches(child.id(), libc::SIGTERM));
            send(&child, libc::SIGTERM);
            let status = child.wait().unwrap();
            assert!(
                status.signal() == Some(libc::SIGTERM) || status.code() == Some(143),
                "{words:?}: {status}"
            );
        }
        drop(held);
    }

    #[test]
    fn runs_raise_a_pool_beside_each_other_and_the_last_restores_it() {
        testkit::require!(testkit::is_root(), "not root: no pool can be raised");
        testkit::require!(has_pool(), "{NO_POOL}");
        testkit::lock_machine!();
        testkit::require!(testkit::pool_is_unused(), "somebody has pages of the pool");
        run(&["restore"]);
        let _found = testkit::PoolsAsFound::note();
        // Whether memory has this many superpages shows only when they are allocated.
        let made = testkit::PoolsAsFound::note();
        testkit::require!(testkit::leave_free(16), "this machine has no 16 free superpages");
        drop(made);
        for (option, file) in
            [("--grow-pool", "nr_overcommit_hugepages"), ("--grow-pool=16M", "nr_hugepages")]
        {
            let before = pool_says(file);
            let (mut first, mut second) = (raising(option), raising(option));
            assert!(pool_says(file) > before, "{option}");
            end(&mut first, libc::SIGTERM);
            assert!(pool_says(file) > before, "{option}: the second still has it");
            end(&mut second, libc::SIGTERM);
            assert_eq!(pool_says(file), before, "{option}");

            // One run is killed: the end of the other run, or `restore`, undoes what the first had raised.
            let (mut first, mut second) = (raising(option), raising(option));
            let both = pool_says(file);
            end(&mut first, libc::SIGKILL);
            assert_eq!(pool_says(file), both, "{option}: nobody knows yet");
            let alive = run(&["restore"]);
            assert!(stdout(&alive).contains("skipped: its owner"), "{}", stdout(&alive));
            assert!(pool_says(file) > before && pool_says(file) <= both, "{option}");
            end(&mut second, libc::SIGKILL);
            let restored = run(&["restore"]);
            assert_eq!(restored.status.code(), Some(0), "{}", stdout(&restored));
            assert_eq!(pool_says(file), before, "{option}");
            assert_eq!(stdout(&run(&["restore"])), "nothing to restore\n");
        }
    }

    /// The parent ends successfully, so only the report can show that the child was killed.
    #[test]
    fn a_child_that_the_pool_could_not_serve_is_named_with_the_signal_and_the_reason() {
        testkit::require!(testkit::is_root(), "not root: no pool, and no ends of processes");
        testkit::require!(has_pool(), "{NO_POOL}");
        let program = built("cow.c", "run-cow", &[]);
        testkit::require!(program.is_some(), "no gcc");
        let path = program.unwrap();
        let path = path.to_str().unwrap();
        testkit::lock_machine!();
        testkit::require!(testkit::pool_is_unused(), "somebody has pages of the pool");
        let _found = testkit::PoolsAsFound::note();
        // The parent's memory takes 32 pages; the rest is too small for a copy of it.
        testkit::require!(testkit::leave_free(40), "no 40 pages for the pool");
        let cow = |children: &str, more: &[&str]| {
            let words = ["run", "--pages", "hugetlb", "--heap", "--children", children];
            let output = run(&[&words, more, &["--", path, "64"]].concat());
            assert!(output.status.success(), "{}", stderr(&output));
            let said = stdout(&output);
            let (child, signal) = said.trim().split_once(' ').unwrap();
            (child.to_string(), signal == libc::SIGBUS.to_string(), stderr(&output))
        };
        let (child, is_killed, lines) = cow("same", &[]);
        assert!(is_killed, "the pool had a copy's pages: {lines}");
        let json = |lines: &str| -> serde_json::Value { serde_json::from_str(lines).unwrap() };
        let (json_child, _, document) = cow("same", &["--json"]);
        let killed = &json(&document)["children_killed"];
        testkit::require!(!killed.is_null(), "the kernel does not tell of ends (taskstats)");
        let why = format!("child process {child} was killed by SIGBUS: with --children same");
        assert!(lines.contains(&why) && lines.contains("pool"), "{lines}");
        assert_eq!(killed[0]["pid"].to_string(), json_child);
        assert_eq!(killed[0]["signal"], libc::SIGBUS);
        assert!(killed[0]["reason"].as_str().unwrap().contains("--children base"), "{killed}");
        let (_, is_killed, document) = cow("base", &["--json"]);
        assert!(
            !is_killed && json(&document)["children_killed"] == serde_json::json!([]),
            "{document}"
        );
    }

    /// The library reads in /proc/buddyinfo that no superpages are free, and asks the command, which frees some.
    #[test]
    fn superpages_that_are_not_free_are_asked_for() {
        let can_mount = || {
            let tried = std::process::Command::new("unshare").args(["-m", "true"]).status();
            tried.is_ok_and(|status| status.success())
        };
        testkit::require!(has_thp(), "THP are off on this machine");
        testkit::require!(testkit::is_root() && can_mount(), "needs root and unshare -m");
        testkit::lock_machine!();
        let _found = testkit::PoolsAsFound::note();
        let directory = tempfile::tempdir().unwrap();
        let none = "Node 0, zone Normal 9999 9999 9999 9999 9999 9999 9999 9999 9999 0 0\n";
        std::fs::write(directory.path().join("buddyinfo"), none).unwrap();
        let script = "mount --bind \"$0/buddyinfo\" /proc/buddyinfo && exec \"$@\"";
        let own = env!("CARGO_BIN_EXE_superpage");
        let program = ["dd", "if=/dev/zero", "of=/dev/null", "bs=128M", "count=1", "status=none"];
        let output = std::process::Command::new("unshare")
            .args(["-m", "sh", "-c", script])
            .arg(directory.path())
            .args([own, "run", "--json", "--pages", "thp", "--heap", "--"])
            .args(program)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let report: serde_json::Value = serde_json::from_str(&stderr(&output)).unwrap();
        let [requests, wanted] =
            ["requests", "wanted"].map(|name| report["supplied"][name].as_u64());
        assert!(requests.is_some_and(|count| count > 0), "{report}");
        assert!(wanted.is_some_and(|count| count > 0), "{report}");
    }

    /// A reservation in the pool succeeds, but the cgroup's limit makes each fault fail. If the library did not read
    /// the limit, SIGBUS would kill every process of the database.
    #[test]
    fn a_database_starts_where_a_cgroup_allows_no_hugetlb_page() {
        testkit::require!(testkit::is_root(), "not root: no cgroup can be made");
        testkit::require!(has_pool(), "{NO_POOL}");
        let found = |tool: &str, words: &[&str]| {
            let output = std::process::Command::new(tool).args(words).output();
            output.is_ok_and(|output| output.status.success())
        };
        testkit::require!(
            found("initdb", &["--version"]) && found("runuser", &["-u", "postgres", "--", "true"]),
            "no PostgreSQL, or no user for it"
        );
        testkit::lock_machine!();
        testkit::require!(testkit::pool_is_unused(), "somebody has pages of the pool");
        let _found = testkit::PoolsAsFound::note();
        std::fs::write(format!("{POOL}/nr_overcommit_hugepages"), "256").unwrap();
        let group = NoHugetlb::make();
        testkit::require!(group.is_some(), "the hugetlb controller cannot be had");
        let group = group.unwrap();
        let own = env!("CARGO_BIN_EXE_superpage");
        let dir = tempfile::Builder::new().prefix("superpage-database").tempdir().unwrap();
        let data = dir.path().join("data");
        found("chown", &["postgres", dir.path().to_str().unwrap()]);
        let run_in = |words: &[&str], input: &str| {
            let mut command = std::process::Command::new("sh");
            let join = "echo $$ > \"$0\"/cgroup.procs && exec runuser -u postgres -- \"$@\"";
            command.args(["-c", join]).arg(&group.group).args(words).current_dir(dir.path());
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
            child.wait_with_output().unwrap()
        };
        // By default the database requests hugetlb pages too (`huge_pages = try`), and SIGBUS kills it in this cgroup.
        let shown = run_in(&["initdb", "-s", "-D", data.to_str().unwrap()], "");
        let shown = stderr(&shown) + &stdout(&shown);
        let share = shown.lines().find_map(|line| line.strip_prefix("share_path="));
        testkit::require!(share.is_some(), "initdb does not say where its files are");
        let own_share = dir.path().join("share");
        let own_share = own_share.to_str().unwrap();
        assert!(found("cp", &["-r", share.unwrap(), own_share]));
        let sample = format!("{own_share}/postgresql.conf.sample");
        let mut settings = std::fs::read_to_string(&sample).unwrap();
        settings.push_str("huge_pages = off\nshared_buffers = 64MB\n");
        std::fs::write(&sample, settings).unwrap();
        let data = data.to_str().unwrap();
        let under = [
            "env",
            "SUPERPAGE_POOL=always",
            own,
            "run",
            "--heap",
            "--mmap",
            "--shm",
            "--pages",
            "hugetlb:2M",
            "--",
        ];
        let of_initdb = ["initdb", "-D", data, "--no-sync", "-A", "trust", "-L", own_share];
        let made = run_in(&[&under[..], &of_initdb].concat(), "");
        assert_eq!(made.status.code(), Some(0), "{}{}", stdout(&made), stderr(&made));
        assert!(stderr(&made).contains("a cgroup limit"), "{}", stderr(&made));
        let query = "select sum(a) from generate_series(1, 100000) a;\n";
        let of_server = ["postgres", "--single", "-D", data, "postgres"];
        // This also holds for the database's own System V segments.
        for kind in ["mmap", "sysv"] {
            let kind = format!("shared_memory_type={kind}");
            let words = [&under[..], &of_server[..2], &["-c", &kind], &of_server[2..]].concat();
            let answer = run_in(&words, query);
            assert_eq!(answer.status.code(), Some(0), "{}{}", stdout(&answer), stderr(&answer));
            assert!(stdout(&answer).contains("5000050000"), "{}", stdout(&answer));
        }
    }
}
