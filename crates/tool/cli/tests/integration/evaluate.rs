//! `superpage evaluate`, end to end, with test applications: which runs are made, which results are kept, and the
//! output.

use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{refused, run, stderr, stdout, superpage, wait_until};

/// A suite in its own directory.
struct Suite {
    directory: TempDir,
}

impl Suite {
    fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a.toml"), text).unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn words<'a>(&self, suite: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&["evaluate", "-q", "--max-time", "4s", suite], more].concat()
    }
}

/// An entry whose figure depends only on the arm: `b` is thirty times better than `a`. The figures have so many digits
/// that rounding of the last one, which is a lower bound of an interval's width, does not show.
const FIGURES: &str = "[[entry]]\nname = 'figures'\ncommand = \"sh -c 'echo x=$X p99=$P'\"\nmetric = ['x=([0-9]+)', 'p99=([0-9]+)']\n\
    metric-name = ['x', 'p99']\nmetric-better = ['higher', 'lower']\narm = ['a: X=10000 P=5000', 'b: X=300001 P=5000']\n";

#[test]
fn a_table_json_and_a_page_say_the_same() {
    let suite = Suite::new(FIGURES);
    let (toml, json, html) = (suite.path("a.toml"), suite.path("a.json"), suite.path("a.html"));
    let output = run(&suite.words(&toml, &["--json", "-o", &json, "--html", &html]));
    assert!(output.status.success(), "{}", stderr(&output));
    let document: Value = serde_json::from_str(&suite.read("a.json")).unwrap();
    assert_eq!(document["schema"], "superpage.evaluation/1");
    assert_eq!(document["applications"][0]["comparison"]["schema"], "superpage.compare/1");
    let table = stdout(&run(&["evaluate", "--from", &json]));
    for part in ["figures", "30.0x (30.0–30.0) faster", "1.000x (1.000–1.000) same", "Linux "] {
        assert!(table.contains(part), "lacks {part}: {table}");
    }
    let csv = stdout(&run(&["evaluate", "--from", &json, "--csv"]));
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("application,arm,quantity,verdict,ratio"));
    assert!(lines[1].starts_with("\"figures\",\"b\",\"x\",faster,30"), "{csv}");
    let page = suite.read("a.html");
    assert_eq!(page.matches("<script>").count(), 1, "the one that sorts");
    assert!(page.contains("data-key=\"30") && page.contains("30.0x (30.0–30.0) faster"), "{page}");
    assert!(!page.contains("http"), "nothing is fetched");
    refused(&run(&["evaluate", "--from", &toml]), 2, "give an evaluation that");
}

#[test]
fn verdicts_that_changed_since_an_earlier_evaluation_are_named() {
    let suite = Suite::new(FIGURES);
    let (toml, old, new) = (suite.path("a.toml"), suite.path("old.json"), suite.path("new.json"));
    let output = run(&suite.words(&toml, &["--json", "-o", &old]));
    assert!(output.status.success(), "{}", stderr(&output));
    let same = run(&["evaluate", "--from", &old, "--compare", &old]);
    assert!(same.status.success() && stderr(&same).contains("no verdict changed, of 1"));
    let mut document: Value = serde_json::from_str(&suite.read("old.json")).unwrap();
    let samples = document["applications"][0]["comparison"]["samples"].as_array_mut().unwrap();
    for sample in samples {
        sample["metric"] = 1e4.into();
    }
    std::fs::write(&new, document.to_string()).unwrap();
    let changed = run(&["evaluate", "--from", &new, "--compare", &old]);
    let line = "changed: figures, b: 1.000x (1.000–1.000) same, was 30.0x (30.0–30.0) faster";
    assert!(stdout(&changed).contains(line), "{}", stdout(&changed));
    assert_eq!(changed.status.code(), Some(1));
    // If an application is missing, its verdict counts as changed.
    let application = document["applications"].as_array_mut().unwrap().pop().unwrap();
    document["not_run"] = json!([{ "name": "figures", "why": "needs more memory" }]);
    std::fs::write(&new, document.to_string()).unwrap();
    let missing = run(&["evaluate", "--from", &new, "--compare", &old]);
    let line = "changed: figures, b: not run: needs more memory, was 30.0x (30.0–30.0) faster";
    assert!(stdout(&missing).contains(line), "{}", stdout(&missing));
    assert_eq!(missing.status.code(), Some(1));
    document["not_run"] = json!([]);
    document["applications"] = json!([application]);
    document["applications"][0]["name"] = "other".into();
    std::fs::write(&new, document.to_string()).unwrap();
    let other = run(&["evaluate", "--from", &new, "--compare", &old]);
    assert!(stderr(&other).contains("have no application in common"), "{}", stderr(&other));
    assert_eq!(other.status.code(), Some(2));
}

