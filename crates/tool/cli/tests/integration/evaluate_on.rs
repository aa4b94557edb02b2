//! `superpage evaluate --on` with scripts in place of Slurm and Ray. The scripts fail as the real programs do.

use std::fs;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::cluster::FakeCluster;

use crate::common::{refused, run, stderr, stdout, superpage};

/// Three entries whose figures depend only on the arm, and one whose program does not exist.
const SUITE: &str = "[[entry]]\nname = 'absent'\nneeds = ['no-such-program']\npackages = 'Debian: no-such'\n\
    command = 'no-such-program'\n";

fn figures(name: &str) -> String {
    format!(
        "[[entry]]\nname = \"{name}\"\ncommand = \"sh -c 'echo >> \\\"{{suite}}/ran-{}\\\"; echo x=$X'\"\n\
         metric = 'x=([0-9]+)'\narm = ['a: X=10000', 'b: X=300000']\n",
        name.len()
    )
}

/// A cluster, and a suite in a directory whose name a shell would interpret if it were not quoted.
struct Evaluated {
    place: TempDir,
    fake: FakeCluster,
    suite: String,
    file: String,
}

impl Evaluated {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let own = place.path().join("it's mine");
        fs::create_dir(&own).unwrap();
        let suite = own.join("a.toml").display().to_string();
        let entries = ["one", "it's: two", "third"].map(figures).concat();
        fs::write(&suite, entries + SUITE).unwrap();
        let file = own.join("all.json").display().to_string();
        let fake = FakeCluster::new(place.path());
        Self { place, fake, suite, file }
    }

    fn command(&self, on: &str, more: &[&str]) -> Command {
        let words = ["evaluate", &self.suite, "--max-time", "60s", "--resume", &self.file];
        let mut command = superpage(&words);
        command.args(["--on", on, "--poll", "0.02"]).args(more);
        self.fake.around(&mut command);
        command
    }

    fn run(&self, on: &str, more: &[&str]) -> Output {
        let output = self.command(on, more).output().unwrap();
        testkit::schemas::check_output(more, &output);
        output
    }

    /// Checks the exit code and a part of the message.
    fn says(&self, more: &[&str], code: i32, part: &str) {
        let ran = self.run("slurm", more);
        let said = stderr(&ran);
        assert!(ran.status.code() == Some(code) && said.contains(part), "lacks {part}: {said}");
    }

    /// Returns the results in FILE.
    fn kept(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(&self.file).unwrap()).unwrap()
    }

    /// Returns how often an entry's program was started.
    fn starts(&self, name: &str) -> usize {
        let log = std::path::Path::new(&self.suite).with_file_name(format!("ran-{}", name.len()));
        fs::read(log).map_or(0, |bytes| bytes.len())
    }

    /// Runs all entries that can run, and checks the results.
    fn whole(&self, on: &str) {
        let ran = self.run(on, &[]);
        assert_eq!(ran.status.code(), Some(0), "{}", stderr(&ran));
        let kept = self.kept();
        let names: Vec<&str> = names(&kept, "applications");
        assert_eq!(names, ["one", "it's: two", "third"], "in the order of the suite");
        assert_eq!(self::names(&kept, "not_run"), ["absent"]);
        let why = kept["not_run"][0]["why"].as_str().unwrap();
        assert_eq!(why, "needs no-such-program; install Debian: no-such");
        assert!(kept["applications"][0]["host"].is_string(), "the machine has a name");
        assert_eq!(stdout(&ran).matches("30.0x (30.0–30.0) faster").count(), 3, "{}", stdout(&ran));
    }
}

fn names<'a>(document: &'a Value, of: &str) -> Vec<&'a str> {
    document[of].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
}

/// Removes measured values and times: runs, free memory, time limits.
fn unmeasured(mut document: Value) -> Value {
    for one in document["applications"].as_array_mut().unwrap() {
        let comparison = one["comparison"].as_object_mut().unwrap();
        let measured = [
            "samples",
            "looks",
            "stopped",
            "elapsed_seconds",
            "began_unix_seconds",
            "changed_meanwhile",
            "neighbours",
        ];
        measured.iter().for_each(|key| drop(comparison.remove(*key)));
        let kernel = comparison["machine"]["kernel"].clone();
        comparison.insert("machine".to_string(), kernel);
        comparison["settings"]["max_seconds"] = Value::Null;
    }
    document
}

