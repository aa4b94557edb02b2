//! `superpage compare`, end to end on this machine, with small runs.

use std::path::Path;
use std::process::Stdio;

use crate::common::{
    NO_POOL, has_pool, has_thp, overcommit, pool_is_empty, processes_with, run, send, stderr,
    stdout, superpage, wait_until,
};
use serde_json::Value;

const SMALL: [&str; 8] =
    ["compare", "gups", "--size", "64M", "--max-runs", "4", "--max-time", "3m"];

fn small(more: &[&str]) -> Vec<&'static str> {
    let more = more.iter().map(|word| -> &'static str { Box::leak(word.to_string().into()) });
    SMALL.into_iter().chain(more).collect()
}

pub fn json(arguments: &[&str]) -> Value {
    let output = run(arguments);
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_str(&stdout(&output)).expect("JSON")
}

fn samples_of<'a>(document: &'a Value, arm: u64, purpose: &str) -> Vec<&'a Value> {
    let samples = document["samples"].as_array().unwrap();
    samples.iter().filter(|one| one["arm"] == arm && one["purpose"] == purpose).collect()
}

#[test]
fn every_run_is_in_the_document() {
    let document = json(&small(&["--arm", "base", "--arm", "system", "--json"]));
    assert_eq!(document["schema"], "superpage.compare/1");
    for arm in [0, 1] {
        assert_eq!(samples_of(&document, arm, "warm-up").len(), 1);
        let measured = samples_of(&document, arm, "measured").len();
        assert!(measured >= 2 && measured.is_multiple_of(2), "{measured}");
    }
    for sample in document["samples"].as_array().unwrap() {
        assert!(sample["minor_faults"].as_u64() > Some(0), "{sample}");
    }
}

#[test]
#[ignore = "nightly: how much lies on superpages depends on free memory"]
fn coverage_is_what_was_promised() {
    testkit::require!(has_thp(), "THP are off on this machine");
    testkit::lock_machine!(shared);
    let document = json(&small(&["--arm", "base", "--arm", "thp", "--json"]));
    let warm_up = |arm: u64| &samples_of(&document, arm, "warm-up")[0]["memory"]["coverage"];
    let is_seen = [0, 1].iter().all(|arm| !warm_up(*arm).is_null());
    testkit::require!(is_seen, "too much else ran to see what a warm-up held");
    assert_eq!(warm_up(0)["eligible_huge"], 0);
    let part = |part: &str| warm_up(1)[part].as_u64().unwrap();
    let (huge, all) = (part("anon_thp"), part("anon_thp") + part("anon_base"));
    testkit::require!(all >= 60 << 20, "it was seen before it held its 64 MiB");
    assert!(huge * 100 >= all * 93, "{huge} of {all} on superpages");
    let faults =
        |arm: u64| samples_of(&document, arm, "measured")[0]["minor_faults"].as_u64().unwrap();
    assert!(faults(0) > 4 * faults(1), "{} {}", faults(0), faults(1));
}

#[test]
fn a_document_redraws_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (document, first, second) = (path("a.json"), path("1.html"), path("2.html"));
    let arms = ["--arm", "base", "--arm", "base", "--aa", "--json", "-o", &document];
    let made = run(&small(&[&arms[..], &["--html", &first]].concat()));
    assert!(made.status.success(), "{}", stderr(&made));
    let said = stderr(&made);
    for file in [&document, &first] {
        assert!(said.contains(&format!("written: {file}")), "{file}: {said}");
    }
    assert!(said.contains(&format!("superpage compare --from {document}")), "{said}");
    let redraw = |more: &[&str]| run(&[&["compare", "--from", &document][..], more].concat());
    assert_eq!(redraw(&["--json"]).stdout, std::fs::read(&document).unwrap());
    assert_eq!(redraw(&[]).stdout, redraw(&[]).stdout);
    let table = stdout(&redraw(&[]));
    let is_early = table.contains("no interval yet");
    testkit::require!(!is_early, "this machine is too busy for an interval in the time given");
    for word in ["base again", "base #2", "noise floor"] {
        assert!(table.contains(word), "{word}: {table}");
    }
    assert!(!table.contains('\u{1b}'), "no colours into a pipe");
    redraw(&["--html", &second]);
    assert_eq!(std::fs::read(&first).unwrap(), std::fs::read(&second).unwrap());
    let csv = stdout(&redraw(&["--format", "csv"]));
    let document: Value = serde_json::from_slice(&std::fs::read(&document).unwrap()).unwrap();
    assert_eq!(csv.lines().count(), document["samples"].as_array().unwrap().len() + 1);
}

