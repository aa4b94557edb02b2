//! Designs with conditions, and designs with sizes that are not simulated.

use design::Design;
use mm_sim::Counters;
use superpage_lab::{Experiment, LabError, Report, run};
use units::ByteSize;

fn experiment(workload: &str, machine: &str, memory: u64, fragmentation: &str) -> Experiment {
    Experiment {
        machine: machine::preset(machine).expect("a machine"),
        memory: ByteSize::mib(memory),
        fragmentation: fragmentation.parse().expect("a fragmentation"),
        fragmentation_name: fragmentation.to_string(),
        workload: workload.parse().expect("a workload"),
        workload_name: workload.to_string(),
        seed: 7,
        swap: ByteSize(0),
        layout: mm_sim::Layout::default(),
        utilisation: true,
    }
}

/// Returns a preset with some of its text replaced, and more text at its end.
fn design(preset: &str, from: &str, to: &str, more: &str) -> Design {
    let text = design::designs::preset(preset).expect("a preset").text;
    assert!(text.contains(from), "{preset}: {from}");
    let text = format!("{}\n{more}\n", text.replace(from, to));
    Design::from_toml(preset, &text).unwrap_or_else(|error| panic!("{error}"))
}

fn counters(experiment: &Experiment, design: Design) -> Counters {
    let mut reports: Vec<Report> = run(experiment, &[design]).expect("it runs");
    reports.remove(0).counters
}

