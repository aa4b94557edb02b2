//! The page is self-contained, escaped, complete, reproducible, and well-formed for any document.

use std::collections::BTreeMap;
use std::path::PathBuf;

use host::coverage::Coverage;
use host::{Root, Snapshot};
use launch::{EnvironmentChange, Kind, Notes, Pages, Plan, Program, Promise, Recipe, ThpRequest};
use proptest::prelude::*;
use regex::Regex;
use superpage_experiment::analysis::{Judgement, analyse};
use superpage_experiment::document::{Arm, Document, Judging, LeftOut, SCHEMA};
use superpage_experiment::evaluation::{Application, Evaluation};
use superpage_experiment::html;
use superpage_experiment::metric::MetricSpec;
use superpage_experiment::procedure::{Settings, Stopped};
use superpage_experiment::sample::{Purpose, Sample};
use superpage_experiment::series::{self, Point, Series};
use superpage_experiment::stats::stopping::{Looks, Rule};
use superpage_experiment::stats::{Better, Confidence};
use superpage_experiment::verdict::Verdict;
use superpage_experiment::watch::{Moment, Observed};
use units::{ByteSize, PageSize};

const HOSTILE: &str = "<script>alert(\"x\")</script> & 'q' \u{202e}gnp \0 end";

fn arm(name: &str, promise: Promise) -> Arm {
    let recipe = Recipe {
        name: name.to_string(),
        preload: vec![HOSTILE.to_string()],
        wrapper: vec!["taskset".to_string(), HOSTILE.to_string()],
        ..Recipe::new(Pages::Thp)
    };
    let change =
        EnvironmentChange { variable: "X".into(), value: HOSTILE.into(), why: HOSTILE.into() };
    let plan = Plan {
        left_alone: None,
        name: name.to_string(),
        pages: Pages::Thp,
        program: Program {
            path: PathBuf::from(HOSTILE),
            kind: Kind::OtherLoader(HOSTILE.to_string()),
            allocator: Some(HOSTILE.to_string()),
            runtime: None,
        },
        arguments: vec![HOSTILE.into()],
        environment: vec![change],
        thp: ThpRequest::System,
        supply: None,
        stack: None,
        in_place: false,
        approximate: false,
        promise,
        notes: {
            let mut notes = Notes::default();
            notes.push(HOSTILE.to_string());
            notes
        },
    };
    Arm { name: name.to_string(), recipe, plan, is_noise_floor: false }
}

fn sample(arm: u32, purpose: Purpose, block: u32, slot: u32, wall: f64) -> Sample {
    let size = PageSize::new(2 << 20).unwrap();
    let coverage = Coverage {
        anon_base: ByteSize::mib(3),
        anon_thp: ByteSize::mib(u64::from(arm) * 200),
        file_base: ByteSize::mib(4),
        hugetlb_private: BTreeMap::from([(size, ByteSize::mib(8))]),
        eligible: ByteSize::mib(211),
        eligible_huge: ByteSize::mib(u64::from(arm) * 200 + 8),
        ..Coverage::default()
    };
    let moment = |index: u32| Moment {
        seconds: f64::from(index) * wall / 10.0,
        resident_bytes: u64::from(index) << 24,
        superpage_bytes: index.is_multiple_of(3).then_some(u64::from(index) << 23),
    };
    let warm = purpose == Purpose::WarmUp;
    let mut memory = Observed::default();
    memory.peak_resident_bytes = warm.then_some(215 << 20);
    memory.coverage = warm.then_some(coverage);
    memory.timeline = if warm { (0..10).map(moment).collect() } else { Vec::new() };
    memory.looks = 4;
    memory.watch_seconds = 0.001;
    memory.longest_look_seconds = 0.0005;
    memory.base_pages_only = Some(true);
    memory.unknown = Some(HOSTILE.to_string());
    Sample {
        arm,
        purpose,
        block,
        slot,
        wall_seconds: wall,
        user_seconds: wall * 0.9,
        system_seconds: wall * 0.1,
        minor_faults: 12_345,
        major_faults: 0,
        max_rss_bytes: 215 << 20,
        memory,
        thp_fault_fallbacks: None,
        compaction_stalls: Some(3),
        reclaim_stalls: None,
        free_superpage_bytes_before: Some(1 << 30),
        free_superpage_bytes_after: None,
        metric: Some(1e6 / wall),
        more_metrics: Vec::new(),
        exit_code: Some(0),
        signal: None,
        warmed_bytes: 236 << 20,
        environment_padding: 17,
        library_answered: None,
        library_asked_bytes: None,
        library_forks: None,
        supplied: None,
        design: None,
        stragglers: 0,
        service: None,
    }
}