#[test]
fn any_command_any_recipe_and_its_own_figure() {
    let document = json(&[
        "compare",
        "--max-runs",
        "2",
        "--arm",
        "one: X=1",
        "--arm",
        "two: X=2 -- env Y=3",
        "--metric",
        "x=([0-9]+)",
        "--json",
        "--",
        "sh",
        "-c",
        "echo x=$X$Y",
    ]);
    let metric = |arm: u64| {
        let samples = document["samples"].as_array().unwrap().iter();
        samples.filter(|one| one["arm"] == arm).map(|one| one["metric"].as_f64().unwrap()).next()
    };
    assert_eq!((metric(0), metric(1)), (Some(1.0), Some(23.0)));
}

#[test]
fn a_verdict_asked_about_sets_the_exit_code() {
    let arms = ["--arm", "a: X=1", "--arm", "b: X=30", "--max-runs", "6", "--metric", "([0-9]+)"];
    let script = ["--", "sh", "-c", "echo $X"];
    let asked = |verdict: &str, better: &str| {
        let flags = ["--fail-if", verdict, "--metric-better", better, "-q"];
        run(&[&["compare"][..], &arms, &flags, &script].concat()).status.code()
    };
    assert_eq!(asked("slower", "lower"), Some(1));
    assert_eq!(asked("slower", "higher"), Some(0));
    assert_eq!(asked("not-faster", "higher"), Some(0));
    assert_eq!(asked("no-effect", "higher"), Some(0));
}

#[test]
fn a_verdict_asked_about_that_no_arm_has_is_not_possible_here() {
    let arms = ["--arm", "a: X=1", "--arm", "b: X=30", "--max-runs", "2", "--metric", "([0-9]+)"];
    let words = [&["compare", "-q", "--json"][..], &arms, &["--", "sh", "-c", "echo $X"]].concat();
    let mut document = json(&words);
    // Without its runs no arm is left to compare with the first.
    document["samples"].as_array_mut().unwrap().retain(|one| one["arm"] == 0);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.json");
    std::fs::write(&path, document.to_string()).unwrap();
    let asked =
        |verdict: &str| run(&["compare", "--from", path.to_str().unwrap(), "--fail-if", verdict]);
    let slower = asked("slower");
    assert_eq!(slower.status.code(), Some(3), "{}", stdout(&slower));
    assert!(stderr(&slower).contains("no verdict to look at"), "{}", stderr(&slower));
    assert_eq!(asked("no-effect").status.code(), Some(1));
}

#[test]
fn outputs_are_files_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("x");
    let file = file.to_str().unwrap();
    for (one, other) in [("--output", "--html"), ("--output", "--svg"), ("--html", "--svg")] {
        let (code, said) = refused(&[
            one, file, other, file, "--vary", "n=1,2", "--arm", "base", "--", "true", "{n}",
        ]);
        let same = format!("{one} and {other} name the same file");
        assert!(code == Some(2) && said.contains(&same), "{said}");
    }
}

#[test]
fn an_arm_whose_library_is_silent_or_idle_gets_no_number() {
    testkit::require!(has_thp(), "THP are off on this machine");
    let silent = "silent: pages=thp memory=heap,mmap prezero=16M SUPERPAGE_PAGES=nonsense \
                  GLIBC_TUNABLES=glibc.malloc.hugetlb=1";
    // All memory of gups comes from malloc, for which this arm requests nothing.
    let idle = "idle: pages=thp memory=mmap prezero=16M";
    let words = ["compare", "--max-runs", "2", "--arm", "base", "--arm", silent, "--arm", idle];
    let said = stdout(&run(&[&words[..], &["gups", "--size", "16M"]].concat()));
    assert!(said.contains("did not respond"), "{said}");
    assert!(said.contains("requested no superpages"), "{said}");
    // The program runs long enough for several looks.
    let words =
        ["compare", "--max-runs", "2", "--arm", "base", "--arm", silent, "--", "sleep", "0.5"];
    let said = stdout(&run(&words));
    assert!(said.contains("did not respond"), "{said}");
}

