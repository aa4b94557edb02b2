//! Imported traces: real ones, generated ones, and invalid ones.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;

use crate::common::{Item, drain};
use superpage_trace::import::{Format, Import, Imported, Input, import};
use superpage_trace::{
    Block, Checker, Event, Filter, Mappings, MruSets, Reader, SLOTS, Source, TraceError,
};

/// `valgrind --tool=lackey --trace-mem=yes /bin/true`, Debian 12's, valgrind 3.19, packed by xz.
const LACKEY: &[u8] = include_bytes!("../fixtures/true.lackey.xz");

fn options(format: Format) -> Import {
    Import { replace: true, ..Import::new(format, "test") }
}

fn make(import_: &Import, name: &str, bytes: &[u8], output: &Path) -> Result<Imported, TraceError> {
    let scratch = output.parent().unwrap().to_path_buf();
    let import_ = Import { scratch, ..import_.clone() };
    let bytes = std::io::Cursor::new(bytes.to_vec());
    let input = Input::new(Box::new(bytes), Path::new(name), import_.format)?;
    import(&import_, input, output, &mut |_| ControlFlow::Continue(()))
}

/// Returns the pages that a trace accesses, by address, with the writes.
fn pages(path: &Path) -> Vec<(u64, bool, u32)> {
    let mut starts = BTreeMap::new();
    let mut out = Vec::new();
    for item in drain(&mut Reader::open(path).unwrap()).unwrap() {
        match item {
            Item::Event(Event::Map { pages, address, .. }) => {
                starts.insert(pages.first.0, address);
            }
            Item::Event(_) => {}
            Item::Access(access, count) => {
                let (first, address) = starts.range(..=access.page().0).next_back().unwrap();
                let page = address + u64::from(access.page().0 - first);
                out.push((page, access.writes(), count));
            }
        }
    }
    out
}

fn sound(path: &Path) {
    let mut reader = Reader::open(path).unwrap();
    let (mut block, mut checker) = (Block::default(), Checker::new());
    while reader.next(&mut block).unwrap() {
        checker.block(&block).unwrap();
    }
}

#[test]
fn a_real_program() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("true.spt");
    for (filter, records) in [
        (Filter::None, 41_239),
        (Filter::SamePage, 15_872),
        (Filter::SetMru(MruSets::INTEL), 7_368),
    ] {
        let options = Import { filter, ..options(Format::Lackey) };
        let made = make(&options, "true.lackey.xz", LACKEY, &path).unwrap();
        assert_eq!((made.totals.accesses, made.totals.records), (41_239, records));
        assert_eq!((made.mappings, made.touched), (4, 6));
        sound(&path);
        let reader = Reader::open(&path).unwrap();
        let header = &reader.info().header;
        assert_eq!(header.mappings, Mappings::Inferred { gap: 4 << 20 });
        assert!(header.creator.ends_with("--from lackey"), "{}", header.creator);
        reader.expect_geometry(4096).unwrap();
        let error = reader.expect_geometry(16384).unwrap_err().to_string();
        assert!(error.contains("pages of 4096") && error.contains("16384"), "{error}");
    }
    let with_code = Import { instructions: true, ..options(Format::Lackey) };
    let made = make(&with_code, "true.lackey.xz", LACKEY, &path).unwrap();
    assert!(made.totals.accesses > 100_000, "{made:?}");
}

#[test]
fn lackey_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let text =
        b"==1== Lackey\n--1-- more\n\nI  04000000,3\n L 1000,8\n S 1ffc,8\n M 7fff0000,4\r\n";
    make(&options(Format::Lackey), "x", text, &path).unwrap();
    // 1ffc,8 crosses a page boundary.
    let data = [(1, false, 1), (1, true, 1), (2, true, 1), (0x7fff0, false, 1), (0x7fff0, true, 1)];
    assert_eq!(pages(&path), data);
    sound(&path);
}

#[test]
fn text_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let text = b"# a comment\n0x1000\n4096\nW 0x2fff # here\nr 0XFFFFFFFFFFFFFFFF";
    make(&options(Format::Text), "x", text, &path).unwrap();
    assert_eq!(pages(&path), [(1, false, 2), (2, true, 1), ((1 << 52) - 1, false, 1)]);
    sound(&path);
    let large = Import { base_page: 65536, ..options(Format::Text) };
    make(&large, "x", text, &path).unwrap();
    assert_eq!(pages(&path)[0], (0, false, 2));
    let error = Reader::open(&path).unwrap().expect_geometry(4096).unwrap_err();
    assert!(matches!(error, TraceError::Geometry { trace: 65536, machine: 4096, .. }));
}

