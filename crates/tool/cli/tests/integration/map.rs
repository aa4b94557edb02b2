//! `superpage map`, on programs made for each reason, on real memory and on processes that go away.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::common::{comes_true, refused, run, stderr, stdout};

/// `map.c`, compiled once for a test.
struct Kinds {
    _dir: tempfile::TempDir,
    program: PathBuf,
}

/// A process that has stopped itself; killed on drop.
struct Stopped {
    child: Child,
    /// Address of its memory.
    at: u64,
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Kinds {
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("map");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/integration/map.c");
        let built = Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(source).status();
        match built {
            Ok(status) => assert!(status.success(), "map.c does not compile"),
            Err(error) => {
                testkit::skipped!("no C compiler: {error}");
                return None;
            }
        }
        Some(Self { _dir: dir, program })
    }

    /// Starts the program with memory of this kind; `None` after a counted skip if the machine cannot.
    fn start(&self, kind: &str) -> Option<Stopped> {
        let mut command = Command::new(&self.program);
        let mut child =
            command.arg(kind).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Ok(at) = u64::from_str_radix(line.trim(), 16) else {
            let output = child.wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(77), "{kind}: {}", stderr(&output));
            testkit::skipped!("{kind}: {}", stderr(&output).trim());
            return None;
        };
        let stopped = Stopped { child, at };
        assert!(comes_true(|| stopped.state() == 'T'), "{kind} does not stop");
        Some(stopped)
    }
}

impl Stopped {
    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn state(&self) -> char {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
    }

    fn map(&self, more: &[&str]) -> Value {
        let pid = self.pid().to_string();
        let arguments = [&["map", &pid, "--json"], more].concat();
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_str(&stdout(&output)).unwrap()
    }

    /// The extent that holds the process's memory.
    fn extent<'a>(&self, map: &'a Value) -> &'a Value {
        let extents = map["processes"][0]["extents"].as_array().unwrap();
        let holds = |extent: &&Value| {
            let bound = |name: &str| extent["mapping"][name].as_u64().unwrap();
            (bound("start")..bound("end")).contains(&self.at)
        };
        extents.iter().find(holds).expect("its mapping")
    }
}

/// Reasons of an extent with their resident bytes, in the document's order.
fn reasons(extent: &Value) -> Vec<(String, u64)> {
    let shares = extent["reasons"].as_array().unwrap();
    let share = |share: &Value| {
        (share["reason"].as_str().unwrap().to_string(), share["resident"].as_u64().unwrap())
    };
    shares.iter().map(share).collect()
}

fn thp(file: &str) -> String {
    let text = fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{file}"));
    let text = text.unwrap_or_default();
    let chosen = text.split(['[', ']']).nth(1).map(str::to_string);
    chosen.unwrap_or_default()
}

const MIB: u64 = 1 << 20;