#[test]
fn an_arm_whose_pages_are_not_what_it_promised_gets_no_number() {
    testkit::require!(has_thp(), "THP are off on this machine");
    // `true` ends before the first look, or has no memory that can be on superpages.
    let output =
        run(&["compare", "--max-runs", "2", "--arm", "base", "--arm", "thp", "--", "true"]);
    let told = stdout(&output);
    let is_without = told.contains("did not take effect") || told.contains("no data: whether it");
    assert!(is_without && !told.contains("faster"), "{told}");
}

#[test]
fn an_arm_that_does_not_reach_the_program_is_named_before_the_runs() {
    testkit::require!(has_thp(), "THP are off on this machine");
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("x");
    let is_built = testkit::compile("int main(void) { return 0; }", &program, &["-static"]);
    testkit::require!(is_built, "no static libc");
    let arms = ["--arm", "base", "--arm", "heap: pages=thp memory=heap"];
    let program = ["--", program.to_str().unwrap()];
    let said = |more: &[&str]| {
        let words = [&["compare", "--max-runs", "2"][..], more, &arms, &program].concat();
        stderr(&run(&words))
    };
    // Notes after the runs go to standard output.
    let before = said(&[]);
    assert!(before.contains("superpage: heap: use superpage run -- "), "{before}");
    assert_eq!(said(&["-q"]), "");
}

#[test]
fn what_a_program_leaves_running_is_ended() {
    let mark = format!("7000.{}", std::process::id());
    let script = format!("sleep {mark} >/dev/null 2>&1 & exit 0");
    let document = json(&[
        "compare",
        "--max-runs",
        "2",
        "--arm",
        "system",
        "--json",
        "--",
        "sh",
        "-c",
        &script,
    ]);
    let stragglers: u64 = document["samples"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["stragglers"].as_u64().unwrap())
        .sum();
    assert!(stragglers >= 1, "{stragglers}");
    let sleeps = format!("sleep {mark} ");
    wait_until("what was left running is ended", || processes_with(&sleeps).is_empty());
}

/// Starts a comparison that raises a pool's limit, and waits until it is raised. Returns the limit before.
fn lending() -> (std::process::Child, String) {
    let before = overcommit().unwrap();
    let arms = ["--arm", "base", "--arm", "hugetlb", "-q"];
    let mut child = superpage(&[&["compare", "gups", "--size", "256M"][..], &arms].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    wait_until("a pool is lent, or it ends", || {
        overcommit().as_ref() != Some(&before) || child.try_wait().unwrap().is_some()
    });
    assert_ne!(overcommit().as_ref(), Some(&before), "no pool was lent");
    (child, before)
}

#[test]
fn standard_output_may_be_named_and_be_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let (document, printed) = (directory.path().join("a.json"), directory.path().join("printed"));
    let document = document.to_str().unwrap();
    let made = run(&[
        "compare",
        "--arm",
        "base",
        "--max-runs",
        "2",
        "--min-runs",
        "2",
        "--json",
        "-o",
        document,
        "--",
        "true",
    ]);
    assert!(made.status.success(), "{}", stderr(&made));
    let again = ["compare", "--from", document, "--json", "-o"];
    let to = std::fs::File::options().create(true).append(true).open(&printed).unwrap();
    for name in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        let mut command = superpage(&[&again[..], &[name]].concat());
        assert!(command.stdout(to.try_clone().unwrap()).status().unwrap().success(), "{name}");
    }
    let whole = std::fs::read_to_string(document).unwrap();
    assert_eq!(std::fs::read_to_string(&printed).unwrap(), whole.repeat(3));
    let refused = run(&[&again[..], &[document]].concat());
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("--force"), "{}", stderr(&refused));
    let forced = run(&[&again[..], &[document, "--force"]].concat());
    assert!(forced.status.success(), "{}", stderr(&forced));
    assert_eq!(std::fs::read_to_string(document).unwrap(), whole);
}