#[test]
fn killed_half_way_it_loses_the_entry_under_way_at_most() {
    let entry = |name: &str, command: &str| {
        format!(
            "[[entry]]\nname = '{name}'\ncommand = \"sh -c '{command}'\"\narm = ['a: X=1', 'b: X=2']\n"
        )
    };
    let waits = "touch {suite}/waits; test -e {suite}/go || sleep 60";
    let suite = Suite::new(&(entry("first", "echo >> {suite}/log") + &entry("second", waits)));
    let (toml, kept) = (suite.path("a.toml"), suite.path("kept.json"));
    let words = suite.words(&toml, &["--resume", &kept]);
    let mut child = superpage(&words).spawn().unwrap();
    wait_until("the second entry runs", || PathBuf::from(suite.path("waits")).exists());
    child.kill().unwrap();
    child.wait().unwrap();
    let log = suite.read("log");
    let first: Value = serde_json::from_str(&suite.read("kept.json")).expect("it is whole");
    std::fs::write(suite.path("go"), "").unwrap();
    let output = run(&words);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!((suite.read("log"), log.is_empty()), (log, false), "the first is not run again");
    let all: Value = serde_json::from_str(&suite.read("kept.json")).unwrap();
    assert_eq!(all["applications"][0], first["applications"][0]);
    assert_eq!(all["applications"][1]["name"], "second");
    // The kept results are of another machine.
    let mut other = all;
    other["applications"][0]["comparison"]["machine"]["kernel"] = "0.0.1".into();
    std::fs::write(&kept, other.to_string()).unwrap();
    refused(&run(&words), 2, "Linux 0.0.1");
}

#[test]
fn one_evaluation_at_a_time_keeps_its_results_in_a_file() {
    let suite = Suite::new("command = 'sleep 1'\narm = ['base', 'thp']\n");
    let other = Suite::new(FIGURES);
    let (slow, quick, kept) = (suite.path("a.toml"), other.path("a.toml"), suite.path("kept"));
    let mut first = superpage(&suite.words(&slow, &["--resume", &kept])).spawn().unwrap();
    wait_until("the first has begun", || PathBuf::from(suite.path(".kept.lock")).exists());
    let second = run(&other.words(&quick, &["--resume", &kept]));
    refused(&second, 2, "kept: another evaluation writes it");
    assert!(first.wait().unwrap().success());
    let second = run(&other.words(&quick, &["--resume", &kept]));
    assert!(second.status.success(), "{}", stderr(&second));
    let names = ["\"name\": \"a\"", "\"name\": \"figures\""];
    assert!(names.iter().all(|name| suite.read("kept").contains(name)), "{}", suite.read("kept"));
    assert!(!PathBuf::from(suite.path(".kept.lock")).exists());
}

/// If the output file cannot be written, the results are printed, so that nothing is lost.
#[test]
fn what_cannot_be_written_is_printed() {
    let suite = Suite::new(&FIGURES.replace("sh -c 'echo", "sh -c 'touch {suite}/began; echo"));
    let (toml, directory) = (suite.path("a.toml"), tempfile::tempdir().unwrap());
    let output = directory.path().join("o");
    let words = suite.words(&toml, &["--csv", "-o", output.to_str().unwrap()]);
    let child = superpage(&words).stdout(std::process::Stdio::piped()).spawn().unwrap();
    wait_until("it runs", || PathBuf::from(suite.path("began")).exists());
    drop(directory);
    let ended = child.wait_with_output().unwrap();
    assert!(stdout(&ended).contains("figures"), "{}", stdout(&ended));
    assert_eq!(ended.status.code(), Some(2));
}

