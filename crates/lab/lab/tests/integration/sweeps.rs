//! Sweeps with a made-up simulation give the same bytes however they are split, stopped or damaged.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use mm_sim::{Cause, Nodes};
use proptest::prelude::*;
use superpage_lab::Requests;
use superpage_lab::sweep::{
    Ended, Group, Hash, NamedInput, PLAN_SCHEMA, Plan, Ran, Shard, Store, SweepError, merge, run,
};
use tempfile::TempDir;
use units::ByteSize;

fn input(name: &str, content: &str) -> NamedInput {
    NamedInput { name: name.to_string(), content: content.to_string() }
}

fn plan() -> Plan {
    let same = |names: &[&str]| names.iter().map(|name| input(name, name)).collect();
    Plan {
        schema: PLAN_SCHEMA.to_string(),
        designs: vec![
            input("base", "summary = \"x\"\n[allocation]\ntrigger = \"never\"\n"),
            input("linux", "[allocation]\ntrigger = \"first-fault\"\n"),
            input("ingens", "[allocation]\ntrigger = \"scan\"\n"),
        ],
        machines: vec![input("a", "mhz = 1000\n"), input("b", "mhz = 2000\n")],
        workloads: same(&["gups", "stream"]),
        fragmentations: same(&["none", "frag-50"]),
        memories: vec![ByteSize::gib(32)],
        nodes: vec![Nodes::default()],
        movables: vec![ByteSize(0)],
        seeds: vec![1, 2],
    }
}

/// Returns a report that depends on the cell only.
fn pass(group: &Group) -> Ended {
    let report = |member: &superpage_lab::sweep::Member| {
        let mut report = crate::common::report(&member.design.name, &[]);
        let number = u64::from_str_radix(&member.cell.to_string()[..12], 16).unwrap();
        report.ledger.charge(Cause::Work, number);
        report.wall_cycles = number;
        report.counters.faults = number % 1000;
        report.cell.machine = group.machine.name.clone();
        report.cell.workload = group.workload.name.clone();
        report.cell.fragmentation = group.fragmentation.name.clone();
        report.cell.seed = group.seed;
        report.timeline = crate::common::timeline(&[(0, 0), (number, 17)]);
        (report.counters.superpages, report.counters.resident_pages) = (17, 512_000);
        report.requests = number.is_multiple_of(2).then(|| Requests {
            count: number,
            mean: 1.0 / number as f64,
            p50: 1e-300,
            p95: 0.1 + 0.2,
            p99: 3.0,
            p999: 4.0,
            max: 1e17 / 3.0,
        });
        report
    };
    Ok(group.members.iter().map(report).collect())
}

fn planned(plan: &Plan) -> (TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::at(directory.path());
    store.write_plan(plan, false).unwrap();
    (directory, store)
}

fn run_shard(store: &Store, shard: &str, jobs: usize) -> Ran {
    let plan = store.plan().unwrap();
    run(store, &plan, shard.parse().unwrap(), jobs, pass, |_| ControlFlow::Continue(())).unwrap()
}

/// Returns the merged sweep as JSON, and as Parquet if that feature is built.
fn merged(stores: &[Store]) -> (String, Option<Vec<u8>>) {
    let merged = merge(stores, false).unwrap();
    assert!(merged.damaged.is_empty());
    assert_eq!(merged.parquet.is_some(), cfg!(feature = "parquet"));
    (merged.json, merged.parquet)
}

fn groups_of(directory: &Path) -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> =
        fs::read_dir(directory.join("groups")).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

fn whole() -> (String, Option<Vec<u8>>) {
    let (_directory, store) = planned(&plan());
    let ran = run_shard(&store, "0/1", 1);
    assert_eq!((ran.cells, ran.done, ran.present), (48, 48, 0));
    merged(&[store])
}