#[test]
fn each_reason_is_found_in_a_process_made_for_it() {
    testkit::lock_machine!(shared);
    let Some(kinds) = Kinds::new() else { return };
    testkit::require!(
        thp("enabled") == "madvise" && thp("hugepages-2048kB/enabled") == "inherit",
        "the cases are made for superpages of 2 MiB where they are advised"
    );
    // Kind, flags, and the first reason with its resident bytes.
    let cases: [(&str, &[&str], &str, u64); 18] = [
        ("advised", &[], "on-superpages", 8 * MIB),
        ("refused", &["--smaps"], "refused", 8 * MIB),
        ("refused", &[], "advice-unknown", 8 * MIB),
        ("plain", &["--smaps"], "not-advised", 8 * MIB),
        ("plain", &[], "advice-unknown", 8 * MIB),
        ("small", &["--smaps"], "too-small", 2 * MIB),
        ("edge", &["--smaps"], "at-edge", 8192),
        ("untouched", &[], "never-touched", 0),
        ("read", &[], "zero-page", 0),
        ("off", &[], "off-for-process", 8 * MIB),
        ("file", &[], "file", 8 * MIB),
        ("copied", &["--smaps"], "file", 8 * MIB),
        ("shared", &[], "shared-off", 8 * MIB),
        ("memfd", &[], "shared-off", 8 * MIB),
        ("kernel", &[], "kernel", 0),
        ("locked", &["--smaps"], "not-advised", 8 * MIB),
        ("userfault", &["--smaps"], "userfault", 8 * MIB),
        ("forked", &["--smaps"], "forked", 8 * MIB),
    ];
    let mut made = 0;
    for (kind, flags, reason, resident) in cases {
        let Some(process) = kinds.start(kind) else { continue };
        if reason == "shared-off" && thp("shmem_enabled") != "never" {
            testkit::skipped!("{kind}: shmem_enabled is not never");
            continue;
        }
        let map = process.map(flags);
        let extent = process.extent(&map);
        let found = reasons(extent);
        // Where no superpage is free, advised memory is on base pages.
        if kind == "advised" && found[0].0 != reason {
            assert!(["not-yet", "no-contiguity", "advice-unknown"].contains(&found[0].0.as_str()));
            testkit::skipped!("{kind}: the kernel gave no superpages");
            continue;
        }
        // How much of [vdso] is touched is up to the C library.
        let resident = if kind == "kernel" { found[0].1 } else { resident };
        assert_eq!(found[0], (reason.to_string(), resident), "{kind}: {extent}");
        let locked = extent["attributes"]["locked"].as_bool();
        let expected = (!flags.is_empty()).then_some(kind == "locked");
        assert_eq!(locked, expected, "{kind}");
        made += 1;
    }
    assert!(made >= 12, "only {made} cases could be made");
}

/// Memory that waits for khugepaged, which may scan it at any time.
#[test]
fn what_waits_for_khugepaged_is_told_from_what_the_settings_forbid() {
    let Some(kinds) = Kinds::new() else { return };
    let mode = thp("enabled");
    testkit::require!(["madvise", "always"].contains(&mode.as_str()), "THP are off");
    let Some(process) = kinds.start("late") else { return };
    let map = process.map(&["--smaps"]);
    let extent = process.extent(&map);
    let expected = match map["machine"]["free_superpages"].as_u64() {
        Some(0) => "no-contiguity",
        _ => "not-yet",
    };
    for (reason, resident) in reasons(extent) {
        assert!(reason == expected || reason == "on-superpages", "{reason}: {resident} {extent}");
    }
    assert_eq!(extent["attributes"]["advice"], "huge-page");
    assert_eq!(extent["pages"]["present"], 8 * MIB);
}

/// The kernel's own answer, where only superpages of 2 MiB are enabled: THPeligible.
#[test]
fn reasons_agree_with_the_kernels_own_answer() {
    let Some(kinds) = Kinds::new() else { return };
    testkit::require!(
        fs::read_dir("/sys/kernel/mm/transparent_hugepage").is_ok_and(|mut all| all.all(|one| {
            let name = one.unwrap().file_name().to_string_lossy().into_owned();
            let mode = thp(&format!("{name}/enabled"));
            !name.starts_with("hugepages-")
                || name == "hugepages-2048kB"
                || mode.is_empty()
                || mode == "never"
        })),
        "smaller THP sizes are enabled, and THPeligible means any size"
    );
    let (mut may, mut may_not) = (0, 0);
    for kind in ["advised", "refused", "plain", "off", "late", "small", "stack", "forked"] {
        let Some(process) = kinds.start(kind) else { continue };
        let map = process.map(&["--smaps"]);
        for extent in map["processes"][0]["extents"].as_array().unwrap() {
            let kind = extent["kind"].as_str().unwrap();
            let Some(eligible) = extent["attributes"]["eligible"].as_bool() else { continue };
            if !["anonymous", "heap", "stack"].contains(&kind) {
                continue;
            }
            for (reason, resident) in reasons(extent) {
                let reason = reason.as_str();
                let forbidden =
                    ["refused", "off-for-process", "off-for-all", "not-advised", "too-small"];
                let allowed = ["not-yet", "no-contiguity", "forked", "too-sparse", "swapped"];
                if resident > 0 && forbidden.contains(&reason) {
                    assert!(!eligible, "{extent}");
                    may_not += 1;
                }
                if resident > 0 && allowed.contains(&reason) {
                    assert!(eligible, "{extent}");
                    may += 1;
                }
            }
        }
    }
    assert!(may > 0 && may_not > 0, "{may} {may_not}");
}