/// Returns a document with these arms, one warm-up each, and `blocks` ABBA blocks with these times in turn.
fn document(names: &[&str], blocks: u32, walls: &[f64], machine: Snapshot) -> Document {
    let arms = names.len() as u32;
    let mut walls = walls.iter().copied().cycle();
    let mut wall = || walls.next().unwrap_or(1.0);
    let mut samples: Vec<Sample> =
        (0..arms).map(|arm| sample(arm, Purpose::WarmUp, 0, arm, 1.3 * wall())).collect();
    for block in 0..blocks {
        for slot in 0..2 * arms {
            let arm = slot.min(2 * arms - 1 - slot);
            samples.push(sample(arm, Purpose::Measured, block, slot, wall()));
        }
    }
    Document {
        schema: SCHEMA.to_string(),
        superpage_version: "0.1.0".to_string(),
        began_unix_seconds: 1_795_297_867,
        command: vec!["./app".into(), HOSTILE.into()],
        service: None,
        settings: Settings {
            seed: 7,
            warm_ups: 1,
            rule: Rule::default(),
            max_seconds: None,
            patience_seconds: None,
        },
        judging: Judging {
            same_within: 0.02,
            same_at_most: 0.05,
            confidence: Confidence::P99,
            least_coverage: 0.8,
        },
        metric: Some(MetricSpec {
            name: HOSTILE.to_string(),
            unit: Some(HOSTILE.to_string()),
            regex: HOSTILE.to_string(),
            better: Better::Higher,
        }),
        more_metrics: Vec::new(),
        metric_is_primary: false,
        arms: names.iter().map(|name| arm(name, Promise::Nothing)).collect(),
        left_out: vec![LeftOut { name: HOSTILE.to_string(), why: HOSTILE.to_string() }],
        machine,
        lent: vec![HOSTILE.to_string()],
        changed_meanwhile: vec![HOSTILE.to_string()],
        samples,
        stopped: Stopped::RuleMet,
        looks: Looks::default(),
        elapsed_seconds: 12.5,
        neighbours: None,
        predicted: None,
        arrays: None,
    }
}

fn fixture(name: &str) -> Snapshot {
    let fixtures =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/host/tests/fixtures");
    Snapshot::read(&Root::at(fixtures.join(name)))
}

fn nothing() -> Snapshot {
    Snapshot::read(&Root::at(tempfile::tempdir().unwrap().path().join("none")))
}

fn draw(document: &Document) -> String {
    html::page(document, &analyse(document))
}