/// Returns the exit code and message of a `compare` that must fail.
pub fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let output = run(&[&["compare", "-q", "--max-runs", "2"][..], arguments].concat());
    (output.status.code(), stderr(&output))
}

#[test]
fn a_library_that_the_loader_drops_is_not_measured_as_if_it_were_there() {
    let reason = "cannot open shared object file";
    for (arm, part) in [
        ("x: preload=/no/such/library.so", reason),
        ("x: preload=libnosuchlibrary.so.7", reason),
        ("x: LD_PRELOAD=/no/such/library.so", reason),
        ("x: preload=/etc/passwd", "cannot be preloaded"),
    ] {
        let (code, said) = refused(&["--arm", "system", "--arm", arm, "--", "true"]);
        assert_eq!((code, said.contains(part)), (Some(2), true), "{arm}: {said}");
    }
    let there = ["--arm", "system", "--arm", "x: preload=libc.so.6", "--", "true"];
    assert_eq!(refused(&there).0, Some(0));
}

#[test]
fn a_misspelt_setting_is_no_variable() {
    for arm in ["x: page=thp", "x: preloads=/x.so", "x: Memory=heap"] {
        let (code, said) = refused(&["--arm", arm, "--", "true"]);
        assert_eq!((code, said.contains("unexpected `")), (Some(2), true), "{said}");
    }
}

#[test]
fn runs_and_threads_that_cannot_be_are_refused_in_plain_words() {
    let asked = ["compare", "--min-runs", "10", "--max-runs", "5", "--", "true"];
    let output = run(&asked);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--min-runs 10 is more than --max-runs 5"));
    let said = stderr(&run(&["compare", "gups", "--threads", "0"]));
    assert!(said.contains("at least 1") && !said.contains("non-zero type"), "{said}");
}

#[test]
fn without_its_library_beside_it_the_arm_thp_is_not_measured() {
    testkit::require!(has_thp(), "THP are off on this machine");
    let directory = tempfile::tempdir().unwrap();
    let alone = directory.path().join("superpage");
    // `cp` writes the copy: a child of another test could inherit a descriptor that this process has open for writing.
    let copied = std::process::Command::new("cp")
        .args([Path::new(env!("CARGO_BIN_EXE_superpage")), &alone])
        .status();
    assert!(copied.unwrap().success());
    let compare = |arms: &[&str]| {
        let mut command = std::process::Command::new(&alone);
        command.args(["compare", "-q", "--max-runs", "2"]).args(arms).args(["--", "true"]);
        command.output().unwrap()
    };
    let named = compare(&["--arm", "base", "--arm", "thp"]);
    assert_eq!(named.status.code(), Some(3));
    let said = stderr(&named);
    assert!(said.contains("arm thp") && said.contains("libsuperpage.so is not beside"), "{said}");
    // If the arm is one of the default arms, it is left out, with a message.
    let usual = compare(&["--pool", "keep"]);
    assert!(stdout(&usual).contains("thp left out: libsuperpage.so is not"), "{}", stdout(&usual));
}

#[test]
fn interrupted_runs_are_judged_and_written() {
    use std::os::unix::process::ExitStatusExt;
    let directory = tempfile::tempdir().unwrap();
    let (document, made) = (directory.path().join("a.json"), directory.path().join("made"));
    let script = format!("echo >> {}; sleep 0.05", made.display());
    let arms = ["--arm", "a: X=1", "--arm", "b: X=2", "--json", "-o", document.to_str().unwrap()];
    let words = ["compare", "--min-runs", "1000", "--max-time", "1h", "-q"];
    let mut child =
        superpage(&[&words[..], &arms, &["--", "sh", "-c", &script]].concat()).spawn().unwrap();
    // Two warm-ups, two blocks of four runs, and the current run.
    wait_until("eleven runs are made", || {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::fs::read_to_string(&made).is_ok_and(|lines| lines.lines().count() >= 11)
    });
    send(&child, libc::SIGINT);
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGINT));
    let written: Value = serde_json::from_slice(&std::fs::read(&document).unwrap()).unwrap();
    assert_eq!(written["stopped"], "interrupted");
    assert!(written["samples"].as_array().unwrap().len() >= 10);
    let table = stdout(&run(&["compare", "--from", document.to_str().unwrap()]));
    assert!(table.contains("interrupted; the verdicts are of the runs made so far"), "{table}");
    assert!(table.contains("b vs a"), "{table}");
}

