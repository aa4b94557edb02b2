//! `superpage lab sweep`: the result has the same bytes however the sweep is run, also if it was killed in between.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{fine, path};
use crate::common::{lab, stderr, stdout, superpage_lab};

/// A plan of 2 machines x 2 workloads x 2 seeds x 3 designs.
pub fn plan(directory: &Path) -> String {
    let file = directory.join("plan.toml");
    let text = "designs = [\"base\", \"linux-4.3\", \"sync-64\"]\nmachines = [\"e3-1245v6\", \"cascade-lake\"]\n\
                workloads = [\"gups:size=8M,operations=1K\", \"touch:size=4M\"]\nmemory = \"256M\"\nseeds = \"1-2\"\n";
    fs::write(&file, text).unwrap();
    file.display().to_string()
}

/// A merged sweep as Parquet (if that feature is built) and as JSON.
pub type Merged = (Option<Vec<u8>>, Vec<u8>);

/// Returns the files of a merged sweep.
pub fn files_of(name: &str) -> Merged {
    let read = |ending: &str| fs::read(format!("{name}.{ending}")).unwrap();
    (cfg!(feature = "parquet").then(|| read("parquet")), read("json"))
}

pub fn merged(directories: &[&str], place: &tempfile::TempDir, name: &str) -> Merged {
    let name = path(place, name);
    fine(&[&["sweep", "merge"], directories, &["-o", &name]].concat());
    files_of(&name)
}

#[test]
fn a_sweep_ends_in_the_same_bytes_however_it_is_run() {
    let place = tempfile::tempdir().unwrap();
    let plan = plan(place.path());
    let [one, all, split, other] = ["one", "all", "split", "other"].map(|name| path(&place, name));
    for directory in [&one, &all, &split, &other] {
        let said = fine(&["sweep", "plan", &plan, "-o", directory]);
        assert!(said.contains("24 cells in 8 passes"), "{said}");
    }
    fine(&["sweep", "run", &one, "--jobs", "1"]);
    fine(&["sweep", "run", &all, "--jobs", "8"]);
    fine(&["sweep", "run", &split, "--shard", "0/3", "--jobs", "2"]);
    fine(&["sweep", "run", &other, "--shard", "2/3"]);
    let status = lab(&["sweep", "status", &split, "--shards", "3"]);
    assert_eq!(status.status.code(), Some(1));
    assert!(stdout(&status).contains("0/3"), "{}", stdout(&status));
    fine(&["sweep", "run", &other, "--shard", "1/3"]);
    let expected = merged(&[&one], &place, "a");
    assert_eq!(merged(&[&all], &place, "b"), expected);
    assert_eq!(merged(&[&split, &other], &place, "c"), expected);
    let document: Value = serde_json::from_slice(&expected.1).unwrap();
    assert_eq!(document["schema"], "superpage.lab.sweep/1");
    assert_eq!(document["cells"].as_array().unwrap().len(), 24);

    // A truncated file is reported, and its cells are run again; the result does not show that.
    let files = fs::read_dir(Path::new(&one).join("groups")).unwrap();
    let file = files.map(|file| file.unwrap().path()).next().unwrap();
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let again = lab(&["sweep", "run", &one]);
    assert_eq!(again.status.code(), Some(0));
    assert!(stderr(&again).contains("run again"), "{}", stderr(&again));
    assert!(stdout(&again).contains("3 cells run, 21 there before"), "{}", stdout(&again));
    assert_eq!(merged(&[&one], &place, "d"), expected);
}

#[test]
fn root_writes_no_sweep_where_another_user_could() {
    testkit::require!(testkit::is_root(), "not root: directories of other users are not refused");
    let place = tempfile::tempdir().unwrap();
    let (plan, kept) = (plan(place.path()), path(&place, "kept"));
    fine(&["sweep", "plan", &plan, "-o", &kept]);
    std::os::unix::fs::chown(&kept, Some(65534), Some(65534)).unwrap();
    for words in [&["sweep", "plan", &plan, "--force", "-o", &kept][..], &["sweep", "run", &kept]] {
        let output = lab(words);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("it belongs to user 65534"), "{}", stderr(&output));
    }
    assert_eq!(fs::read_dir(Path::new(&kept).join("groups")).unwrap().count(), 0);
}