/// Checks properties of every page.
fn check(page: &str, document: &Document) {
    for foreign in ["http:", "https:", "src=", "<script", "@import", "//cdn", "<link", "onload"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    assert!(page.starts_with("<!DOCTYPE html>\n<html lang=\"en\">"));
    let number = Regex::new(r"\b(NaN|inf)\b|-inf").unwrap();
    // The statistics may name such a value as the reason for a missing verdict.
    let reason = Regex::new(r"arm \d+, block \d+: -?(NaN|inf) is not a").unwrap();
    let own = reason.replace_all(page, "");
    assert!(!number.is_match(&own), "{:?}", number.find(&own));
    let style = page.find("</style>").unwrap();
    balanced(&page[style + "</style>".len()..], &["/head", "/html"]);
    let mut ids = std::collections::HashSet::new();
    for id in Regex::new(r#" id="([^"]+)""#).unwrap().captures_iter(page) {
        assert!(ids.insert(id[1].to_string()), "id {} is there twice", &id[1]);
    }
    for used in Regex::new(r##"(?:href="#|url\(#)([\w-]+)"##).unwrap().captures_iter(page) {
        assert!(ids.contains(&used[1]), "{} is not there", &used[1]);
    }
    for chart in page.split("<svg class=\"plot").skip(1) {
        assert!(chart.contains("<title id=") && chart.contains("<desc id="));
    }
    for id in ["wall-strips", "wall-order"] {
        let finite = document.samples.iter().filter(|sample| sample.wall_seconds.is_finite());
        assert_eq!(dots(page, id), finite.count(), "{id}");
    }
}

/// Returns the number of dots in one chart.
fn dots(page: &str, chart: &str) -> usize {
    let Some(from) = page.find(&format!("<title id=\"{chart}-title\"")) else { return 0 };
    let chart = &page[from..];
    chart[..chart.find("</svg>").unwrap()].matches("class=\"dot ").count()
}

/// Checks that every tag is closed, in order. `open` are tags that were opened before the text.
fn balanced(text: &str, open: &[&str]) {
    let tag = Regex::new(r#"<(/?[a-z0-9]+)((?: [A-Za-z0-9-]+="[^"<>]*")*)>"#).unwrap();
    let mut stack: Vec<&str> = Vec::new();
    let mut tags = 0;
    for found in tag.captures_iter(text) {
        tags += 1;
        let name = found.get(1).unwrap().as_str();
        match name.strip_prefix('/') {
            None => stack.push(name),
            Some(name) => match stack.pop() {
                Some(opened) => assert_eq!(opened, name),
                None => assert!(open.iter().any(|open| open[1..] == *name), "</{name}>"),
            },
        }
    }
    assert!(stack.is_empty(), "{stack:?}");
    assert_eq!(tags, text.matches('<').count(), "a `<` that begins no tag");
}

#[test]
fn a_full_page_is_whole_and_the_same_twice() {
    let machine = fixture("zen4-6.18");
    let document = document(&["base", "thp", "huge"], 4, &[1.0, 0.8, 0.81, 1.02, 0.7], machine);
    let page = draw(&document);
    check(&page, &document);
    assert_eq!(dots(&page, "metric-order"), document.samples.len());
    let order = page.split("id=\"wall-order-title\"").nth(1).expect("a panel in run order");
    let order = order.split("</svg>").next().expect("text before");
    assert_eq!(order.matches(">warm-up<").count(), 1, "{order}");
    assert_eq!(page, draw(&document));
    let again = Document::parse(&document.to_json(), "x").unwrap();
    assert_eq!(page, draw(&again));
    for told in ["2 MiB", "khugepaged", "superpage compare --from", "PR_SET_THP_DISABLE", "99 %"] {
        assert!(page.contains(told), "{told}");
    }
}

#[test]
fn the_page_leads_with_what_the_comparison_is_about() {
    let mut document = document(&["base", "thp"], 3, &[1.0, 0.5, 0.5, 1.0], nothing());
    document.metric.as_mut().unwrap().name = "updates".to_string();
    let mut first = |is_primary| {
        document.metric_is_primary = is_primary;
        let page = draw(&document);
        check(&page, &document);
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text}"));
        let (_, card) = page.split_once("<div class=\"verdicts\">").unwrap();
        let card = card.split("</div>").next().unwrap();
        let [wall, metric] = ["wall", "updates"].map(|name| card.find(name).unwrap());
        assert_eq!(metric < wall, is_primary, "{card}");
        let panel = |id: &str| at(&format!("id=\"{id}-strips-title\""));
        panel("metric") < panel("wall")
    };
    assert!(first(true) && !first(false));
}

#[test]
fn every_metric_has_a_panel_a_row_and_a_column() {
    let mut document = document(&["base", "thp"], 3, &[1.0, 0.5, 0.5, 1.0], nothing());
    document.metric.as_mut().unwrap().name = "updates".to_string();
    let second = MetricSpec { name: "latency".to_string(), ..document.metric.clone().unwrap() };
    document.more_metrics = vec![second];
    document.samples.iter_mut().for_each(|sample| sample.more_metrics = vec![sample.wall_seconds]);
    let page = draw(&document);
    check(&page, &document);
    assert_eq!(dots(&page, "metric-2-order"), document.samples.len());
    assert!(page.contains("Besides, latency"), "each has a verdict");
    let csv = superpage_experiment::csv::samples(&document);
    assert!(csv.lines().next().unwrap().ends_with(",metric_2"), "{csv}");
    let again = Document::parse(&document.to_json(), "x").unwrap();
    assert_eq!(again, document);
    document.samples[0].more_metrics[0] = -1.0;
    assert!(Document::parse(&document.to_json(), "x").is_err());
}

#[test]
fn what_others_wrote_is_escaped_everywhere() {
    let document = document(&[HOSTILE, "b"], 2, &[1.0], nothing());
    let page = draw(&document);
    check(&page, &document);
    assert!(page.contains("&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; &amp;"));
    assert!(page.contains("\\u{202e}") && !page.contains('\u{202e}') && !page.contains('\0'));
}

#[test]
fn an_arm_that_did_not_take_effect_has_no_ratio() {
    let mut document = document(&["base", "thp"], 3, &[1.0, 0.5, 0.5, 1.0], nothing());
    document.arms[1].plan.promise = Promise::Superpages;
    document.judging.least_coverage = 1.0;
    let page = draw(&document);
    check(&page, &document);
    assert!(page.contains("design did not take effect"));
    assert!(page.contains("did not take effect: no ratio"));
    assert!(!page.contains("class=\"whisker"));
}

/// The reason names fragmentation, and what compacts memory, only where free superpages did not suffice.
#[test]
fn an_arm_without_effect_on_fragmented_memory_is_told_how_to_compact_it() {
    for (free, is_fragmented) in [(8 << 20, true), (1 << 30, false)] {
        let mut document = document(&["base", "thp"], 3, &[1.0, 0.5, 0.5, 1.0], nothing());
        document.arms[1].plan.promise = Promise::Superpages;
        document.judging.least_coverage = 1.0;
        let samples = document.samples.iter_mut();
        samples.for_each(|sample| sample.free_superpage_bytes_before = Some(free));
        let verdict = analyse(&document).judgements.remove(0).verdict;
        let Verdict::DidNotTakeEffect { why } = verdict else { panic!("{verdict:?}") };
        assert_eq!(why.contains("sysctl -w vm.compact_memory=1"), is_fragmented, "{why}");
    }
}

/// Wall time varies by a factor of two, as other programs take CPUs; CPU time differs by a quarter.
#[test]
fn cpu_time_is_judged_where_other_programs_used_cpus() {
    let walls = [1.0, 1.9, 1.1, 1.7, 0.8, 1.5, 2.0];
    let mut document = document(&["base", "thp"], 4, &walls, nothing());
    for (index, sample) in document.samples.iter_mut().enumerate() {
        let seconds = if sample.arm == 0 { 1.25 } else { 1.0 };
        sample.user_seconds = seconds * (1.0 + 0.001 * (index % 3) as f64);
        sample.system_seconds = 0.0;
    }
    let others = |cpus| host::Neighbours {
        cpus: 2,
        load_before: None,
        others_cpus: Some(cpus),
        stolen: None,
    };
    document.neighbours = Some(others(0.0));
    assert_eq!(analyse(&document).cpu_time, [], "an idle machine");
    document.neighbours = Some(others(1.5));
    let analysis = analyse(&document);
    let [Judgement { verdict: Verdict::Faster(figures), .. }] = &analysis.cpu_time[..] else {
        panic!("{:?}", analysis.cpu_time)
    };
    assert!((1.24..1.26).contains(&figures.speedup), "{figures:?}");
    let wall = &analysis.judgements[0].verdict;
    assert!(matches!(wall, Verdict::Undecided { .. }), "{wall:?}");
    assert!(draw(&document).contains("CPU time: 1.25x less"));
}

#[test]
fn unseen_runs_with_the_faults_of_base_pages_were_not_on_superpages() {
    // 215 MiB on 4 KiB pages are 55,040 faults; the observed runs took 12,345.
    for (faults, is_kept) in [(24_000, true), (40_000, false)] {
        let mut document = document(&["base", "thp"], 3, &[1.0, 0.5, 0.5, 1.0], nothing());
        document.arms[1].plan.promise = Promise::Superpages;
        document.machine.page_size = PageSize::new(4 << 10).unwrap();
        for sample in &mut document.samples {
            if sample.arm == 1 && sample.purpose == Purpose::Measured {
                sample.memory.peak_resident_bytes = Some(215 << 20);
                sample.minor_faults = faults;
            }
        }
        let judgements = analyse(&document).judgements;
        let took_effect =
            |one: &Judgement| !matches!(one.verdict, Verdict::DidNotTakeEffect { .. });
        assert!(!judgements.is_empty());
        assert!(judgements.iter().all(|one| took_effect(one) == is_kept), "{judgements:?}");
    }
}

#[test]
fn values_of_a_series_lie_along_its_picture_by_their_logarithms() {
    let points = [("one", 1.0), ("two", 2.0), ("eight", 8.0)].map(|(value, number)| Point {
        value: value.to_string(),
        number,
        comparison: document(&["base", "thp"], 3, &[1.0, 0.5, 0.5, 1.0], nothing()),
    });
    let series = Series {
        schema: series::SCHEMA.to_string(),
        varied: "size".to_string(),
        points: points.into(),
        missing: Vec::new(),
    };
    let picture = series.to_svg().expect("each has a ratio");
    let [one, two, eight] = ["one", "two", "eight"].map(|value| {
        let (before, _) = picture.split_once(&format!(">{value}<")).expect("a label");
        let (_, x) = before.rsplit_once(" x=\"").expect("its place");
        x.split('"').next().and_then(|x| x.parse::<f64>().ok()).expect("a number")
    });
    assert!(((two - one) / (eight - one) - 1.0 / 3.0).abs() < 0.01, "{one} {two} {eight}");
}

#[test]
fn no_arm_took_effect_only_where_none_did() {
    let mut document = document(&["base", "thp"], 3, &[1.0, 0.5, 0.5, 1.0], nothing());
    document.left_out.clear();
    document.arms[1].plan.promise = Promise::Superpages;
    for (least, had_no_effect) in [(0.8, false), (1.0, true)] {
        document.judging.least_coverage = least;
        let application =
            Application { name: "app".to_string(), host: None, comparison: document.clone() };
        let evaluation = Evaluation { applications: vec![application], ..Evaluation::new() };
        let advice = evaluation.judged()[0].advice();
        assert_eq!(advice.had_no_effect, had_no_effect, "{advice:?}");
    }
}

#[test]
fn every_machine_can_be_told_and_unknown_is_not_zero() {
    for name in ["zen4-6.18", "arm64-64k", "no-thp", "old-4.19", "two-nodes", "no such"] {
        let mut document = document(&["a", "b"], 1, &[1.0], fixture(name));
        document.samples.iter_mut().for_each(|sample| sample.compaction_stalls = None);
        let page = draw(&document);
        check(&page, &document);
        let row = page.split("compaction stalls, whole machine, total</th>").nth(1).unwrap();
        assert!(row.starts_with("<td class=\"n unknown\">unknown</td>"), "{name}");
    }
}

#[test]
fn degenerate_documents_have_pages_too() {
    let long = "x".repeat(4_000);
    let ten = ["a", "b", "c", "d", "e", "f", "g", "h", "i", &long];
    let mut none = document(&["only"], 0, &[1.0], nothing());
    none.samples.clear();
    none.command.clear();
    none.metric = None;
    let mut failed = document(&["a", "b"], 2, &[1.0], nothing());
    for (index, sample) in failed.samples.iter_mut().enumerate() {
        sample.exit_code = (index % 2 == 0).then_some(3);
        sample.signal = (index % 2 == 1).then_some(11);
        sample.metric = None;
        sample.memory = Observed::default();
    }
    let documents = [
        none,
        failed,
        document(&["only"], 3, &[1.0], nothing()),
        document(&["a", "b"], 1, &[1.0], nothing()),
        document(&ten, 2, &[1.0, 2.0, 50.0], nothing()),
        document(&["a", "b"], 40, &[1.0, 1e-9, 1e9], nothing()),
        document(&["a", "b"], 3, &[f64::MAX, f64::MIN_POSITIVE], nothing()),
        document(&["a", "b"], 3, &[0.0, 1.0], nothing()),
        document(&["a", "b"], 3, &[f64::NAN, f64::INFINITY, -1.0, 2.0], nothing()),
    ];
    for document in documents {
        check(&draw(&document), &document);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_document_has_a_page(
        names in proptest::collection::vec(any::<String>(), 1..7),
        blocks in 0u32..5,
        walls in proptest::collection::vec(
            prop_oneof![4 => 0.1f64..2.0, 1 => proptest::num::f64::ANY], 1..12),
        words in proptest::collection::vec(any::<String>(), 0..4),
        resident: u64,
    ) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut document = document(&names, blocks, &walls, nothing());
        document.command = words.into_iter().map(Into::into).collect();
        for sample in &mut document.samples {
            for moment in &mut sample.memory.timeline {
                moment.resident_bytes = moment.resident_bytes.wrapping_mul(resident);
            }
        }
        // Names are random, and may contain the texts that `check` must not find.
        let own = names.iter().chain([&""]).any(|name| name.contains("inf") || name.contains("NaN"));
        let own = own || document.command.iter().any(|word| word.text().contains("inf"));
        prop_assume!(!own);
        let page = draw(&document);
        check(&page, &document);
        prop_assert_eq!(&page, &draw(&document));
    }
}