/// Resident bytes and bytes on superpages of each mapping, from smaps.
fn of_smaps(pid: u32) -> BTreeMap<u64, (u64, u64)> {
    let text = fs::read(format!("/proc/{pid}/smaps")).unwrap();
    let (mut all, mut at) = (BTreeMap::new(), 0);
    for line in String::from_utf8_lossy(&text).lines() {
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        if let Some((start, _)) = key.split_once('-').filter(|_| !key.ends_with(':')) {
            at = u64::from_str_radix(start, 16).unwrap();
            all.insert(at, (0, 0));
            continue;
        }
        let kib = || value.trim().split(' ').next().unwrap().parse::<u64>().unwrap() * 1024;
        let (resident, huge) = all.get_mut(&at).unwrap();
        match key {
            "Rss:" => *resident += kib(),
            "Shared_Hugetlb:" | "Private_Hugetlb:" => {
                *resident += kib();
                *huge += kib();
            }
            "AnonHugePages:" | "ShmemPmdMapped:" | "FilePmdMapped:" => *huge += kib(),
            _ => {}
        }
    }
    all
}

/// Compares each mapping of a stopped process with smaps; returns the number of mappings.
fn compare_with_smaps(process: &Stopped, kind: &str) -> usize {
    let map = process.map(&[]);
    let expected = of_smaps(process.pid());
    let (mut sums, mut compared) = ((0, 0), 0);
    for extent in map["processes"][0]["extents"].as_array().unwrap() {
        let bytes = |name: &str| extent["pages"][name].as_u64().unwrap();
        let found = (bytes("present"), bytes("huge"));
        let start = extent["mapping"]["start"].as_u64().unwrap();
        // The kernel's vvar pages are not memory of the process, and not scanned.
        if extent["kind"] != "special" {
            assert_eq!(found, expected[&start], "{kind}: {extent}");
        }
        // Each page is in one share.
        let shares = extent["reasons"].as_array().unwrap();
        let sum = |name: &str| shares.iter().map(|one| one[name].as_u64().unwrap()).sum::<u64>();
        let size = extent["mapping"]["end"].as_u64().unwrap() - start;
        assert_eq!(sum("resident"), bytes("present"), "{extent}");
        assert_eq!(sum("resident") + sum("swapped") + sum("empty"), size, "{extent}");
        sums = (sums.0 + found.0, sums.1 + found.1);
        compared += 1;
    }
    let pages = &map["processes"][0]["pages"];
    assert_eq!((pages["present"].as_u64(), pages["huge"].as_u64()), (Some(sums.0), Some(sums.1)));
    compared
}

#[test]
fn every_mapping_is_as_in_smaps_page_for_page() {
    let Some(kinds) = Kinds::new() else { return };
    let kinds_of_memory =
        ["advised", "refused", "plain", "edge", "read", "file", "copied", "shared", "forked"];
    let compared = kinds_of_memory
        .map(|kind| kinds.start(kind).map_or(0, |process| compare_with_smaps(&process, kind)));
    assert!(compared.iter().sum::<usize>() > 50, "{compared:?}");
}

/// Pages of the pool need a limit that another test may lower.
mod exclusive {
    use super::*;

    #[test]
    fn memory_of_the_pool_is_on_superpages() {
        testkit::require!(testkit::is_root(), "raising the limit needs root");
        testkit::lock_machine!();
        let _found = testkit::PoolsAsFound::note();
        testkit::require!(fs::write(crate::common::OVERCOMMIT, "4").is_ok(), "no pool");
        let Some(kinds) = Kinds::new() else { return };
        let Some(process) = kinds.start("pool") else { return };
        let map = process.map(&[]);
        let extent = process.extent(&map);
        assert_eq!(reasons(extent), [("pool".to_string(), 8 * MIB)], "{extent}");
        assert_eq!(
            (&extent["kind"], &extent["pages"]["huge"]),
            (&"hugetlb".into(), &(8 * MIB).into())
        );
        assert!(compare_with_smaps(&process, "pool") > 0);
    }
}

