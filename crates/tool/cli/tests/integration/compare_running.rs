//! `superpage compare --pid` on a real program.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

use serde_json::Value;

use crate::common::{comes_true, refused, run, send, stderr, stdout, superpage, wait_until};

/// A program that counts its updates of 32 MiB on base pages, and has 8 MiB more on superpages.
struct Service {
    child: Child,
    dir: tempfile::TempDir,
}

impl Service {
    /// Starts the program; `None` after a counted skip if it cannot be compiled.
    fn start() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("served");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/integration/compare_running.c");
        let built = Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(source).output();
        if !built.is_ok_and(|built| built.status.success()) {
            testkit::skipped!("no C compiler");
            return None;
        }
        let mut command = Command::new(&program);
        let child = command.args(["32", "8"]).arg(dir.path().join("updates")).spawn().unwrap();
        let service = Self { child, dir };
        let written = || std::fs::read_to_string(service.counter()).is_ok_and(|it| !it.is_empty());
        wait_until("the program counts", written);
        Some(service)
    }

    fn counter(&self) -> PathBuf {
        self.dir.path().join("updates")
    }

    /// The words of a short comparison.
    fn words(&self, more: &[&str]) -> Vec<String> {
        let pid = self.child.id().to_string();
        let counter = format!("cat {}", self.counter().display());
        let words = ["compare", "--pid", &pid, "--metric-counter", &counter];
        let short = ["--block", "100ms", "--settle", "20ms"];
        words.iter().chain(&short).chain(more).map(ToString::to_string).collect()
    }

    /// The share of memory that can be on superpages and is; `None` if it cannot be read.
    fn coverage(&self) -> Option<f64> {
        let pid = self.child.id().to_string();
        let output = superpage(&["map", &pid, "--json"]).output().unwrap();
        let map: Value = serde_json::from_str(&stdout(&output)).ok()?;
        map["processes"][0]["coverage"].as_f64()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn compare(words: &[String]) -> Output {
    run(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Compares again while no round counts. The kernel's daemon may make superpages in a block of base pages, others may
/// split them, and on a busy machine the program may do no work in a block.
fn compared(words: &[String], document: &Path) -> Output {
    let again = [words, &["--force".to_string()]].concat();
    let mut output = compare(words);
    for _ in 0..4 {
        if output.status.code() != Some(3) || cannot(&output, document) {
            break;
        }
        output = compare(&again);
    }
    output
}

/// Counts a skip if this machine or user cannot switch, or has no superpages for it.
fn cannot(output: &Output, document: &Path) -> bool {
    let said = std::fs::read_to_string(document).unwrap_or_default();
    let is = output.status.code() == Some(3)
        && (said.is_empty() || said.contains("no-superpage") || said.contains("realtime"));
    if is {
        testkit::skipped!("not possible here: {}", stderr(output).trim());
    }
    is
}

#[test]
fn a_service_is_compared_and_left_as_it_was_found() {
    testkit::lock_machine!(shared);
    let Some(service) = Service::start() else { return };
    let before = service.coverage();
    let file = service.dir.path().join("compared.json");
    let path = file.to_str().unwrap();
    let page = service.dir.path().join("page.html");
    let more = ["--max-runs", "6", "-q", "--json", "-o", path, "--html", page.to_str().unwrap()];
    let output = compared(&service.words(&more), &file);
    if cannot(&output, &file) {
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let blocks = saved["blocks"].as_array().unwrap();
    let share = |block: &Value, end: &str| {
        let number = |name: &str| block[end][name].as_f64();
        Some(number("superpage_bytes")? / number("eligible_bytes")?)
    };
    // Number of measured blocks that had an arm's pages at both ends, and a figure.
    let count = |arm: u64, is_met: fn(f64) -> bool| {
        let own =
            blocks.iter().filter(|block| block["arm"] == arm && block["purpose"] == "measured");
        let both = |block: &&Value| {
            let ends = ["before", "after"].map(|end| share(block, end).is_some_and(is_met));
            ends == [true; 2] && block["value"].as_f64().is_some_and(|value| value > 0.0)
        };
        own.filter(both).count()
    };
    let counts = (count(0, |share| share <= 0.05), count(1, |share| share >= 0.9));
    assert!(counts.0 >= 2 && counts.1 >= 2, "{counts:?} {saved}");
    assert_eq!(saved["left"]["state"], "found", "{saved}");
    let (before, after) = (before.unwrap(), service.coverage().unwrap());
    let skipped = saved["left"]["switched"]["skipped"].as_object().unwrap();
    let is_as_found = (before - after).abs() < 0.06;
    // A superpage that was split may find no free one again; the document says so.
    assert!(is_as_found || !skipped.is_empty(), "{before} before, {after} afterwards: {saved}");
    let again = run(&["compare", "--from", path]);
    assert!(stdout(&again).contains("thp vs base"), "{}", stdout(&again));
    let page = std::fs::read_to_string(page).unwrap();
    // A block without a figure has no mark: the service did no work in it, for example.
    let measured = blocks.iter().filter(|block| block["value"].is_number()).count();
    assert_eq!(page.matches("<use href").count(), measured + 2, "a mark of each block, a key");
}

/// Serves a page with the counter's value to every client, as long as the test runs.
fn serve(counter: PathBuf) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/metrics", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let value = std::fs::read_to_string(&counter).unwrap_or_default();
            let page = format!("# TYPE updates_total counter\nupdates_total{{a=\"b\"}} {value}");
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{page}");
        }
    });
    url
}

