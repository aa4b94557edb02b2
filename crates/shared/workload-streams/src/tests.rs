//! Tests that every workload's stream is well-formed, matches its description, and is
//! deterministic.

use proptest::prelude::*;
use trace::Block;

use super::check::check;
use super::{Description, Given, Setup, catalog};

/// Every workload, in sizes that are small enough for the naive checker.
fn small() -> impl Strategy<Value = Setup> {
    let names = catalog().map(|entry| entry.name).collect::<Vec<_>>();
    (prop::sample::select(names), any::<u64>(), 1u32..5, 1u64..24_000, 0u32..100).prop_map(
        |(name, seed, threads, kib, first_region)| {
            let mut setup = name.parse::<Setup>().unwrap();
            let has = |option| setup.entry().options.contains(&option);
            let (sized, counted, threaded, repeated, weighted) =
                (has("size"), has("operations"), has("threads"), has("iterations"), has("weight"));
            let size = units::ByteSize::kib(kib.max(u64::from(threads) * 64));
            // For `build`, an operation is a process.
            let operations = if name == "build" { 25 } else { 20_000 };
            setup.size = sized.then_some(size);
            setup.operations = counted.then_some(operations);
            setup.threads = threaded.then_some(threads as u16);
            setup.iterations = repeated.then_some(2);
            setup.weight = weighted.then_some(threads);
            setup.seed = seed;
            setup.first_region = first_region;
            setup
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_stream_is_well_formed_and_as_described(setup in small()) {
        let (description, mut stream) = setup.build().unwrap();
        let found = check(&mut *stream);
        prop_assert_eq!(&found.phases, &description.phases);
        // The description of Redis is approximate: it counts one more value place, and not the second dictionary during
        // rehashing (`Store::reach`).
        let slack = if setup.name().starts_with("redis") { (40, 3) } else { (0, 0) };
        let near = |a: u64, b: u64, slack| a.abs_diff(b) <= slack;
        let (pages, regions) = (description.footprint_pages, description.superpages);
        prop_assert!(near(found.peak_touched, pages, slack.0), "{found:?} {description:?}");
        prop_assert!(near(found.peak_regions, regions, slack.1), "{found:?} {description:?}");
        // For progress reports an approximate count suffices.
        if let Some(records) = description.records {
            let slack = found.records / 2 + 2000;
            prop_assert!(near(found.records, records, slack), "{records}, not {}: {setup:?}", found.records);
        }
        prop_assert!(found.regions <= setup.first_region + description.regions, "{:?}", setup);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_stream_is_the_same_each_time(setup in small()) {
        let (mut one, mut two) = (setup.build().unwrap().1, setup.build().unwrap().1);
        let (mut a, mut b) = (Block::default(), Block::default());
        loop {
            let more = (one.next(&mut a).unwrap(), two.next(&mut b).unwrap());
            prop_assert_eq!(more.0, more.1);
            prop_assert_eq!(&a, &b);
            if !more.0 {
                break;
            }
        }
    }
}

/// Passing a listed default explicitly gives the same stream.
#[test]
fn defaults_are_as_they_are_listed() {
    for entry in catalog() {
        let parameters = entry.parameters();
        assert_eq!(parameters.len(), entry.options.len(), "{}", entry.name);
        // Small runs, except where `size` itself is tested; a graph of the default size takes too long.
        let small = if entry.options.contains(&"size") { "size=8M" } else { "operations=50" };
        for parameter in parameters {
            let Given::Number(number) = parameter.default else { continue };
            let with = match (parameter.name, entry.name) {
                ("size", "pagerank") => continue,
                ("size", _) | (_, "build") => format!("{}={number}", parameter.name),
                (name, _) => format!("{small},{name}={number}"),
            };
            let without = match with.split_once(',') {
                Some((small, _)) => format!("{}:{small}", entry.name),
                None => entry.name.to_string(),
            };
            let described = |spec: &str| {
                let (description, mut stream) = spec.parse::<Setup>().unwrap().build().unwrap();
                let mut first = Block::default();
                stream.next(&mut first).unwrap();
                (description, first)
            };
            let spec = format!("{}:{with}", entry.name);
            assert_eq!(described(&spec), described(&without), "{spec}");
        }
    }
}

#[test]
fn a_graph_is_described_without_being_built() {
    for spec in ["pagerank:size=4M", "pagerank:size=9M,graph=uniform,iterations=2,threads=3"] {
        let setup = spec.parse::<Setup>().unwrap();
        let (built, _) = setup.build().unwrap();
        let described = setup.describe().unwrap();
        let little = built.footprint_pages / 8 + 1;
        for (most, is) in [
            (described.footprint_pages, built.footprint_pages),
            (described.superpages, built.superpages),
        ] {
            assert!((is..=is + little).contains(&most), "{spec}: {most}, not {is}");
        }
        let Description { footprint_pages, superpages, figure, records, .. } = built;
        let described = Description { footprint_pages, superpages, figure, records, ..described };
        assert_eq!(described, built);
    }
}

#[test]
fn a_run_that_is_both_says_all_that_differs_by_default() {
    let both = |spec: &str| spec.parse::<Setup>().unwrap().both();
    for (given, specification) in [
        ("gups:size=1G", "gups:size=1GiB,operations=33554432,weight=1"),
        ("gups:size=64M,weight=4", "gups:size=64MiB,operations=8388608,weight=4"),
        ("chase:threads=2", "chase:size=1GiB,threads=2"),
        ("touch:size=64M", "touch:size=64MiB,iterations=3,lines=1"),
        ("pagerank:size=64M,graph=uniform", "pagerank:size=64MiB,iterations=3,graph=uniform"),
        ("stream:iterations=2", "stream:size=1GiB,iterations=2"),
    ] {
        let first = both(given).unwrap();
        assert_eq!(first.specification, specification);
        assert_eq!(both(specification), Some(first));
    }
    let touch = both("touch:iterations=5,lines=2").unwrap().settings.options;
    assert_eq!((touch.repeat, touch.lines, touch.iterations), (Some(5), Some(2), None));
    assert_eq!(both("gups:operations=9").unwrap().settings.options.operations, Some(9));
    // A model has no live kernel.
    assert_eq!(both("redis-cold"), None);
}

#[test]
fn specifications_are_read_and_refused() {
    let setup = "gups:size=8G,operations=4G,weight=64".parse::<Setup>().unwrap();
    assert_eq!(setup.size.unwrap().bytes(), 8 << 30);
    assert_eq!((setup.operations, setup.weight), (Some(4 << 30), Some(64)));
    let (description, _) = setup.build().unwrap();
    assert_eq!((description.superpages, description.footprint_pages), (4096, 4096 * 512));
    let error = |text: &str| text.parse::<Setup>().unwrap_err().to_string();
    assert!(error("gusp").contains("expected one of gups"), "{}", error("gusp"));
    assert_eq!(
        error("gups:lines=3"),
        "gups: no option `lines`; it takes size, operations, threads, weight"
    );
    assert_eq!(error("gups:weight=0"), "gups: weight=0: must be 1 to 1048576");
    assert!(error("gups:weight=x").contains("invalid count"));
    assert!(error("gups:size=big").contains("invalid size"));
    assert!(error("gups:seed=7").contains("--seed"));
    for (spec, what) in [
        ("", "no workload"),
        ("gups:", "an option is empty"),
        ("gups:size=1G,,weight=2", "an option is empty"),
        ("gups:size=", "size has no value"),
        ("gups:size", "size has no value"),
        ("gups:size=1G,size=2G", "size is given twice"),
    ] {
        assert!(error(spec).contains(what), "{spec}: {}", error(spec));
    }
    let large = "gups:size=9T".parse::<Setup>().unwrap().build().err().unwrap().to_string();
    assert!(large.contains("choose a smaller size"), "{large}");
}
