//! `superpage lab faults`: its columns, documents and pictures, and its errors.

use std::fs;

use super::{fine, json, path};
use crate::common::{lab, stderr, stdout};

#[test]
fn faults_are_in_the_papers_columns_or_a_document_or_a_picture() {
    let directory = tempfile::tempdir().unwrap();
    let picture = path(&directory, "faults.svg");
    let small = ["faults", "--size", "512M", "--threads", "1,8,256"];
    let with = |more: &[&'static str]| [&small[..], more].concat();
    let text = fine(&with(&["-p", "atomic-pte,prefault"]));
    assert!(text.contains("flt/cpu/s  fault/wsec"), "{text}");
    assert_eq!(text.matches("prediction").count(), 1, "{text}");
    let document = json(&with(&["-p", "baseline", "-d", "linux-6", "--json"]));
    assert_eq!(document["schema"], "superpage.faults/1");
    assert_eq!(document["sets"][1]["name"], "linux-6");
    assert_eq!(document["sets"][0]["rows"][2]["is_prediction"], true);
    assert_eq!(document["sets"][0]["rows"][0]["pages"], 3 * 32_768);
    let text = fine(&["faults", "-p", "prefault", "--size", "512M", "--run", "4", "--gap", "12"]);
    assert!(text.contains("mapped and never touched: up to 42.9 % of the pages"), "{text}");
    fine(&[&small[..], &["--svg", &picture, "-o", &path(&directory, "t.txt")]].concat());
    let drawn = fs::read_to_string(&picture).unwrap();
    // Five sets of patches, by the clock and by CPU time.
    assert!(drawn.starts_with("<?xml") && drawn.matches("<path").count() == 10, "{drawn}");
    assert!(!drawn.contains("<circle"), "{drawn}");
    let table = lab(&["faults", "--table", "-q", "--force", "--svg", &picture]);
    // One simulated peak is at another number of CPUs than the published one.
    assert_eq!(table.status.code(), Some(1), "{}", stderr(&table));
    let drawn = fs::read_to_string(&picture).unwrap();
    // Each of 88 rows has a point in both panels, and the legend has one.
    assert_eq!(drawn.matches("<circle").count(), 2 * 88 + 1, "{drawn}");
}

#[test]
fn a_faults_table_says_what_was_published_and_what_was_fitted() {
    let output = lab(&["faults", "--table", "-q"]);
    let text = stdout(&output);
    assert!(text.contains("1.00  f") && text.contains("with the most faults a second"), "{text}");
    // One peak among the checks is at another number of CPUs.
    assert!(text.contains("atomic-pte 4 x 3 (checks): 8 published, 16 simulated"), "{text}");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(text.contains("c: a check") && text.contains("If faults took no CPU time"), "{text}");
    assert!(
        text.contains(" atomic-pte   1    3      128      47286         45    73170"),
        "{text}"
    );
    assert!(text.contains("do not support \"almost linear\" scaling"), "{text}");
    // 512 CPUs with version 12 of the patches.
    let output = lab(&["faults", "--table", "-q", "-m", "altix-512"]);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(
        text.contains("it looks as if there was less to\ndo (inferred")
            && !text.contains("almost linear"),
        "{text}"
    );
    let refused = lab(&["faults", "-m", "altix-512", "--table", "--refit"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr(&refused).contains("--refit is for altix-128 and altix-8"),
        "{}",
        stderr(&refused)
    );
    let document = json(&["faults", "--machine", "i386-up", "--table", "--json"]);
    assert_eq!(document["schema"], "superpage.faults.table/1");
    assert_eq!(document["lines"][0]["role"], "fitted");
    assert_eq!(document["builds"][0]["faults"], 8_053_981);
    let text = fine(&["faults", "--machine", "i386-up", "--table"]);
    assert!(text.contains("8053981  24.3 s  2.32 s   7.09 s  2636364"), "{text}");
}

#[test]
fn zeroing_ahead_has_settings_and_says_what_it_left() {
    let small =
        ["faults", "-m", "altix-8", "-p", "prezero", "-p", "baseline", "-s", "4G", "-t", "2"];
    let with = |more: &[&'static str]| json(&[&small[..], &["--json"], more].concat());
    let ahead = |more| with(more)["sets"][0]["rows"][0]["zeroed_ahead"].clone();
    let number = |value: &serde_json::Value| value.as_f64().expect("a number");
    let document = with(&["--scrub-start", "8", "--scrub-stop", "3", "--zeroing", "bte"]);
    let scrub = &document["sets"][0]["kernel"]["prezero"];
    assert_eq!(
        (&scrub["order"], &scrub["stop-order"], &scrub["by"]),
        (&8.into(), &3.into(), &"bte".into())
    );
    assert!(document["sets"][1]["rows"][0]["zeroed_ahead"].is_null());
    assert!(number(&ahead(&[])["cpu_seconds"]) > 0.0);
    let engine = ahead(&["--zeroing", "bte"]);
    assert!(number(&engine["pages"]) > 0.0 && number(&engine["cpu_seconds"]) == 0.0, "{engine}");
    assert_eq!(engine["nodes"][3]["zeroed"].as_array().expect("orders").len(), 11);
    assert_eq!(ahead(&["--scrub-load", "1"])["pages"], 0);
    let text = fine(&[&small[..], &["--scrub-load", "0"]].concat());
    assert!(
        text.contains("2 threads: 0 of 786432 pages were found zeroed; 0 were zeroed"),
        "{text}"
    );
    assert!(
        text.contains("Nodes 0 to 3") && text.contains("  zeroed pages        0      0"),
        "{text}"
    );
    let directory = tempfile::tempdir().unwrap();
    let file = path(&directory, "on-demand.toml");
    let design = include_str!("../../../../../designs/linux-6.toml");
    fs::write(&file, design.replace("rss = \"split\"", "rss = \"on-demand\"")).unwrap();
    let document = json(&["faults", "-d", &file, "-t", "8", "--json"]);
    assert_eq!(document["sets"][0]["kernel"]["rss"], "on-demand");
    let text = fine(&["faults", "-p", "rss-on-demand", "-t", "128"]);
    assert!(
        text.contains("0 s a fault to count one without contention, 9.23 ms to read"),
        "{text}"
    );
}

#[test]
fn bad_faults_have_one_line() {
    for (arguments, says) in [
        (["--scrub-load", "1"], "--scrub-load has no effect: nothing zeroes ahead"),
        (["--zeroing", "dma"], "invalid value 'dma' for '--zeroing <WHAT>': expected cpu or bte"),
    ] {
        let output = lab(&[&["faults", "-p", "baseline"], &arguments[..]].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(says) && said.lines().count() == 1, "{said}");
    }
    for (arguments, says) in [
        (["--threads", "0"], "0 threads: altix-128 supports 1 to 512"),
        (["--threads", "513"], "513 threads: altix-128 supports 1 to 512"),
        (["--patches", "atomic"], "unknown patch `atomic`: expected one of baseline, atomic-pte"),
        (["--size", "1M"], "1 MiB is too small for 128 threads: each touches a page of 16 KiB"),
        (["--scrub-start", "11"], "--scrub-start 11: expected an order of 0 to 10"),
        (["--scrub-stop", "5"], "--scrub-stop 5: expected at most 4, the order at which it starts"),
        (["--machine", "altix"], "unknown machine `altix`: expected one of altix-128"),
    ] {
        let output = lab(&[&["faults"], &arguments[..]].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(says) && said.lines().count() == 1, "{said}");
    }
}