#[test]
fn a_counter_of_a_page_of_metrics_is_divided_by_cpu_time() {
    testkit::lock_machine!(shared);
    let Some(service) = Service::start() else { return };
    let file = service.dir.path().join("compared.json");
    let url = serve(service.counter());
    let pid = service.child.id().to_string();
    let words = [
        "compare",
        "--pid",
        &pid,
        "--metric-url",
        &url,
        "--metric-series",
        "updates_total{a=\"b\"}",
        "--metric-per",
        "cpu-second",
        "--arm",
        "base",
        "--aa",
        "--block",
        "100ms",
        "--settle",
        "0s",
        "--max-runs",
        "2",
        "-q",
        "--json",
        "-o",
        file.to_str().unwrap(),
    ];
    let output = compared(&words.map(String::from), &file);
    if cannot(&output, &file) {
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(saved["metric"]["per"], "cpu-second", "{saved}");
    assert_eq!(saved["metric"]["name"], "updates_total{a=\"b\"}", "{saved}");
    let counted =
        saved["blocks"].as_array().unwrap().iter().filter(|block| block["value"].is_number());
    assert!(counted.count() >= 4, "{saved}");
}

#[test]
fn an_interrupted_comparison_leaves_the_service_as_it_was_found() {
    testkit::lock_machine!(shared);
    let Some(service) = Service::start() else { return };
    let before = service.coverage();
    let words = service.words(&["-q"]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let mut child = superpage(&words).stdout(std::process::Stdio::null()).spawn().unwrap();
        let mut ended = false;
        let is_switched = comes_true(|| {
            ended = child.try_wait().unwrap().is_some();
            ended || service.coverage().is_some_and(|share| share > 0.9)
        });
        if ended {
            testkit::skipped!("the service cannot be switched here");
            return;
        }
        assert!(is_switched);
        send(&child, signal);
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(signal));
        let (before, after) = (before.unwrap(), service.coverage().unwrap());
        assert!((before - after).abs() < 0.06, "{before} before, {after} afterwards");
    }
}

#[test]
fn a_service_that_ends_is_told() {
    testkit::lock_machine!(shared);
    let Some(mut service) = Service::start() else { return };
    let file = service.dir.path().join("compared.json");
    let Some(child) = begun(&service, &file, "100ms") else { return };
    service.child.kill().unwrap();
    service.child.wait().unwrap();
    let output = child.wait_with_output().unwrap();
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(saved["stopped"]["why"], "ended", "{saved}");
    match output.status.code() {
        // A round was complete before.
        Some(0) => {}
        _ => refused(&output, 3, "ended before a round was complete"),
    }
}

/// Starts a comparison that would not end by itself, and waits until it has made superpages; `None`: it ended, which is a
/// counted skip.
fn begun(service: &Service, file: &Path, block: &str) -> Option<Child> {
    let more = ["-q", "--json", "-o", file.to_str().unwrap(), "--within", "0.01%"];
    let words = service.words(&more);
    let words: Vec<&str> =
        words.iter().map(|word| if word == "100ms" { block } else { word }).collect();
    let mut child = superpage(&words).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut ended = false;
    let is_switched = comes_true(|| {
        ended = child.try_wait().unwrap().is_some();
        ended || service.coverage().is_some_and(|share| share > 0.9)
    });
    assert!(is_switched);
    if ended {
        let output = child.wait_with_output().unwrap();
        assert!(cannot(&output, file), "{}", stderr(&output));
        return None;
    }
    Some(child)
}

