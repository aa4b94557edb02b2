//! `superpage lab` as a command: what it prints, its files, its exit codes.

mod clusters;
mod common;
mod completions;
mod damage;
mod documents;
mod faults;
mod profile;
mod refusals;
mod sweep;
mod table;
mod validate;

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use common::{lab, stderr, stdout, superpage_lab};
use serde_json::Value;
use sweep::merged;
use trace::import::{self, Format, Import, Input};

/// An experiment that takes some milliseconds.
const SMALL: [&str; 4] = ["--workload", "gups:size=8M,operations=1K", "--memory", "256M"];

fn fine(arguments: &[&str]) -> String {
    let output = lab(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&fine(arguments)).expect("JSON")
}

fn with<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [arguments, &SMALL].concat()
}

fn path(directory: &tempfile::TempDir, name: &str) -> String {
    directory.path().join(name).display().to_string()
}

#[test]
fn a_run_is_a_table_or_a_document_and_the_same_each_time() {
    let text = fine(&with(&["run", "-d", "sync-64"]));
    assert!(
        text.starts_with("quicksilver-sync-64: gups:size=8M,operations=1K on e3-1245v6, 256 MiB")
    );
    assert!(text.contains("superpages") && text.contains("walk-base"), "{text}");
    // For a design with a table that only `lab faults` simulates, the output says that the table has no effect.
    let ignored = "[fault] table has no effect";
    assert!(text.contains(ignored) && !fine(&with(&["run", "-d", "base"])).contains(ignored));
    let first = json(&with(&["run", "-d", "sync-64", "--json"]));
    assert_eq!(first["schema"], "superpage.lab.run/1");
    assert_eq!(first["cell"]["design"], "quicksilver-sync-64");
    assert_eq!(first, json(&with(&["run", "-d", "sync-64", "--json"])));
}

#[test]
fn a_comparison_redraws_from_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = path(&directory, "c.json");
    let designs = ["compare", "-d", "base", "-d", "linux-4.3", "-d", "ingens"];
    let text = fine(&with(&designs));
    assert!(text.contains("vs base") && text.contains("linux-4.3"), "{text}");
    assert_eq!(fine(&with(&[&designs[..], &["--json", "-o", &file]].concat())), "");
    assert_eq!(fine(&["compare", "--from", &file]), text);
    let again = json(&["compare", "--from", &file, "--json"]);
    assert_eq!(again["schema"], "superpage.lab.compare/1");
    assert_eq!(again["figures"].as_array().unwrap().len(), 3);
    assert_eq!(again, serde_json::from_str::<Value>(&fs::read_to_string(&file).unwrap()).unwrap());
}

#[test]
fn a_design_in_one_pass_with_others_reports_as_alone() {
    let alone = json(&with(&["run", "-d", "linux-4.3", "--json"]));
    let others =
        json(&with(&["compare", "-d", "base", "-d", "linux-4.3", "-d", "freebsd", "--json"]));
    assert_eq!(others["reports"][1], alone);
}

#[test]
fn explains_designs_and_results_alike() {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = (path(&directory, "a.json"), path(&directory, "b.json"));
    let words = fine(&with(&["explain", "base", "linux-4.3"]));
    assert!(words.contains("times as fast as base"), "{words}");
    fine(&with(&["run", "-d", "base", "--json", "-o", &a]));
    fine(&with(&["run", "-d", "linux-4.3", "--json", "-o", &b]));
    assert_eq!(fine(&["explain", &a, &b]), words);
    let document = json(&["explain", &a, &b, "--json"]);
    assert_eq!(document["schema"], "superpage.lab.explain/1");
    assert!(document["speedup"].as_f64().unwrap() > 1.0);
    let compared = fine(&with(&["compare", "-d", "base", "-d", "linux-4.3", "--explain"]));
    assert!(compared.contains(words.trim_end()), "{compared}");
}

#[test]
fn a_machine_that_is_too_small_is_an_outcome() {
    let text = fine(&["run", "-d", "base", "-w", "gups:size=64M", "--memory", "32M"]);
    assert!(text.contains("memory ran out"), "{text}");
    let report = json(&["run", "-d", "base", "-w", "gups:size=64M", "--memory", "32M", "--json"]);
    assert_eq!(report["end"]["how"], "out-of-memory");
    // The program's memory was at its peak when memory ran out, and no further page was touched.
    let counters = &report["counters"];
    assert_eq!(report["end"]["resident_pages"], counters["resident_pages"]);
    assert_eq!(counters["touched_pages"], counters["resident_pages"]);
    assert_eq!(report["kernel_bytes"], (32 << 20) / 64 * 5);
    assert!(text.contains("32 MiB (2.5 MiB of it the kernel's)"), "{text}");
}

