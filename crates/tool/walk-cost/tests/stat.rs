//! Outputs of `perf stat` in the formats of many versions, in `perf/`. `recorded-…` were written by perf 6.1.187 in a
//! virtual machine without a PMU. `perf-VERSION-…` were composed after that version's stat-display.c or builtin-stat.c;
//! their counts are invented.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use superpage_walk_cost::from::{Reading, read, read_text};
use superpage_walk_cost::{Given, MissCost};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/perf")
}

/// `format: event=count@share of the time~share of the cycles of the gap`, with `?` for unknown counts, or the error.
fn outcome(reading: Result<Reading, impl ToString>) -> String {
    let reading = match reading {
        Ok(reading) => reading,
        Err(error) => return error.to_string(),
    };
    let mut text = reading.format.in_words().to_string() + ":";
    for count in &reading.counts {
        let _ = match count.value {
            Some(value) => write!(text, " {}={value}", count.event),
            None => write!(text, " {}=?", count.event),
        };
        if let Some(counted) = count.counted.filter(|counted| *counted < 1.0) {
            let _ = write!(text, "@{counted:.4}");
        }
        if let Some(gap) = &count.gap {
            let (missing, all) = gap.parts;
            let _ = write!(text, "~{:.3} ({missing}/{all}: {})", gap.cycles, gap.first);
        }
    }
    for note in &reading.notes {
        let _ = write!(text, "; {note}");
    }
    text
}