#[test]
fn notes_say_what_was_made_free_and_what_is_known_of_a_peak() {
    let example = include_str!("../../../../../docs/schemas/examples/compare-1.json");
    let mut document: Value = serde_json::from_str(example).unwrap();
    let rest = serde_json::json!({ "supplied": [65_536] });
    let note = serde_json::json!({ "kind": "fragmented", "rest": rest });
    document["arms"][1]["plan"]["conditions"] = serde_json::json!([note]);
    for sample in document["samples"].as_array_mut().unwrap() {
        let memory = &mut sample["memory"];
        memory["peak_resident_bytes"] = Value::Null;
        memory["peak_at_least_bytes"] = (2 << 20).into();
        memory["peak_at_most_bytes"] = (7 << 20).into();
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.json");
    let notes = |document: &Value| {
        std::fs::write(&path, document.to_string()).unwrap();
        stdout(&run(&["compare", "--from", path.to_str().unwrap()]))
    };
    let none = notes(&document);
    assert!(none.contains("in these runs it asked for none"), "{none}");
    for arm in ["base", "thp"] {
        let peak = format!("note: {arm}: of the last run: peak at least 2 MiB and at most 7 MiB");
        assert!(none.contains(&peak), "{none}");
    }
    let supplied = serde_json::json!({"requests": 1, "wanted": 9, "got": 4, "seconds": 0.1, "sizes": [65_536]});
    document["samples"].as_array_mut().unwrap().last_mut().unwrap()["supplied"] = supplied;
    let some = notes(&document);
    assert!(some.contains("4 of 9 superpages were made free"), "{some}");
    assert!(some.contains("turned on in 1 of 2 runs"), "{some}");
}

#[test]
fn a_file_that_is_no_document_is_refused_by_what_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.json");
    for (text, what) in
        [("", "empty"), ("{\"schema\": \"superp", "truncated"), ("<!DOCTYPE html>", "no JSON")]
    {
        std::fs::write(&path, text).unwrap();
        let output = run(&["compare", "--from", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(2));
        let said = stderr(&output);
        assert!(said.contains(&format!("a.json: {what}")), "{what}: {said}");
    }
}

#[test]
fn a_document_with_a_time_that_cannot_be_is_refused_in_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.json");
    let document = json(&["compare", "--arm", "system", "--max-runs", "2", "--json", "--", "true"]);
    let redraw = |document: &Value| {
        std::fs::write(&path, document.to_string()).unwrap();
        run(&["compare", "--from", path.to_str().unwrap()])
    };
    assert!(redraw(&document).status.success());
    for (field, value) in [("wall_seconds", -5.0), ("wall_seconds", 1e308), ("user_seconds", -1.0)]
    {
        let mut edited = document.clone();
        edited["samples"][1][field] = value.into();
        let output = redraw(&edited);
        assert_eq!(output.status.code(), Some(2));
        let said = stderr(&output);
        assert!(said.contains(field) && said.lines().count() == 1, "{said}");
    }
}

mod exclusive {
    use super::*;

    #[test]
    fn interrupted_or_killed_nothing_stays_changed() {
        use std::os::unix::process::ExitStatusExt;
        testkit::require!(testkit::is_root(), "not root: no pool can be lent");
        testkit::require!(has_pool() && overcommit().is_some(), "{NO_POOL}");
        testkit::lock_machine!();
        testkit::require!(pool_is_empty(), "the pool has pages to give without being lent any");
        let _found = testkit::PoolsAsFound::note();
        // First restore what a command of another test left that was killed.
        run(&["restore"]);
        for signal in [libc::SIGINT, libc::SIGTERM] {
            let (mut child, before) = lending();
            send(&child, signal);
            assert_eq!(child.wait().unwrap().signal(), Some(signal));
            assert_eq!(overcommit(), Some(before));
        }
        let (mut child, before) = lending();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_ne!(overcommit().as_ref(), Some(&before), "kill -9 leaves it to `restore`");
        let restored = run(&["restore"]);
        assert_eq!(restored.status.code(), Some(0), "{}", stderr(&restored));
        assert!(stdout(&restored).contains("nr_overcommit_hugepages"), "{}", stdout(&restored));
        assert_eq!(overcommit(), Some(before));
        assert_eq!(stdout(&run(&["restore"])), "nothing to restore\n");
    }