#[test]
fn an_end_before_the_end_is_told_also_where_nobody_reads_the_output() {
    let directory = tempfile::tempdir().unwrap();
    let file = path(&directory, "x.json");
    let short = ["-w", "gups:size=64M", "--memory", "32M"];
    for how in [&["--json"][..], &["--json", "-o", &file], &["-o", &file, "--force"]] {
        let designs = ["compare", "-d", "base", "-d", "linux-4.3"];
        let output = lab(&[&designs[..], &short, how].concat());
        assert_eq!(output.status.code(), Some(0));
        let said = stderr(&output);
        assert_eq!(said.lines().count(), 1, "{how:?}: {said}");
        assert!(said.contains("base was killed: memory ran out with"), "{said}");
        assert!(said.contains("; linux-4.3 was killed"), "{said}");
    }
    // The table on the terminal reports this.
    let output = lab(&[&["run", "-d", "base"][..], &short].concat());
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_killed_run_is_marked_at_its_coverage_and_told_what_it_lacks() {
    let compare = ["compare", "-d", "linux-4.3", "-w", "gups:size=64M", "--memory"];
    let row = |text: &str| {
        text.lines().find(|line| line.trim_start().starts_with("linux-4.3 ")).unwrap().to_string()
    };
    let (killed, whole) =
        (fine(&[&compare[..], &["32M"]].concat()), fine(&[&compare[..], &["1G"]].concat()));
    assert!(row(&killed).contains(" %*"), "{killed}");
    assert!(killed.contains("more --memory, or --swap"), "{killed}");
    assert!(!whole.contains('*') && !whole.contains("--swap"), "{whole}");
}

#[test]
fn swap_holds_as_much_as_it_was_given() {
    let run = |swap: &str| {
        let short = ["-w", "touch:size=48M,iterations=1", "--memory", "32M", "--swap", swap];
        json(&[&["run", "-d", "linux-4.3", "--json"][..], &short].concat())
    };
    let (enough, little) = (run("64M"), run("1M"));
    assert_eq!(enough["end"]["how"], "done");
    assert_eq!(enough["cell"]["swap_bytes"], 64 << 20);
    assert_eq!(little["end"]["how"], "out-of-memory");
}

#[test]
fn memory_is_divided_into_nodes_and_a_partition() {
    let pool = ["run", "-d", "hugetlb", "-w", "gups:size=64M,operations=1K", "-f", "pinned-100"];
    let whole = fine(&[&pool[..], &["--memory", "256M"]].concat());
    assert!(whole.contains("its pool was 32 superpages short"), "{whole}");
    let same = ["--memory", "256M", "--nodes", "1", "--movable", "0"];
    assert_eq!(fine(&[&pool[..], &same].concat()), whole);

    // Sizes of nodes are sizes of memory, so `--memory` need not be given.
    let divided = ["--nodes", "160M,96M", "--movable", "128M"];
    let text = fine(&[&pool[..], &divided].concat());
    assert!(text.contains("nodes of 160 MiB, 96 MiB, 128 MiB for movable pages only"), "{text}");
    assert!(text.contains("32 of a whole superpage"), "{text}");
    let report = json(&[&pool[..], &divided, &["--json"]].concat());
    let cell = &report["cell"];
    assert_eq!(cell["memory_bytes"], 256 << 20);
    assert_eq!(cell["nodes_bytes"], serde_json::json!([160 << 20, 96 << 20]));
    assert_eq!(cell["movable_bytes"], 128 << 20);
    let parts = report["memory_parts"].as_array().unwrap();
    let of = |name: &str| parts.iter().map(|part| part[name].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(of("node"), [0, 0, 1, 1]);
    assert_eq!(of("pages"), [24576, 16384, 8192, 16384]);
    assert_eq!(of("pool_pages"), [0, 16384, 0, 0], "node 0, where movable pages only are");
    assert_eq!(of("free_superpages_at_start"), [0, 32, 0, 32]);
    let unmovable = of("unmovable_pages");
    assert!(unmovable[0] > 0 && unmovable[2] > 0 && unmovable[1] + unmovable[3] == 0);

    let designs = ["compare", "-d", "base", "-d", "hugetlb", "--nodes", "2"];
    assert!(fine(&with(&designs)).contains(" hugetlb  node 1 "), "a row for each design and node");
}

#[test]
fn pages_that_were_only_read_are_touched_and_not_resident() {
    let directory = tempfile::tempdir().unwrap();
    let (text, trace) = (path(&directory, "a.txt"), path(&directory, "a.spt"));
    let line =
        |page: u64| format!("{} {:#x}\n", if page < 3 { 'W' } else { 'R' }, (page + 16) << 12);
    fs::write(&text, (0..40).map(line).collect::<String>()).unwrap();
    let import = Import { scratch: directory.path().into(), ..Import::new(Format::Text, "a") };
    let input = Input::open(Path::new(&text), Format::Text).unwrap();
    import::import(&import, input, Path::new(&trace), &mut |_| ControlFlow::Continue(())).unwrap();
    let report = json(&["run", "-d", "linux-4.3", "-w", &trace, "--memory", "64M", "--json"]);
    assert_eq!(report["counters"]["resident_pages"], 3);
    assert_eq!(report["counters"]["touched_pages"], 40);
    let uncounted = ["--memory", "64M", "--no-utilisation", "--json"];
    let report = json(&[&["run", "-d", "linux-4.3", "-w", &trace][..], &uncounted].concat());
    assert_eq!(report["counters"]["touched_pages"], Value::Null);
    // The trace's 4 KiB pages would be parts of the kernel's 64 KiB pages.
    let refused = lab(&["run", "-d", "base", "-w", &trace, "-m", "ppc970-64k"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("ppc970-64k: traces are not simulated"));
}

/// A report keeps the free lists. A run with the kept lists gives the same report.
#[test]
fn this_machines_free_lists_are_kept_and_used_again() {
    let lists = fs::read_to_string("/proc/buddyinfo");
    testkit::require!(lists.is_ok(), "this kernel shows no free lists: {lists:?}");
    let directory = tempfile::tempdir().unwrap();
    let file = path(&directory, "r.json");
    let first = json(&with(&["run", "-d", "base", "-f", "from-machine", "--json"]));
    let name = first["cell"]["fragmentation"].as_str().unwrap();
    assert!(name.starts_with("from-machine-"), "{name}");
    assert!(first["cell"]["free_lists"]["buddyinfo"].as_str().unwrap().contains(", zone "));
    fs::write(&file, first.to_string()).unwrap();
    assert_eq!(json(&with(&["run", "-d", "base", "-f", &file, "--json"])), first);

    // A plan keeps the free lists too. A plan of other free lists gives them another name.
    let plan = |place: &str, lists: &str| {
        let place = path(&directory, place);
        fine(&with(&["sweep", "plan", "-o", &place, "-d", "base", "-f", lists]));
        fs::read_to_string(Path::new(&place).join("plan.json")).unwrap()
    };
    let before = plan("a", &file);
    assert!(before.contains("buddyinfo") && before.contains(name), "{before}");
    let mut other = first.clone();
    other["cell"]["free_lists"]["frames"] = 123_456.into();
    fs::write(&file, other.to_string()).unwrap();
    assert!(!plan("b", &file).contains(name));
    let sweep = path(&directory, "a");
    fine(&["sweep", "run", &sweep]);
    let rows = merged(&[&sweep], &directory, "m").1;
    let rows: Value = serde_json::from_slice(&rows).unwrap();
    assert_eq!(rows["cells"][0]["report"], first);
}

#[test]
fn different_programs_are_not_explained_by_their_designs() {
    let directory = tempfile::tempdir().unwrap();
    let (a, b, c) =
        (path(&directory, "a.json"), path(&directory, "b.json"), path(&directory, "c.json"));
    fine(&with(&["run", "-d", "base", "--json", "-o", &a]));
    let other = ["-w", "gups:size=4M,operations=1K", "--memory", "256M", "--json", "-o", &b];
    fine(&[&["run", "-d", "linux-4.3"][..], &other].concat());
    fine(&with(&["run", "-d", "base", "-m", "haswell", "--json", "-o", &c]));
    for (other, what) in [(&b, "workload"), (&c, "machine")] {
        let output = lab(&["explain", &a, other]);
        assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()));
        assert!(stderr(&output).contains(&format!("of different {what}s")), "{}", stderr(&output));
    }
}

#[test]
fn a_dash_is_standard_output() {
    let directory = tempfile::tempdir().unwrap();
    let run = with(&["run", "-d", "base", "--json", "-o", "-"]);
    let output = superpage_lab(&run).current_dir(&directory).output().unwrap();
    assert_eq!(stdout(&output), fine(&with(&["run", "-d", "base", "--json"])));
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn a_file_with_a_presets_name_is_not_taken_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = path(&directory, "linux-6.toml");
    fs::write(&file, design::designs::preset("linux-6").unwrap().text).unwrap();
    let text = fine(&with(&["compare", "-d", "linux-6", "-d", &file]));
    assert!(text.contains(&format!("linux-6 ({file})")), "{text}");
}

#[test]
fn a_bound_is_explained_only_where_there_is_nothing_else() {
    let with_ideal = ["compare", "-d", "ideal", "-d", "base", "-d", "ingens", "-d", "linux-4.3"];
    let text = fine(&with(&[&with_ideal[..], &["--explain"]].concat()));
    let why = text.split("touched; daemons").nth(1).unwrap();
    assert!(!why.contains("ideal"), "{why}");
    assert!(why.contains("as fast as base") && why.contains("as fast as ingens"), "{why}");
    assert!(text.contains("ideal: a bound"), "{text}");
    let text = fine(&with(&["compare", "-d", "base", "-d", "ideal", "--explain"]));
    assert!(text.contains("ideal was"), "{text}");
}

#[test]
fn workloads_are_listed_with_their_defaults() {
    let all = fine(&["workloads"]);
    assert!(all.contains("size=8GiB,operations=4G,threads=1,weight=64"), "{all}");
    let one = fine(&["workloads", "growing-heap"]);
    assert!(one.contains("128 KiB") && one.contains("bytes"), "{one}");
    let document = json(&["workloads", "chase", "--json"]);
    let chase = &document["workloads"][0];
    assert_eq!(document["workloads"].as_array().unwrap().len(), 1);
    assert_eq!(chase["parameters"][0]["default"], 1 << 30);
    assert_eq!(chase["parameters"][1]["default"], Value::Null);
    assert!(chase["parameters"][1]["default_follows"].as_str().unwrap().contains("size"));
}

#[test]
fn pictures_are_well_formed_and_nothing_is_written_over() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["p.svg", "p.html"] {
        let file = path(&directory, name);
        fine(&with(&["compare", "-d", "base", "-d", "linux-4.3", "--plot", &file]));
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains("</svg>") && text.contains("linux-4.3"), "{name}");
        let again = lab(&with(&["run", "-d", "base", "--plot", &file]));
        assert_eq!(again.status.code(), Some(2));
        assert!(stderr(&again).contains("--force"), "{}", stderr(&again));
        fine(&with(&["run", "-d", "base", "--plot", &file, "--force"]));
        assert!(!fs::read_to_string(&file).unwrap().contains("linux-4.3"));
    }
}