#[test]
fn the_document_is_that_of_one_machine() {
    let evaluated = Evaluated::new();
    let words =
        ["evaluate", &evaluated.suite, "--max-time", "60s", "--resume", &evaluated.file, "-q"];
    assert!(run(&words).status.success());
    let expected = unmeasured(evaluated.kept());
    let mut places = vec!["local", "slurm"];
    places.extend(has_python().then_some("ray"));
    for on in places {
        fs::remove_file(&evaluated.file).unwrap();
        evaluated.whole(on);
        assert!(unmeasured(evaluated.kept()) == expected, "{on}: {}", evaluated.kept());
    }
    if has_python() {
        let calls = evaluated.fake.calls("ray");
        let whole = |call: &String| {
            call.contains("'num_cpus': 2.0") && call.contains("'scheduling_strategy': 'a'")
        };
        assert!(calls.len() == 4 && calls.iter().all(whole), "a node each: {calls:?}");
        let left = fs::read_dir(evaluated.place.path()).unwrap().flatten();
        let left = left.filter(|it| it.file_name().to_string_lossy().starts_with("superpage-e"));
        let left: usize = left.map(|it| fs::read_dir(it.path()).unwrap().count()).sum();
        assert_eq!(left, 0, "directories of tasks");
    }
}

#[test]
fn what_would_be_submitted_is_shown_and_a_node_is_asked_for() {
    let evaluated = Evaluated::new();
    let planned = stdout(&evaluated.run("slurm", &["--dry-run"]));
    for part in [
        "one: about 15 s\n",
        "$ sbatch --parsable",
        "--array=0-3 --exclusive --mem=0",
        r"it'\''s mine/a.toml:it'\''s: two'",
        r#""${entries[SLURM_ARRAY_TASK_ID]}" --max-time 15.000s"#,
    ] {
        assert!(planned.contains(part), "lacks {part}: {planned}");
    }
    let planned = stdout(&evaluated.run("ray", &["--dry-run", "--json"]));
    let planned: Value = serde_json::from_str(&planned).unwrap();
    assert_eq!(planned["schema"], "superpage.evaluation-plan/1");
    assert_eq!(names(&planned, "entries").len(), 4, "what is missing a node says");
    let here = stdout(&evaluated.run("local", &["--dry-run", "--json"]));
    let here: Value = serde_json::from_str(&here).unwrap();
    assert_eq!(names(&here, "entries"), ["one", "it's: two", "third"]);
    assert_eq!(names(&here, "not_run"), ["absent"]);
    assert_eq!(evaluated.starts("one"), 0);
    assert!(!fs::exists(&evaluated.file).unwrap() && evaluated.fake.calls("sbatch").is_empty());
}

#[test]
fn what_is_lost_is_submitted_again_and_what_is_there_kept() {
    let evaluated = Evaluated::new();
    // One job is killed before it returns a result, and a controller restarts.
    for (name, text) in [("fail-1", ""), ("queue.1", ""), ("queue.2", "error")] {
        evaluated.fake.put(name, text);
    }
    evaluated.whole("slurm");
    let arrays = |evaluated: &Evaluated| -> Vec<String> {
        let calls = evaluated.fake.calls("sbatch");
        let words = calls.iter().flat_map(|call| call.split(' '));
        words.filter_map(|word| Some(word.strip_prefix("--array=")?.to_string())).collect()
    };
    assert_eq!(arrays(&evaluated), ["0-3", "1"]);
    // The second evaluation runs only what is missing. Here a job has ended while no command was watching; its result
    // is found.
    let mut kept = evaluated.kept();
    let (before, starts) = (kept.clone(), evaluated.starts("third"));
    let third = kept["applications"].as_array_mut().unwrap().pop().unwrap();
    let result = json!({ "schema": kept["schema"], "applications": [third], "not_run": [] });
    fs::write(format!("{}.d/results/2.json", evaluated.file), result.to_string()).unwrap();
    fs::write(&evaluated.file, kept.to_string()).unwrap();
    let planned = stdout(&evaluated.run("slurm", &["--dry-run", "--json"]));
    let planned: Value = serde_json::from_str(&planned).unwrap();
    assert_eq!(names(&planned, "entries"), ["absent"], "a result that waits counts");
    evaluated.whole("slurm");
    assert_eq!(arrays(&evaluated), ["0-3", "1", "3"]);
    assert_eq!(evaluated.kept(), before);
    assert_eq!(evaluated.starts("third"), starts);
    // A damaged result counts as missing.
    kept["applications"].as_array_mut().unwrap().pop();
    fs::write(&evaluated.file, kept.to_string()).unwrap();
    fs::write(format!("{}.d/results/2.json", evaluated.file), "{").unwrap();
    evaluated.whole("slurm");
    assert!(evaluated.starts("third") > starts);
}