#[test]
fn what_an_entry_needs_is_said_with_how_to_install_it() {
    let lacking = "[[entry]]\nname = 'other'\nneeds = ['no-such-program']\npackages = 'Debian: no-such'\n\
        command = 'no-such-program'\n[[entry]]\nname = 'module'\ncheck = 'false'\npackages = 'PyPI: x'\ncommand = 'true'\n";
    let suite = Suite::new(lacking);
    let toml = suite.path("a.toml");
    let output = run(&suite.words(&toml, &[]));
    refused(&output, 3, "other needs no-such-program; install Debian: no-such");
    refused(&output, 3, "module `false` fails; install PyPI: x");
    let suite = Suite::new(&(lacking.to_string() + FIGURES));
    let toml = suite.path("a.toml");
    let output = run(&suite.words(&toml, &[]));
    assert!(output.status.success(), "{}", stderr(&output));
    let line = "not run: other: needs no-such-program; install Debian: no-such";
    assert!(stdout(&output).contains(line), "{}", stdout(&output));
    let listed = stdout(&run(&["evaluate", "--list", &toml]));
    assert!(listed.contains("needs no-such-program") && listed.contains("here"), "{listed}");
}

#[test]
fn an_arm_that_cannot_run_costs_only_itself_and_a_failing_application_too() {
    let text = FIGURES
        .replace("['a: X=10000 P=5000', ", "['a: X=10000 P=5000', 'none: preload=/no/such.so', ")
        + "[[entry]]\nname = 'setup'\nsetup = 'echo no disk >&2; exit 3'\ncommand = 'true'\n";
    let suite = Suite::new(&text);
    let toml = suite.path("a.toml");
    let output = run(&suite.words(&toml, &[]));
    let table = stdout(&output);
    assert!(table.contains("figures, none left out: `/no/such.so` cannot be preloaded"), "{table}");
    assert!(table.contains("30.0x (30.0–30.0) faster"), "{table}");
    assert!(table.contains("not run: setup: setup: `echo no disk >&2; exit 3` failed"), "{table}");
    assert!(output.status.code() == Some(2) && stderr(&output).contains("no disk"));
}

#[test]
fn one_entry_is_what_compare_takes() {
    let suite = Suite::new(&(FIGURES.to_string() + &FIGURES.replace("'figures'", "'others'")));
    let toml = suite.path("a.toml");
    refused(&run(&["compare", "--suite", &toml]), 2, "choose an entry");
    refused(&run(&["compare", "--suite", &format!("{toml}:x")]), 2, "no entry `x`; it has figures");
    let one = format!("{toml}:others");
    let output = run(&["compare", "-q", "--max-runs", "2", "--suite", &one]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("b vs a  x: "), "{}", stdout(&output));
    std::fs::write(&toml, FIGURES.replace("metric-name", "metric-nmae")).unwrap();
    let output = run(&suite.words(&toml, &[]));
    refused(&output, 2, "a.toml:5: entry.metric-nmae: unknown key: did you mean `metric-name`?");
    refused(
        &run(&["evaluate", "no-such-suite"]),
        2,
        "no-such-suite: neither a file nor a suite in",
    );
}

#[test]
fn entries_of_one_name_are_refused_but_not_a_suite_that_is_named_twice() {
    let (one, other) = (Suite::new(FIGURES), Suite::new(FIGURES));
    let (first, second) = (one.path("a.toml"), other.path("a.toml"));
    let entry = format!("{first}:figures");
    let output = run(&["evaluate", "--dry-run", &first, &entry, &first]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stdout(&output).matches("figures").count(), 1, "{}", stdout(&output));
    let output = run(&["evaluate", "--dry-run", &first, &second]);
    refused(&output, 2, &format!("{first} and {second} both have an entry `figures`"));
    let bundled = run(&["evaluate", "--list", "short", "redis"]);
    assert!(bundled.status.success(), "{}", stderr(&bundled));
}

#[test]
fn a_dry_run_writes_over_a_file_only_by_force() {
    let suite = Suite::new(FIGURES);
    let (toml, plan) = (suite.path("a.toml"), suite.path("plan"));
    std::fs::write(&plan, "mine").unwrap();
    let words = ["evaluate", "--dry-run", &toml, "-o", &plan];
    refused(&run(&words), 2, "--force");
    assert_eq!(suite.read("plan"), "mine");
    let forced = run(&[&words[..], &["--force"]].concat());
    assert!(forced.status.success() && suite.read("plan").contains("figures"));
}