#[test]
fn a_sweep_covers_ways_to_divide_memory() {
    let place = tempfile::tempdir().unwrap();
    let (directory, file) = (path(&place, "s"), path(&place, "s.toml"));
    let text = "designs = \"base\"\nworkloads = \"gups:size=8M,operations=1K\"\nmemory = \"256M\"\n\
                nodes = [1, \"96M,160M\"]\nmovable = [\"0\", \"64M\"]\n";
    fs::write(&file, text).unwrap();
    let told = fine(&["sweep", "plan", &file, "-o", &directory]);
    assert!(told.contains("4 cells in 4 passes"), "{told}");
    assert!(
        told.contains("nodes 1 or 96MiB,160MiB, for movable pages only 0 B or 64 MiB"),
        "{told}"
    );
    fine(&["sweep", "run", &directory, "--jobs", "1"]);
    let (_, json) = merged(&[&directory], &place, "m");
    let merged: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let cells = merged["cells"].as_array().unwrap().iter().map(|row| &row["report"]["cell"]);
    let mut ways: Vec<(usize, u64)> = cells
        .map(|cell| {
            let nodes = cell["nodes_bytes"].as_array().map_or(1, Vec::len);
            (nodes, cell["movable_bytes"].as_u64().unwrap_or(0))
        })
        .collect();
    ways.sort_unstable();
    assert_eq!(ways, [(1, 0), (1, 64 << 20), (2, 0), (2, 64 << 20)]);
}

#[test]
fn a_sweep_that_was_killed_goes_on_and_leaves_nothing_half_done() {
    let place = tempfile::tempdir().unwrap();
    let directory = path(&place, "s");
    let seeds = "1-40";
    let workload = "gups:size=64M,operations=256K";
    let plan = ["sweep", "plan", "-o", &directory, "-d", "base", "-d", "linux-4.3", "-w", workload];
    fine(&[&plan[..], &["--memory", "512M", "--seeds", seeds]].concat());
    let mut child = superpage_lab(&["sweep", "run", &directory, "--jobs", "2"]).spawn().unwrap();
    let groups = Path::new(&directory).join("groups");
    let is_whole = |path: &Path| path.extension().is_some_and(|extension| extension == "jsonl");
    let whole = || {
        let files = fs::read_dir(&groups).into_iter().flatten().flatten();
        files.filter(|file| is_whole(&file.path())).count()
    };
    while whole() < 3 && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    let _ = child.kill();
    child.wait().unwrap();
    let status = lab(&["sweep", "status", &directory, "--json"]);
    let document: Value = serde_json::from_str(&stdout(&status)).unwrap();
    assert_eq!(document["damaged"].as_array().unwrap().len(), 0);
    let rest = fine(&["sweep", "run", &directory]);
    let (_, counts) = rest.split_once("shard 0/1: ").expect("what was run");
    let numbers: Vec<u64> = counts.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [run, before] = numbers[..] else { panic!("{rest}") };
    assert_eq!(run + before, 80, "{rest}");
    assert!(before >= 6, "three passes of two cells were there: {rest}");
    let leftovers = fs::read_dir(&groups).unwrap().filter(|file| {
        file.as_ref().unwrap().path().extension().is_some_and(|extension| extension == "tmp")
    });
    assert_eq!(leftovers.count(), 0);
    let first = merged(&[&directory], &place, "a");
    let fresh = path(&place, "t");
    let plan = ["sweep", "plan", "-o", &fresh, "-d", "base", "-d", "linux-4.3", "-w", workload];
    fine(&[&plan[..], &["--memory", "512M", "--seeds", seeds]].concat());
    fine(&["sweep", "run", &fresh, "--jobs", "1"]);
    assert_eq!(merged(&[&fresh], &place, "b"), first);
    // The sweep ended before the test could kill it.
    testkit::require!(run > 0, "the sweep ended before it was killed");
}
