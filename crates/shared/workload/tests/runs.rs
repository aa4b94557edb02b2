//! Every workload end to end on small memory: options, errors and reports.

use std::num::NonZeroUsize;

use superpage_workload::{
    Details, Graph, Options, Outcome, SCHEMA, Settings, Workload, WorkloadError,
};
use units::ByteSize;

fn settings(workload: Workload, threads: usize) -> Settings {
    let threads = NonZeroUsize::new(threads).unwrap();
    Settings { size: ByteSize::mib(1), threads, seed: 7, ..Settings::new(workload) }
}

#[test]
fn every_workload_runs_verified_and_its_line_reads_back() {
    for workload in Workload::ALL {
        for threads in [1, 2, 3] {
            let settings = settings(workload, threads);
            let outcome = workload.run(&settings).unwrap();
            assert!(outcome.verified && outcome.figure.value > 0.0, "{outcome:?}");
            assert_eq!(outcome.footprint_bytes, workload.footprint(&settings).bytes());
            assert!(outcome.footprint_bytes <= 1 << 20 && outcome.footprint_bytes > 900_000);
            let line = outcome.to_line();
            assert!(line.starts_with(&format!("{{\"schema\":\"{SCHEMA}\",\"workload\":")));
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Outcome>(&line).unwrap(), outcome);
        }
    }
}

#[test]
fn what_the_seed_decides_is_equal_in_every_run() {
    let hits = |seed| {
        let settings = Settings { seed, ..settings(Workload::Btree, 2) };
        match Workload::Btree.run(&settings).unwrap().details {
            Details::Lookup { hits, .. } => hits,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(hits(1), hits(1));
    assert_ne!(hits(1), hits(2));
}

#[test]
fn names_read_back_and_unknown_ones_list_the_known() {
    for workload in Workload::ALL {
        assert_eq!(workload.name().parse(), Ok(workload));
        assert!(!workload.summary().contains('\n'));
        assert_eq!(serde_json::to_string(&workload).unwrap(), format!("\"{workload}\""));
    }
    assert_eq!(
        "gup".parse::<Workload>().unwrap_err().to_string(),
        "unknown workload `gup`: expected one of gups, chase, stream, touch, pagerank, btree, hashmap, requests"
    );
}

#[test]
fn sizes_that_mean_nothing_or_do_not_fit_are_refused() {
    for workload in Workload::ALL {
        for (bytes, threads) in [(0, 1), (65_535, 1), (100_000, 2)] {
            let settings = Settings { size: ByteSize(bytes), ..settings(workload, threads) };
            let error = workload.check(&settings, None).unwrap_err();
            assert!(matches!(error, WorkloadError::TooSmall { .. }), "{error}");
            assert!(workload.run(&settings).is_err());
        }
        let settings = settings(workload, 1);
        let footprint = workload.footprint(&settings);
        assert!(workload.check(&settings, Some(footprint)).is_ok());
        let error = workload.check(&settings, Some(ByteSize(footprint.bytes() - 1))).unwrap_err();
        assert!(matches!(error, WorkloadError::TooLarge { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(workload.name()) && text.contains("--size") && !text.contains('\n'));
    }
}

#[test]
fn no_size_or_thread_count_panics_in_the_check() {
    for workload in Workload::ALL {
        for size in [64 << 10, 1 << 30, 1 << 45, 1 << 63, u64::MAX] {
            for threads in [1, 1 << 20, usize::MAX] {
                let settings = Settings { size: ByteSize(size), ..settings(workload, threads) };
                let _ = workload.check(&settings, Some(ByteSize::gib(1)));
            }
        }
        // More memory than any address space: the allocation fails, and nothing aborts.
        let settings = Settings { size: ByteSize(1 << 60), ..settings(workload, 1) };
        let error = workload.run(&settings).unwrap_err();
        assert!(matches!(error, WorkloadError::Allocation { .. }), "{error}");
    }
}

#[test]
fn options_of_other_workloads_and_wild_values_are_refused() {
    let base = Options::default();
    for (workload, options, ok) in [
        (Workload::Gups, Options { operations: Some(1), ..base.clone() }, true),
        (Workload::Gups, Options { operations: Some(0), ..base.clone() }, false),
        (Workload::Gups, Options { lines: Some(1), ..base.clone() }, false),
        (Workload::Chase, Options { offset: Some(ByteSize(0)), ..base.clone() }, false),
        (Workload::Stream, Options { iterations: Some(1), ..base.clone() }, false),
        (Workload::Stream, Options { iterations: Some(257), ..base.clone() }, false),
        (Workload::Stream, Options { iterations: Some(256), ..base.clone() }, true),
        (Workload::Stream, Options { offset: Some(ByteSize(4)), ..base.clone() }, false),
        (Workload::Stream, Options { offset: Some(ByteSize(0)), ..base.clone() }, true),
        (Workload::Stream, Options { offset: Some(ByteSize::mib(1)), ..base.clone() }, false),
        (Workload::Touch, Options { lines: Some(64), repeat: Some(2), ..base.clone() }, true),
        (Workload::Touch, Options { lines: Some(1 << 20), ..base.clone() }, false),
        (Workload::Touch, Options { repeat: Some(0), ..base.clone() }, false),
        (Workload::Touch, Options { burst: Some(ByteSize(1)), ..base.clone() }, false),
        (Workload::Touch, Options { gap: Some(60_001), ..base.clone() }, false),
        (Workload::Gups, Options { latency: true, ..base.clone() }, false),
        (Workload::Requests, Options { operations: Some(9), ..base.clone() }, true),
        (Workload::Requests, Options { smallest: Some(ByteSize(4)), ..base.clone() }, false),
        (Workload::Requests, Options { largest: Some(ByteSize::mib(1)), ..base.clone() }, false),
        (
            Workload::Requests,
            Options {
                smallest: Some(ByteSize::kib(9)),
                largest: Some(ByteSize::kib(8)),
                ..base.clone()
            },
            false,
        ),
        (Workload::Pagerank, Options { graph: Some(Graph::Uniform), ..base.clone() }, true),
        (Workload::Pagerank, Options { iterations: Some(1), ..base.clone() }, true),
        (Workload::Pagerank, Options { repeat: Some(1), ..base.clone() }, false),
    ] {
        let settings = Settings { options, ..settings(workload, 2) };
        let checked = workload.check(&settings, None);
        assert_eq!(checked.is_ok(), ok, "{settings:?} {checked:?}");
        if ok {
            workload.run(&settings).unwrap();
        } else {
            assert!(!checked.unwrap_err().to_string().contains('\n'));
        }
    }
}