#[test]
fn smaps_is_read_within_the_budget_only() {
    let Some(kinds) = Kinds::new() else { return };
    let Some(process) = kinds.start("refused") else { return };
    let pid = process.pid().to_string();
    let dear = run(&["map", &pid, "--smaps", "--budget", "0ms", "--json"]);
    refused(&dear, 1, "ms allows it");
    let map: Value = serde_json::from_str(&stdout(&dear)).unwrap();
    assert_eq!(map["processes"][0]["smaps"]["state"], "too-dear");
    assert!(process.extent(&map)["attributes"].is_null());
    assert_eq!(process.map(&[])["processes"][0]["smaps"]["state"], "not-read");
    assert_eq!(process.map(&["--smaps"])["processes"][0]["smaps"]["state"], "read");
}

#[test]
fn a_launched_program_that_stops_itself_is_mapped_continued_and_waited_for() {
    let Some(kinds) = Kinds::new() else { return };
    let program = kinds.program.to_str().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("map.json");
    let arguments =
        ["map", "--after", "1m", "--json", "-o", file.to_str().unwrap(), "--", program, "refused"];
    let output = run(&arguments);
    // The program's own exit code and output.
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    assert!(u64::from_str_radix(stdout(&output).trim(), 16).is_ok());
    let map: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(map["processes"][0]["process"]["name"], "map");
    let early = run(&["map", "--after", "1m", "--", "true"]);
    refused(&early, 0, "the program ended within");
    refused(&run(&["map", "--", "/nonexistent"]), 127, "nonexistent");
}

#[test]
fn names_cannot_move_the_cursor_or_break_lines() {
    let Some(kinds) = Kinds::new() else { return };
    let Some(process) = kinds.start("memfd") else { return };
    let pid = process.pid().to_string();
    for flags in [&["map", &pid][..], &["map", &pid, "--all"]] {
        let text = stdout(&run(flags));
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert!(text.lines().any(|line| line.contains("/memfd:a\\n\\u{1b}[2Jb")), "{text}");
    }
    let dir = tempfile::tempdir().unwrap();
    let (svg, html) = (dir.path().join("a.svg"), dir.path().join("a.html"));
    let pictures = ["--svg", svg.to_str().unwrap(), "--html", html.to_str().unwrap()];
    assert_eq!(run(&[&["map", &pid], &pictures[..]].concat()).status.code(), Some(0));
    for file in [svg, html] {
        let text = fs::read_to_string(file).unwrap();
        assert!(text.contains("on superpages") && !text.contains('\u{1b}'));
    }
}

#[test]
fn what_cannot_be_mapped_is_one_line() {
    refused(&run(&["map"]), 2, "no process named");
    refused(&run(&["map", "2147483647"]), 2, "no process has pid 2147483647");
    refused(&run(&["map", "0"]), 2, "process ID above 0");
    refused(&run(&["map", "--budget", "5"]), 2, "expected e.g. 50ms");
    refused(&run(&["map", "1", "--", "true"]), 2, "not both");
    refused(&run(&["map", "sleep"]), 2, "expected a process ID");
    let Some(kinds) = Kinds::new() else { return };
    let (Some(one), Some(other)) = (kinds.start("plain"), kinds.start("plain")) else { return };
    let pids = [one.pid().to_string(), other.pid().to_string()];
    refused(&run(&["map", &pids[0], &pids[1], "--svg", "/nonexistent/a.svg"]), 2, "nonexistent");
    let dir = tempfile::tempdir().unwrap();
    let svg = dir.path().join("a.svg");
    let both = run(&["map", &pids[0], &pids[1], "--svg", svg.to_str().unwrap()]);
    refused(&both, 2, "draw one process");
    assert!(!svg.exists());
}