#[test]
fn sizes_that_are_not_simulated_are_refused() {
    let touch = experiment("touch:size=64MiB", "e3-1245v6", 512, "none");
    for (sizes, why) in [
        (r#"["2M", "1G", "2G"]"#, "1G and 2G: not simulated together"),
        (r#"["64K", "2M", "32M"]"#, r#"the superpages of e3-1245v6 are of "2M", "1G": name one"#),
    ] {
        let text = format!("name = \"x\"\nallocation.sizes = {sizes}");
        let design = Design::from_toml("x.toml", &text).expect("a design");
        match run(&touch, &[design]) {
            Err(error @ LabError::NotSimulated { key: "allocation.sizes", .. }) => {
                assert!(error.to_string().contains(why), "{error}");
            }
            other => panic!("{sizes}: {other:?}"),
        }
    }
    let pool = |sizes| {
        let text = format!(
            "name = \"x\"\nallocation = {{trigger = \"mmap\", form = \"pool\", sizes = {sizes}}}\n\
             deallocation.when = \"to-pool\""
        );
        Design::from_toml("x.toml", &text).expect("a design")
    };
    let ppc970 = experiment("touch:size=64MiB", "ppc970", 512, "none");
    for (on, design, why) in [
        (&touch, pool(r#"["16M"]"#), r#"the superpages of e3-1245v6 are of "2M", "1G": name one"#),
        (&ppc970, pool(r#"["2M"]"#), r#"the superpages of ppc970 are of "16M": name one"#),
        (
            &ppc970,
            design::designs::find("linux-6").unwrap(),
            r#"the superpages of ppc970 are of "16M": name one"#,
        ),
        (&ppc970, design::designs::find("freebsd").unwrap(), r#"are of "16M": name one"#),
        (
            &touch,
            design("freebsd", r#"sizes = ["2M"]"#, r#"sizes = ["2M", "1G"]"#, ""),
            "1G: not simulated beside reservations of other sizes; name it alone",
        ),
        (
            &touch,
            design(
                "freebsd",
                r#"sizes = ["2M"]"#,
                r#"sizes = ["1G"]"#,
                "[mapping.scan]\neffort = \"none\"",
            ),
            "1G: reservations are not simulated with a scan beside them",
        ),
        (
            &touch,
            design("elastic", r#"sizes = ["64K", "2M"]"#, r#"sizes = ["64K", "2M", "1G"]"#, ""),
            "1G: not simulated with conditions",
        ),
    ] {
        match run(on, &[design]) {
            Err(error @ LabError::NotSimulated { .. }) => {
                assert!(error.to_string().contains(why), "{error}");
            }
            other => panic!("{why}: {other:?}"),
        }
    }
}

#[test]
fn a_fault_makes_a_superpage_where_the_profile_says_so() {
    let touch = experiment("touch:size=64MiB,iterations=1", "e3-1245v6", 512, "none");
    let with = |spans: &str| {
        counters(&touch, design("cbmm", "", "", &format!("[profile]\nspans = [{spans}]")))
    };
    let all = with("\"0 512G 40000\"").made_at_fault;
    assert!(all >= 32, "{all}");
    assert_eq!(with("\"0 512G 0\"").made_at_fault, 0);
    assert_eq!(with("\"0 32M 40000\"").made_at_fault, 16);
    // A superpage that is already zeroed costs nothing, so any TLB miss justifies it. Otherwise zeroing must cost less
    // than the misses.
    assert!(with("\"0 512G 1\"").made_at_fault <= all);
}

#[test]
fn a_scan_makes_the_size_that_misses_ask_for() {
    // On Armv8, runs of 16 pages share a TLB entry. Memory starts on base pages, so that the scan has work to do.
    let chase =
        experiment("hashmap:size=128MiB,operations=1G,weight=256", "neoverse-n1", 1024, "none");
    let sampled = |when: &str| {
        let text = format!(
            "name = \"x\"\n[allocation]\ntrigger = \"scan\"\nsizes = [\"64K\", \"2M\"]\n[mapping]\nwhen = \"never\"\n\
             [mapping.scan]\nevery = \"1s\"\nregions = 64\norder = \"misses\"\nwhen = \"{when}\"\n\
             [mapping.scan.sampling]\nevery = \"1s\"\nwindow = \"500ms\"\n"
        );
        counters(&chase, Design::from_toml("x", &text).expect("a design"))
    };
    let (both, large, small, none) = (
        sampled("misses > 0"),
        sampled("misses > 0 and pages == 512"),
        sampled("misses > 0 and pages == 16"),
        sampled("misses < 0"),
    );
    assert!(large.made_by_copy > 32, "{large:?}");
    assert_eq!(both.made_by_copy, large.made_by_copy);
    assert_eq!((small.made_by_copy, none.made_by_copy, none.copied), (0, 0, 0));
    assert!(small.copied > 1000, "{small:?}");
    assert!(small.walks_base < none.walks_base / 2, "{small:?} {none:?}");
}

#[test]
fn superpages_that_are_hardly_accessed_are_split() {
    let sparse =
        experiment("sparse:size=256MiB,operations=2G,weight=1024", "e3-1245v6", 1024, "none");
    let when = "coverage > 0 and coverage <= 70";
    let split = |when_is: &str| {
        let always = design("hugescope", "below-percent = 10 ", "below-percent = 100 ", "");
        let text = always.to_toml().replace(when, when_is);
        counters(&sparse, Design::from_toml("x", &text).expect("a design"))
    };
    let few = split(when);
    assert_eq!(few.made_at_fault, 128);
    assert_eq!(few.demoted, 128, "{few:?}");
    assert_eq!(split("coverage > 70").demoted, 0);
    // Enough memory is free, so nothing is watched.
    let preset = design::designs::find("hugescope").expect("a preset");
    let calm = counters(&sparse, preset);
    assert_eq!(calm.demoted, 0);
    assert!(calm.walks_base < few.walks_base);
}

#[test]
fn a_profile_is_of_the_program_and_not_of_what_spoils_memory() {
    let touch = experiment("touch:size=64MiB,iterations=1", "e3-1245v6", 512, "frag-100");
    let with = |spans: &str| {
        counters(&touch, design("cbmm", "", "", &format!("[profile]\nspans = [{spans}]")))
    };
    // The profile's range contains more of the fragmenter's memory than of the program's.
    assert_eq!(with("\"0 512G 40000\""), with("\"0 1G 40000\""));
    assert_eq!(with("\"0 512G 40000\""), with("\"0 64M 40000\""));
}