#[test]
fn lists_say_what_there_is() {
    assert!(fine(&["machines"]).contains("e3-1245v6"));
    assert!(fine(&["machines", "e3-1245v6"]).contains("mhz"));
    assert!(fine(&["workloads"]).contains("gups"));
    for (arguments, schema) in [
        (["machines", "--json"], "superpage.lab.machines/1"),
        (["workloads", "--json"], "superpage.lab.workloads/1"),
        (["table", "--json"], "superpage.lab.tables/1"),
    ] {
        assert_eq!(json(&arguments)["schema"], schema);
    }
}

#[test]
fn dry_runs_write_nothing() {
    let place = tempfile::tempdir().unwrap();
    let directory = path(&place, "s");
    let plan = ["sweep", "plan", "-o", &directory, "-d", "base", "-w", "touch:size=4M"];
    let planned = fine(&[&plan[..], &["--dry-run"]].concat());
    assert!(planned.contains("would plan 1 cells in 1 passes"), "{planned}");
    assert!(planned.contains("memory 32 GiB (2.5 GiB of it the kernel's)"), "{planned}");
    let run = fine(&with(&["run", "-d", "base", "--dry-run", "-o", &path(&place, "r")]));
    assert!(run.contains("20 MiB for its kernel, 236 MiB for the program"), "{run}");
    assert!(!place.path().join("r").exists());
    let default = fine(&["run", "-d", "base", "-w", "touch:size=4M", "--dry-run"]);
    assert!(default.contains("e3-1245v6, 32 GiB:"), "{default}");
    assert!(!Path::new(&directory).exists());
    fine(&plan);
    assert!(fine(&["sweep", "run", &directory, "--dry-run"]).contains("1 of them to run"));
    let merge = ["sweep", "merge", &directory, "-o", &path(&place, "m"), "--partial", "--dry-run"];
    assert!(fine(&merge).contains("would write 0 of 1 cells"));
    assert!(!place.path().join("m.json").exists());
}

#[test]
fn man_pages_and_completions_are_of_both_programs() {
    let directory = tempfile::tempdir().unwrap();
    fine(&["man", directory.path().to_str().unwrap()]);
    for (page, part) in
        [("superpage-lab-run.1", "fragmentation"), ("superpage-compare.1", "metric")]
    {
        let text = fs::read_to_string(directory.path().join(page)).unwrap();
        assert!(text.contains(part), "{page}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let text = fine(&["completions", shell]);
        assert!(text.contains("fragmentation") && text.contains("metric"), "{shell}");
    }
}