#[test]
fn any_threads_and_any_split_give_the_same_bytes() {
    let expected = whole();
    for jobs in [2, 8] {
        let (_directory, store) = planned(&plan());
        run_shard(&store, "0/1", jobs);
        assert_eq!(merged(&[store]), expected);
    }
    for shards in [2, 3, 5, 8, 40] {
        // Each shard has a separate directory, and the last shard runs first.
        let stores: Vec<(TempDir, Store)> = (0..shards).map(|_| planned(&plan())).collect();
        for (index, (_, store)) in stores.iter().enumerate().rev() {
            run_shard(store, &format!("{index}/{shards}"), 1 + index % 2);
        }
        let stores: Vec<Store> = stores.iter().map(|(dir, _)| Store::at(dir.path())).collect();
        assert_eq!(merged(&stores), expected);
        // All shards have one directory.
        let (_directory, store) = planned(&plan());
        for index in 0..shards {
            run_shard(&store, &format!("{index}/{shards}"), 2);
        }
        assert_eq!(run_shard(&store, "0/1", 2).done, 0);
        assert_eq!(merged(&[store]), expected);
    }
}

#[test]
fn shards_are_a_partition_and_differ_by_one_group_at_most() {
    let plan = plan();
    for of in [1, 2, 3, 7, 16, 20] {
        let parts: Vec<_> =
            (0..of).map(|index| Shard::new(index, of).unwrap().select(&plan.groups())).collect();
        let sizes = parts.iter().map(Vec::len);
        assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1);
        let mut keys: Vec<Hash> = parts.iter().flatten().map(|group| group.key).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 16);
    }
    for bad in ["", "1", "1/1", "0/0", "-1/2", "a/b", "0/1/2"] {
        assert!(bad.parse::<Shard>().is_err(), "{bad}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: testkit::cases(40) as u32, ..ProptestConfig::default() })]

    /// A file that was truncated or changed anywhere is detected, and its cells are run again.
    #[test]
    fn damage_is_found_and_mended(
        file in 0usize..16, at in 0.0f64..1.0, byte in any::<u8>(), cut in any::<bool>(),
    ) {
        let (directory, store) = planned(&plan());
        run_shard(&store, "0/1", 1);
        let expected = merged(&[Store::at(directory.path())]);
        let path = &groups_of(directory.path())[file];
        let mut bytes = fs::read(path).unwrap();
        let at = (at * bytes.len() as f64) as usize;
        if cut { bytes.truncate(at) } else { bytes[at] ^= byte | 1 }
        fs::write(path, &bytes).unwrap();
        let again = run_shard(&store, "0/1", 2);
        prop_assert!(again.done <= 3);
        // A changed byte outside of any value leaves the file equivalent to the original, which counts as undamaged.
        prop_assert_eq!(again.present + again.done, 48);
        let after = merge(&[store], false).unwrap();
        prop_assert_eq!((after.json, after.parquet), expected);
    }
}

#[test]
fn a_cut_line_is_told_with_its_place() {
    let (directory, store) = planned(&plan());
    run_shard(&store, "0/1", 1);
    let path = groups_of(directory.path())[3].clone();
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 10]).unwrap();
    let damaged = store.read().unwrap().damaged;
    assert_eq!((damaged.len(), damaged[0].line, &damaged[0].path), (1, 3, &path));
    let ran = run_shard(&store, "0/1", 1);
    assert_eq!((ran.done, ran.damaged.len()), (3, 1));
    assert_eq!(groups_of(directory.path()).len(), 16);
    assert!(store.read().unwrap().damaged.is_empty());
}

#[test]
fn what_a_killed_run_left_half_written_is_cleared_away() {
    let (directory, store) = planned(&plan());
    let half = directory.path().join("groups/x.jsonl.0-of-1.tmp");
    let of_another = directory.path().join("groups/x.jsonl.1-of-2.tmp");
    fs::write(&half, "{").unwrap();
    fs::write(&of_another, "{").unwrap();
    run_shard(&store, "0/1", 1);
    assert!(!half.exists() && of_another.exists());
    assert_eq!(merged(&[store]), whole());
}

