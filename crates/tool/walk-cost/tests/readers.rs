//! Files of all formats, as perf 6.1 writes them, truncated files, and malicious files. `fixtures/` holds page faults
//! with addresses that perf 6.1.187 recorded of `true` (`-d -c 1`).

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
    ];
    assert_eq!(value(&of(&text.concat()), "cycles"), Some(15.0 + 100.0 + 1000.0));
    let kinds = [line("", "cpu_core/cycles/", 7), line("", "cpu_atom/cycles/", 5)];
    assert_eq!(value(&of(&kinds.concat()), "cpu/cycles/"), Some(12.0));
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
        ("mises=2\nmisses=1\n", 1),
        ("cost=1 x", 1),
    ] {
        let error = read_text(text, Path::new("k")).unwrap_err().to_string();
        assert!(error.starts_with(&format!("k:{line}: expected ")), "{error}");
    }
}

#[test]
fn other_files_are_told_what_would_be_right() {
    for text in
        ["", "hello\nworld\n", "\0\0\0", "<html><body>1 2 3</body></html>", "1,2,3\n4,5,6\n"]
    {
        let error = read_text(text, Path::new("x")).unwrap_err().to_string();
        assert!(error.contains("expected the output of perf stat"), "{error}");
    }
    assert!(matches!(read(Path::new("/no/such/file")), Err(FromError::Io { .. })));
    assert!(matches!(read(Path::new("/")), Err(FromError::Io { .. })));
}

const LAYOUT: Layout = Layout {
    identifier: true,
    cpu: true,
    names: true,
    big_endian: false,
    piped: false,
    packed: None,
};

fn read_bytes(bytes: &[u8]) -> Result<Reading, FromError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    read(file.path())
}

/// Two events; misses of two processes in three mappings, one of which is mapped over another. The second round has a
/// mapping that is older than the samples before it.
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
        LAYOUT,
        Layout { identifier: false, ..LAYOUT },
        Layout { cpu: false, ..LAYOUT },
        Layout { big_endian: true, ..LAYOUT },
        Layout { big_endian: true, identifier: false, ..LAYOUT },
        Layout { piped: true, ..LAYOUT },
        Layout { packed: Some(81), ..LAYOUT },
        Layout { packed: Some(83), ..LAYOUT },
        Layout { piped: true, packed: Some(83), big_endian: true, ..LAYOUT },
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
    let nameless = Layout { names: false, ..LAYOUT };
    let reading = read_bytes(&recorded(nameless).bytes()).unwrap();
    assert_eq!(reading.counts[1].event, "event 1");
}

#[test]
fn perf_data_that_is_cut_off_or_damaged_says_so() {
    let whole = recorded(LAYOUT).bytes();
    let piped = recorded(Layout { piped: true, ..LAYOUT }).bytes();
    let mut unfinished = whole.clone();
    unfinished[48..56].fill(0);
    let mut without_events = whole.clone();
    without_events[16..24].fill(0);
    let mut of_stat = recorded(LAYOUT);
    of_stat.record(76, 0, &[0; 40]);
    let mut scrambled = recorded(LAYOUT);
    scrambled.record(81, 0, &[7; 32]);
    for (bytes, word) in [
        (&unfinished, "perf was killed"),
        (&without_events, "no event descriptions"),
        (&scrambled.bytes(), "damaged compressed records"),
        (&of_stat.bytes(), "perf stat report -i"),
        (&whole[..9].to_vec(), "truncated"),
        (&whole[..60].to_vec(), "too short"),
        (&whole[..whole.len() / 2].to_vec(), "end beyond the file"),
        (&piped[..16].to_vec(), "no event descriptions"),
        (&piped[..piped.len() - 3].to_vec(), "truncated"),
    ] {
        let error = read_bytes(bytes).unwrap_err().to_string();
        assert!(error.contains(word) && !error.contains('\n'), "{word}: {error}");
    }
}

#[test]
fn what_perf_recorded_compressed_and_into_a_pipe_is_read() {
    // The numbers agree with `perf script -F event,period,addr,dso`.
    for (name, faults, in_the_loader) in
        [("compressed", 51, 10), ("piped", 50, 10), ("piped-compressed", 48, 9)]
    {
        let path = format!("{}/tests/fixtures/{name}.data", env!("CARGO_MANIFEST_DIR"));
        let reading = read(Path::new(&path)).unwrap();
        assert_eq!(value(&reading, "page-faults"), Some(f64::from(faults)), "{name}");
        let rows = reading.attributions[0].mappings.iter();
        let of_loader = rows.filter(|row| row.name.contains("ld-linux")).map(|row| row.events);
        assert_eq!(of_loader.sum::<f64>(), f64::from(in_the_loader), "{name}");
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
    let reading = read(&data).unwrap();
    let script = std::process::Command::new("perf")
        .args(["script", "-F", "event,addr,dso", "-i"])
        .arg(&data)
        .output()
        .unwrap();
    // Both readers read the same recording: `page-faults: 7fe1faa7b110 (/usr/lib/libc.so.6)`.
    let script = String::from_utf8_lossy(&script.stdout);
    let faults = &reading.attributions[0];
    assert!(faults.samples > 20, "{faults:?}");
    assert_eq!(faults.samples as usize, script.lines().count());
    // `libc.so.6`, or `libc-2.31.so` before glibc 2.34.
    let is_libc = |text: &str| text.contains("/libc.so") || text.contains("/libc-");
    let rows = faults.mappings.iter().filter(|row| is_libc(&row.name));
    let in_libc = script.lines().filter(|line| is_libc(line)).count();
    assert!(in_libc > 0);
    assert_eq!(rows.map(|row| row.events).sum::<f64>() as usize, in_libc);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_text_is_read_or_refused(text in "(?s).{0,400}") {
        let _ = read_text(&text, Path::new("fuzz"));
    }

    #[test]
    fn texts_cut_and_changed_are_read_or_refused(
        which in 0usize..2, cut in 0usize..1200, at in 0usize..1200, byte: char,
    ) {
        let keys = "misses=9492000 cost=563 cycles=29953650000\n";
        let whole = [JSON, keys][which];
        let mut text: String = whole.chars().take(cut).collect();
        if let Some((place, _)) = text.char_indices().nth(at) {
            text.insert(place, byte);
        }
        let _ = read_text(&text, Path::new("fuzz"));
    }

    #[test]
    fn perf_data_cut_and_changed_is_read_or_refused(
        piped: bool, packed in prop::option::of(prop::sample::select(vec![81, 83])), big_endian: bool,
        cut in 0usize..2000, changes in prop::collection::vec((0usize..2000, any::<u8>()), 0..8),
    ) {
        let layout = Layout { piped, packed, big_endian, ..LAYOUT };
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
