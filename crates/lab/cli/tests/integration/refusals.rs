//! Wrong usage of `superpage lab`: each error is one line with the remedy.

use std::fs;
use std::path::Path;

use crate::common::{lab, stderr, stdout};
use crate::{path, with};

/// An existing file that this user may overwrite.
const EXISTING: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/existing");

/// Arguments, the exit code, and texts that the error line must contain.
const CASES: &[(&[&str], &[&str])] = &[
    (&["run"], &["--design"]),
    (&["run", "-d", "base"], &["--workload"]),
    (&["run", "-d", "lunix-4.3", "-w", "gups"], &["lunix-4.3", "`linux-4.3`"]),
    (&["run", "-d", "/no/such.toml", "-w", "gups"], &["/no/such.toml"]),
    (&["run", "-d", "/dev/null/x", "-w", "gups"], &["/dev/null/x"]),
    (&["run", "-d", "/etc", "-w", "gups"], &["/etc"]),
    (&["run", "-d", "/etc/passwd", "-w", "gups"], &["/etc/passwd:1"]),
    (&["run", "-d", "base", "-w", "gubs"], &["`gubs`", "did you mean `gups`"]),
    (&["run", "-d", "base", "-w", "gups:sizes=1G"], &["no option `sizes`", "size"]),
    (&["run", "-d", "base", "-w", "gups:size=lots"], &["size=lots", "invalid size"]),
    (&["run", "-d", "base", "-w", "/no/such.spt"], &["/no/such.spt"]),
    (&["run", "-d", "base", "-w", "gups", "-m", "cascade-lak"], &["did you mean `cascade-lake`"]),
    (&["run", "-d", "base", "-w", "gups", "-m", "/etc/passwd"], &["/etc/passwd"]),
    (&["run", "-d", "base", "-w", "gups", "-f", "frag-101"], &["`frag-101`", "none"]),
    (&["run", "-d", "base", "-w", "gups", "--memory", "huge"], &["--memory", "`huge`"]),
    (&["run", "-d", "base", "-w", "gups", "--plot", "x.png"], &["--plot", ".svg"]),
    (
        &["run", "-d", "base", "-w", "gups", "-o", "/no/such/dir/x"],
        &["/no/such/dir/x", "directory"],
    ),
    (&["run", "-d", "base", "-w", "gups", "-o", EXISTING], &[EXISTING, "--force"]),
    (&["compare", "-w", "gups"], &["--design"]),
    (&["compare", "-d", "base", "-d", "base", "-w", "gups"], &["`base` is given twice"]),
    (&["compare", "--from", "/no/such.json"], &["/no/such.json"]),
    (&["compare", "--from", "/etc/passwd"], &["/etc/passwd", "lab compare --json"]),
    (&["compare", "--from", "x.json", "-d", "base"], &["--from"]),
    (&["explain", "base"], &["<B>"]),
    (&["explain", "base", "linux-4.3"], &["--workload"]),
    (&["explain", "base", "x.json", "-w", "gups"], &["not one of each"]),
    (&["explain", "/no/a.json", "/no/b.json"], &["/no/a.json"]),
    (&["machines", "zen9"], &["zen9"]),
    (&["table", "quicksilver-frag1000"], &["quicksilver-frag1000"]),
    (
        &["table", "quicksilver-build", "quicksilver-frag1"],
        &["`quicksilver-frag1`", "did you mean"],
    ),
    (&["table", "quicksilver-build", "all"], &["`all`", "alone"]),
    (&["table", "list", "quicksilver-build"], &["`list`", "alone"]),
    (&["table", "quicksilver-build", "quicksilver-build"], &["is given twice"]),
    (&["sweep", "plan", "-o", "/no/such/dir"], &["--design"]),
    (&["sweep", "plan", "-o", "x", "-d", "base"], &["--workload"]),
    (&["sweep", "plan", "-o", "x", "/no/plan.toml"], &["/no/plan.toml"]),
    (&["sweep", "plan", "-o", "x", "/etc/passwd"], &["/etc/passwd:1"]),
    (&["sweep", "plan", "-o", "/etc/passwd/x", "-d", "base", "-w", "gups"], &["/etc/passwd/x"]),
    (
        &["sweep", "plan", "-o", "x", "-d", "base", "-w", "gups", "--seeds", "9-1"],
        &["`9-1`", "1-10"],
    ),
    (&["sweep", "run", "/no/such"], &["/no/such", "sweep plan"]),
    (&["sweep", "run", "/tmp", "--shard", "2/2"], &["`2/2`", "0 to N-1"]),
    (&["sweep", "status", "/no/such"], &["/no/such", "sweep plan"]),
    (&["sweep", "merge", "/no/such", "-o", "/tmp/superpage-lab-none"], &["/no/such"]),
    (&["sweep", "merge", "-o", "x"], &["<DIR>"]),
    (&["sweep", "merge", "x", "-o", "/tmp/"], &["/tmp/", "/tmp/sweep"]),
    (&["sweep", "merge", "x", "-o", "/tmp"], &["/tmp", "/tmp/sweep"]),
    (&["sweep", "merge", "x", "-o", "-"], &["two files"]),
    (&["sweep", "plan", "-o", "-", "-d", "base", "-w", "gups"], &["a directory"]),
    (
        &["sweep", "plan", "-o", "x", "-d", "base", "-w", "gups", "--memory", "1K"],
        &["1 KiB", "16 MiB to"],
    ),
    (
        &["sweep", "plan", "-o", "x", "-d", "base", "-w", "gups", "--memory=1G", "--memory=1024M"],
        &["`1 GiB` is given twice"],
    ),
    (&["sweep", "run", "/etc/passwd"], &["/etc/passwd", "a sweep's directory"]),
    (&["sweep", "run", "x", "--jobs", "x"], &["--jobs", "not a whole number"]),
    (&["sweep", "status", "x", "--shards", "0"], &["0 is not 1 to 100000"]),
    (&["run", "-d", "base", "-w", ""], &["no workload", "gups:size=1G"]),
    (&["run", "-d", "base", "-w", "gups:"], &["`gups:`", "an option is empty"]),
    (&["run", "-d", "base", "-w", "gups:size="], &["size has no value"]),
    (&["run", "-d", "base", "-w", "gups:size=1G,size=2G"], &["size is given twice"]),
    (&["run", "-d", "base", "-w", "gups:weight=x"], &["weight=x", "invalid count"]),
    (&["run", "-d", "base", "-w", "gups:seed=3"], &["no option `seed`", "--seed"]),
    (&["run", "-d", "base", "-w", "gups", "--seed", "x"], &["--seed", "a whole number from 0"]),
    (&["run", "-d", "base", "-w", "gups", "--seed", "-1"], &["`-1`", "below 0"]),
    (&["run", "-d", "base", "-w", "gups", "--nodes", "0"], &["--nodes 0", "1 to 64"]),
    (&["run", "-d", "base", "-w", "gups", "--nodes", "two"], &["`two`", "8G,8G"]),
    (
        &["run", "-d", "base", "-w", "gups", "--nodes", "2,3"],
        &["--nodes 2 B", "a multiple of 4 MiB"],
    ),
    (
        &["run", "-d", "base", "-w", "gups", "--nodes", "8G,8G", "--memory", "32G"],
        &["--nodes 8GiB,8GiB", "together 16 GiB", "--memory is 32 GiB"],
    ),
    (&["run", "-d", "base", "-w", "gups", "--movable", "3M"], &["--movable 3 MiB", "4 MiB"]),
    (
        &["compare", "-d", "base", "-w", "gups", "--movable", "32G"],
        &["--movable 32 GiB", "4 MiB to 29.5 GiB"],
    ),
    (
        &["run", "-d", "base", "-w", "gups", "--movable", "1G", "-f", "from-machine"],
        &["--movable 1 GiB", "leave --movable away"],
    ),
    (
        &[
            "sweep", "plan", "-o", "x", "-d", "base", "-w", "gups", "--memory", "64M", "--nodes",
            "32",
        ],
        &["--nodes 32", "each needs 8 MiB"],
    ),
    (
        &[
            "sweep",
            "plan",
            "-o",
            "x",
            "-d",
            "base",
            "-w",
            "gups",
            "--movable",
            "1G",
            "--movable",
            "1G",
        ],
        &["`1 GiB` is given twice"],
    ),
    (&["run", "-d", "base", "-w", "gups", "--swap", "1T"], &["--swap 1 TiB", "512 GiB"]),
    (&["run", "-d", "base", "-w", "gups", "-f", "from-machine-1"], &["--fragmentation FILE.json"]),
    (&["run", "-d", "base", "-w", "gups", "-f", "/no/such.json"], &["/no/such.json"]),
    (&["run", "-d", "hawkeye-g", "-w", "gups", "--no-utilisation"], &["never touched"]),
    (&["run", "-d", "base", "-w", "gups", "-m", "./no.toml"], &["./no.toml", "machine's file"]),
    (&["run", "-d", "base", "-w", "gups", "--dry-run", "--json"], &["--dry-run", "--json"]),
    (&["workloads", "gubs"], &["did you mean `gups`"]),
    (&["validate", "-w", "gups"], &["--design"]),
    (&["validate", "-d", "base", "-w", "gups"], &["base", "always run"]),
    (&["validate", "-d", "linux-6", "-w", "gubs"], &["`gubs`", "did you mean `gups`"]),
    (
        &["validate", "-d", "linux-6", "-w", "requests:size=1G"],
        &["requests", "not simulated", "gups"],
    ),
    (
        &["validate", "-d", "linux-6", "-w", "redis-cold"],
        &["redis-cold", "not run live", "pagerank"],
    ),
    (
        &["validate", "-d", "linux-6", "-w", "gups", "-w", "gups:size=1G"],
        &["gups:size=1GiB", "twice"],
    ),
    (
        &["validate", "-d", "linux-6", "-w", "gups:size=64M", "-m", "zen4", "-f", "ingens-severe"],
        &["--fragmentation ingens-severe", "frag-L or pinned-L"],
    ),
    (
        &["validate", "-d", "hawkeye-g", "-w", "gups:size=64M", "-m", "zen4"],
        &["hawkeye-g", "cannot be run", "superpage lab run"],
    ),
    (&["validate", "--from", "/no/such.json"], &["/no/such.json", "lab validate --json"]),
    (&["validate", "--from", "x.json", "--runs", "4"], &["--from", "--runs"]),
];

