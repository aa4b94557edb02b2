//! Files of all formats, as perf 6.1 writes them, cut off, and hostile.

mod from;

use std::io::Write;
use std::path::Path;

use from::perf_data::{File, Layout};
use proptest::prelude::*;
use superpage_walk_cost::from::{Format, FromError, Reading, read, read_text};
use superpage_walk_cost::{Context, Method, interpret};

fn of(text: &str) -> Reading {
    read_text(text, Path::new("stat.txt")).unwrap()
}

fn value(reading: &Reading, event: &str) -> Option<f64> {
    let count = reading.counts.iter().find(|count| count.event == event);
    count.unwrap_or_else(|| panic!("no {event}: {reading:?}")).value
}

const JSON: &str = r#"
the program said this
{"counter-value" : "2000000000.000000", "unit" : "", "event" : "cycles:u", "event-runtime" : 4206333, "pcnt-running" : 100.00, "metric-value" : 334.971102, "metric-unit" : "K/sec"}
{"counter-value" : "4.206333", "unit" : "msec", "event" : "task-clock", "event-runtime" : 4206333, "pcnt-running" : 100.00, "metric-value" : 0.533822, "metric-unit" : "CPUs utilized"}
{"counter-value" : "300000000.000000", "unit" : "", "event" : "dtlb_load_misses.walk_active:u", "event-runtime" : 2103166, "pcnt-running" : 50.00, "metric-value" : 0.0, "metric-unit" : ""}
{"counter-value" : "<not supported>", "unit" : "", "event" : "itlb_misses.walk_active:u", "event-runtime" : 0, "pcnt-running" : 100.00, "metric-value" : 0.0, "metric-unit" : ""}
{"metric-value" : 0.5, "metric-unit" : "insn per cycle"}
"#;

#[test]
fn json_of_perf_stat() {
    let reading = of(JSON);
    assert_eq!(reading.format, Format::StatJson);
    assert_eq!(value(&reading, "cycles:u"), Some(2e9));
    assert_eq!(value(&reading, "itlb_misses.walk_active:u"), None);
    let walks = &reading.counts[2];
    assert_eq!((walks.value, walks.counted), (Some(3e8), Some(0.5)));
    assert_eq!(walks.source, "stat.txt:5");
    let estimate = interpret(&reading.counts, Context::default());
    assert_eq!(estimate.method, Method::PmuWalkCycles);
    assert_eq!(estimate.share.unwrap().mid(), 0.15);
    assert!(estimate.notes.iter().any(|note| note.contains("50 %")), "{:?}", estimate.notes);
}

#[test]
fn json_of_intervals_and_sockets_is_added_up_and_of_groups_is_not() {
    let line = |extra: &str, event: &str, value: u32| {
        format!(
            "{{{extra}\"counter-value\" : \"{value}.0\", \"unit\" : \"\", \"event\" : \"{event}\"}}\n"
        )
    };
    let text = [
        line("\"interval\" : 1.001, ", "cycles", 10),
        line("\"interval\" : 1.001, ", "cycles", 20),
        line("\"interval\" : 2.002, ", "cycles", 100),
        line("\"interval\" : 2.002, \"socket\" : \"S1\", ", "cycles", 1000),
        line("", "cpu_core/cycles/", 7),
        line("", "cpu_atom/cycles/", 5),
    ];
    let reading = of(&text.concat());
    assert_eq!(value(&reading, "cycles"), Some(15.0 + 100.0 + 1000.0));
    assert_eq!(value(&reading, "cpu/cycles/"), Some(12.0));
}

#[test]
fn broken_json_is_named_with_its_line() {
    let cut = &JSON[..JSON.len() - 40];
    let cut = &cut[..cut.rfind("itlb").unwrap()];
    match read_text(cut, Path::new("cut.json")).unwrap_err() {
        FromError::Line { line: 6, .. } => {}
        other => panic!("{other}"),
    }
    let wrong = "{\"counter-value\" : \"many\", \"event\" : \"cycles\"}";
    let error = read_text(wrong, Path::new("x")).unwrap_err().to_string();
    assert!(error.starts_with("x:1:") && error.contains("counter-value"), "{error}");
}

