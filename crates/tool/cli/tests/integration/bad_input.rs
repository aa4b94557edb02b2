//! Bad input: the error is one line with the fault, its place and the remedy; the exit code is right; nothing is
//! changed.

use crate::common::{
    NO_POOL, comes_true, has_pool, overcommit, pool_is_empty, run, stderr, superpage,
};

/// Arguments, exit code, and texts that the line must contain: the faulty word and the remedy.
type Case = (&'static [&'static str], i32, &'static [&'static str]);

/// Stands for an existing file of the test.
const TAKEN: &str = "TAKEN";

const CASES: &[Case] = &[
    (&["compare", "nosuch"], 2, &["`nosuch`", "expected one of gups"]),
    (&["compare", "gups", "--size", "0"], 2, &["gups", "0 B", "--size 64 KiB or more"]),
    (&["compare", "gups", "--size", "99999G"], 3, &["gups", "available", "smaller --size"]),
    (&["workload", "gups", "--size", "900T"], 3, &["gups", "available", "smaller --size"]),
    (&["compare", "gups", "--size", "-1"], 2, &["invalid size `-1`"]),
    (&["compare", "gups", "--size", "2X"], 2, &["invalid size `2X`"]),
    (&["compare", "gups", "--size", "99999999999999999999"], 2, &["too large"]),
    (&["compare", "gups", "--threads", "0"], 2, &["--threads"]),
    (&["compare", "stream", "--offset", "7"], 2, &["--offset", "multiple of 8"]),
    (&["compare", "gups", "--offset", "8"], 2, &["--offset", "--operations"]),
    (&["compare"], 2, &["nothing to compare", "superpage compare gups"]),
    (&["compare", "--", "no-such-program"], 2, &["`no-such-program` was not found", "spelling"]),
    (&["compare", "--", ""], 2, &["was not found"]),
    (&["compare", "--", "/etc/passwd"], 2, &["/etc/passwd", "execute permission"]),
    (&["compare", "--", "/"], 2, &["directory"]),
    (&["compare", "--size", "1G", "--", "true"], 2, &["--size", "workload"]),
    (
        &["compare", "--max-runs", "2", "--", "false"],
        2,
        &["exited with code 1", "--ignore-failure"],
    ),
    (&["compare", "--max-runs", "2", "--", "sh", "-c", "kill -9 $$"], 2, &["killed by signal 9"]),
    (
        &["compare", "--max-runs", "2", "--metric", "ops=([0-9]+)", "--", "echo", "hello"],
        2,
        &["`ops=([0-9]+)` does not match", "\"hello\""],
    ),
    (&["compare", "gups", "--metric", "("], 2, &["`(` is not valid"]),
    (&["compare", "gups", "--arm", "fast"], 2, &["invalid arm `fast`", "base, thp", "jvm-thp"]),
    (&["compare", "gups", "--dry-run", "--json"], 2, &["'--dry-run'", "cannot be used with"]),
    (&["bench", "touch", "--dry-run", "--json"], 2, &["'--dry-run'", "cannot be used with"]),
    (&["compare", "gups", "--arm", "x: fast"], 2, &["unexpected `fast`"]),
    (&["compare", "gups", "--arm", "x: -- no-such"], 2, &["arm x", "`no-such` was not found"]),
    (&["compare", "gups", "--arm", "hugetlb:8T"], 3, &["no hugetlb pool of 8 TiB"]),
    (&["compare", "gups", "--confidence", "100%"], 2, &["--confidence"]),
    (&["compare", "gups", "--max-time", "soon"], 2, &["--max-time", "90s"]),
    (
        &["compare", "gups", "--html", "/no/such/dir/x.html"],
        2,
        &["/no/such/dir/x.html", "directory"],
    ),
    (&["compare", "gups", "--html", "-"], 2, &["--html -", "-o"]),
    (&["compare", "--from", "/no/such.json"], 2, &["/no/such.json", "compare --json"]),
    (&["compare", "--from", "/etc/passwd"], 2, &["/etc/passwd", "compare --json"]),
    (&["compare", "--from", "/dev/zero"], 2, &["/dev/zero", "more than 256 MiB"]),
    (&["compare", "gups", "--html", TAKEN], 2, &[TAKEN, "exists", "--force"]),
    (&["compare", "gups", "-o", TAKEN], 2, &[TAKEN, "exists", "--force"]),
    (&["verify-cost", "gups", "-o", TAKEN], 2, &[TAKEN, "exists", "--force"]),
    (&["compare", "--from", "/dev/null"], 2, &["/dev/null", "compare --json"]),
    (
        &["design", "show", "linx"],
        2,
        &["unknown design `linx`: did you mean `linux`?", "known designs: base,"],
    ),
    (
        &["design", "show", "nosuch"],
        2,
        &["unknown design `nosuch`; known designs: base,", "give a file"],
    ),
    (&["design", "show", "./nosuch.toml"], 2, &["./nosuch.toml", "design file"]),
    (&["design", "check", "/no/such.toml"], 2, &["/no/such.toml", "design file"]),
    (&["design", "check", "/"], 2, &["/", "directory", "design file"]),
    (&["design", "check", "/dev/zero"], 2, &["/dev/zero", "more than 1 MiB"]),
    (&["design", "check", "/dev/null"], 2, &["/dev/null:1: name", "letters"]),
    (&["design", "check"], 2, &["FILE"]),
    (&["design", "diff", "linux"], 2, &["<B>"]),
    (&["design", "diff", "linux", "/etc/passwd"], 2, &["/etc/passwd:1: ", "invalid TOML"]),
    (&["workload", "nosuch"], 2, &["`nosuch`", "expected one of gups"]),
    (&["workload", "gups", "--size", "0"], 2, &["too small"]),
    (&["run", "--files=copy2M", "true"], 2, &["invalid files `copy2M`", "copy:64M"]),
    (&["run", "--stack=100T", "true"], 2, &["more than this machine's memory"]),
    (
        &["run", "--text", "--pages", "thp", "--size", "8T", "true"],
        125,
        &["superpage pool set 8192G:+N"],
    ),
    (&["run", "no-such-program"], 127, &["`no-such-program` was not found"]),
    (&["run", "--", "no-such-program"], 127, &["`no-such-program` was not found"]),
    (&["run", "--", "/etc/passwd"], 126, &["/etc/passwd", "execute permission"]),
    (&["run", "--pages", "big", "--", "true"], 2, &["invalid pages `big`"]),
    (&["run", "--pages", "hugetlb:8T", "--", "true"], 125, &["no hugetlb pool of 8 TiB"]),
    (
        &["run", "--pages", "thp", "--heap", "--fallback", "error", "--", "true"],
        2,
        &["--fallback error", "--pages hugetlb"],
    ),
    (&["run", "--prefault", "--fallback", "error", "--", "true"], 2, &["--pages hugetlb"]),
];