#[test]
fn bad_input_is_one_line_that_says_what_would_be_right() {
    std::fs::write(EXISTING, "mine\n").unwrap();
    for (arguments, parts) in CASES {
        let output = lab(arguments);
        let line = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {line}");
        assert_eq!(line.trim_end().lines().count(), 1, "{arguments:?}: {line}");
        assert!(line.starts_with("superpage: ") && stdout(&output).is_empty(), "{arguments:?}");
        for part in *parts {
            assert!(line.contains(part), "{arguments:?} lacks {part}: {line}");
        }
    }
    assert_eq!(std::fs::read_to_string(EXISTING).unwrap(), "mine\n");
}

#[test]
fn foreign_and_damaged_results_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = path(&directory, "x.json");
    for (text, part) in [
        (r#"{"schema":"superpage.lab.run/9"}"#, "superpage.lab.run/9"),
        (r#"{"schema":"superpage.lab.compare/1","reports":[{}]}"#, "missing field"),
        (r#"{"schema":"superpage.lab.compare/1","reports":[]}"#, "holds 0 runs"),
        ("{", "EOF"),
    ] {
        fs::write(&file, text).unwrap();
        let output = lab(&["explain", &file, &file]);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(stderr(&output).contains(part), "{text}: {}", stderr(&output));
    }
}

#[test]
fn figures_that_cannot_be_are_refused_before_anything_is_printed() {
    let directory = tempfile::tempdir().unwrap();
    let (file, page) = (path(&directory, "v.json"), path(&directory, "v.html"));
    let old = format!("{}/tests/documents/0.1.0/validate-1.json", env!("CARGO_MANIFEST_DIR"));
    let mut document: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(old).unwrap()).unwrap();
    document["workloads"][0]["designs"][1]["live"]["seconds"] = (-1).into();
    fs::write(&file, document.to_string()).unwrap();
    let output = lab(&["validate", "--from", &file, "--fail-if", "off", "--plot", &page]);
    let line = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{line}");
    let why = "workloads[0].designs[1].live.seconds: -1: expected more than 0, up to 1e11 seconds";
    assert!(line.starts_with(&format!("superpage: {file}: {why}")), "{line}");
    assert!(line.trim_end().ends_with("; give a file that `lab validate --json` wrote"), "{line}");
    assert_eq!((line.lines().count(), stdout(&output)), (1, String::new()));
    assert!(!Path::new(&page).exists());
}

#[test]
fn sizes_that_are_not_simulated_are_told_by_file_line_and_key() {
    let directory = tempfile::tempdir().unwrap();
    let file = path(&directory, "huge.toml");
    fs::write(&file, "name = \"huge\"\n\n[allocation]\nsizes = [\"2M\", \"1G\", \"2G\"]\n")
        .unwrap();
    let says = "allocation.sizes: 1G and 2G: not simulated together";
    for command in ["run", "compare"] {
        let output = lab(&with(&[command, "-d", &file]));
        assert_eq!(output.status.code(), Some(2));
        let told = stderr(&output);
        assert!(told.contains(&format!("{file}:4: ")) && told.contains(says), "{told}");
    }
}

#[test]
fn the_model_of_faults_refuses_what_it_does_not_weigh() {
    for (design, says) in
        [("cbmm", "allocation.when: the model"), ("trident", "allocation.sizes: 1G: not")]
    {
        let output = lab(&["faults", "--design", design, "--quiet"]);
        assert_eq!(output.status.code(), Some(2));
        let told = stderr(&output);
        assert!(told.contains(&format!("designs/{design}.toml:")) && told.contains(says), "{told}");
    }
}