#[test]
fn csv_of_perf_stat_in_all_its_orders() {
    for (text, cycles, walks) in [
        ("100,,cycles,4196819,100.00,335.730,K/sec\n9,,dtlb_walk,4,25.00,,\n", 100.0, 9.0),
        ("# started on Sun\n\n100;;cycles;4196819;100.00;;\n9;;dtlb_walk;4;25.00;;\n", 100.0, 9.0),
        (
            "     0.010,100,,cycles,0.00%,2,100.00,,\n     0.010,9,,dtlb_walk,53.82%,1,25.00,,\n\
             0.020,50,,cycles,1.0%,2,100.00,,\n     0.020,1,,dtlb_walk,1.0%,1,25.00,,\n",
            150.0,
            10.0,
        ),
        (
            "CPU0,60,,cycles,1,100.00,,\nCPU1,40,,cycles,1,100.00,,\nCPU0,9,,dtlb_walk,1,25.00,,\n",
            100.0,
            9.0,
        ),
        ("S0,8,100,,cycles,1,100.00,,\nS0,8,9,,dtlb_walk,1,25.00,,\n", 100.0, 9.0),
        (
            "4.20,msec,task-clock,1,100.00,,\n100,,cycles,1,100.00,,\n9,,dtlb_walk,1,25.00,,\n",
            100.0,
            9.0,
        ),
    ] {
        let reading = of(text);
        assert_eq!(reading.format, Format::StatCsv, "{text}");
        assert_eq!(value(&reading, "cycles"), Some(cycles), "{text}");
        assert_eq!(value(&reading, "dtlb_walk"), Some(walks), "{text}");
        let walks = reading.counts.iter().find(|count| count.event == "dtlb_walk").unwrap();
        assert_eq!(walks.counted, Some(0.25), "{text}");
    }
    let absent = of("<not supported>,,cycles,0,100.00,,\n<not counted>,,dtlb_walk,0,0.00,,\n");
    assert_eq!((value(&absent, "cycles"), value(&absent, "dtlb_walk")), (None, None));
}

const TEXT: &str = "
10000 things done in 3 seconds

 Performance counter stats for './app':

     2,000,000,000      cycles:u                         #    2.345 GHz                         (83.33%)
              3.92 msec task-clock                       #    0.488 CPUs utilized
       300,000,000      dTLB-load-misses                 #   15.00% of all dTLB cache accesses  (50.00%)
   <not supported>      itlb_misses.walk_active

       0.008030510 seconds time elapsed

       0.000000000 seconds user
       0.005617000 seconds sys
";

#[test]
fn what_perf_stat_prints() {
    let reading = of(TEXT);
    assert_eq!(reading.format, Format::StatText);
    let events: Vec<&str> = reading.counts.iter().map(|count| count.event.as_str()).collect();
    let expected = ["cycles:u", "task-clock", "dTLB-load-misses", "itlb_misses.walk_active"];
    assert_eq!(events, expected, "{reading:?}");
    assert_eq!(value(&reading, "cycles:u"), Some(2e9));
    assert!((reading.counts[0].counted.unwrap() - 0.8333).abs() < 1e-9);
    assert_eq!(value(&reading, "dTLB-load-misses"), Some(3e8));
    assert_eq!(value(&reading, "itlb_misses.walk_active"), None);
}