#[test]
fn another_users_process_is_told_without_its_memory() {
    testkit::require!(testkit::is_root(), "becoming another user needs root");
    let Some(kinds) = Kinds::new() else { return };
    let (Some(process), Some(other)) = (kinds.start("plain"), kinds.start("plain")) else { return };
    let nobody = |arguments: &[&str]| {
        // nobody may not enter the directories of the build.
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let program = dir.path().join("superpage");
        testkit::copy_program(env!("CARGO_BIN_EXE_superpage"), &program);
        std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).unwrap();
        Command::new(&program).args(arguments).uid(65534).gid(65534).output().unwrap()
    };
    let pid = process.pid().to_string();
    refused(&nobody(&["map", &pid]), 3, "page tables may be read by the owner and root");
    let both = nobody(&["map", &pid, &other.pid().to_string()]);
    refused(&both, 3, "none of 2 processes could be read");
    // One that may be read is shown with its mappings, beside one that may not.
    let mut own = Command::new("sleep").arg("1000").uid(65534).gid(65534).spawn().unwrap();
    let output = nobody(&["map", &pid, &own.id().to_string(), "--json"]);
    own.kill().unwrap();
    own.wait().unwrap();
    let map: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(map["processes"].as_array().unwrap().len(), 1);
    assert!(!map["processes"][0]["extents"].as_array().unwrap().is_empty());
    assert_eq!(map["unknown"][0]["what"], "1 process");
}

#[test]
fn processes_that_end_meanwhile_are_counted_or_left_out() {
    // Short processes come and go while they are mapped.
    let mut storm = Command::new("sh");
    storm.args(["-c", "while :; do sleep 0.001 & sleep 0.001 & wait; done"]);
    let mut storm = storm.process_group(0).spawn().unwrap();
    let outputs: Vec<_> =
        (0..20).map(|_| run(&["map", "--match", "^(sh|sleep)$", "--json"])).collect();
    let group = i32::try_from(storm.id()).unwrap();
    // SAFETY: a signal to the group that this test started.
    unsafe { libc::kill(-group, libc::SIGKILL) };
    let _ = storm.wait();
    for output in outputs {
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let map: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert!(!map["processes"].as_array().unwrap().is_empty());
    }
}

/// Programs with memory of many kinds. Each runs until it is killed, or for long; those that are not installed are
/// counted as skipped.
const PROGRAMS: [(&str, &str, &str); 22] = [
    ("redis", "redis-server", "redis-server --port 0 --save '' --unixsocket $DIR/r"),
    ("postgres", "postgres", "POSTGRES"),
    ("java", "java", "exec java -Xms256m -XX:+AlwaysPreTouch $DIR/S.java"),
    (
        "java-thp",
        "java",
        "exec java -Xms256m -XX:+AlwaysPreTouch -XX:+UseTransparentHugePages $DIR/S.java",
    ),
    (
        "node",
        "node",
        "node -e 'let a=[];for(let i=0;i<2e6;i++)a.push({i});setInterval(()=>a.length,1e6)'",
    ),
    (
        "go",
        "go",
        "cd $DIR && printf 'package main\nimport \"time\"\nvar a [1<<28]byte\nfunc main(){for i:=range a{a[i]=1};\
        time.Sleep(1<<62)}' >a.go && HOME=$DIR go build -o a a.go && exec ./a",
    ),
    (
        "python",
        "python3",
        "python3 -c 'import time;a=[str(i) for i in range(10**6)];time.sleep(1e6)'",
    ),
    (
        "python-glibc",
        "python3",
        "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 exec python3 -c 'import time;a=[str(i) for i in range(10**6)];time.sleep(1e6)'",
    ),
    ("perl", "perl", "perl -e '@a=map{\"x$_\"}1..1e6;sleep 1e6'"),
    (
        "bash",
        "bash",
        "bash -c 'a=$(seq 300000); while :; do read -t 1000 </dev/tty || sleep 1000; done'",
    ),
    ("dash", "dash", "dash -c 'while :; do sleep 1000; done'"),
    (
        "sqlite",
        "sqlite3",
        "(echo 'create table a(b);insert into a with recursive t(x) as (select 1 union all select \
        x+1 from t limit 500000) select hex(x) from t;'; sleep 1000) | sqlite3",
    ),
    (
        "cc1",
        "cc",
        "cd $DIR && (echo 'int a[]={'; seq -s, 3000000; echo '};') >a.c && exec cc -O2 -c -o a.o a.c",
    ),
    ("sort", "sort", "(seq 2000000; sleep 1000) | sort -S 200M"),
    ("awk", "awk", "(seq 500000; sleep 1000) | awk '{a[NR]=$0}'"),
    ("git", "git", "cd $SOURCE && (sleep 1000) | git cat-file --batch"),
    ("tail", "tail", "tail -f /dev/null"),
    (
        "static",
        "cc",
        "cd $DIR && echo 'int main(){char*a=malloc(1<<26);memset(a,1,1<<26);pause();}' >s.c && \
        cc -w -include stdlib.h -include string.h -include unistd.h -static -o s s.c && exec ./s",
    ),
    (
        "chromium",
        "chromium",
        "chromium --headless --no-sandbox --disable-gpu --user-data-dir=$DIR/c --remote-debugging-port=0 about:blank",
    ),
    (
        "gups",
        "true",
        "$SUPERPAGE run --pages thp -- $SUPERPAGE workload gups --size 256M --operations 100000000000",
    ),
    ("qemu", "qemu-x86_64", "qemu-x86_64 $(command -v sleep) 1000"),
    ("vim", "vim", "vim -es -c 'sleep 1000'"),
];