#[test]
fn a_service_that_executes_another_program_gets_no_verdict() {
    testkit::lock_machine!(shared);
    let Some(service) = Service::start() else { return };
    let file = service.dir.path().join("compared.json");
    let Some(child) = begun(&service, &file, "100ms") else { return };
    send(&service.child, libc::SIGUSR1);
    let output = child.wait_with_output().unwrap();
    refused(&output, 3, "executed another program");
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(saved["stopped"]["why"], "executed", "{saved}");
    assert_eq!(saved["left"]["state"], "found", "{saved}");
}

#[test]
fn a_service_is_compared_by_one_at_a_time() {
    testkit::lock_machine!(shared);
    let Some(service) = Service::start() else { return };
    let file = service.dir.path().join("compared.json");
    let Some(mut first) = begun(&service, &file, "100ms") else { return };
    let by = format!("process {} compares its memory", first.id());
    refused(&compare(&service.words(&["-q"])), 3, &by);
    let pid = service.child.id().to_string();
    for what in ["--once", "--undo"] {
        let sample: &[&str] = if what == "--once" { &["--sample", "none"] } else { &[] };
        refused(&run(&[&["manage", what, "--pid", &pid], sample].concat()), 3, &by);
    }
    send(&first, libc::SIGTERM);
    assert_eq!(first.wait().unwrap().signal(), Some(libc::SIGTERM));
    let undone = run(&["manage", "--undo", "--pid", &pid]);
    assert_eq!(undone.status.code(), Some(0), "{}", stderr(&undone));
}

#[test]
fn superpages_that_a_fork_shares_are_told_with_the_command_that_splits_them_later() {
    testkit::lock_machine!(shared);
    let Some(service) = Service::start() else { return };
    let file = service.dir.path().join("compared.json");
    let Some(mut first) = begun(&service, &file, "1s") else { return };
    // A child that sees the superpages of a block, until after the comparison.
    send(&service.child, libc::SIGUSR2);
    let children = format!("/proc/{0}/task/{0}/children", service.child.id());
    wait_until("the fork", || std::fs::read_to_string(&children).is_ok_and(|it| !it.is_empty()));
    send(&first, libc::SIGTERM);
    first.wait().unwrap();
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    if saved["left"]["switched"]["kept"].as_u64() == Some(0) {
        testkit::skipped!("the block ended before the fork");
        return;
    }
    let told = stdout(&run(&["compare", "--from", file.to_str().unwrap()]));
    let undo = format!("superpage manage --undo --pid {}", service.child.id());
    assert!(told.contains("could not be split now") && told.contains(&undo), "{told}");
    let pid = service.child.id().to_string();
    wait_until("the child ends", || {
        run(&["manage", "--undo", "--pid", &pid]).status.code() == Some(0)
    });
}

#[test]
fn mistakes_are_one_line_each() {
    let own = std::process::id().to_string();
    let counter = ["--metric-counter", "echo 1"];
    for (words, part) in [
        (vec![], "give a metric"),
        (vec!["--metric-command", "echo 1", "--metric-counter", "echo 1"], "cannot be used with"),
        (vec!["--metric-url", "http://127.0.0.1:1/"], "--metric-series"),
        (vec!["--metric-url", "http://192.0.2.1/", "--metric-series", "x"], "not this machine"),
        (vec!["--metric-command", "echo 1", "--metric-per", "cpu-second"], "divides a counter"),
        ([&counter[..], &["--metric", "("]].concat(), "not valid"),
        ([&counter[..], &["--metric", "1", "--metric", "2"]].concat(), "give --metric once"),
        ([&counter[..], &["--arm", "hugetlb"]].concat(), "base and thp only"),
        ([&counter[..], &["--arm", "thp"]].concat(), "nothing to be compared"),
        ([&counter[..], &["--block", "1ms"]].concat(), "expected 50ms to 60m"),
        ([&counter[..], &["--predict"]].concat(), "cannot be used with"),
        ([&counter[..], &["gups"]].concat(), "cannot be used with"),
        ([&counter[..], &["--", "true"]].concat(), "cannot be used with"),
        (vec!["--metric-counter", "echo x"], "not one number"),
        (vec!["--metric-counter", "exit 4"], "exit code 4"),
    ] {
        let words = [&["compare", "--pid", &own], &words[..]].concat();
        let output = superpage(&words).output().unwrap();
        // A machine that cannot switch says so before the metric is read.
        match output.status.code() {
            Some(3) => testkit::skipped!("{words:?}: {}", stderr(&output).trim()),
            _ => refused(&output, 2, part),
        }
    }
    refused(&superpage(&["compare", "--metric-counter", "echo 1"]).output().unwrap(), 2, "--pid");
}
