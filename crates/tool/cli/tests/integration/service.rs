//! `superpage compare --service`, end to end, with a test server (`server.py`): which processes are measured, and that
//! failed runs leave nothing behind.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{refused, run, send, stderr, stdout, superpage, wait_until};
use crate::compare::json;

const METRIC: [&str; 2] = ["--metric", "rate=rate ([0-9.]+)"];

fn file(name: &str) -> String {
    format!("{}/tests/integration/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Returns the server's command, with these arguments after its port, and its load.
fn commands(words: &str) -> (String, String) {
    let service = format!("python3 {} {{port}} {words}", file("server.py"));
    (service, format!("python3 {} {{port}}", file("client.py")))
}

/// A comparison of the server, with two runs of each arm, in its own directory for temporary files.
struct Compared {
    temporary: TempDir,
    words: Vec<String>,
}

impl Compared {
    fn new(server: &str, more: &[&str]) -> Self {
        let (service, load) = commands(server);
        let words = ["compare", "-q", "--max-runs", "2", "--service", &service];
        let mut words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        if !more.contains(&"--load") {
            words.extend(["--load".to_string(), load]);
        }
        words.extend(more.iter().map(|word| word.to_string()));
        Self { temporary: TempDir::new().unwrap(), words }
    }

    fn command(&self) -> std::process::Command {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        let mut command = superpage(&words);
        command.env("TMPDIR", self.temporary.path());
        command
    }

    fn output(&self) -> std::process::Output {
        self.command().output().expect("it starts")
    }

    /// Checks that no process and no directory of the runs is left: all their processes have TMPDIR in their
    /// environment.
    fn left_nothing(&self) {
        let left: Vec<_> = std::fs::read_dir(self.temporary.path()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        // Killed processes may still be ending. Processes that the tests start run longer than this wait.
        wait_until("no process of the runs is left", || self.running().is_empty());
    }

    fn running(&self) -> BTreeSet<String> {
        let mark = format!("TMPDIR={}", self.temporary.path().display());
        let of = |entry: std::fs::DirEntry| {
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            String::from_utf8_lossy(&environment).contains(&mark).then_some(())?;
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            (!line.is_empty()).then(|| String::from_utf8_lossy(&line).replace('\0', " "))
        };
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        all.filter(|entry| entry.file_name().to_string_lossy().parse::<i32>().is_ok())
            .filter_map(of)
            .collect()
    }

    /// Checks that the command ends with this code and one line that contains these texts, and leaves nothing behind.
    fn is_refused(&self, code: i32, parts: &[&str]) {
        let output = self.output();
        parts.iter().for_each(|part| refused(&output, code, part));
        self.left_nothing();
    }
}

fn has_python() -> bool {
    std::process::Command::new("python3").arg("-V").output().is_ok_and(|it| it.status.success())
}

/// Arms that are the same as base pages, so that these tests are fast.
fn arms() -> [&'static str; 4] {
    ["--arm", "base", "--arm", "x: pages=base X=1"]
}

#[test]
fn figures_are_the_loads_and_memory_is_the_services() {
    testkit::require!(has_python(), "no python3");
    let named =
        ["--metric", "p99=p99 ([0-9.]+)", "--metric-better", "higher", "--metric-better", "lower"];
    let marks = "test -d {dir} && echo {port} > {dir}/port";
    let asks = "test \"$(cat {dir}/port)\" = {port}";
    let more =
        [&METRIC[..], &named, &arms(), &["--setup", marks, "--prepare", asks, "--teardown", asks]]
            .concat();
    let compared = Compared::new("48 forks", &[&more[..], &["--json"]].concat());
    let output = compared.output();
    assert!(output.status.success(), "{}", stderr(&output));
    compared.left_nothing();
    let document: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(document["metric"]["name"], "rate");
    assert_eq!(document["more_metrics"][0]["better"], "lower");
    assert_eq!(document["command"][0], "python3");
    assert!(document["service"]["of_service"].as_str().unwrap().contains("memory"));
    let samples = document["samples"].as_array().unwrap();
    let ports: BTreeSet<u64> =
        samples.iter().map(|one| one["service"]["port"].as_u64().unwrap()).collect();
    assert_eq!(ports.len(), samples.len(), "a fresh port for each run");
    for sample in samples {
        assert_eq!(
            (sample["metric"].as_f64(), sample["more_metrics"][0].as_f64()),
            (Some(100.0), Some(3.0))
        );
        // The peak has the child's 48 MiB and two Pythons, but not the client's 64 MiB.
        let peak = sample["memory"]["peak_at_least_bytes"].as_u64().unwrap();
        assert!((48 << 20..80 << 20).contains(&peak), "{peak}");
        let phases = &sample["service"];
        assert_eq!(
            (&phases["was_killed"], sample["exit_code"].as_i64()),
            (&Value::Bool(false), Some(0))
        );
        for phase in ["setup_seconds", "ready_seconds", "prepare_seconds", "stop_seconds"] {
            assert!(
                phases[phase].as_f64().is_some_and(|seconds| seconds > 0.0),
                "{phase}: {phases}"
            );
        }
        // Faults of the child count too: it is ended with the service, and has base pages in both arms.
        let faults = sample["minor_faults"].as_u64().unwrap();
        assert!(faults > (48 << 20) / sys::param::page_size().bytes(), "{faults}");
    }
}

#[test]
fn only_the_service_gets_the_arm() {
    testkit::require!(has_python(), "no python3");
    let arms = ["--arm", "a: X=1", "--arm", "b: X=2"];
    let load = "echo rate ${X:-9}";
    let wrapped = ["--load", load, "--metric", "rate ([0-9.]+)", "--json"];
    let compared = Compared::new("", &[&arms[..], &wrapped].concat());
    let output = compared.output();
    assert!(output.status.success(), "{}", stderr(&output));
    let document: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let metrics: Vec<_> =
        document["samples"].as_array().unwrap().iter().map(|one| &one["metric"]).collect();
    assert!(metrics.iter().all(|metric| **metric == 9.0), "{metrics:?}");
}

#[test]
fn the_table_says_what_is_measured_of_whom() {
    testkit::require!(has_python(), "no python3");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("suite.toml");
    let (service, load) = commands("");
    let text = format!(
        "service = '{service}'\nload = '{load}'\nmetric = 'rate=rate ([0-9.]+)'\narm = ['base', 'x: pages=base X=1']\n"
    );
    std::fs::write(&path, &text).unwrap();
    let suite = path.to_str().unwrap();
    let saved = directory.path().join("a.json");
    let words = [
        "compare",
        "-q",
        "--max-runs",
        "2",
        "--suite",
        suite,
        "--json",
        "-o",
        saved.to_str().unwrap(),
    ];
    let output = run(&words);
    assert!(output.status.success(), "{}", stderr(&output));
    let page = directory.path().join("a.html");
    let drawn =
        run(&["compare", "--from", saved.to_str().unwrap(), "--html", page.to_str().unwrap()]);
    let table = stdout(&drawn);
    for part in [
        "load: python3",
        "of the service: user, system, faults",
        "rate (higher is better)",
        "x vs base  rate: ",
        "load: ",
        "no --ready: the service was taken to be ready when its port accepted connections",
    ] {
        assert!(table.contains(part), "lacks {part}: {table}");
    }
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert!(table.contains(if cpus < 4 { "unpinned" } else { "service on CPUs" }), "{table}");
    assert!(std::fs::read_to_string(&page).unwrap().contains("of the service: user"));
    std::fs::write(&path, text.replace("load =", "laod =")).unwrap();
    let output = run(&["compare", "--suite", suite]);
    refused(&output, 2, "suite.toml:2: laod: unknown key: did you mean `load`?");
}

#[test]
fn a_series_varies_the_load() {
    testkit::require!(has_python(), "no python3");
    let more = ["--load", "echo rate {n}", "--vary", "n=3,5", "--arm", "base", "--json"];
    let compared = Compared::new("", &[&METRIC[..], &more].concat());
    let output = compared.output();
    assert!(output.status.success(), "{}", stderr(&output));
    let series: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let metric = |point: usize| &series["points"][point]["comparison"]["samples"][0]["metric"];
    assert_eq!((metric(0), metric(1)), (&Value::from(3.0), &Value::from(5.0)));
}

#[test]
fn what_goes_wrong_with_a_service_is_told_in_a_line_and_nothing_stays() {
    testkit::require!(has_python(), "no python3");
    let base = ["--arm", "base"];
    let with = |more: &[&'static str]| [&base[..], more].concat();
    for (server, more, parts) in [
        (
            "0 taken",
            with(&[]),
            &["before it was ready", "exited with code 1", "Address already in use"][..],
        ),
        (
            "0 mute",
            with(&["--ready", "echo is it up >&2; false", "--ready-timeout", "4s"]),
            &["not ready after 4 s", "last errors of --ready: `is it up`", "--ready-timeout"],
        ),
        (
            "0 mute",
            with(&["--ready", "sleep 600", "--ready-timeout", "0.5s"]),
            &["not ready after 0.5 s"],
        ),
        ("0 dies", with(&[]), &["exited with code 7 under load", "out of luck"]),
        ("0 background", with(&[]), &["went into the background", "python3", "--daemonize no"]),
        (
            "",
            with(&["--load", "echo no; exit 4"]),
            &["--load exited with code 4", "`no`", "--ignore-failure"],
        ),
        ("", with(&["--metric", "tps=([0-9]+) tps"]), &["--load: metric regex", "does not match"]),
        ("", with(&["--metric", "load=([0-9]+)"]), &["cannot be named `load`"]),
        ("", with(&["--metric", "wall=([0-9]+)"]), &["cannot be named `wall`"]),
        (
            "",
            with(&["--setup", "echo full >&2; exit 5"]),
            &["--setup exited with code 5", "`full`"],
        ),
        ("", with(&["--prepare", "kill -9 $$"]), &["--prepare was killed by signal 9"]),
        (
            "",
            with(&["--teardown", "exit 6"]),
            &["--teardown exited with code 6", "printed nothing"],
        ),
        ("", with(&["--stop", "exit 3"]), &["--stop exited with code 3"]),
        ("", with(&["--setup", "sleep 777 & exit 1"]), &["--setup exited with code 1"]),
    ] {
        Compared::new(server, &more).is_refused(2, parts);
    }
}

#[test]
fn a_port_that_is_taken_is_the_services_own_error() {
    testkit::require!(has_python(), "no python3");
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    // Another process already listens there and answers, so the check succeeds although the service is not ready.
    let service = format!("python3 {} {port}", file("server.py"));
    let asks =
        format!("python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}))'");
    let words = ["compare", "-q", "--service", &service, "--load", "sleep 600", "--ready", &asks];
    refused(&run(&[&words[..], &["--arm", "base"]].concat()), 2, "Address already in use");
}

#[test]
fn a_failing_load_counts_if_it_is_to() {
    testkit::require!(has_python(), "no python3");
    let compared = Compared::new("", &["--arm", "base", "--load", "exit 3", "--ignore-failure"]);
    let output = compared.output();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("2 of 2 runs failed"), "{}", stdout(&output));
}

#[test]
fn a_directory_that_a_shell_would_take_apart_is_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let parted = temporary.path().join("a b");
    std::fs::create_dir(&parted).unwrap();
    let words = ["compare", "-q", "--service", "sleep 600", "--load", "ls {dir}", "--arm", "base"];
    let output = superpage(&words).env("TMPDIR", &parted).output().unwrap();
    refused(&output, 2, "set TMPDIR to a plain path");
    assert!(std::fs::read_dir(&parted).unwrap().next().is_none());
}

#[test]
fn a_service_that_does_not_stop_is_killed_and_that_is_said() {
    testkit::require!(has_python(), "no python3");
    let compared = Compared::new("0 deaf", &["--arm", "base", "--stop-timeout", "0.3s"]);
    let output = compared.output();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("did not stop within 0.3 s of SIGTERM and was killed"),
        "{}",
        stdout(&output)
    );
    compared.left_nothing();
}

#[test]
fn flags_that_do_not_go_together_are_refused() {
    let service = ["compare", "--service", "true"];
    for (more, part) in [
        (&[][..], "--load"),
        (&["--load", "true", "gups"], "cannot be used with"),
        (&["--load", "true", "--", "true"], "cannot be used with"),
        (&["--load", "true", "--suite", "x"], "cannot be used with"),
        (&["--load", "true", "--as", "no such user"], "there is no such user"),
        (&["--load", "true", "--size", "1M"], "--size"),
        (&["--load", "true", "--vary", "n=1"], "{n}"),
    ] {
        refused(&run(&[&service[..], more].concat()), 2, part);
    }
    refused(&run(&["compare", "--load", "true"]), 2, "--service");
    refused(&run(&["compare", "--service", "a 'b", "--load", "true"]), 2, "unclosed quote");
    refused(
        &run(&["compare", "--service", "/no/such/server", "--load", "true"]),
        2,
        "was not found",
    );
    refused(&run(&["compare", "--suite", "/no/such/file"]), 2, "/no/such/file");
}

/// Starts the command and waits until a phase has created this file.
fn started(compared: &Compared, made: &Path) -> Child {
    let null = Stdio::null;
    let mut child = compared.command().stdout(null()).stderr(null()).spawn().expect("it starts");
    wait_until("the phase begins", || {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        made.exists()
    });
    child
}

#[test]
fn interrupted_in_any_phase_nothing_stays() {
    use std::os::unix::process::ExitStatusExt;
    testkit::require!(has_python(), "no python3");
    let directory = tempfile::tempdir().unwrap();
    let made = directory.path().join("made");
    let told = directory.path().join("torn");
    let waits = format!("touch {}; sleep 600", made.display());
    let tells = format!("touch {}", told.display());
    for (phase, signal) in [
        ("--setup", libc::SIGINT),
        ("--ready", libc::SIGTERM),
        ("--prepare", libc::SIGINT),
        ("--load", libc::SIGTERM),
        ("--stop", libc::SIGINT),
        ("--teardown", libc::SIGINT),
    ] {
        // If the phase itself ends the run, it may take until its time limit.
        let is_cut_off = ["--stop", "--teardown"].contains(&phase);
        let patience = if is_cut_off { "2s" } else { "60s" };
        let mut more = vec!["--arm", "base", phase, &waits, "--stop-timeout", patience];
        let is_last = phase == "--teardown";
        if !is_last {
            more.extend(["--teardown", &tells]);
        }
        let compared = Compared::new("8", &more);
        let mut child = started(&compared, &made);
        send(&child, signal);
        assert_eq!(child.wait().unwrap().signal(), Some(signal), "{phase}");
        compared.left_nothing();
        std::fs::remove_file(&made).unwrap();
        assert_eq!(std::fs::remove_file(&told).is_ok(), !is_last, "{phase}: teardown");
    }
}

#[test]
fn killed_it_takes_service_and_load_with_it() {
    testkit::require!(has_python(), "no python3");
    let directory = tempfile::tempdir().unwrap();
    let made = directory.path().join("made");
    let waits = format!("mkdir -p {{dir}}/a/b; touch {}; sleep 600", made.display());
    let compared = Compared::new("8 forks", &["--arm", "base", "--load", &waits]);
    let mut child = started(&compared, &made);
    assert!(compared.running().len() >= 2, "{:?}", compared.running());
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("service and load are gone", || compared.running().is_empty());
    let restored =
        superpage(&["restore"]).env("TMPDIR", compared.temporary.path()).output().unwrap();
    assert!(stdout(&restored).contains("superpage-run-"), "{}", stdout(&restored));
    compared.left_nothing();
}

#[test]
fn as_another_user_service_and_phases_are_that_users() {
    testkit::require!(testkit::is_root(), "not root: nobody else can be become");
    let nobody = sys::user::User::find("nobody").unwrap();
    testkit::require!(nobody.is_some(), "no user `nobody`");
    let script = "sh -c 'id -un > who; exec sleep 600'";
    // No other user may read the directory.
    let load = "test \"$(cat {dir}/who)$(stat -c %a {dir})\" = nobody700 && echo rate $(id -u)";
    let words = [
        "compare",
        "-q",
        "--max-runs",
        "2",
        "--arm",
        "base",
        "--as",
        "nobody",
        "--service",
        script,
        "--ready",
        "test -s {dir}/who",
    ];
    let document =
        json(&[&words[..], &["--load", load, "--metric", "rate ([0-9]+)", "--json"]].concat());
    assert_eq!(document["samples"][0]["metric"], f64::from(nobody.unwrap().id), "{document}");
    assert_eq!(document["service"]["user"], "nobody");
}