const TABLE: &[(&str, &str)] = &[
    (
        "perf-3.10-text.txt",
        "perf stat: task-clock=2676.401233 cycles=8143619771@0.3560 dtlb_load_misses.walk_active=1094178209@0.3561 dtlb_store_misses.walk_active=103111222@0.3562 itlb_misses.walk_active=1222333@0.3563",
    ),
    (
        "perf-3.2-csv.txt",
        "perf stat -x: cycles=8143619771 dtlb_load_misses.walk_duration=1094178209 itlb_misses.walk_duration=?",
    ),
    (
        "perf-4.19-text.txt",
        "perf stat: task-clock=2676.4 cycles=8143619771@0.5714 dtlb_load_misses.walk_active=1094178209@0.5714 dtlb_store_misses.walk_active=103111222@0.5714 itlb_misses.walk_active=1222333@0.5714 dtlb_load_misses.stlb_hit=20333444@0.5714 dtlb_store_misses.stlb_hit=1000222@0.5714 itlb_misses.stlb_hit=300111@0.5714 dtlb_load_misses.miss_causes_a_walk=1193",
    ),
    (
        "perf-4.4-text-core.txt",
        "perf stat: cycles=12215429656@0.3570 dtlb_load_misses.walk_active=1641267313@0.3570 dtlb_store_misses.walk_active=154666833@0.3570 itlb_misses.walk_active=1833499@0.3570",
    ),
    (
        "perf-4.4-text-repeat.txt",
        "perf stat: task-clock=2676.401233 cycles=8143619771@0.5710 dtlb_load_misses.walk_active=1094178209@0.5711 dtlb_store_misses.walk_active=103111222@0.5712 itlb_misses.walk_active=1222333@0.5713 dtlb_load_misses.stlb_hit=20333444@0.5714 dtlb_store_misses.stlb_hit=1000222@0.5715 itlb_misses.stlb_hit=300111@0.5716",
    ),
    (
        "perf-4.9-csv.txt",
        "perf stat -x: task-clock=2676.401233 cycles=8143619771@0.3570 dtlb_load_misses.walk_pending=1094178209@0.3570 dtlb_store_misses.walk_pending=103111222@0.3571 itlb_misses.walk_pending=1222333@0.3570 ept.walk_pending=?",
    ),
    (
        "perf-5.10-csv-german-comma.txt",
        "perf stat -x: cycles=8143619771@0.3570 dtlb_load_misses.walk_active=1094178209@0.3570 dtlb_store_misses.walk_active=103111222@0.3570 itlb_misses.walk_active=1222333@0.3570",
    ),
    (
        "perf-5.10-csv-german.txt",
        "perf stat -x: task-clock=2676.4 cycles=8143619771@0.3570 dtlb_load_misses.walk_active=1094178209@0.3570 dtlb_store_misses.walk_active=103111222@0.3570 itlb_misses.walk_active=1222333@0.3570",
    ),
    (
        "perf-5.10-csv-repeat.txt",
        "perf stat -x: cycles=8143619771@0.5714 dtlb_load_misses.walk_active=1094178209@0.5714 dtlb_store_misses.walk_active=103111222@0.5714 itlb_misses.walk_active=1222333@0.5714 dtlb_load_misses.stlb_hit=20333444@0.5714 dtlb_store_misses.stlb_hit=1000222@0.5714 itlb_misses.stlb_hit=300111@0.5714",
    ),
    (
        "perf-5.10-csv-tab-socket.txt",
        "perf stat -x: cycles=12215429656 dtlb_load_misses.walk_active=1641267313 dtlb_store_misses.walk_active=154666833 itlb_misses.walk_active=1833499",
    ),
    (
        "perf-5.10-text-cpu-interval.txt",
        "perf stat: cycles=13572699616 dtlb_load_misses.walk_active=1823630346 dtlb_store_misses.walk_active=171852036 itlb_misses.walk_active=2037220",
    ),
    (
        "perf-5.15-csv-interval-cut.txt",
        "perf stat -x: cycles=8143619770@0.5000 dtlb_load_misses.walk_active=1094178208@0.5000 dtlb_store_misses.walk_active=103111222@0.5000 itlb_misses.walk_active=611166@0.5000~0.500 (1/2: interval 2.000422310)",
    ),
    (
        "perf-5.15-csv-interval-summary.txt",
        "perf stat -x: cycles=8143619771@0.5000 dtlb_load_misses.walk_active=1094178209@0.5000 dtlb_store_misses.walk_active=103111222@0.5000 itlb_misses.walk_active=1222333@0.5000; the summary was read, not the intervals before it",
    ),
    (
        "perf-5.15-csv-interval.txt",
        "perf stat -x: cycles=8143619770@0.5000 dtlb_load_misses.walk_active=1094178208@0.5000 dtlb_store_misses.walk_active=103111222@0.5000 itlb_misses.walk_active=1222332@0.5000",
    ),
    (
        "perf-5.15-text-interval-summary.txt",
        "perf stat: cycles=8143619771 dtlb_load_misses.walk_active=1094178209 dtlb_store_misses.walk_active=103111222 itlb_misses.walk_active=1222333; the summary was read, not the intervals before it",
    ),
    (
        "perf-5.4-text-generic.txt",
        "perf stat: cycles:u=60123456789 instructions:u=91234567890 dTLB-loads:u=40123456 dTLB-load-misses:u=12345678 iTLB-loads:u=112233 iTLB-load-misses:u=4567",
    ),
    (
        "perf-5.4-text-interval-gap.txt",
        "perf stat: cycles=4071809884@0.9998 dtlb_load_misses.walk_active=273544552@0.9998~0.500 (1/2: interval 2.000422310) dtlb_store_misses.walk_active=51555610@0.9998 itlb_misses.walk_active=611166@0.9998; cycles were not counted in 1 of 3 parts: the program did not run, or no counter was free; the shares are of the other parts",
    ),
    (
        "perf-5.4-text-interval.txt",
        "perf stat: cycles=5089762355 dtlb_load_misses.walk_active=683861380 dtlb_store_misses.walk_active=64444512 itlb_misses.walk_active=763957 dtlb_load_misses.stlb_hit=12708402 dtlb_store_misses.stlb_hit=625137 itlb_misses.stlb_hit=187567",
    ),
    (
        "perf-6.1-csv-cgroup.txt",
        "perf stat -x: cycles=8143619771@0.3570 dtlb_load_misses.walk_active=1094178209@0.3570 dtlb_store_misses.walk_active=103111222@0.3570 itlb_misses.walk_active=1222333@0.3570",
    ),
    (
        "perf-6.1-csv-huge.txt",
        "perf-6.1-csv-huge.txt:1: expected a count of at most 64 bits, found \"cycles\"",
    ),
    (
        "perf-6.1-csv-metric-only.txt",
        "perf-6.1-csv-metric-only.txt: unknown format: expected the output of perf stat (text, -x or -j; counts, not --metric-only), a perf.data, opreport, or lines of key=value (misses, cost, cycles)",
    ),
    (
        "perf-6.1-csv-two-reports.txt",
        "perf-6.1-csv-two-reports.txt:5: another report begins here, and one is read: `head -n 4 perf-6.1-csv-two-reports.txt | superpage measure --from -`, then `tail -n +5 perf-6.1-csv-two-reports.txt | superpage measure --from -`",
    ),
    (
        "perf-6.1-json-core-interval.txt",
        "perf stat -j: cycles=8143619768 dtlb_load_misses.walk_active=1094178208 dtlb_store_misses.walk_active=103111220 itlb_misses.walk_active=1222332",
    ),
    (
        "perf-6.1-json-german.txt",
        "perf stat -j: cycles=8143619771@0.3570 dtlb_load_misses.walk_active=1094178209@0.3570 dtlb_store_misses.walk_active=103111222@0.3570 itlb_misses.walk_active=1222333@0.3570",
    ),
    (
        "perf-6.1-json-repeat.txt",
        "perf stat -j: cycles=8143619771@0.5714 dtlb_load_misses.walk_active=1094178209@0.5714 dtlb_store_misses.walk_active=103111222@0.5714 itlb_misses.walk_active=1222333@0.5714 dtlb_load_misses.stlb_hit=20333444@0.5714 dtlb_store_misses.stlb_hit=1000222@0.5714 itlb_misses.stlb_hit=300111@0.5714",
    ),
    (
        "perf-6.1-text-cgroup.txt",
        "perf stat: cycles=8143619771 dtlb_load_misses.walk_active=1094178209 dtlb_store_misses.walk_active=103111222 itlb_misses.walk_active=1222333",
    ),
    (
        "perf-6.1-text-cgroups.txt",
        "perf-6.1-text-cgroups.txt:8: expected one control group a file, because the groups' counts may contain each other, found \"cycles\"",
    ),
    (
        "perf-6.1-text-colour.txt",
        "perf stat: cycles=8143619771 dtlb_load_misses.walk_active=1094178209 dtlb_store_misses.walk_active=103111222 itlb_misses.walk_active=1222333",
    ),
    (
        "perf-6.1-text-dropped.txt",
        "perf-6.1-text-dropped.txt:5: expected a count and its event, as perf stat prints them (metrics without counts, --metric-only, do not tell), found \"     1,094,17x,209      dtlb_load_misses.walk_active     # 408.881 M/sec                      \"",
    ),
    (
        "perf-6.1-text-french-nbsp.txt",
        "perf stat: cycles=8143619771 dtlb_load_misses.walk_active=1094178209 dtlb_store_misses.walk_active=103111222 itlb_misses.walk_active=1222333",
    ),
    (
        "perf-6.1-text-french.txt",
        "perf stat: task-clock=2676.4 cycles=8143619771@0.3570 dtlb_load_misses.walk_active=1094178209@0.3570 dtlb_store_misses.walk_active=103111222@0.3570 itlb_misses.walk_active=1222333@0.3570",
    ),
    (
        "perf-6.1-text-german.txt",
        "perf stat: cycles=8143619771@0.5714 dtlb_load_misses.walk_active=1094178209@0.5714 dtlb_store_misses.walk_active=103111222@0.5714 itlb_misses.walk_active=1222333@0.5714 dtlb_load_misses.stlb_hit=20333444@0.5714 dtlb_store_misses.stlb_hit=1000222@0.5714 itlb_misses.stlb_hit=300111@0.5714",
    ),
    (
        "perf-6.1-text-html-socket.txt",
        "perf stat: cycles=12215429656 dtlb_load_misses.walk_active=1094178209~0.333 (1/2: S1) dtlb_store_misses.walk_active=154666833 itlb_misses.walk_active=1833499",
    ),
    (
        "perf-6.1-text-indian.txt",
        "perf stat: cycles=8143619771 dtlb_load_misses.walk_active=1094178209 dtlb_store_misses.walk_active=103111222 itlb_misses.walk_active=1222333",
    ),
    (
        "perf-6.1-text-mail.txt",
        "perf stat: cycles=8143619771 dtlb_load_misses.walk_active=1094178209 dtlb_store_misses.walk_active=103111222 itlb_misses.walk_active=1222333",
    ),
    (
        "perf-6.1-text-metric-only.txt",
        "perf-6.1-text-metric-only.txt:4: expected a count and its event, as perf stat prints them (metrics without counts, --metric-only, do not tell), found \"       GHz  insn per cycle branch-misses of all branches\"",
    ),
    (
        "perf-6.1-text-report.txt",
        "perf stat: cycles=8143619771 dtlb_load_misses.walk_active=1094178209 dtlb_store_misses.walk_active=103111222 itlb_misses.walk_active=1222333",
    ),
    (
        "perf-6.1-text-swiss.txt",
        "perf stat: cycles=8143619771 dtlb_load_misses.walk_active=1094178209 dtlb_store_misses.walk_active=103111222 itlb_misses.walk_active=1222333",
    ),
    (
        "perf-6.1-text-thread.txt",
        "perf stat: cycles=7125667298 dtlb_load_misses.walk_active=957405932 dtlb_store_misses.walk_active=90222318 itlb_misses.walk_active=1069540",
    ),
    (
        "perf-6.1-text-two-intervals.txt",
        "perf-6.1-text-two-intervals.txt:11: another report begins here, and one is read: `head -n 10 perf-6.1-text-two-intervals.txt | superpage measure --from -`, then `tail -n +11 perf-6.1-text-two-intervals.txt | superpage measure --from -`",
    ),
    (
        "perf-6.1-text-two-reports.txt",
        "perf-6.1-text-two-reports.txt:16: another report begins here, and one is read: `head -n 15 perf-6.1-text-two-reports.txt | superpage measure --from -`, then `tail -n +16 perf-6.1-text-two-reports.txt | superpage measure --from -`",
    ),
    (
        "perf-6.6-csv-hybrid.txt",
        "perf stat -x: cpu/cycles/=8143619771@0.9820 cpu/dtlb_load_misses.walk_active/=1094178209@0.9820; cycles were not counted in 1 of 2 parts: the program did not run, or no counter was free; the shares are of the other parts",
    ),
    (
        "perf-6.6-text-hybrid.txt",
        "perf stat: cpu/cycles/=9343920171@0.5000 cpu/dtlb_load_misses.walk_active/=1094178209@0.9820~0.128 (1/2: cpu_atom) cpu/dtlb_store_misses.walk_active/=103111222@0.9820~0.128 (1/2: cpu_atom)",
    ),
    (
        "perf-6.8-json-cpu.txt",
        "perf stat -j: cycles:u=8143619772 ls_l1_d_tlb_miss.all:u=4000000 ls_l1_d_tlb_miss.all_l2_miss:u=300000~0.250 (1/4: CPU3)",
    ),
    (
        "perf-6.8-json-cut.txt",
        "perf-6.8-json-cut.txt:4: expected a count and its event, as perf stat prints them (metrics without counts, --metric-only, do not tell), found \"{\\\"counter-value\\\" : \\\"1222333.000000\\\", \\\"unit\\\" : \\\"\\\", \\\"event\\\" : \\\"itlb_misses.walk_active\\\", \\\"event-runtime\\\" : 2676401233, \\\"pc\"",
    ),
    (
        "perf-6.8-json-metrics.txt",
        "perf stat -j: cycles=60000000000 l1d_tlb_refill=123456 dtlb_walk=23456",
    ),
    (
        "perf-6.8-text-cluster.txt",
        "perf stat: cycles=12215429656 dtlb_load_misses.walk_active=1641267313 dtlb_store_misses.walk_active=154666833 itlb_misses.walk_active=1833499",
    ),
    ("recorded-6.1-csv-cpu.txt", "perf stat -x: page-faults=312 cycles=? dTLB-load-misses=?"),
    ("recorded-6.1-json-core.txt", "perf stat -j: page-faults=185 cycles=? dTLB-load-misses=?"),
    (
        "recorded-6.1-text-interval.txt",
        "perf stat: task-clock=0.67 context-switches=1 cpu-migrations=0 page-faults=77 cycles=? instructions=? branches=? branch-misses=? L1-dcache-loads=? L1-dcache-load-misses=? LLC-loads=? LLC-load-misses=? L1-icache-loads=? L1-icache-load-misses=? dTLB-loads=? dTLB-load-misses=? iTLB-loads=? iTLB-load-misses=?",
    ),
    (
        "recorded-6.1-text.txt",
        "perf stat: task-clock=0.52 context-switches=0 cpu-migrations=0 page-faults=49 cycles=? instructions=? branches=? branch-misses=?",
    ),
];

