//! `superpage bench` as a command: its output and files, what it saves, and what it restores. Times are never asserted.

use std::process::Stdio;

use crate::common::{
    has_thp, overcommit, refused, run, send, stderr, stdout, superpage, wait_until,
};
use serde_json::Value;
use testkit::{PoolsAsFound, is_root, require};

/// Options for small and few runs.
const QUICK: [&str; 9] =
    ["--size", "16M", "--runs", "2", "--threads", "1", "--pool", "keep", "--quiet"];

fn bench(what: &str, more: &[&str]) -> Vec<String> {
    let words = ["bench", what].into_iter().chain(QUICK).chain(more.iter().copied());
    words.map(str::to_string).collect()
}

fn outcome(words: &[String]) -> std::process::Output {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    run(&words)
}

fn document(words: &[String]) -> Value {
    let output = outcome(words);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.starts_with("{\n  \"schema\": \"superpage.bench/1\""), "{text}");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn first_touches_are_told_by_arm_and_by_thread() {
    let arms = ["--arm", "base", "--arm", "populate", "--json"];
    let found = document(&bench("touch", &arms));
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!(row["threads"], 1);
        assert_eq!(row["got"]["as_promised"], true, "{row}");
        assert_eq!(row["outcomes"].as_array().unwrap().len(), 2);
        assert!(row["summary"]["rate"]["median"].as_f64().unwrap() > 0.0);
        // Three repetitions of 16 MiB take one fault per page.
        let pages = row["outcomes"][0]["details"]["pages_touched"].as_f64().unwrap();
        let faults = row["summary"]["faults"].as_f64().unwrap();
        assert!((0.99..1.1).contains(&(faults / pages)), "{faults} for {pages}");
        assert_eq!(row["summary"]["latencies"].as_array().unwrap().len(), 0);
    }
    assert_eq!(rows[1]["populates"], true);
    assert_eq!(rows[1]["outcomes"][0]["details"]["populated"], true);
}

#[test]
fn an_arm_whose_library_is_silent_has_no_figures() {
    require!(has_thp(), "no transparent superpages here");
    // glibc puts some of this arm's memory on superpages, although the library does not answer.
    let silent = "silent: pages=thp memory=heap,mmap prezero=16M SUPERPAGE_PAGES=nonsense \
                  GLIBC_TUNABLES=glibc.malloc.hugetlb=1";
    let found = document(&bench("touch", &["--arm", "base", "--arm", silent, "--json"]));
    let row = &found["rows"][1];
    assert_eq!(row["got"]["library_fault"], "silent", "{row}");
    assert!(row["summary"].is_null(), "{row}");
    let output = outcome(&bench("touch", &["--arm", "base", "--arm", silent]));
    assert!(stdout(&output).contains("did not respond"), "{}", stdout(&output));
}

#[test]
fn an_arm_whose_library_was_asked_for_nothing_has_no_figures() {
    require!(has_thp(), "no transparent superpages here");
    // Requests use malloc's memory, for which the library requests nothing here; glibc itself advises it.
    let idle = "idle: pages=thp memory=mmap prezero=16M";
    let found = document(&bench("requests", &["--arm", "base", "--arm", idle, "--json"]));
    let row = &found["rows"][1];
    assert_eq!(row["got"]["library_fault"], "idle", "{row}");
    assert!(row["summary"].is_null(), "{row}");
}

#[test]
fn an_arm_that_got_other_pages_has_no_figures() {
    require!(has_thp(), "no transparent superpages here");
    let is_always = |set: &String| set.contains("[always]");
    require!(
        !testkit::thp_are_for_all() && !sizes().iter().any(is_always),
        "THP is always on here"
    );
    // A recipe that promises superpages and then turns them off for the program.
    let tricked = "tricked: pages=thp GLIBC_TUNABLES=glibc.malloc.hugetlb=0 SUPERPAGE_PAGES=base";
    let arms = ["--arm", "base", "--arm", tricked];
    let found = document(&[bench("touch", &arms), vec!["--json".to_string()]].concat());
    let row = &found["rows"][1];
    assert!(row["got"]["share"].as_f64().is_some_and(|share| share < 0.5), "{row}");
    require!(!row["got"]["as_promised"].is_null(), "too few superpages are free to promise any");
    assert_eq!(row["got"]["as_promised"], false, "{row}");
    assert!(row["summary"].is_null());
    let text = stdout(&outcome(&bench("touch", &arms)));
    if !text.contains("did not get the superpages") {
        let again = document(&[bench("touch", &arms), vec!["--json".to_string()]].concat());
        let is_promised = !again["rows"][1]["got"]["as_promised"].is_null();
        require!(is_promised, "too few superpages are free to promise any");
        panic!("{text}");
    }
}