#[test]
fn a_dry_run_and_a_list_run_no_check() {
    let suite = Suite::new("check = 'touch {suite}/made'\ncommand = 'true'\n");
    let toml = suite.path("a.toml");
    for flags in [vec!["--list"], vec!["--dry-run"], vec!["--dry-run", "--json"]] {
        let output = run(&[&["evaluate", &toml], &flags[..]].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(stdout(&output).contains("touch {suite}/made"), "{}", stdout(&output));
    }
    assert!(!PathBuf::from(suite.path("made")).exists());
    run(&["evaluate", "-q", "--max-time", "2s", &toml]);
    assert!(PathBuf::from(suite.path("made")).exists(), "it is run before the entry");
}

/// The time is until the answer: what the setup takes is not left for the runs.
#[test]
fn a_setup_takes_from_the_time_and_the_shares_are_told() {
    let suite = Suite::new("setup = 'sleep 1.5'\ncommand = 'true'\narm = ['a: X=1', 'b: X=2']\n");
    let (toml, json) = (suite.path("a.toml"), suite.path("a.json"));
    let output = run(&["evaluate", "--max-time", "4s", &toml, "--json", "-o", &json]);
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    let document: Value = serde_json::from_str(&suite.read("a.json")).unwrap();
    let left = document["applications"][0]["comparison"]["settings"]["max_seconds"].as_f64();
    assert!(left.is_some_and(|left| left <= 2.5), "{left:?}");
    assert!(said.contains(" of --max-time 4s, 4 s for each of 1 entry: measured runs "), "{said}");
}

/// Otherwise a user who can write to the working directory could choose what root runs.
#[test]
fn a_bare_name_is_a_suite_that_comes_with_superpage() {
    let suite = Suite::new("command = 'true'\n");
    for name in ["redis", "mine"] {
        std::fs::rename(suite.path("a.toml"), suite.path(name)).unwrap();
        let here = |words: &[&str]| {
            let mut command = superpage(&[&["evaluate", "--dry-run", "--json"], words].concat());
            command.current_dir(suite.directory.path()).output().unwrap()
        };
        let planned = here(&[name]);
        match name {
            "redis" => {
                assert!(stdout(&planned).contains("redis-"), "{}", stdout(&planned))
            }
            _ => refused(&planned, 2, "a file is named with a slash, as ./NAME"),
        }
        let planned = here(&[&format!("./{name}")]);
        assert!(
            stdout(&planned).contains(&format!("\"suite\": \"./{name}\"")),
            "{}",
            stdout(&planned)
        );
        std::fs::rename(suite.path(name), suite.path("a.toml")).unwrap();
    }
    let planned = superpage(&["evaluate", "--dry-run", "a.toml"])
        .current_dir(suite.directory.path())
        .output()
        .unwrap();
    assert!(planned.status.success(), "{}", stderr(&planned));
}

#[test]
fn a_dry_run_runs_no_setup() {
    let entry = |command: &str| {
        format!(
            "command = '{command}'\nsetup = 'touch {{suite}}/made'\nteardown = 'touch {{suite}}/made'\n"
        )
    };
    let suite = Suite::new(&entry("sleep 1"));
    let toml = suite.path("a.toml");
    let output = run(&["compare", "--dry-run", "--suite", &toml]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("sleep"), "{}", stdout(&output));
    std::fs::write(&toml, entry("{dir}/program")).unwrap();
    let output = run(&["compare", "--dry-run", "--suite", &toml]);
    refused(&output, 2, "a: --dry-run runs no setup");
    assert!(!PathBuf::from(suite.path("made")).exists());
}

#[test]
fn an_entry_whose_name_has_a_colon_is_found() {
    let suite = Suite::new(&FIGURES.replace("'figures'", "'paper: figures'"));
    let toml = suite.path("a.toml");
    for named in [format!("{toml}:paper: figures"), "gorman:gorman: STREAM".to_string()] {
        let planned = run(&["evaluate", &named, "--dry-run", "--json"]);
        assert!(planned.status.success(), "{named}: {}", stderr(&planned));
        let planned: Value = serde_json::from_str(&stdout(&planned)).unwrap();
        let count = |what: &str| planned[what].as_array().unwrap().len();
        assert_eq!(count("entries") + count("not_run"), 1, "{named}: {planned}");
    }
    let compared = run(&["compare", "--suite", &format!("{toml}:paper: figures"), "--dry-run"]);
    assert!(compared.status.success(), "{}", stderr(&compared));
}