#[test]
fn every_output_is_read_exactly_or_refused_exactly() {
    let mut wrong = Vec::new();
    for (name, expected) in TABLE {
        let found = outcome(read(&folder().join(name)));
        let found = found.replace(&format!("{}/", folder().display()), "");
        if found != *expected {
            wrong.push(format!("{name}: {found}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let files = std::fs::read_dir(folder()).unwrap().count();
    assert_eq!(files, TABLE.len(), "a file without a row");
}

fn share(reading: &Reading) -> Option<(f64, f64)> {
    let cost = MissCost {
        walk: Some(30.0),
        second_level_hit: Some(7.0),
        is_of_cached_tables: false,
        source: "test".into(),
    };
    let share = reading.estimate(Given::default(), Some(&cost)).share?;
    Some((share.low(), share.high()))
}

/// A file cut off at any byte has no count and no share above those of the whole file. (A shorter recording of
/// intervals may have a larger share.)
#[test]
fn a_file_cut_off_tells_no_more_than_the_whole() {
    for (name, _) in TABLE {
        let whole = std::fs::read(folder().join(name)).unwrap();
        let of_whole = read(&folder().join(name)).unwrap_or_default();
        let most = share(&of_whole).filter(|_| !name.contains("interval"));
        for length in 0..whole.len() {
            let text = String::from_utf8_lossy(&whole[..length]);
            let Ok(cut) = read_text(&text, Path::new("cut")) else { continue };
            for count in &cut.counts {
                let same = of_whole.counts.iter().find(|one| one.event == count.event);
                if let Some((same, value)) = same.and_then(|same| Some((same.value?, count.value?)))
                {
                    assert!(value <= same, "{name} at {length}: {count:?}");
                }
            }
            let Some((_, high)) = most else { continue };
            if let Some((low, _)) = share(&cut) {
                assert!(low <= high + 1e-12, "{name} at {length}: {low} {high}");
            }
        }
    }
}

#[test]
fn hostile_files_are_refused_in_one_line() {
    let row = "5,,cycles,5456700000,35.70,,\n";
    for (text, word) in [
        (String::new(), "unknown format"),
        (format!("{row}\0"), "unknown format"),
        (format!("\0{row}"), "unknown format"),
        ("\n".repeat(100_000), "unknown format"),
        ("x".repeat(1 << 20), "unknown format"),
        ("\u{1b}[".repeat(1 << 20), "unknown format"),
        (format!("{}{}", "9".repeat(400), &row[1..]), "at most 64 bits"),
        (format!("18446744073709551616{}", &row[1..]), "unknown format"),
        (format!("{row}-5,,dTLB-load-misses,5456700000,35.70,,\n"), "expected a count"),
        (format!("{row}nan,,dTLB-load-misses,5456700000,35.70,,\n"), "expected a count"),
        (
            format!("{row}{row}5,,dTLB-load-misses,5456700000,35.70,,\n# started on Monday\n"),
            "another report begins here",
        ),
    ] {
        let error = outcome(read_text(&text, Path::new("x")));
        let is_other = word == "unknown format" && text.starts_with("1844");
        assert!(error.contains(word) || is_other, "{word}: {error}");
        assert!(error.lines().count() == 1 && error.len() < 400, "{error}");
    }
}

/// Words of the measured program that look like counts are not taken for them.
#[test]
fn the_programs_own_words_are_no_counts() {
    let said = "threads=4\n1000 cycles done\n99999999999999999999999 cycles\n12 cycles\n12,3 cycles per item\n";
    for name in
        ["perf-6.1-text-swiss.txt", "perf-5.4-text-interval.txt", "perf-5.15-csv-interval.txt"]
    {
        let whole = std::fs::read_to_string(folder().join(name)).unwrap();
        let expected = outcome(read_text(&whole, Path::new("x")));
        for text in [format!("{said}{whole}"), format!("{whole}{said}")] {
            assert_eq!(outcome(read_text(&text, Path::new("x"))), expected, "{name}");
        }
    }
}

/// The output of the measured program may be long, and stands before perf's.
#[test]
fn a_long_file_is_read_line_by_line() {
    let report = std::fs::read_to_string(folder().join("perf-6.1-text-swiss.txt")).unwrap();
    let noise = "request 17, 12 ms, 3.5 MB/s: ok\n".repeat(1 << 17);
    let found = outcome(read_text(&format!("{noise}{report}"), Path::new("x")));
    assert_eq!(found, outcome(read_text(&report, Path::new("x"))));
}

#[test]
fn more_intervals_than_fit_are_refused() {
    let mut text = String::new();
    for interval in 0..(1 << 18) + 1 {
        let _ = writeln!(text, "{interval}.000000000,5,,cycles,5,100.00,,");
    }
    let error = outcome(read_text(&text, Path::new("x")));
    assert!(error.starts_with("x:262145: expected at most 262,144 counts"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn files_changed_anywhere_are_read_or_refused(
        which in 0..TABLE.len(), changes in prop::collection::vec((0usize..4000, any::<char>()), 1..6),
    ) {
        let whole = std::fs::read(folder().join(TABLE[which].0)).unwrap();
        let mut text: Vec<char> = String::from_utf8_lossy(&whole).chars().collect();
        for (at, change) in changes {
            if let Some(place) = text.get_mut(at) {
                *place = change;
            }
        }
        let text: String = text.into_iter().collect();
        let reading = read_text(&text, Path::new("x")).unwrap_or_default();
        if let Some((low, high)) = share(&reading) {
            prop_assert!(0.0 <= low && low <= high && high <= 1.0);
        }
    }

    /// What printf groups with `'` in a locale is the same number.
    #[test]
    fn counts_of_every_locale_are_the_same(
        value in 0u64..u64::MAX / 2048,
        separator in prop::sample::select(vec![",", ".", "'", "’", " ", "\u{a0}", "\u{202f}", "\u{2009}"]),
    ) {
        let digits = value.to_string();
        let mut grouped = String::new();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                grouped += separator;
            }
            grouped.push(digit);
        }
        let text = format!("{grouped:>18}      cycles:u         # 1,5 GHz\n");
        let reading = read_text(&text, Path::new("x")).unwrap();
        prop_assert_eq!(reading.counts[0].value, Some(value as f64), "{}", text);
    }
}