#[test]
fn a_design_more_runs_that_design_only() {
    let (_directory, store) = planned(&plan());
    run_shard(&store, "0/1", 2);
    let mut more = plan();
    more.designs.insert(0, input("freebsd", "[allocation]\nform = \"reservation\"\n"));
    assert!(matches!(store.write_plan(&more, false), Err(SweepError::OtherPlan(_))));
    store.write_plan(&more, true).unwrap();
    let ran = run_shard(&store, "0/1", 2);
    assert_eq!((ran.present, ran.done), (48, 16));
    let (_fresh, other) = planned(&more);
    run_shard(&other, "0/1", 1);
    assert_eq!(merged(&[store]), merged(&[other]));
}

#[test]
fn hashes_follow_contents_not_words() {
    let cell = |plan: &Plan| {
        let groups = plan.groups();
        let group = groups.iter().find(|group| {
            let names = (&*group.machine.name, &*group.workload.name, &*group.fragmentation.name);
            names == ("a", "gups", "none") && group.seed == 1
        });
        let members = &group.unwrap().members;
        members.iter().find(|member| member.design.name == "base").unwrap().cell
    };
    let plan = plan();
    let first = cell(&plan);
    // (A test of `Hash` checks that the hash of equal words never changes.)
    let read: Plan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
    assert_eq!(cell(&read), first);

    let mut same = plan.clone();
    same.designs.reverse();
    same.designs[2].content =
        "# a comment\nsummary=\"other words\"\nallocation = { trigger = 'never' }".to_string();
    assert_eq!(cell(&same), first);

    for change in [
        (|plan: &mut Plan| plan.designs[0].content += "[fault]\n") as fn(&mut Plan),
        |plan| plan.machines[0].content = "mhz = 1001".to_string(),
        |plan| plan.workloads[0].content += "8G",
        |plan| plan.memories[0] = ByteSize::gib(64),
    ] {
        let mut other = plan.clone();
        change(&mut other);
        assert_ne!(cell(&other), first);
    }
}

