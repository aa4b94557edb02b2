//! Damaged and random bytes for every reader: the result is an error or the correct data. Readers never panic, and
//! never allocate more memory than the bytes justify.
//!
//! `SUPERPAGE_FUZZ_SECONDS=300 cargo test --release -p superpage-trace --test integration damage::long -- --nocapture`
//! continues for that time with other seeds.

use std::io::Cursor;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::common::{Item, items};
use proptest::prelude::*;
use superpage_trace::import::{Format, Import, Input, import};
use superpage_trace::{
    Access, Backing, Block, Checker, Event, Filter, Header, Page, Pages, Process, Reader, Source,
    TraceError,
};
use xxhash_rust::xxh3::xxh3_64;

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, end: usize) -> usize {
        (self.draw() % end.max(1) as u64) as usize
    }
}

/// Flips bits, truncates, copies, inserts or overwrites bytes.
fn damage(bytes: &mut Vec<u8>, dice: &mut Dice) {
    for _ in 0..=dice.below(4) {
        let (at, other) = (dice.below(bytes.len()), dice.below(bytes.len()));
        let length = dice.below(64).min(bytes.len() - at.max(other));
        match dice.below(7) {
            _ if bytes.is_empty() => {}
            0..=2 => bytes[at] ^= 1 << dice.below(8),
            3 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][dice.below(5)],
            4 => bytes.truncate(at),
            5 => bytes.copy_within(at..at + length, other),
            _ => {
                let some = bytes[at..at + length].to_vec();
                bytes.splice(other..other, some);
            }
        }
    }
}