#[test]
fn what_perf_stat_prints_with_spread_intervals_and_other_locales() {
    let spread = of(" Performance counter stats for './app' (2 runs):\n\n\
                     1408      cycles       #  352.1 K/sec     ( +-  0.21% )\n\
                     0.0153012 +- 0.0000321 seconds time elapsed  ( +-  0.21% )\n");
    assert_eq!((spread.counts.len(), value(&spread, "cycles")), (1, Some(1408.0)));
    let german = of(" Performance counter stats for 'x':\n 1.234.567      cycles:u\n");
    assert_eq!(value(&german, "cycles:u"), Some(1_234_567.0));
    let intervals = of("#           time             counts unit events\n\
                        1.000105072        1,000      cycles\n     2.000205072        500      cycles\n");
    assert_eq!(value(&intervals, "cycles"), Some(1500.0));
}

const SCRIPT: &str = "
 swapper     0     0.000000: PERF_RECORD_MMAP -1/0: [0xffffffff81000000(0x120bb08) @ 0]: x [kernel.kallsyms]_text
     app 12009 34931.584899: PERF_RECORD_MMAP2 12009/12009: [0x7ffd547e3000(0x21000) @ 0 00:00 0 0]: rw-p [stack]
     app 12009 34931.584922:          1 cycles:  ffffffff817554ea elf_load+0x28a ([kernel.kallsyms])
  my app 12009/12010 [003] 34931.616187:       1000 dtlb_load_misses.walk_completed:u:     5611a9b48060 [unknown] (//anon)     5611a9b07174 touch+0x1b (/usr/bin/app)
     app 12009 34931.616188:       3000 dtlb_load_misses.walk_completed:u:     7ffd547e3010 [unknown] ([unknown])     5611a9b07174 touch+0x1f (/usr/bin/app)
     app 12009 34931.616190:       4000 dtlb_load_misses.walk_completed:u:     5611a9b49060 table+0x60 (/usr/bin/app)     5611a9b07200 sum<int, long>(int)+0x1 (/usr/bin/app)
     app 12009 34931.616194:          2 cycles:
\t    7f8f10bee5e0 __unregister_atfork+0x0 (/usr/lib/libc.so.6)
\t    5611a9b07100 main+0x0 (/usr/bin/app)

";

#[test]
fn what_perf_script_prints_is_shared_out() {
    let reading = of(SCRIPT);
    assert_eq!(reading.format, Format::Script);
    assert_eq!(value(&reading, "cycles"), Some(3.0));
    assert_eq!(value(&reading, "dtlb_load_misses.walk_completed:u"), Some(8000.0));
    let misses = &reading.attributions[1];
    let rows = |shares: &[superpage_walk_cost::Share]| -> Vec<(String, f64)> {
        shares.iter().map(|row| (row.name.clone(), row.share)).collect()
    };
    assert_eq!((misses.samples, misses.with_address), (3, 3));
    let mappings = [("/usr/bin/app", 0.5), ("[stack]", 0.375), ("//anon", 0.125)];
    assert_eq!(rows(&misses.mappings), mappings.map(|(name, share)| (name.to_string(), share)));
    let symbols = [("sum<int, long>(int)", 0.5), ("touch", 0.5)];
    assert_eq!(rows(&misses.symbols), symbols.map(|(name, share)| (name.to_string(), share)));
    let cycles = &reading.attributions[0];
    assert_eq!((cycles.with_address, cycles.mappings.len()), (0, 0));
    assert_eq!(cycles.symbols[0].name, "__unregister_atfork");
}

#[test]
fn samples_without_periods_are_no_counts() {
    let reading = of("app 1 1.5: cycles:  ffffffff817554ea f+0x2 ([kernel])\n");
    assert_eq!(value(&reading, "cycles"), None);
    assert_eq!(reading.attributions[0].samples, 1);
    assert!(reading.notes[0].contains("period"));
}

#[test]
fn keys_as_toml_and_on_one_line() {
    for text in [
        "misses=9492000 cost=563 cycles=29953650000\n",
        "# STREAM\n[measured]\nmisses = 9_492_000\ncost = 563\ncycles = 29953650000 # all\n",
        "misses = 9492\nmiss_period=1000\ncost=563\ncycles=599073, cycle_period=50000",
    ] {
        let reading = of(text);
        assert_eq!(reading.format, Format::Keys);
        let share = reading.given.estimate().share.unwrap();
        assert_eq!(format!("{:.2}", share.mid() * 100.0), "17.84", "{text}");
    }
    for (text, line) in [
        ("misses=1\nmises=2\n", 2),
        ("misses=1\nmisses=2\n", 2),
        ("cost=many\n", 1),
        ("cost=1 x", 1),
    ] {
        let error = read_text(text, Path::new("k")).unwrap_err().to_string();
        assert!(error.starts_with(&format!("k:{line}: expected ")), "{error}");
    }
}

#[test]
fn other_files_are_told_what_would_be_right() {
    for text in ["", "hello\nworld\n", "\0\0\0", "<html><body>1 2 3</body></html>"] {
        let error = read_text(text, Path::new("x")).unwrap_err().to_string();
        assert!(error.contains("perf stat (-j, -x, or plain)"), "{error}");
    }
    assert!(matches!(read(Path::new("/no/such/file")), Err(FromError::Io { .. })));
    assert!(matches!(read(Path::new("/")), Err(FromError::Io { .. })));
}

fn read_bytes(bytes: &[u8]) -> Result<Reading, FromError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    read(file.path())
}