    /// HotSpot maps a page of the pool when it starts, and runs on base pages if it gets none.
    #[test]
    fn a_jvm_that_is_asked_for_large_pages_finds_the_pool() {
        testkit::require!(testkit::is_root(), "not root: no pool can be raised");
        testkit::require!(overcommit().is_some(), "no pool of 2 MiB pages");
        let java = std::process::Command::new("java").arg("-version").output();
        testkit::require!(java.is_ok_and(|output| output.status.success()), "no java");
        testkit::lock_machine!();
        testkit::require!(testkit::pool_is_unused(), "somebody has pages of the pool");
        let found = testkit::PoolsAsFound::note();
        let arm = "jvm: JAVA_TOOL_OPTIONS=-XX:+UseLargePages";
        let sizes = "Usable page sizes: 4k, ([0-9]+)M";
        let words = ["compare", "-q", "--json", "--max-runs", "2", "--arm", arm, "--metric", sizes];
        let java = ["--", "java", "-Xlog:pagesize", "-Xms64m", "-Xmx64m", "-version"];
        let with = |pool| run(&[&words[..], &["--pool", pool], &java].concat());
        let output = with("lend");
        assert!(output.status.success(), "{}", stderr(&output));
        let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(document["samples"][0]["metric"], 2.0, "{document}");
        assert!(found.is_intact());
        // Without a pool HotSpot has base pages only, so the metric for larger pages is not found.
        testkit::require!(pool_is_empty(), "the pool has pages to give without being lent any");
        let output = with("keep");
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{}{said}", stdout(&output));
        assert!(said.contains("does not match"), "{said}");
    }
}

/// A file named `*.json` is JSON, and another document names the command that reads it.
#[test]
fn files_are_what_their_names_say() {
    let dir = tempfile::tempdir().unwrap();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/schemas/examples");
    let (example, evaluation) =
        (format!("{root}/compare-1.json"), format!("{root}/evaluation-1.json"));
    let to = dir.path().join("x.json");
    let to = to.to_str().unwrap();
    let output = run(&["compare", "--from", &example, "-o", to]);
    assert!(output.status.success(), "{}", stderr(&output));
    let table = format!("superpage compare --from {to}");
    assert!(stderr(&output).contains(&table), "no table is printed: {}", stderr(&output));
    assert!(
        std::fs::read_to_string(to)
            .unwrap()
            .starts_with("{\n  \"schema\": \"superpage.compare/1\"")
    );
    let other = run(&["compare", "--from", &evaluation]);
    assert_eq!(other.status.code(), Some(2));
    let said = stderr(&other);
    assert!(
        said.contains("superpage.evaluation/1") && said.contains("superpage evaluate --from"),
        "{said}"
    );
}

/// A time that is too short for a verdict is called so after the warm-ups, with the time that would do.
#[test]
fn a_time_limit_that_is_too_short_is_told_at_the_start() {
    let words =
        ["compare", "--max-time", "1s", "--arm", "base", "--arm", "base", "--", "sleep", "0.3"];
    let output = run(&words);
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("--max-time 1s is too short for a verdict"), "{said}");
    // What else was loaded is in the document, and judged from it.
    let mut json = words.to_vec();
    json.insert(1, "--json");
    let document: serde_json::Value = serde_json::from_str(&stdout(&run(&json))).unwrap();
    assert!(document["neighbours"]["cpus"].as_u64().is_some_and(|cpus| cpus > 0), "{document}");
}

/// One block of two runs per arm takes longer than the limit, and is completed.
#[test]
fn a_time_limit_that_a_block_exceeds_is_told() {
    let words = [
        "compare",
        "-q",
        "--max-time",
        "0.2s",
        "--arm",
        "base",
        "--arm",
        "base",
        "--",
        "sleep",
        "0.2",
    ];
    let said = stdout(&run(&words));
    assert!(
        said.contains("stopped by --max-time (0 s, and ")
            && said.contains(" s more: one block of two runs per arm is always made"),
        "{said}"
    );
}
