//! `superpage manage --check-config`: mistakes with their lines, and what running processes would get.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};

use serde_json::Value;

use crate::common::{refused, run, stderr, stdout, superpage};

const NOBODY: u32 = 65534;

/// Writes a configuration; returns its directory and its path.
fn configuration(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("manage.toml");
    std::fs::write(&file, text).unwrap();
    (dir, file)
}

#[test]
fn mistakes_are_told_one_a_line_with_file_line_and_remedy() {
    let (_dir, file) = configuration("[manage]\nmode = \"enfroce\"\n[[rule]]\ncom = \"x\"\n");
    let file = file.to_str().unwrap();
    let output = run(&["manage", "--check-config", "--config", file]);
    let lines: Vec<String> = stderr(&output).lines().map(str::to_string).collect();
    let [mode, missing, comm] = &lines[..] else { panic!("{lines:#?}") };
    assert!(mode.contains(&format!("{file}:2: manage.mode")), "{mode}");
    assert!(mode.contains("did you mean \"enforce\"?"), "{mode}");
    assert!(missing.contains(&format!("{file}:3: rule.design: is missing")), "{missing}");
    assert!(comm.contains(&format!("{file}:4: rule.com")), "{comm}");
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""));
    let missing = run(&["manage", "--check-config", "--config", "/nonexistent/manage.toml"]);
    refused(&missing, 2, "/nonexistent/manage.toml: cannot be read");
    let missing = run(&["manage", "--config", "/nonexistent/manage.toml"]);
    refused(&missing, 2, "/nonexistent/manage.toml: cannot be read");
}

#[test]
fn a_flag_that_means_nothing_in_a_mode_is_refused() {
    let own = std::process::id().to_string();
    for (words, part) in [
        (vec!["--undo", "--sample", "3s"], "'--undo' cannot be used with '--sample"),
        (vec!["--undo", "--fill", "3%"], "cannot be used with"),
        (vec!["--undo", "--require-coverage", "95%"], "cannot be used with"),
        (vec!["--status", "--within", "3s"], "cannot be used with"),
        (vec!["--check-config", "--dry-run"], "cannot be used with"),
        // Else this would be a manager.
        (vec!["--dry-run"], "--once"),
        (vec!["--sample", "3s"], "--once"),
        (vec!["--once", "--pid", &own, "--sample", "90ms"], "0.1 to 60 seconds"),
    ] {
        refused(&run(&[&["manage"], &words[..]].concat()), 2, part);
    }
    let sampled = run(&["manage", "--once", "--dry-run", "--pid", &own, "--sample", "300ms"]);
    assert!(matches!(sampled.status.code(), Some(0 | 3)), "{}", stderr(&sampled));
}

#[test]
fn without_the_right_each_mode_says_so_and_names_no_other_process() {
    let sleep = Command::new("sleep").arg("1000").uid(NOBODY).gid(NOBODY).spawn();
    testkit::require!(sleep.is_ok(), "only root starts processes of another user");
    let sleep = Sleep(sleep.unwrap());
    let pid = sleep.0.id().to_string();
    let as_nobody = |words: &[&str]| {
        let mut command = superpage(&[&["manage", "--pid", &pid], words].concat());
        command.uid(NOBODY).gid(NOBODY).output()
    };
    testkit::require!(as_nobody(&["--once"]).is_ok(), "nobody may not execute the command");
    for (words, code) in [(&["--once"][..], 3), (&["--undo"], 3), (&["--once", "--dry-run"], 0)] {
        let output = as_nobody(words).unwrap();
        let line = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {line}");
        assert!(line.contains("CAP_SYS_NICE") && !line.contains("on pid"), "{words:?}: {line}");
        let makes = line.contains("gets superpages when it starts");
        assert_eq!(makes, words[0] == "--once", "{words:?}: {line}");
    }
}

#[test]
fn records_of_programs_that_ended_are_removed_by_the_next_command() {
    testkit::require!(testkit::is_root(), "only root writes records");
    testkit::require!(sys::pidfd::may_collapse().is_ok(), "nothing can be collapsed");
    let dir = std::path::Path::new(manage::record::DIR);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).unwrap();
    let namespace = std::fs::metadata("/proc/self/ns/pid").unwrap().ino();
    // Beyond the largest pid.
    let record = dir.join(format!("{namespace}-{}-1-0", i32::MAX));
    std::fs::write(&record, "").unwrap();
    let sleep = Sleep(Command::new("sleep").arg("1000").spawn().expect("sleep"));
    let pid = sleep.0.id().to_string();
    let planned = run(&["manage", "--once", "--sample", "none", "--dry-run", "--pid", &pid]);
    assert_eq!(planned.status.code(), Some(0), "{}", stderr(&planned));
    assert!(record.exists(), "--dry-run changed something");
    let made = run(&["manage", "--once", "--sample", "none", "--pid", &pid]);
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    assert!(!record.exists());
}

/// A program that sleeps until it is dropped.
struct Sleep(Child);

impl Drop for Sleep {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn each_process_is_listed_with_what_it_would_get() {
    // No other process sleeps that long.
    let base = 1_000_000 + u64::from(std::process::id());
    let (_dir, file) = configuration(&format!(
        "[[rule]]\ncommand = \"^sleep {base}[12]\"\ndesign = \"as-requested\"\n\
         [[rule]]\ncommand = \"^sleep {base}\"\nleave-alone = true\n",
    ));
    let sleep = |last: u32, asked: &str| {
        let mut command = Command::new("sleep");
        command.arg(format!("{base}{last}")).env("SUPERPAGE_MANAGE", asked);
        Sleep(command.spawn().expect("sleep"))
    };
    let sleeps = [sleep(1, "sync-64"), sleep(2, "hugetlb"), sleep(3, "sync-64")];
    let pids = sleeps.each_ref().map(|one| u64::from(one.0.id()));
    let file = file.to_str().unwrap();
    let words = ["manage", "--check-config", "--config", file];
    // A child has its own command line once it has executed it.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let rows = loop {
        let output = run(&[&words[..], &["--json"]].concat());
        let document: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
        let find = |pid: u64| {
            let all = document["processes"].as_array().unwrap();
            all.iter().find(|row| row["pid"] == pid && !row["rule"].is_null()).cloned()
        };
        let rows: Vec<Value> = pids.into_iter().filter_map(find).collect();
        if rows.len() == 3 {
            assert_eq!(document["rules"][0]["processes"], 2, "{document:#}");
            break rows;
        }
        assert!(std::time::Instant::now() < deadline, "{document:#}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    let field = |name: &str| rows.iter().map(|row| row[name].clone()).collect::<Vec<_>>();
    assert_eq!(field("outcome"), ["keep", "bad-request", "leave-alone"]);
    assert_eq!(rows[0]["design"], "quicksilver-sync-64");
    assert_eq!((&rows[0]["mode"], &rows[0]["rule"]["line"]), (&"observe".into(), &1.into()));
    assert_eq!((&rows[1]["asked"], &rows[2]["rule"]["line"]), (&"hugetlb".into(), &4.into()));
    let output = run(&words);
    let text = stdout(&output);
    for (pid, gets) in pids.iter().zip(["quicksilver-sync-64", "asks for hugetlb", "left alone"]) {
        let line = text.lines().find(|line| line.trim_start().starts_with(&pid.to_string()));
        assert!(line.is_some_and(|line| line.contains(gets)), "{pid} {gets}: {text}");
    }
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}