/// Returns the command's messages, without messages about settings that it restored for other commands (killed by tests
/// that run at the same time).
fn said(output: &std::process::Output) -> String {
    let said = stderr(output);
    let is_own = |line: &&str| !line.starts_with("superpage: left by a killed superpage: ");
    said.lines().filter(is_own).map(|line| format!("{line}\n")).collect()
}

#[test]
fn damaged_and_foreign_documents_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.json");
    let foreign = r#"{"schema":"superpage.compare/99"}"#;
    let hollow = r#"{"schema":"superpage.compare/1","arms":[]}"#;
    for (text, part) in
        [(foreign, "superpage.compare/99"), (hollow, "missing field"), ("[1,", "EOF")]
    {
        std::fs::write(&path, text).unwrap();
        let output = run(&["compare", "--from", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(part), "{text}: {}", stderr(&output));
    }
}

fn world_readable() -> std::fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    std::fs::Permissions::from_mode(0o755)
}

/// As root, a comparison changes the pool while it runs, and a pool that was just grown has free pages.
mod exclusive {
    use super::*;

    #[test]
    fn without_privilege_a_pool_cannot_be_lent() {
        testkit::lock_machine!();
        testkit::require!(testkit::is_root(), "not root, so privilege cannot be dropped");
        testkit::require!(has_pool(), "{NO_POOL}");
        testkit::require!(pool_is_empty(), "the pool has pages to give without being lent any");
        let setpriv = std::process::Command::new("setpriv").arg("--version").output();
        testkit::require!(setpriv.is_ok(), "no setpriv (util-linux) to drop privilege with");
        // Nobody may enter the build directory, so copy the command to a directory that everybody may enter.
        let dir = tempfile::Builder::new().permissions(world_readable()).tempdir().unwrap();
        let copy = dir.path().join("superpage");
        testkit::copy_program(env!("CARGO_BIN_EXE_superpage"), &copy);
        let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        let output = std::process::Command::new("setpriv")
            .args(nobody)
            .arg(&copy)
            .args(["compare", "gups", "--size", "16M", "--arm", "base", "--arm", "hugetlb"])
            .current_dir("/")
            .output()
            .unwrap();
        let line = said(&output);
        assert_eq!(output.status.code(), Some(3), "{line}");
        assert_eq!(line.trim_end().lines().count(), 1, "{line}");
        assert!(line.contains("root"), "{line}");
    }

    #[test]
    fn one_line_the_right_code_and_nothing_changed() {
        testkit::lock_machine!();
        let before = overcommit();
        let taken = tempfile::NamedTempFile::new().unwrap();
        let taken = taken.path().to_str().unwrap();
        let filled = |word: &&'static str| if *word == TAKEN { taken } else { *word };
        for (arguments, code, parts) in CASES {
            let words: Vec<&str> = arguments.iter().map(filled).collect();
            let output = run(&words);
            let line = said(&output);
            assert_eq!(output.status.code(), Some(*code), "{arguments:?}: {line}");
            assert_eq!(line.trim_end().lines().count(), 1, "{arguments:?}: {line}");
            assert!(line.starts_with("superpage: "), "{arguments:?}: {line}");
            for part in parts.iter().map(filled) {
                assert!(line.contains(part), "{arguments:?} lacks {part}: {line}");
            }
            // A comparison that someone else makes raises it for a moment.
            assert!(comes_true(|| overcommit() == before), "{arguments:?}: {:?}", overcommit());
        }
        assert_eq!(std::fs::read_to_string(taken).unwrap(), "", "nothing was written over it");
    }
}

#[test]
fn a_small_stack_is_enough() {
    let own = superpage(&[]).get_program().to_os_string();
    for words in ["compare --dry-run -- true", "design list", "evaluate --list", "run -q -- true"] {
        for kib in ["64", "128"] {
            let script = format!("ulimit -s {kib}; exec \"$0\" {words}");
            let output = std::process::Command::new("sh").arg("-c").arg(script).arg(&own).output();
            let output = output.unwrap();
            assert_eq!(output.status.code(), Some(0), "{words}, {kib} KiB: {}", stderr(&output));
        }
    }
}