/// Two events, misses of two processes in three mappings, one of them mapped over another; the
/// second round holds a mapping that is older than the samples before it.
fn recorded(layout: Layout) -> File {
    let mut file = File::new(layout, &["cycles:u", "dtlb_load_misses.walk_active:u"]);
    file.map(1, 10, 0x1000, 0x9000, "//anon");
    file.map(1, 20, 0x40_0000, 0x1000, "/usr/bin/app");
    file.fork(2, 1, 30);
    file.sample(0, 1, 40, 0x40_0010, 0, 1_000_000_000);
    file.sample(1, 1, 50, 0x40_0010, 0x1010, 100_000_000);
    file.round();
    file.sample(1, 2, 90, 0x40_0010, 0x2010, 50_000_000);
    file.map(2, 80, 0x2000, 0x1000, "[heap]");
    file.round();
    file.sample(1, 1, 110, 0x50_0010, 0x2010, 50_000_000);
    file.lost(7);
    file
}

#[test]
fn perf_data_of_every_layout_says_the_same() {
    for layout in [
        Layout { identifier: true, cpu: true, names: true },
        Layout { identifier: false, cpu: true, names: true },
        Layout { identifier: true, cpu: false, names: true },
    ] {
        let reading = read_bytes(&recorded(layout).bytes()).unwrap();
        assert_eq!(reading.format, Format::Data);
        assert_eq!(reading.table.map(|table| table.name), Some("Skylake"));
        assert_eq!(value(&reading, "cycles:u"), Some(1e9));
        assert_eq!(value(&reading, "dtlb_load_misses.walk_active:u"), Some(2e8));
        let misses = &reading.attributions[1];
        let names: Vec<(&str, f64)> =
            misses.mappings.iter().map(|row| (row.name.as_str(), row.share)).collect();
        assert_eq!(names, [("//anon", 0.75), ("[heap]", 0.25)]);
        assert_eq!(misses.symbols[0].name, "/usr/bin/app");
        assert_eq!(misses.symbols[1].name, "unknown");
        assert!(reading.notes.iter().any(|note| note.starts_with("7 samples were lost")));
        let context = Context { table: reading.table, cost: None };
        let estimate = interpret(&reading.counts, context);
        assert_eq!(estimate.share.unwrap().mid(), 0.2);
    }
    let nameless = Layout { identifier: true, cpu: true, names: false };
    let reading = read_bytes(&recorded(nameless).bytes()).unwrap();
    assert_eq!(reading.counts[1].event, "event 1");
}