#[test]
fn raw_by_hand_and_packed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let bytes: Vec<u8> =
        [0x1000u64, 0x1008 | 1 << 63, 0x5000].iter().flat_map(|word| word.to_le_bytes()).collect();
    let expected = [(1, false, 1), (1, true, 1), (5, false, 1)];
    let options = Import { write_bit: Some(63), ..options(Format::Raw) };
    make(&options, "x", &bytes, &path).unwrap();
    assert_eq!(pages(&path), expected);

    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&bytes).unwrap();
    make(&options, "x.gz", &gzip.finish().unwrap(), &path).unwrap();
    assert_eq!(pages(&path), expected);
    make(&options, "x.zst", &zstd::encode_all(&bytes[..], 1).unwrap(), &path).unwrap();
    assert_eq!(pages(&path), expected);
}

/// ChampSim's record.
fn instruction(ip: u64, stores: [u64; 2], loads: [u64; 4]) -> [u8; 64] {
    let mut record = [0; 64];
    record[..8].copy_from_slice(&ip.to_le_bytes());
    let words = stores.iter().chain(&loads).flat_map(|word| word.to_le_bytes());
    record[16..].iter_mut().zip(words).for_each(|(to, from)| *to = from);
    record
}

#[test]
fn champsim_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let records = [
        instruction(0x40_0000, [0, 0], [0x10_0000, 0, 0x20_0000, 0]),
        instruction(0x40_0004, [0x10_0008, 0], [0, 0, 0, 0]),
        instruction(0x40_0008, [0x30_0000, 0], [0x30_0000, 0, 0, 0]),
    ];
    let bytes = records.concat();
    make(&options(Format::ChampSim), "x", &bytes, &path).unwrap();
    let data = [
        (0x100, false, 1),
        (0x200, false, 1),
        (0x100, true, 1),
        (0x300, false, 1),
        (0x300, true, 1),
    ];
    assert_eq!(pages(&path), data);
    let all = Import { instructions: true, ..options(Format::ChampSim) };
    let made = make(&all, "x", &bytes, &path).unwrap();
    assert_eq!(made.totals.accesses, 8);
    sound(&path);
    let error = make(&options(Format::ChampSim), "x", &bytes[..190], &path).unwrap_err();
    assert!(error.to_string().contains("x: byte 128: 62 bytes are left"), "{error}");
}

#[test]
fn wrong_inputs_say_where() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let far: Vec<u8> = (0..=1u64 << 22).flat_map(|n| (n << 21).to_le_bytes()).collect();
    let long = vec![b'7'; 5000];
    let packed = |cut: usize| LACKEY[..LACKEY.len() - cut].to_vec();
    let mut flipped = packed(0);
    flipped[LACKEY.len() / 2] ^= 4;
    let cases: &[(Format, &[u8], &str)] = &[
        (Format::Text, b"1\n\n0x12g\n", "x: line 3: `0x12g` is no address"),
        (Format::Text, b"1 2\n", "x: line 1: `1 2` is no address"),
        (Format::Text, b"0x11111111111111111\n", "line 1"),
        (Format::Text, b"\xff\x00\x01\n", "x: line 1: `\u{fffd}\\0\\u{1}` is no address"),
        (Format::Text, b"", "x: holds no access"),
        (Format::Text, &long, "x: line 1: longer than 4096 bytes"),
        (Format::Lackey, b" L 1000,8\nhello\n", "x: line 2: `hello` is no record of lackey's"),
        (Format::Lackey, b" L 1000,0\n", "line 1"),
        (Format::Lackey, b" L 1000,99999999\n", "line 1"),
        (Format::Lackey, b"I  1000,8\n", "x: holds no access"),
        (Format::Lackey, &packed(100), "cannot be read on"),
        // The decompressed data up to the end of a block are read before its checksum detects the error.
        (Format::Lackey, &flipped, "x: line "),
        (Format::Raw, b"1234567", "x: byte 0: 7 bytes are left"),
        (Format::Raw, &far, "x: byte 33554432: more than 4194304 regions"),
        (Format::ChampSim, &[7; 64], "x: byte 0: no ChampSim record"),
    ];
    for (format, bytes, part) in cases {
        let error = make(&options(*format), "x", bytes, &path).unwrap_err().to_string();
        assert!(error.contains(part), "{format:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        // Neither the trace nor any other file is left.
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{error}");
    }
}

#[test]
fn a_stopped_import_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let import_ = Import { scratch: dir.path().to_path_buf(), ..options(Format::Lackey) };
    for after in [1, 4] {
        let input = Input::new(Box::new(LACKEY), Path::new("x"), Format::Lackey).unwrap();
        let mut left = after;
        let stopped = import(&import_, input, &path, &mut |_| {
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(matches!(stopped, Err(TraceError::Stopped { .. })), "{stopped:?}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_far_flung_program_needs_a_smaller_gap() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let text = b"0x1000\n0x100000000000\n";
    let wide = Import { gap: u64::MAX, ..options(Format::Text) };
    let error = make(&wide, "x", text, &path).unwrap_err().to_string();
    assert!(error.contains("--gap"), "{error}");
    let made = make(&options(Format::Text), "x", text, &path).unwrap();
    assert_eq!((made.mappings, made.totals.regions), (2, 2));
    assert_eq!(SLOTS, 512);
}