#[test]
#[ignore = "nightly: starts 20 real programs and compares each of their mappings with smaps"]
fn real_programs_are_as_in_smaps_page_for_page() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs");
    let mut programs = 0;
    for (name, needs, line) in PROGRAMS {
        let found = Command::new("sh").args(["-c", &format!("command -v {needs}")]).output();
        if !found.unwrap().status.success() {
            testkit::skipped!("{name}: {needs} is not installed");
            continue;
        }
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let line = match line {
            "POSTGRES" => {
                // postgres refuses to run as root.
                "chown -R nobody $DIR; chmod 755 $DIR; P=$(command -v postgres); I=$(command -v initdb || ls \
                 /usr/lib/postgresql/*/bin/initdb | tail -n 1); P=$(dirname $I)/postgres; U='setpriv --reuid nobody \
                 --regid nogroup --clear-groups'; [ $(id -u) = 0 ] || U=; $U $I -D $DIR/d >/dev/null && exec $U $P -D \
                 $DIR/d -k $DIR -h '' -c shared_buffers=64MB"
            }
            line => line,
        };
        let java =
            "class S{public static void main(String[] a)throws Exception{Thread.sleep(1L<<40);}}";
        fs::write(dir.path().join("S.java"), java).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", line]).process_group(0);
        command.env("DIR", dir.path()).env("SOURCE", source);
        command.env("SUPERPAGE", env!("CARGO_BIN_EXE_superpage"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let group = i32::try_from(child.id()).unwrap();
        std::thread::sleep(std::time::Duration::from_secs(match name {
            "go" | "postgres" | "chromium" | "static" => 8,
            _ => 4,
        }));
        // SAFETY: a signal to the group that this test started.
        unsafe { libc::kill(-group, libc::SIGSTOP) };
        let tree = host::process::tree(&host::Root::real(), units::Pid(group));
        let is_stopped = |pid: &units::Pid| {
            let stat = host::process::stat(&host::Root::real(), *pid);
            stat.is_ok_and(|stat| "TZX".contains(stat.state))
        };
        // Some programs are in a group of their own.
        for pid in &tree {
            // SAFETY: a signal to a descendant of the program that this test started.
            unsafe { libc::kill(pid.0, libc::SIGSTOP) };
        }
        let stopped = comes_true(|| tree.iter().all(is_stopped));
        let mut wrong = Vec::new();
        let (mut mappings, mut resident, mut huge, mut processes) = (0, 0, 0, 0);
        for pid in tree.iter().filter(|_| stopped) {
            let output = run(&["map", &pid.to_string(), "--json"]);
            let Ok(map) = serde_json::from_str::<Value>(&stdout(&output)) else { continue };
            processes += 1;
            let expected = of_smaps(pid.0 as u32);
            for extent in map["processes"][0]["extents"].as_array().unwrap() {
                let bytes = |name: &str| extent["pages"][name].as_u64().unwrap();
                let start = extent["mapping"]["start"].as_u64().unwrap();
                let found = (bytes("present"), bytes("huge"));
                if extent["kind"] == "special" {
                    continue;
                }
                mappings += 1;
                resident += found.0;
                huge += found.1;
                if Some(&found) != expected.get(&start) {
                    wrong.push(format!(
                        "{pid}: {found:?} {:?} {}",
                        expected.get(&start),
                        extent["mapping"]
                    ));
                }
            }
        }
        for pid in &tree {
            // SAFETY: as above; the processes are stopped, so no pid was given to another one.
            unsafe { libc::kill(pid.0, libc::SIGKILL) };
        }
        // SAFETY: as above.
        unsafe { libc::kill(-group, libc::SIGKILL) };
        let _ = child.wait();
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / MIB as f64);
        eprintln!(
            "{name}: {processes} processes, {mappings} mappings, {} resident, {} on superpages, {} differ",
            mib(resident),
            mib(huge),
            wrong.len()
        );
        assert!(stopped && processes > 0, "{name} was not read");
        assert_eq!(wrong, Vec::<String>::new(), "{name}");
        programs += 1;
    }
    assert!(programs >= 10, "only {programs} programs are installed");
}