#[test]
fn perf_data_that_perf_must_unpack_or_that_is_cut_off_says_so() {
    let layout = Layout { identifier: true, cpu: true, names: true };
    let whole = recorded(layout).bytes();
    let mut piped = whole.clone();
    piped[8..16].copy_from_slice(&16u64.to_ne_bytes());
    let mut swapped = whole.clone();
    swapped[..8].reverse();
    let mut compressed = recorded(layout);
    compressed.record(81, 0, &[0; 32]);
    let mut unfinished = whole.clone();
    unfinished[48..56].fill(0);
    for (bytes, word) in [
        (&piped, "into a pipe"),
        (&swapped, "other byte order"),
        (&compressed.bytes(), "compressed"),
        (&unfinished, "perf did not end properly"),
        (&whole[..9].to_vec(), "cut off"),
        (&whole[..60].to_vec(), "shorter"),
        (&whole[..whole.len() / 2].to_vec(), "do not lie in the file"),
    ] {
        let error = read_bytes(bytes).unwrap_err().to_string();
        assert!(error.contains(word) && !error.contains('\n'), "{word}: {error}");
    }
}

#[test]
fn a_file_that_this_machines_perf_recorded_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("perf.data");
    let record = std::process::Command::new("perf")
        .args(["record", "-q", "-e", "page-faults", "-d", "-c", "1", "-o"])
        .arg(&data)
        .args(["--", "true"])
        .output();
    let done = record.as_ref().is_ok_and(|output| output.status.success());
    testkit::require!(done, "perf cannot record page faults here: {record:?}");
    let binary = read(&data).unwrap();
    let script = std::process::Command::new("perf")
        .args([
            "script",
            "--show-mmap-events",
            "-F",
            "comm,pid,tid,time,period,event,addr,ip,sym,dso",
            "-i",
        ])
        .arg(&data)
        .output()
        .unwrap();
    let text = read_text(&String::from_utf8_lossy(&script.stdout), Path::new("script")).unwrap();
    // Two readers, one recording: the kernel's own counts, and the mappings perf resolves itself.
    let faults = |reading: &Reading| {
        let one = &reading.attributions[0];
        (one.samples, one.with_address, reading.counts[0].value)
    };
    assert!(faults(&binary).0 > 20, "{:?}", faults(&binary));
    assert_eq!(faults(&binary), faults(&text));
    let part = |reading: &Reading, name: &str| {
        let rows = reading.attributions[0].mappings.iter();
        rows.filter(|row| row.name.contains(name)).map(|row| row.events).sum::<f64>()
    };
    assert!(part(&binary, "libc.so") > 0.0);
    assert_eq!(part(&binary, "libc.so"), part(&text, "libc.so"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_text_is_read_or_refused(text in "(?s).{0,400}") {
        let _ = read_text(&text, Path::new("fuzz"));
    }

    #[test]
    fn texts_cut_and_changed_are_read_or_refused(
        which in 0usize..5, cut in 0usize..1200, at in 0usize..1200, byte: char,
    ) {
        let csv = "0.01,951,,page-faults,0.00%,2908474,100.00,326.976,K/sec\n";
        let keys = "misses=9492000 cost=563 cycles=29953650000\n";
        let whole = [JSON, TEXT, SCRIPT, csv, keys][which];
        let mut text: String = whole.chars().take(cut).collect();
        if let Some((place, _)) = text.char_indices().nth(at) {
            text.insert(place, byte);
        }
        let _ = read_text(&text, Path::new("fuzz"));
    }

    #[test]
    fn perf_data_cut_and_changed_is_read_or_refused(
        cut in 0usize..2000, changes in prop::collection::vec((0usize..2000, any::<u8>()), 0..8),
    ) {
        let layout = Layout { identifier: true, cpu: true, names: true };
        let mut bytes = recorded(layout).bytes();
        for (at, byte) in changes {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        bytes.truncate(bytes.len().saturating_sub(cut / 4).max(8));
        let _ = read_bytes(&bytes);
    }
}