#[test]
fn failures_and_panics_cost_the_others_nothing() {
    let (_directory, store) = planned(&plan());
    let plan = plan();
    let shaky = |group: &Group| match (&*group.machine.name, group.seed, &*group.workload.name) {
        ("a", 1, "gups") => Err("no such weather".to_string()),
        ("b", 2, "gups") => panic!("a bug (this panic is part of the test)"),
        ("b", 1, "gups") => pass(group).map(|mut reports| {
            reports.reverse();
            reports
        }),
        _ => pass(group),
    };
    let ran = run(&store, &plan, Shard::WHOLE, 2, shaky, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((ran.done, ran.failed.len()), (30, 6));
    let text = format!("{:?}", ran.failed);
    assert!(text.contains("gups on a, frag-50, 32 GiB, seed 1"), "{text}");
    assert!(text.contains("no such weather") && text.contains("asked for"), "{text}");
    let error = merge(&[Store::at(store.directory())], false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "18 of 48 cells are missing; run the remaining shards, or --partial to merge what there is"
    );
    assert_eq!(merge(&[Store::at(store.directory())], true).unwrap().rows, 30);
    assert_eq!(run_shard(&store, "0/1", 2).done, 18);
    assert_eq!(merged(&[store]), whole());
}

#[test]
fn stops_between_passes_and_goes_on_there() {
    let (_directory, store) = planned(&plan());
    let seen = AtomicUsize::new(0);
    let step = |_| match seen.fetch_add(1, Ordering::Relaxed) {
        4 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let ran = run(&store, &plan(), Shard::WHOLE, 1, pass, step).unwrap();
    assert!(ran.stopped);
    assert_eq!(ran.done, 15);
    let ran = run_shard(&store, "0/1", 1);
    assert_eq!((ran.present, ran.done, ran.stopped), (15, 33, false));
}

#[test]
fn one_writer_per_directory_and_shard() {
    let (_directory, store) = planned(&plan());
    let first = AtomicUsize::new(0);
    let nested = |group: &Group| {
        if first.fetch_add(1, Ordering::Relaxed) > 0 {
            return pass(group);
        }
        let again = run(&store, &plan(), Shard::WHOLE, 1, pass, |_| ControlFlow::Continue(()));
        assert!(matches!(again, Err(SweepError::Locked { .. })));
        // Another shard may run at the same time.
        let other = "1/2".parse().unwrap();
        run(&store, &plan(), other, 1, pass, |_| ControlFlow::Continue(())).unwrap();
        pass(group)
    };
    let ran = run(&store, &plan(), Shard::WHOLE, 1, nested, |_| ControlFlow::Continue(())).unwrap();
    assert!(ran.failed.is_empty(), "{:?}", ran.failed);
    assert_eq!(merged(&[store]), whole());
}

#[test]
fn directories_that_do_not_belong_together_are_refused() {
    let empty = tempfile::tempdir().unwrap();
    let nothing = Store::at(empty.path());
    assert!(nothing.plan().unwrap_err().to_string().contains("holds no plan"));
    fs::write(empty.path().join("plan.json"), "{}").unwrap();
    assert!(nothing.plan().unwrap_err().to_string().contains("missing field"));
    nothing.write_plan(&plan(), true).unwrap();

    let (_directory, store) = planned(&plan());
    let mut other = plan();
    other.seeds.push(3);
    let (_other, foreign) = planned(&other);
    let error = merge(&[store, foreign], true).unwrap_err().to_string();
    assert!(error.contains("different plans"), "{error}");

    // If one cell has two reports, something is wrong, so merging fails instead of choosing one.
    let (_a, a) = planned(&plan());
    let (_b, b) = planned(&plan());
    run_shard(&a, "0/1", 1);
    let lying = |group: &Group| {
        pass(group).map(|mut reports| {
            reports[0].counters.faults += 1;
            reports
        })
    };
    run(&b, &plan(), Shard::WHOLE, 1, lying, |_| ControlFlow::Continue(())).unwrap();
    let error = merge(&[a, b], false).unwrap_err();
    assert!(error.to_string().contains("two different reports"), "{error}");
}

#[cfg(feature = "parquet")]
#[test]
fn the_parquet_file_reads_back() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    let (_directory, store) = planned(&plan());
    run_shard(&store, "0/1", 1);
    let merged = merge(&[store], false).unwrap();
    let document: serde_json::Value = serde_json::from_str(&merged.json).unwrap();
    let cells = document["cells"].as_array().unwrap();
    let file = SerializedFileReader::new(bytes::Bytes::from(merged.parquet.unwrap())).unwrap();
    let columns = file.metadata().file_metadata().schema_descr();
    let at = |name: &str| {
        let found = (0..columns.num_columns()).find(|at| columns.column(*at).name() == name);
        found.unwrap_or_else(|| panic!("no column {name}"))
    };
    let (hash, faults, mean) = (at("hash"), at("faults"), at("request_mean_us"));
    let cycles = at("cycles_work");
    let [speedup, coverage, share] = ["speedup_over_base", "coverage", "translation_share"].map(at);
    let mut speedups = 0;
    let mut rows = 0;
    for (row, cell) in file.get_row_iter(None).unwrap().zip(cells) {
        let row = row.unwrap();
        assert_eq!(row.get_string(hash).unwrap(), cell["hash"].as_str().unwrap());
        let report = &cell["report"];
        assert_eq!(Some(row.get_ulong(faults).unwrap()), report["counters"]["faults"].as_u64());
        assert_eq!(Some(row.get_ulong(cycles).unwrap()), report["ledger"]["work"].as_u64());
        assert_eq!(row.get_double(mean).ok(), report["requests"]["mean"].as_f64());
        // The figures of the same report, as `lab compare` computes them.
        let read: superpage_lab::Report = serde_json::from_value(report.clone()).unwrap();
        let figures = superpage_lab::analysis::figures(&read, None);
        assert_eq!(row.get_double(coverage).ok(), figures.coverage);
        assert_eq!(row.get_double(share).ok(), figures.translation);
        if let Ok(speedup) = row.get_double(speedup) {
            speedups += 1;
            assert!(read.cell.design != "base" || speedup == 1.0, "{speedup}");
        }
        rows += 1;
    }
    assert_eq!((rows, merged.rows), (48, 48));
    let has_base = cells.iter().any(|cell| cell["report"]["cell"]["design"] == "base");
    assert_eq!(speedups > 0, has_base, "a speed-up only where the base was run");
}