#[test]
fn single_accesses_are_timed_and_drawn() {
    let directory = tempfile::tempdir().unwrap();
    let svg = directory.path().join("tail.svg");
    let svg = svg.to_str().unwrap();
    let more =
        ["--arm", "base", "--latency", "--burst", "4M", "--gap", "1", "--svg", svg, "--json"];
    let found = document(&bench("touch", &more));
    let latencies = found["rows"][0]["summary"]["latencies"].as_array().unwrap();
    let kinds: Vec<&str> = latencies.iter().map(|one| one["of"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["page", "superpage"]);
    // Two runs, each with three times 16 MiB.
    let page = sys::param::page_size().bytes();
    assert_eq!(latencies[0]["count"], 2 * 3 * (16 << 20) / page);
    for one in latencies {
        let at = |name: &str| one[name].as_f64().unwrap();
        let times = ["p50_seconds", "p90_seconds", "p99_seconds", "p999_seconds", "max_seconds"];
        assert!(times.windows(2).all(|pair| at(pair[0]) <= at(pair[1])), "{one}");
        assert!(at("timer_seconds") > 0.0);
    }
    let drawn = std::fs::read_to_string(svg).unwrap();
    assert!(drawn.contains("first touch in each 2 MiB") && drawn.ends_with("</svg>\n"), "{drawn}");
    let again = outcome(&bench("touch", &["--arm", "base", "--svg", svg]));
    refused(&again, 2, "exists");
}

#[test]
fn requests_are_served_and_told() {
    let more = ["--arm", "base", "--operations", "500", "--largest", "64K"];
    let found = document(&[bench("requests", &more), vec!["--json".to_string()]].concat());
    let row = &found["rows"][0];
    let latencies = row["summary"]["latencies"].as_array().unwrap();
    assert_eq!((latencies.len(), &latencies[0]["of"]), (1, &Value::from("request")));
    assert_eq!(latencies[0]["count"], 1000);
    let details = &row["outcomes"][0]["details"];
    assert_eq!(details["largest_bytes"], 64 << 10);
    let text = stdout(&outcome(&bench("requests", &more)));
    assert!(text.contains("requests/s") && text.contains("p99.9"), "{text}");
}

#[test]
#[ignore = "nightly: costs are timed"]
fn what_memory_costs_is_kept_and_survives_another_calibration() {
    let directory = tempfile::tempdir().unwrap();
    let own = |words: &[&str]| {
        let mut command = superpage(words);
        command.env("XDG_DATA_HOME", directory.path());
        command.output().expect("the command starts")
    };
    refused(&own(&["bench", "zero", "--save"]), 3, "superpage tlb --save");
    let calibrate = ["tlb", "--quick", "--page-size", "4K", "--save", "--quiet"];
    let output = own(&calibrate);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));

    let output = own(&["bench", "zero", "--save", "--json", "--quiet"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("not measured and unchanged: fault-base"),
        "{}",
        stderr(&output)
    );
    let found: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!((&found["schema"], &found["bench"]), (&"superpage.bench/1".into(), &"zero".into()));
    assert_eq!(found["call_bytes"].as_array().unwrap().len(), 3);
    assert!(found["ways"].as_array().unwrap().iter().all(|way| way["cold_seconds"][2].is_f64()));

    let file = directory.path().join("superpage/machines/this.toml");
    let read = || machine::Machine::from_toml(&std::fs::read_to_string(&file).unwrap(), "this");
    let machine = read().unwrap();
    let system = found["ways"].as_array().unwrap().iter().find(|way| way["stores"] == "system");
    for (kept, measured) in machine.costs.zero.temporal.iter().zip(0..) {
        let seconds = system.unwrap()["cold_seconds"][measured].as_f64().unwrap();
        assert!((kept - seconds * 1e6).abs() <= 0.051, "{kept} for {seconds}");
    }
    let touch = bench("touch", &["--arm", "base", "--save"]);
    let output = own(&touch.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    // There was no arm thp, so that cost is missing. (The cost of a base fault without zeroing can come out as zero if
    // other programs disturb the runs.)
    assert!(stderr(&output).contains("fault-superpage; all other costs"), "{}", stderr(&output));
    let machine = read().unwrap();
    assert_eq!(own(&calibrate).status.code(), Some(0));
    // Measured costs are kept. All other values are the preset's, which may be another one if the processor is unknown.
    let again = read().unwrap().costs;
    assert_eq!((again.zero, again.fault_base), (machine.costs.zero, machine.costs.fault_base));
    let shown = std::fs::read_to_string(&file).unwrap();
    assert!(shown.contains("(measured) superpage bench zero"), "{shown}");
}

/// Returns the setting of every THP size.
fn sizes() -> Vec<String> {
    let directories = std::fs::read_dir("/sys/kernel/mm/transparent_hugepage");
    let files = directories.into_iter().flatten().flatten().map(|one| one.path().join("enabled"));
    let mut set: Vec<String> = files
        .filter_map(|file| Some(format!("{file:?} {}", std::fs::read_to_string(&file).ok()?)))
        .collect();
    set.sort();
    set
}

#[test]
fn a_dry_run_shows_plans_and_bad_input_is_one_line() {
    let text = stdout(&run(&["bench", "touch", "--dry-run", "--arm", "base", "--arm", "populate"]));
    assert!(text.contains("populate"), "{text}");
    let text = stdout(&run(&["bench", "zero", "--dry-run"]));
    assert!(text.contains("would zero 2 MiB"), "{text}");
    for (words, part) in [
        (&["touch", "--arm", "quick"][..], "--arm"),
        (&["touch", "--arm", "populate+x: pages=big"], "--arm"),
        (&["touch", "--size", "1K"], "--size"),
        (&["touch", "--threads", "0"], "--threads"),
        (&["touch", "--threads", "1,x"], "--threads"),
        (&["touch", "--lines", "1000"], "--lines"),
        (&["touch", "--gap", "-1"], "`-1`"),
        (&["touch", "--runs", "1"], "--runs"),
        (&["touch", "--burst", "1"], "--burst"),
        (&["touch", "--latency", "--save"], "--latency"),
        (&["touch", "--arm", "thp:3M"], "--arm"),
        (&["touch", "-o", "/nowhere/at/all"], "/nowhere/at/all"),
        (&["requests", "--arm", "populate"], "populate"),
        (&["requests", "--smallest", "1M", "--largest", "4K"], "out of range"),
        (&["requests", "--operations", "0"], "--operations"),
        (&["zero", "--size", "2M"], "--size"),
        (&["all"], "'all'"),
    ] {
        let output = run(&[&["bench"][..], words].concat());
        refused(&output, 2, part);
    }
    refused(&run(&["bench", "touch", "--size", "900T"]), 3, "smaller --size");
}

mod exclusive {
    use super::*;

    #[test]
    fn settings_are_put_back_also_when_it_is_interrupted() {
        require!(is_root(), "settings can be changed by root only");
        let size = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled";
        require!(std::path::Path::new(size).exists(), "this kernel has no THP of 64 KiB");
        testkit::lock_machine!();
        let _pools = PoolsAsFound::note();
        let (before, limit) = (sizes(), overcommit());
        // Number of faults that found no free block of 64 KiB; zero if the kernel does not count these.
        let short = || {
            let file = size.replace("enabled", "stats/anon_fault_fallback");
            let text = std::fs::read_to_string(file).unwrap_or_default();
            text.trim().parse::<u64>().unwrap_or(0)
        };
        let short_before = short();
        let words = bench("touch", &["--arm", "base", "--arm", "thp:64K", "--allow", "--json"]);
        let found = document(&words);
        assert_eq!(sizes(), before);
        let row = &found["rows"][1];
        assert_eq!(row["folio"], 65536, "{row}");
        if short() > short_before {
            testkit::skipped!(
                "free memory has too few pieces of 64 KiB to see whether the arm gets them"
            );
        } else {
            assert_eq!(row["got"]["as_promised"], true, "{row}");
        }

        // Some of these flags may be given only once, so this command has its own list, with many runs.
        let endless =
            ["bench", "touch", "--size", "64M", "--runs", "1000", "--threads", "1", "--allow"];
        let arms = ["--arm", "thp:64K", "--arm", "hugetlb", "--quiet"];
        let mut command = superpage(&[&endless[..], &arms[..]].concat());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("a size is switched on, or it ends", || {
            sizes() != before || child.try_wait().unwrap().is_some()
        });
        assert_ne!(sizes(), before, "it never switched anything");
        send(&child, libc::SIGINT);
        let status = child.wait().unwrap();
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(status.signal(), Some(libc::SIGINT));
        assert_eq!((sizes(), overcommit()), (before, limit));
    }
}