#[test]
fn an_entry_that_fails_or_brings_nothing_is_named_and_costs_only_itself() {
    let evaluated = Evaluated::new();
    let failing =
        "[[entry]]\nname = 'fails'\nsetup = 'echo no disk >&2; exit 3'\ncommand = 'true'\n";
    fs::write(&evaluated.suite, figures("one") + failing).unwrap();
    evaluated.says(&[], 2, "failed: fails; see `not run`");
    assert_eq!(names(&evaluated.kept(), "applications"), ["one"]);
    let not_run = &evaluated.kept()["not_run"][0];
    assert!(not_run["why"].as_str().unwrap().contains("no disk") && not_run["failed"] == true);
    assert_eq!(evaluated.fake.calls("sbatch").len(), 1, "it is not tried again");

    let nowhere = ["--program", "/no/superpage", "--retries", "1"];
    evaluated.says(&nowhere, 2, "fails: ended 2 times without a further result");
    let why = evaluated.kept()["not_run"][0]["why"].to_string();
    assert!(why.contains("part-1.log ends with") && why.contains("/no/superpage"), "{why}");
    assert_eq!(evaluated.fake.calls("sbatch").len(), 3);
    assert_eq!(names(&evaluated.kept(), "applications"), ["one"], "what was there is kept");

    fs::write(&evaluated.suite, SUITE).unwrap();
    fs::remove_file(&evaluated.file).unwrap();
    evaluated.says(&[], 3, "absent needs no-such-program");
}

#[test]
fn jobs_of_others_and_of_other_entries_are_told_apart() {
    let evaluated = Evaluated::new();
    let planned = stdout(&evaluated.run("slurm", &["--dry-run", "--json"]));
    let planned: Value = serde_json::from_str(&planned).unwrap();
    let words = planned["command"].as_array().unwrap().iter();
    let mut name = words.filter_map(|word| word.as_str()?.strip_prefix("--job-name="));
    let name = name.next().unwrap();
    let queue: String = (0..4).map(|part| format!("12|{part}|R|None|{name}\n")).collect();
    evaluated.fake.put("queue", &queue);
    let detached = evaluated.run("slurm", &["--detach"]);
    assert_eq!(detached.status.code(), Some(0), "{}", stderr(&detached));
    assert!(stderr(&detached).contains("the jobs go on"), "{}", stderr(&detached));
    assert!(stdout(&detached).contains("not run: third: not compared yet"));
    assert!(evaluated.fake.calls("sbatch").is_empty(), "they are in the queue");
    fs::write(&evaluated.suite, figures("other")).unwrap();
    let said = evaluated.run("slurm", &["-q"]);
    refused(&said, 2, "are of other entries; name the same suites, or end them by `scancel");
    assert_eq!(stderr(&said).lines().count(), 1);
}

#[test]
fn machines_are_named_where_there_are_several() {
    let evaluated = Evaluated::new();
    evaluated.whole("slurm");
    let (mut other, old) = (evaluated.kept(), format!("{}.old", evaluated.file));
    fs::write(&old, other.to_string()).unwrap();
    let table = |file: &str| stdout(&run(&["evaluate", "--from", file]));
    let has_machines = |file: &str| {
        let table = table(file);
        let head = table.lines().find(|line| line.starts_with(" application"));
        head.unwrap_or_else(|| panic!("{table}")).contains(" machine ")
    };
    assert!(!has_machines(&old), "of one nobody needs the name: {}", table(&old));
    for (place, (host, kernel)) in
        [("n1", "6.1.0"), ("n2", "6.1.0"), ("n2", "6.2.0")].iter().enumerate()
    {
        let one = &mut other["applications"][place];
        one["host"] = (*host).into();
        one["comparison"]["machine"]["kernel"] = (*kernel).into();
    }
    // On the old machine the arm was no better.
    for sample in other["applications"][2]["comparison"]["samples"].as_array_mut().unwrap() {
        sample["metric"] = 1e4.into();
    }
    other["not_run"][0]["host"] = "n3".into();
    fs::write(&evaluated.file, other.to_string()).unwrap();
    let shown = table(&evaluated.file);
    for part in
        ["machine", "\nn2 (2): ", "n1, n2: ", "Linux 6.2.0", "not run: absent, on n3: needs"]
    {
        assert!(shown.contains(part), "lacks {part}: {shown}");
    }
    let page = evaluated.place.path().join("all.html").display().to_string();
    let csv = run(&["evaluate", "--from", &evaluated.file, "--csv", "--html", &page]);
    assert!(stdout(&csv).lines().any(|line| line.ends_with(",\"n2\"")), "{}", stdout(&csv));
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("n2 (2): third") && page.contains("n1: one"), "{page}");

    let changed = run(&["evaluate", "--from", &evaluated.file, "--compare", &old]);
    assert_eq!(changed.status.code(), Some(1));
    let line = "changed: third, b: 1.000x (1.000–1.000) same, was 30.0x (30.0–30.0) faster; of another kind of machine: ";
    assert!(stdout(&changed).contains(line), "{}", stdout(&changed));
    assert!(stderr(&changed).contains("3 of the applications were measured on another kind"));
    // A local evaluation refuses results of another machine; on a cluster these are expected.
    refused(&evaluated.run("local", &["-q"]), 2, "Linux 6.1.0");
    assert_eq!(evaluated.run("slurm", &["-q"]).status.code(), Some(0));
}

