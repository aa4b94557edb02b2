//! What a script can observe of the commands, by the manual pages and the behaviour of libhugetlbfs 2.24: the exit
//! status, the text on each stream, and its words.
//!
//! Every failure has status 1. Usage goes to standard error, with status 0 if it was requested. `hugectl` starts its
//! program even if a request cannot be met, with a warning. Rows marked `mended` differ from libhugetlbfs on purpose.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{command, tool};
use crate::common::{NO_POOL, has_pool, stderr, stdout};

/// A command line, its status, and texts on standard output and standard error. An empty list means no output.
type Row = (&'static str, i32, &'static [&'static str], &'static [&'static str]);

/// Matches any text.
const ANY: &[&str] = &[""];

fn check(name: &str, rows: &[Row], places: &[(&str, &str)]) {
    for (line, status, out, err) in rows {
        let words: Vec<String> = line
            .split_whitespace()
            .map(|word| {
                places.iter().fold(word.to_string(), |word, (from, to)| word.replace(from, to))
            })
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = tool(name, &words);
        let context = format!("{name} {line}: {output:?}");
        assert_eq!(output.status.code(), Some(*status), "{context}");
        for (parts, text) in [(out, stdout(&output)), (err, stderr(&output))] {
            assert!(!parts.is_empty() || text.is_empty(), "{context}");
            for part in *parts {
                assert!(text.contains(part), "lacks {part:?}: {context}");
            }
        }
    }
}

#[test]
fn pagesize() {
    check(
        "pagesize",
        &[
            ("", 0, ANY, &[]),
            ("-a", 0, ANY, &[]),
            ("--all", 0, ANY, &[]),
            ("-H", 0, ANY, &[]),
            ("--huge-only", 0, ANY, &[]),
            ("-a -H", 0, ANY, &[]),
            ("-aH", 0, ANY, &[]),
            ("--huge", 0, ANY, &[]),
            ("-h", 0, &[], &["pagesize [options]", "--all, -a", "--huge-only, -H"]),
            ("--help", 0, &[], &["pagesize [options]"]),
            ("-x", 1, &[], &["invalid option -- 'x'", "pagesize [options]"]),
            ("--banana", 1, &[], &["unrecognized option '--banana'", "pagesize [options]"]),
            ("--all=1", 1, &[], &["doesn't allow an argument", "pagesize [options]"]),
            ("operand", 1, &[], &["pagesize [options]"]),
            ("-a operand", 1, &[], &["pagesize [options]"]),
        ],
        &[],
    );
}

#[test]
fn hugectl() {
    check(
        "hugectl",
        &[
            ("", 1, &[], &["hugectl [options]"]),
            ("--heap", 1, &[], &["hugectl [options]"]),
            ("--help", 0, &[], &["hugectl [options]", "--heap", "--shm", "--dry-run"]),
            ("-h true", 0, &[], &["hugectl [options]"]),
            ("--banana true", 1, &[], &["unrecognized option '--banana'", "hugectl [options]"]),
            ("-x true", 1, &[], &["invalid option -- 'x'", "hugectl [options]"]),
            ("--library true", 1, &[], &["ambiguous", "hugectl [options]"]),
            ("--library-path", 1, &[], &["requires an argument", "hugectl [options]"]),
            ("--no-preload=1 true", 1, &[], &["doesn't allow an argument"]),
            ("--verbose 100 true", 1, &[], &["hugectl: ERROR: 100: verbosity out of range 0-99"]),
            ("--verbose=-1 true", 1, &[], &["hugectl: ERROR: -1: verbosity out of range 0-99"]),
            // The command's status is the program's; only failures to start it have a status of their own.
            ("-q -q true", 0, &[], &[]),
            ("-q -q false", 1, &[], &[]),
            ("-q -q sh EXIT9", 9, &[], &[]),
            ("-q -q -- sh EXIT9", 9, &[], &[]),
            ("no-such-program", 1, &[], &["hugectl: ERROR: exec failed: "]),
            ("--heap no-such-program", 1, &[], &["hugectl: ERROR: exec failed: "]),
            ("/etc/passwd", 1, &[], &["hugectl: ERROR: exec failed: "]),
            ("/", 1, &[], &["hugectl: ERROR: exec failed: "]),
            ("-q -q no-such-program", 1, &[], &[]),
            // A request that cannot be met gives a warning.
            ("--heap=banana true", 0, &[], &["hugectl: WARNING: ", "invalid page size `banana`"]),
            ("--text=33M true", 0, &[], &["hugectl: WARNING: ", "invalid page size `33M`"]),
            ("--heap=8T true", 0, &[], &["hugectl: WARNING: ", "no hugetlb pool of 8 TiB"]),
            ("--share-text true", 0, &[], &["hugectl: WARNING: ", "--share-text"]),
            ("--disable=stack true", 0, &[], &["hugectl: WARNING: ", "--disable=stack"]),
            ("--thp --shm true", 0, &[], &["hugectl: WARNING: ", "shm stays on base pages"]),
            ("--heap --thp true", 0, &[], &["hugectl: WARNING: --thp goes before --heap"]),
            ("--text --disable true", 0, &[], &["--disable masks requested remap"]),
            (
                "--data=2M --bss=1G --disable=text true",
                0,
                &[],
                &["data and bss remapped together in 2M"],
            ),
            ("-q --heap=8T true", 0, &[], &[]),
            ("--force-preload --heap=8T -q true", 0, &[], &[]),
            ("--no-preload --heap true", 0, &[], &["hugectl: WARNING: nothing is preloaded"]),
            // A dry run prints what it would set, one assignment per line, and starts nothing.
            ("--dry-run", 0, &["HUGETLB_VERBOSE='2'\n"], &[]),
            ("--dry-run no-such-program", 0, &["HUGETLB_VERBOSE='2'\n"], ANY),
            ("--dry-run --verbose 99", 0, &["HUGETLB_DEBUG='yes'\nHUGETLB_VERBOSE='99'\n"], ANY),
            ("--dry-run --heap", 0, &["HUGETLB_MORECORE='yes'\n"], ANY),
            ("--dry-run --heap=2M", 0, &["HUGETLB_MORECORE='2M'\n"], ANY),
            ("--dry-run --thp", 0, &["HUGETLB_MORECORE='thp'\n"], ANY),
            ("--dry-run --shm", 0, &["HUGETLB_SHM='yes'\n"], ANY),
            ("--dry-run --text --data", 0, &["HUGETLB_ELFMAP='R:W'\n"], ANY),
            ("--dry-run --text=2M --bss=1G", 0, &["HUGETLB_ELFMAP='R=2M:W=1G'\n"], ANY),
            ("--dry-run --disable", 0, &["HUGETLB_ELFMAP='no'\n"], &[]),
            ("--dry-run --no-reserve", 0, &["HUGETLB_NO_RESERVE='yes'\n"], ANY),
            ("--dry-run --share-text", 0, &["HUGETLB_SHARE='1'\n"], ANY),
            ("--dry-run --library-path /x", 0, &["LD_LIBRARY_PATH='/x/"], ANY),
            // mended: libhugetlbfs took a level after -v for the program.
            ("-v 3 true", 0, &[], &["INFO: HUGETLB_VERBOSE='3'"]),
        ],
        &[("EXIT9", &exit9())],
    );
    testkit::require!(has_pool(), "{NO_POOL}");
    let rows: &[Row] = &[
        ("--dry-run --heap", 0, &["LD_PRELOAD='"], ANY),
        ("--dry-run --shm", 0, &["LD_PRELOAD='"], ANY),
    ];
    check("hugectl", rows, &[]);
}

/// A script that ends with 9, given by its path, which contains no blank.
fn exit9() -> String {
    static PATH: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let write = || {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("exit9.sh");
        fs::write(&path, "exit 9\n").unwrap();
        path.display().to_string()
    };
    PATH.get_or_init(write).clone()
}

#[test]
fn hugectl_starts_a_program_that_no_preload_reaches() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("x.c");
    fs::write(&source, "int main(void) { return 4; }\n").unwrap();
    let program = dir.path().join("x");
    let built = Command::new("cc").arg("-static").arg("-o").arg(&program).arg(&source).output();
    testkit::require!(built.is_ok_and(|o| o.status.success()), "no C compiler with a static libc");
    let rows: &[Row] = &[
        ("--thp PROGRAM", 4, &[], &["WARNING", "linked statically"]),
        ("--heap --shm --force-preload PROGRAM", 4, &[], &["WARNING", "linked statically"]),
        ("-q --shm PROGRAM", 4, &[], &[]),
    ];
    check("hugectl", rows, &[("PROGRAM", program.to_str().unwrap())]);
}

#[test]
fn hugeedit() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    fs::copy("/bin/ls", &program).unwrap();
    let script = dir.path().join("script");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    check(
        "hugeedit",
        &[
            ("", 1, &[], &["hugeedit [options]"]),
            ("--help", 0, &[], &["hugeedit [options]", "--text", "--data", "--disable"]),
            ("-h", 0, &[], &["hugeedit [options]"]),
            ("--banana PROGRAM", 1, &[], &["unrecognized option '--banana'", "hugeedit [options]"]),
            ("--text", 1, &[], &["hugeedit [options]"]),
            ("PROGRAM PROGRAM", 1, &[], &["hugeedit [options]"]),
            (
                "--text --disable PROGRAM",
                1,
                &[],
                &["--disable is not compatible with --text or --data"],
            ),
            ("/no/such", 1, &[], &["hugeedit: ERROR: ", "/no/such", "No such file or directory"]),
            ("SCRIPT", 1, &[], &["hugeedit: ERROR: ", "script"]),
            ("--text SCRIPT", 1, &[], &["hugeedit: ERROR: "]),
            ("/", 1, &[], &["hugeedit: ERROR: "]),
            (
                "PROGRAM",
                0,
                &["Segment ", "(TEXT) default is BASE pages", "(DATA) default is BASE"],
                &[],
            ),
            ("--text PROGRAM", 0, &["(TEXT) default is HUGE pages", "(DATA) default is BASE"], &[]),
            ("--data PROGRAM", 0, &["(TEXT) default is BASE pages", "(DATA) default is HUGE"], &[]),
            (
                "--text --data PROGRAM",
                0,
                &["(TEXT) default is HUGE", "(DATA) default is HUGE"],
                &[],
            ),
            ("PROGRAM", 0, &["(TEXT) default is HUGE", "(DATA) default is HUGE"], &[]),
            ("--disable PROGRAM", 0, &["(TEXT) default is BASE", "(DATA) default is BASE"], &[]),
        ],
        &[("PROGRAM", program.to_str().unwrap()), ("SCRIPT", script.to_str().unwrap())],
    );
}

/// Errors in the arguments alone are reported on a machine without pools too.
#[test]
fn hugeadm_reads_its_words_first() {
    check(
        "hugeadm",
        &[
            ("", 1, &[], &["hugeadm [options]"]),
            ("-v", 1, &[], &["hugeadm [options]"]),
            ("--hard", 1, &[], &["hugeadm [options]"]),
            ("--help", 0, &[], &["hugeadm [options]", "--pool-list", "--create-mounts"]),
            ("-h", 0, &[], &["hugeadm [options]"]),
            ("--banana", 1, &[], &["unrecognized option '--banana'", "hugeadm [options]"]),
            ("-x", 1, &[], &["invalid option -- 'x'", "hugeadm [options]"]),
            ("--pool-list operand", 1, &[], &["hugeadm [options]"]),
            ("--pool-pages-min", 1, &[], &["requires an argument", "hugeadm [options]"]),
            (
                "--verbose 100 --pool-list",
                1,
                &[],
                &["hugeadm:ERROR: 100: verbosity out of range 0-99"],
            ),
            ("--pool-pages-min 2M", 1, &[], &["hugeadm:ERROR: 2M: invalid resize specification"]),
            ("--pool-pages-min 2M:banana", 1, &[], &["invalid adjustment"]),
            ("--pool-pages-min 2M:", 1, &[], &["invalid adjustment"]),
            ("--pool-pages-max 2M:banana", 1, &[], &["invalid adjustment"]),
            ("--pool-pages-min banana:1", 1, &[], &["unknown page size"]),
            // mended: libhugetlbfs ended with 0 for these.
            ("--pool-pages-min 2M:10Q", 1, &[], &["`10Q`"]),
            ("--persist", 1, &[], &["--add-temp-swap"]),
            ("--thp-always --thp-never", 1, &[], &["exclude each other"]),
            ("--thp-khugepaged-pages banana", 1, &[], &["`banana`"]),
            ("--create-mounts --max-size banana", 1, &[], &["`banana`"]),
        ],
        &[],
    );
}

#[test]
fn hugeadm() {
    testkit::require!(has_pool(), "{NO_POOL}");
    testkit::lock_machine!(shared);
    check(
        "hugeadm",
        &[
            ("--pool-list", 0, &["      Size  Minimum  Current  Maximum  Default\n"], &[]),
            ("--pool-list -v", 0, &["   2097152 "], &[]),
            ("--page-sizes", 0, ANY, &[]),
            ("--page-sizes-all", 0, &["2097152\n"], &[]),
            ("--explain", 0, &["Total System Memory: ", "Huge page pools:\n"], ANY),
            ("-d --pool-list", 0, &["HUGETLB_VERBOSE='2'\n"], &[]),
            // These commands change nothing.
            ("--pool-pages-min 4M:1", 1, &[], &["unknown page size"]),
            ("--pool-pages-max 4M:1", 1, &[], &["unknown page size"]),
            ("--set-shm-group no-such-group", 1, &[], &["no-such-group"]),
            ("--create-user-mounts no-such-user", 1, &[], &["no-such-user"]),
            ("--create-group-mounts no-such-group", 1, &[], &["no-such-group"]),
            // mended: libhugetlbfs ended with 0 for these.
            ("--pool-pages-min 2M:33M", 1, &[], &["32M (16 pages) or 34M (17 pages)"]),
            ("--pool-pages-min 2M:1000000000", 1, &[], &["more fit"]),
            // mended: in libhugetlbfs a dry run carried out what it printed.
            ("--dry-run --pool-pages-min 2M:+3", 0, &["HUGETLB_VERBOSE='2'\necho "], &[]),
            (
                "--dry-run --thp-never",
                0,
                &["echo 'never' > /sys/kernel/mm/transparent_hugepage/enabled"],
                &[],
            ),
            (
                "--dry-run --set-shm-group 0",
                0,
                &["echo \"0\" > /proc/sys/vm/hugetlb_shm_group"],
                &[],
            ),
        ],
        &[],
    );
    let has_mounts =
        fs::read_to_string("/proc/mounts").is_ok_and(|text| text.contains(" hugetlbfs "));
    let rows: &[Row] = match has_mounts {
        true => &[("--list-all-mounts", 0, &["Mount Point          Options\n"], &[])],
        false => &[("--list-all-mounts", 0, &[], &["No hugetlbfs mount points found"])],
    };
    check("hugeadm", rows, &[]);
}

#[test]
fn hugeadm_of_a_user_who_may_not() {
    testkit::require!(testkit::is_root(), "not root, so privilege cannot be dropped");
    let setpriv = Command::new("setpriv").arg("--version").output();
    testkit::require!(setpriv.is_ok(), "no setpriv (util-linux) to drop privilege with");
    testkit::require!(has_pool(), "{NO_POOL}");
    // Another test could enlarge a pool meanwhile, so that this command would have nothing to do.
    testkit::lock_machine!(shared);
    let dir = tempfile::tempdir().unwrap();
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(dir.path(), everybody).unwrap();
    let copy = dir.path().join("hugeadm");
    // `cp` writes the copy: otherwise a child of another test could hold it open for writing while it is executed.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_superpage")).arg(&copy).status();
    assert!(copied.unwrap().success());
    for line in [
        "--pool-pages-min 2M:+1",
        "--pool-pages-max 2M:+1",
        "--create-mounts",
        "--create-global-mounts",
        "--thp-always",
        "--thp-khugepaged-pages 7",
        "--set-shm-group 0",
        "--pool-pages-min 2M:+1 --add-temp-swap",
    ] {
        let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        let output = Command::new("setpriv")
            .args(nobody)
            .arg(&copy)
            .args(line.split_whitespace())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{line}: {output:?}");
        let said = stderr(&output);
        assert!(said.starts_with("hugeadm:ERROR: "), "{line}: {said}");
        // EACCES or EPERM, as text of the C library.
        let is_denied = said.contains("Permission denied") || said.contains("not permitted");
        assert!(is_denied, "{line}: {said}");
    }
    let output =
        Command::new("setpriv").arg("--reuid=65534").arg(&copy).arg("--pool-list").output();
    assert_eq!(output.unwrap().status.code(), Some(0), "everybody may look");
}

/// `HUGETLB_VERBOSE` and `HUGETLB_DEBUG` set the verbosity of the commands too.
#[test]
fn the_environment_says_how_much_is_said() {
    for (variable, value, says) in [
        ("HUGETLB_VERBOSE", "0", false),
        ("HUGETLB_VERBOSE", "1", true),
        ("HUGETLB_DEBUG", "", true),
    ] {
        let output =
            command("hugectl").arg("no-such-program").env(variable, value).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(stderr(&output).contains("ERROR: exec failed: "), says, "{variable}={value}");
    }
}

mod exclusive {
    use super::*;

    /// With an empty pool, and with a pool of two pages, the program runs; the empty pool gives a warning.
    #[test]
    fn hugectl_starts_its_program_on_any_pool() {
        testkit::require!(testkit::is_root(), "not root: no pool can be changed");
        testkit::lock_machine!();
        let _pools = testkit::PoolsAsFound::note();
        for (free, err) in [(0, &["WARNING", "is empty"][..]), (2, &[])] {
            testkit::require!(
                testkit::leave_free(free),
                "this machine has no {free} free superpages"
            );
            let rows: &[Row] = &[
                ("--shm sh EXIT9", 9, &[], err),
                ("--heap sh EXIT9", 9, &[], err),
                ("--heap --shm sh EXIT9", 9, &[], err),
                ("--heap=2M sh EXIT9", 9, &[], err),
                ("--heap=2M --shm sh EXIT9", 9, &[], err),
                ("-q --heap --shm --text --data sh EXIT9", 9, &[], &[]),
            ];
            check("hugectl", rows, &[("EXIT9", &exit9())]);
            let output = tool("hugectl", &["--heap", "--shm=2M", "true"]);
            let warnings = stderr(&output).matches("WARNING").count();
            assert_eq!(warnings, usize::from(free == 0), "once: {output:?}");
        }
    }

    #[test]
    fn hugeadm_moves_bounds_and_says_what_it_could_not() {
        testkit::require!(testkit::is_root(), "not root: no pool can be changed");
        testkit::lock_machine!();
        let _pools = testkit::PoolsAsFound::note();
        testkit::require!(testkit::leave_free(4), "this machine has no four free superpages");
        let min = || {
            let list = stdout(&tool("hugeadm", &["--pool-list"]));
            let row = list.lines().find(|line| line.trim_start().starts_with("2097152 ")).unwrap();
            row.split_whitespace().nth(1).unwrap().to_string()
        };
        let before = min();
        let below = (before.parse::<u64>().unwrap() - 1).to_string();
        check(
            "hugeadm",
            &[
                ("--pool-pages-max 2M:MIN", 0, &[], &[]),
                ("--pool-pages-max 2M:BELOW", 1, &[], &["is below the pool's minimum of"]),
                ("--pool-pages-max 2M:0", 1, &[], &["is below the pool's minimum of"]),
                ("--pool-pages-min 2M:-1", 0, &[], &[]),
                ("--pool-pages-min 2M:+1", 0, &[], &[]),
                ("--pool-pages-min DEFAULT:+2M --pool-pages-max DEFAULT:+1", 0, &[], &[]),
                ("--pool-pages-min 2M:-2048K", 0, &[], &[]),
            ],
            &[("MIN", &before), ("BELOW", &below)],
        );
        assert_eq!(min(), before);
    }
}