/// Valid traces, which together have every coding and every event.
static TRACES: LazyLock<Vec<(Vec<u8>, Vec<Item>)>> = LazyLock::new(|| {
    let mut dice = Dice(7);
    let mut all = Vec::new();
    for (records, pages, most) in [(300, 20, 2), (3000, 5000, 300), (200_000, 1 << 30, 1000)] {
        let mut block = Block::default();
        let pages_ = Pages { first: Page(512), count: 700 };
        let backing = Backing::File { file: 3, cached: true };
        for event in [
            Event::Spawn(Process(0)),
            Event::Map { pages: pages_, address: 1 << 30, backing },
            Event::Phase("begin".to_string()),
            Event::Fork { child: Process(1), offset: 4096 },
        ] {
            block.event(event);
        }
        for _ in 0..records {
            let page = Page(dice.below(pages) as u32);
            let write = dice.below(3) == 0;
            block.accesses.push(if write { Access::write(page) } else { Access::read(page) });
            block.counts.push(1 + dice.below(most) as u32);
            if dice.below(100) == 0 {
                block.event(Event::Wait(dice.draw() >> dice.below(64)));
                block.event(Event::Run(Process(dice.below(2) as u32)));
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.spt");
        let header = Header { filter: Filter::None, ..Header::new("damage") };
        crate::common::write(&path, &header, std::slice::from_ref(&block));
        all.push((std::fs::read(&path).unwrap(), items(&block)));
    }
    all
});

/// Reads the bytes to their end, and checks properties on which a simulator relies. Returns the items, and where the
/// file was truncated, if it was.
fn read(bytes: Vec<u8>) -> Result<(Vec<Item>, Option<u64>), TraceError> {
    let length = bytes.len() as u64;
    let mut reader = Reader::new(Cursor::new(bytes), Path::new("x"))?;
    let (totals, cut) = (reader.info().totals, reader.info().cut);
    assert!(cut.is_none_or(|cut| cut <= length));
    let _ = reader.regions();
    let (mut all, mut block, mut checker) = (Vec::new(), Block::default(), Some(Checker::new()));
    while reader.next(&mut block)? {
        assert!(block.counts.is_empty() || block.counts.len() == block.accesses.len());
        assert!(!block.counts.contains(&0));
        let regions = block.accesses.iter().map(|access| access.page().region().0);
        assert!(regions.max().unwrap_or(0) < totals.regions.max(1));
        assert!(block.events.is_sorted_by_key(|(position, _)| *position));
        let last = block.events.last().map_or(0, |(position, _)| *position);
        assert!(last as usize <= block.accesses.len());
        checker = checker.filter_map_ok(&block);
        all.extend(items(&block));
    }
    Ok((all, cut))
}

trait UntilWrong: Sized {
    /// Runs the checker until it finds an error in the stream.
    fn filter_map_ok(self, block: &Block) -> Self;
}

impl UntilWrong for Option<Checker> {
    fn filter_map_ok(self, block: &Block) -> Self {
        self.and_then(|mut checker| checker.block(block).is_ok().then_some(checker))
    }
}

/// Tests one damaged trace: the damage is reported, or the data are still correct.
fn damaged(seed: u64) {
    let mut dice = Dice(seed);
    let (bytes, truth) = &TRACES[dice.below(TRACES.len())];
    let mut copy = bytes.clone();
    damage(&mut copy, &mut dice);
    let same = copy == *bytes;
    match read(copy) {
        // Without the end of the file, a chunk is protected only by its format.
        Ok((_, Some(_))) => assert!(!same),
        Ok((items, None)) => assert!(items == *truth),
        Err(error) => {
            assert!(!same, "{error}");
            assert_eq!(error.to_string().lines().count(), 1);
        }
    }
}

/// Offsets in a file (FORMAT.md).
const TRAILER: usize = 32;
const CHUNKS: usize = 48;
const ENTRY: usize = 44;

/// Tests one damaged trace with corrected checksums, as only an attacker or a faulty writer produces.
fn forged(seed: u64) {
    let mut dice = Dice(seed);
    let (bytes, _) = &TRACES[dice.below(TRACES.len())];
    let number = |bytes: &[u8], at: usize| {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize
    };
    let end = bytes.len() - TRAILER;
    let foot = number(bytes, end);
    let head = 12 + usize::from(u16::from_le_bytes([bytes[10], bytes[11]]));
    let mut copy = bytes.clone();
    // Damage inside the sections only: chunks, footer and header keep their places.
    for _ in 0..=dice.below(3) {
        let begin = [12, head + 8, foot][dice.below(3)];
        let stop = if begin == 12 {
            head
        } else if begin == foot {
            end
        } else {
            foot
        };
        // Most decisions of the reader depend on the heads of columns and on the first fields.
        let near = if dice.below(2) == 0 { 160 } else { usize::MAX };
        let at = begin + dice.below((stop - begin).min(near));
        match dice.below(3) {
            0 => copy[at] ^= 1 << dice.below(8),
            1 => copy[at] = [0, 1, 0x7f, 0x80, 0xff][dice.below(5)],
            _ => copy[at] = dice.draw() as u8,
        }
    }
    let sum = xxh3_64(&copy[..head]);
    copy[head..head + 8].copy_from_slice(&sum.to_le_bytes());
    let count = u32::from_le_bytes(bytes[foot + 4..foot + 8].try_into().unwrap()) as usize;
    for chunk in 0..count {
        let entry = foot + CHUNKS + chunk * ENTRY;
        let offset = number(bytes, entry);
        let length = u32::from_le_bytes(bytes[entry + 8..entry + 12].try_into().unwrap()) as usize;
        let sum = xxh3_64(&copy[offset..offset + length]);
        copy[entry + 32..entry + 40].copy_from_slice(&sum.to_le_bytes());
    }
    let sum = xxh3_64(&copy[foot..end]);
    copy[end + 16..end + 24].copy_from_slice(&sum.to_le_bytes());
    if let Err(error) = read(copy) {
        assert_eq!(error.to_string().lines().count(), 1);
    }
}

/// Tests random bytes, most of them with a valid beginning.
fn invented(seed: u64) {
    let mut dice = Dice(seed);
    let (bytes, _) = &TRACES[0];
    let mut made: Vec<u8> = bytes[..dice.below(140)].to_vec();
    made.extend((0..dice.below(300)).map(|_| dice.draw() as u8));
    if dice.below(2) == 0 {
        made.extend(&bytes[bytes.len() - dice.below(100)..]);
    }
    assert!(read(made).map_or(true, |(_, cut)| cut.is_some()));
}

const LACKEY: &[u8] = include_bytes!("../fixtures/true.lackey.xz");

/// Valid inputs of every importer, plain and compressed.
static INPUTS: LazyLock<Vec<(Format, PathBuf, Vec<u8>)>> = LazyLock::new(|| {
    let mut dice = Dice(3);
    let mut words = |bits: u64, count: usize| -> Vec<u8> {
        (0..count).flat_map(|_| (dice.draw() & bits).to_le_bytes()).collect()
    };
    let text = b"# some\n0x7ffe12345678\nW 0x7ffe12345000\n1234567 # here\nR 0x10\n".repeat(4);
    let lackey =
        b"==9== Lackey\nI  04001c50,3\n L 1ffefffe78,8\n S 1ffefffe78,16\n M 40a0,4\n".repeat(4);
    let packed = zstd::encode_all(&text[..], 1).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut gzip, &lackey).unwrap();
    vec![
        (Format::Text, PathBuf::from("a"), text),
        (Format::Text, PathBuf::from("a.zst"), packed),
        (Format::Lackey, PathBuf::from("a"), lackey),
        (Format::Lackey, PathBuf::from("a.gz"), gzip.finish().unwrap()),
        (Format::Lackey, PathBuf::from("a.xz"), LACKEY.to_vec()),
        (Format::Raw, PathBuf::from("a"), words(0x7fff_ffff, 64)),
        (Format::ChampSim, PathBuf::from("a"), words(0x7f00_00ff, 64)),
    ]
});

/// Tests one import of damaged or random bytes. If a trace results, it is valid.
fn imported(seed: u64) {
    let mut dice = Dice(seed);
    let (format, path, bytes) = &INPUTS[dice.below(INPUTS.len())];
    let mut bytes = bytes.clone();
    if dice.below(4) == 0 {
        bytes = (0..dice.below(400)).map(|_| dice.draw() as u8).collect();
    } else {
        damage(&mut bytes, &mut dice);
    }
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("a.spt");
    let options = Import {
        instructions: dice.below(2) == 0,
        write_bit: (dice.below(2) == 0).then(|| dice.below(64) as u8),
        gap: dice.draw() >> dice.below(64),
        scratch: dir.path().to_path_buf(),
        ..Import::new(*format, "damage")
    };
    let input = Input::new(Box::new(Cursor::new(bytes)), path, *format);
    let made = input
        .and_then(|input| import(&options, input, &output, &mut |_| ControlFlow::Continue(())));
    match made {
        Ok(made) => {
            let mut reader = Reader::open(&output).unwrap();
            assert_eq!(reader.info().totals, made.totals);
            let (mut block, mut checker) = (Block::default(), Checker::new());
            while reader.next(&mut block).unwrap() {
                checker.block(&block).unwrap();
            }
        }
        Err(error) => {
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::cases(400) as u32))]

    #[test]
    fn a_damaged_trace_is_told(seed: u64) {
        damaged(seed);
    }
    #[test]
    fn a_forged_trace_harms_nobody(seed: u64) {
        forged(seed);
    }
    #[test]
    fn invented_bytes_are_no_trace(seed: u64) {
        invented(seed);
    }
    #[test]
    fn damaged_and_invented_imports(seed: u64) {
        imported(seed);
    }
    #[test]
    fn any_bytes_at_all(bytes: Vec<u8>) {
        prop_assert!(read(bytes).map_or(true, |(_, cut)| cut.is_some()));
    }
}