#[test]
fn results_of_an_evaluation_that_is_gone_are_not_taken_for_this_one() {
    let evaluated = Evaluated::new();
    // An evaluation that failed before a job returned anything can be continued.
    evaluated.fake.put("refuse", "");
    evaluated.says(&[], 2, "Invalid partition name");
    assert!(fs::exists(&evaluated.file).unwrap(), "there before the first job");
    fs::remove_file(evaluated.fake.file("refuse")).unwrap();
    evaluated.whole("slurm");

    let mut kept = evaluated.kept();
    let third = kept["applications"].as_array_mut().unwrap().pop().unwrap();
    let result = json!({ "schema": kept["schema"], "applications": [third], "not_run": [] });
    let path = format!("{}.d/results/2.json", evaluated.file);
    fs::write(&path, result.to_string()).unwrap();
    fs::remove_file(&evaluated.file).unwrap();
    let directory = format!("{}.d", evaluated.file);
    for more in [&["-q"][..], &["-q", "--dry-run"]] {
        let refusal = evaluated.run("slurm", more);
        refused(&refusal, 2, &format!("remove {directory} or give it another name"));
        assert_eq!(stderr(&refusal).lines().count(), 1);
        let choice = format!("restore {} or take them with --force, ", evaluated.file);
        assert!(stderr(&refusal).contains(&choice), "{}", stderr(&refusal));
    }
    assert!(fs::exists(&path).unwrap() && !fs::exists(&evaluated.file).unwrap());
    fs::rename(&directory, format!("{directory}.old")).unwrap();
    evaluated.whole("slurm");
}

#[test]
fn what_cannot_be_is_refused_in_a_line() {
    let evaluated = Evaluated::new();
    let one_line = |output: Output, code: i32, why: &str| {
        refused(&output, code, why);
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    };
    let bare = |words: &[&str]| run(&[&["evaluate", &evaluated.suite], words].concat());
    one_line(bare(&["--on", "slurm"]), 2, "name a file by --resume");
    one_line(run(&["evaluate", "--from", "x", "--on", "ray"]), 2, "--from runs nothing");
    one_line(bare(&["--list", "--on", "ray"]), 2, "--list runs nothing");
    one_line(bare(&["--detach"]), 2, "--detach is for --on slurm");
    one_line(bare(&["--on", "pbs"]), 2, "pbs");
    evaluated.fake.put("refuse", "");
    one_line(evaluated.run("slurm", &["-q"]), 2, "Invalid partition name");
    fs::remove_file(evaluated.fake.file("squeue")).unwrap();
    let mut lacking = evaluated.command("slurm", &["-q"]);
    one_line(lacking.env("PATH", "/nowhere").output().unwrap(), 3, "login node");
    if has_python() {
        let nowhere = ["-q", "--ray-address", "nowhere"];
        one_line(evaluated.run("ray", &nowhere), 3, "no Ray cluster at `nowhere`");
    }
    fs::write(&evaluated.file, "[]").unwrap();
    one_line(evaluated.run("slurm", &["-q"]), 2, "give an evaluation that");
}

/// Root would import modules, and write through files and links, that another user put there.
#[test]
fn root_uses_no_directory_of_another_users() {
    testkit::require!(testkit::is_root(), "not root: directories of other users are not refused");
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    std::fs::write(path("s.toml"), "command = 'true'\n").unwrap();
    std::fs::create_dir_all(path("kept.d/logs")).unwrap();
    std::fs::write(path("victim"), "precious").unwrap();
    for planted in [path("kept.d"), path("kept.d/logs")] {
        std::os::unix::fs::chown(&planted, Some(65534), Some(65534)).unwrap();
        std::os::unix::fs::symlink(path("victim"), path("kept.d/logs/driver.py")).ok();
        for on in ["ray", "slurm"] {
            let words = ["evaluate", &path("s.toml"), "--on", on, "--resume", &path("kept")];
            refused(&run(&words), 2, "it belongs to user 65534");
        }
        std::os::unix::fs::chown(path("kept.d"), Some(0), Some(0)).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path("victim")).unwrap(), "precious");
    let mut save = superpage(&["tlb", "--save", "--quiet"]);
    std::os::unix::fs::chown(directory.path(), Some(65534), Some(65534)).unwrap();
    save.env("HOME", directory.path()).env_remove("XDG_DATA_HOME");
    refused(&save.output().unwrap(), 2, "it belongs to user 65534");
    assert!(!directory.path().join(".local").exists());
}

fn has_python() -> bool {
    Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success())
}