/// A process that a test left running, ended on drop.
struct Daemon(i32);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = sys::signal::send(units::Pid(self.0), libc::SIGKILL);
    }
}

#[test]
fn a_program_that_goes_into_the_background_is_named_with_its_pid() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pid");
    // The shell ends; its child lives in a session of its own, as that of a daemon does.
    let script = format!(
        "setsid sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 100' >/dev/null 2>&1 & \
         while ! test -e {0}; do sleep 0.01; done",
        file.display()
    );
    let cases: [(&[&str], i32, &str); 2] = [
        (&["map", "--after", "1m"], 0, "map it with superpage map"),
        (&["pool", "plan"], 2, "give --pid"),
    ];
    for (words, code, remedy) in cases {
        if words[0] == "pool" && fs::read_dir("/sys/kernel/mm/hugepages").is_err() {
            testkit::skipped!("no huge page pool");
            continue;
        }
        let _ = fs::remove_file(&file);
        let output = run(&[words, &["--", "sh", "-c", &script]].concat());
        let daemon = Daemon(fs::read_to_string(&file).unwrap().trim().parse().unwrap());
        let line = format!("went into the background, and process {} (", daemon.0);
        refused(&output, code, &line);
        refused(&output, code, &format!("still runs; {remedy} {}", daemon.0));
        // It was left alone.
        let stat = fs::read_to_string(format!("/proc/{}/stat", daemon.0)).unwrap();
        assert!(stat.contains("(sleep) S"), "{stat}");
    }
}

#[test]
fn a_program_that_a_signal_ended_is_told_by_the_signals_name() {
    let output = run(&["map", "--after", "1m", "--", "sh", "-c", "kill -SEGV $$"]);
    assert!(stderr(&output).contains("ended within 60.00 s by SIGSEGV"), "{}", stderr(&output));
}

#[test]
fn outputs_that_would_be_one_are_refused_before_the_scan() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x");
    let (same, other) = (file.to_str().unwrap(), dir.path().join(".").join("x"));
    let own = std::process::id().to_string();
    let cases: [(&[&str], &str); 5] = [
        (&["--html", same, "--svg", same], "--html and --svg name the same file"),
        (&["-o", same, "--html", same, "--force"], "--output and --html name the same file"),
        (&["-o", same, "--svg", other.to_str().unwrap()], "--output and --svg name the same file"),
        (&["-o", "-", "--svg", "-"], "--output and --svg both go to standard output"),
        (&["--svg", "-"], "the table and --svg both go to standard output"),
    ];
    for (words, part) in cases {
        refused(&run(&[&["map", &own], words].concat()), 2, part);
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "files are left");
}

#[test]
fn a_pattern_does_not_mean_the_shell_that_runs_the_command() {
    let own = env!("CARGO_BIN_EXE_superpage");
    let line = format!("{own} map --match nobodys-pattern-7; exit $?");
    let output = Command::new("timeout").args(["60", "sh", "-c", &line]).output().unwrap();
    refused(&output, 2, "no name and no command line matches \"nobodys-pattern-7\"");
}