#[test]
fn every_truncation_is_told_and_the_beginning_read() {
    for (bytes, truth) in &TRACES[..2] {
        let foot = bytes.len() - TRAILER;
        let foot = u64::from_le_bytes(bytes[foot..foot + 8].try_into().unwrap());
        for length in 0..bytes.len() {
            match read(bytes[..length].to_vec()) {
                // The trace has one chunk, which is either complete or missing.
                Ok((items, cut)) if (length as u64) < foot => {
                    assert!(items.is_empty() && cut < Some(foot), "{length}: {cut:?}");
                }
                Ok((items, cut)) => assert!(items == *truth && cut == Some(foot), "{length}"),
                Err(error) => {
                    let of_head = matches!(
                        error,
                        TraceError::Truncated { .. } | TraceError::NotATrace { .. }
                    );
                    assert!(of_head && length < 200, "{length}: {error}");
                }
            }
        }
    }
}

/// Complete chunks are read, whatever remains of the next one.
#[test]
fn a_trace_is_read_up_to_where_it_was_cut() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let mut block = Block::default();
    let pages = Pages { first: Page(0), count: 700 };
    for event in [
        Event::Spawn(Process(0)),
        Event::Map { pages, address: 1 << 30, backing: Backing::Anonymous },
    ] {
        block.event(event);
    }
    let mut dice = Dice(11);
    block.accesses.extend((0..2_500_000).map(|_| Access::read(Page(dice.below(700) as u32))));
    let header = Header { filter: Filter::None, ..Header::new("cut") };
    crate::common::write(&path, &header, std::slice::from_ref(&block));
    let (bytes, truth) = (std::fs::read(&path).unwrap(), items(&block));
    let info = Reader::open(&path).unwrap().info().clone();
    assert_eq!((info.chunks.len(), info.cut), (3, None));
    for (number, chunk) in info.chunks.iter().enumerate() {
        let end = chunk.offset + u64::from(chunk.length);
        for length in [chunk.offset, chunk.offset + 3, chunk.offset + 20, end - 1] {
            let (items, cut) = read(bytes[..length as usize].to_vec()).unwrap();
            assert_eq!(cut, Some(chunk.offset), "chunk {number}, {length} bytes");
            // Two events, if there is a chunk, and all earlier records.
            let there = chunk.before as usize + 2 * usize::from(number > 0);
            assert!(items == truth[..there], "chunk {number}, {length} bytes");
        }
        let mut reader = Reader::new(Cursor::new(&bytes[..end as usize]), &path).unwrap();
        let totals = reader.info().totals;
        assert_eq!((totals.regions, totals.processes, totals.events), (2, 1, 2));
        let chunks = reader.info().chunks.clone();
        assert_eq!(chunks, info.chunks[..=number]);
        let runs = reader.regions().unwrap();
        assert_eq!((runs.len(), runs[0].count, runs[0].address), (1, 2, (1 << 30) >> 9));
    }
}

#[test]
fn every_flipped_bit_is_told() {
    let (bytes, _) = &TRACES[0];
    for bit in 0..8 * bytes.len() {
        let mut copy = bytes.clone();
        copy[bit / 8] ^= 1 << (bit % 8);
        assert!(read(copy).map_or(true, |(_, cut)| cut.is_some()), "bit {bit}");
    }
}

/// Draws other cases than the property tests, for the requested time.
#[test]
#[ignore = "nightly: damaged traces for half a minute"]
fn long() {
    let seconds = std::env::var("SUPERPAGE_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let seconds = Duration::from_secs(seconds.unwrap_or(30));
    let (began, mut seed) = (Instant::now(), 1 << 40);
    while began.elapsed() < seconds {
        for case in [damaged, forged, forged, invented, imported] {
            case(seed);
        }
        seed += 1;
    }
    println!("{} seeds, five cases each", seed - (1 << 40));
    assert!(seed > 1 << 40, "no time for a case");
}
