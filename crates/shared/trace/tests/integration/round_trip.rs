//! A trace that was written reads back the same, wherever chunks and blocks end.

use crate::common::{Item, block, drain, items, read, write};
use proptest::collection::vec;
use proptest::prelude::*;
use superpage_trace::{
    Access, Backing, Block, CHUNK, Event, Filter, Header, Page, Pages, Placement, Process, Reader,
    Region, RegionRun, Run, Writer,
};

fn header(filter: Filter) -> Header {
    Header { filter, ..Header::new("test") }
}

/// Joins consecutive records of one page, as the same-page filter does.
fn joined(items: Vec<Item>) -> Vec<Item> {
    let mut out: Vec<Item> = Vec::new();
    for item in items {
        match (out.last_mut(), &item) {
            (Some(Item::Access(last, sum)), Item::Access(access, count))
                if last.page() == access.page()
                    && (last.writes() || !access.writes())
                    && sum.checked_add(*count).is_some() =>
            {
                *sum += count;
            }
            _ => out.push(item),
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_stream_comes_back(blocks in vec(block(), 0..12)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.spt");
        let all: Vec<Item> = blocks.iter().flat_map(items).collect();
        write(&path, &header(Filter::None), &blocks);
        prop_assert_eq!(&read(&path), &all);
        write(&path, &header(Filter::SamePage), &blocks);
        prop_assert_eq!(read(&path), joined(all));
    }
}

/// A stream of many chunks, with every coding: few pages, more than 256, and more than 65,536.
fn long() -> Vec<Block> {
    let mut state = 1u64;
    let mut draw = move |below: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((state >> 33) % u64::from(below)) as u32
    };
    let mut blocks = Vec::new();
    for below in [100, 10_000, 1 << 31] {
        for _ in 0..30 {
            let mut block = Block::default();
            for _ in 0..CHUNK / 20 {
                block.accesses.push(Access(draw(below) | draw(2) << 31));
                block.counts.push(1 + draw(300));
                if draw(1000) == 0 {
                    block.event(Event::Wait(draw(1000).into()));
                }
            }
            blocks.push(block);
        }
    }
    blocks
}

#[test]
fn many_chunks_of_every_coding_and_from_any_chunk_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let blocks = long();
    write(&path, &header(Filter::None), &blocks);
    let all: Vec<Item> = blocks.iter().flat_map(items).collect();
    let mut reader = Reader::open(&path).unwrap();
    assert_eq!(reader.info().chunks.len(), 5);
    assert!(drain(&mut reader).unwrap() == all);

    let totals = reader.info().totals;
    let accesses: u64 = blocks.iter().map(Block::total).sum();
    assert_eq!((totals.records, totals.accesses), ((90 * (CHUNK / 20)) as u64, accesses));

    for number in [3, 1, 4, 0] {
        let before: u64 = reader.info().chunks[number].before;
        reader.seek(number);
        let rest = drain(&mut reader).unwrap();
        let records = |items: &[Item]| {
            items.iter().filter(|item| matches!(item, Item::Access(..))).count() as u64
        };
        assert_eq!(records(&rest), totals.records - before);
        assert!(all.ends_with(&rest));
    }
}

#[test]
fn a_stream_of_events_only_and_an_empty_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    write(&path, &header(Filter::SamePage), &[]);
    assert_eq!(read(&path), vec![]);
    let block =
        Block { events: (0..400_000).map(|n| (0, Event::Wait(n))).collect(), ..Block::default() };
    write(&path, &header(Filter::SamePage), std::slice::from_ref(&block));
    assert!(read(&path) == items(&block));
}

/// A child of a process without mappings is valid with any offset, because it has no pages. (The reader used to refuse
/// such traces of the writer.)
#[test]
fn a_child_of_who_has_nothing_mapped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    for regions in [0, 1, 7, (1 << 22) - 1] {
        let mut block = Block::default();
        block.event(Event::Fork { child: Process(0), offset: regions << 9 });
        write(&path, &header(Filter::None), std::slice::from_ref(&block));
        assert_eq!(read(&path), items(&block), "{regions}");
    }
}

#[test]
fn what_a_recorder_knows_of_the_run_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let mut writer = Writer::create(&path, &header(Filter::SamePage), false).unwrap();
    let run = Run { instructions: 1 << 40, accesses: 77, nanoseconds: u64::MAX };
    writer.ran(run);
    writer.finish().unwrap();
    assert_eq!(Reader::open(&path).unwrap().info().run, Some(run));
    write(&path, &header(Filter::SamePage), &[]);
    assert_eq!(Reader::open(&path).unwrap().info().run, None);
}

#[test]
fn regions_and_placement() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let map = |first: u32, count, address| Event::Map {
        pages: Pages { first: Page(first), count },
        address,
        backing: Backing::Shared(7),
    };
    let mut block = Block::default();
    block.event(Event::Spawn(Process(0)));
    block.event(map(10, 2000, (5 << 9) + 10));
    block.event(map(512 * 8, 512, 77 << 9));
    block.event(Event::Fork { child: Process(1), offset: 512 * 10 });
    block.accesses.push(Access::write(Page(11)));
    block.event(Event::Grow { pages: Pages { first: Page(512 * 9), count: 100 } });
    write(&path, &header(Filter::SamePage), &[block]);

    let run = |first, count, process, address| RegionRun {
        first: Region(first),
        count,
        process: Process(process),
        address,
    };
    let mut reader = Reader::open(&path).unwrap();
    let expected =
        [run(0, 4, 0, 5), run(8, 1, 0, 77), run(10, 4, 1, 5), run(18, 1, 1, 77), run(9, 1, 0, 78)];
    assert_eq!(reader.regions().unwrap(), expected);
    assert_eq!(reader.info().totals.regions, 19);

    let placement = Placement { region: Region(100), process: Process(3), object: 20 };
    let items = drain(&mut Reader::open(&path).unwrap().place(placement).unwrap()).unwrap();
    assert_eq!(items[0], Item::Event(Event::Spawn(Process(3))));
    let Item::Event(Event::Map { pages, backing, .. }) = &items[1] else { panic!("{items:?}") };
    assert_eq!((pages.first, *backing), (Page(100 * 512 + 10), Backing::Shared(27)));
    assert_eq!(items[4], Item::Access(Access::write(Page(100 * 512 + 11)), 1));
    let far = Placement { region: Region((1 << 22) - 18), ..placement };
    let error = Reader::open(&path).unwrap().place(far).err().unwrap();
    assert!(error.to_string().contains("do not fit"), "{error}");
}

#[test]
fn a_writer_that_is_not_finished_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let mut writer = Writer::create(&path, &header(Filter::SamePage), false).unwrap();
    writer.push(&Block { accesses: vec![Access::read(Page(1)); 10], ..Block::default() }).unwrap();
    drop(writer);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn wrong_streams_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.spt");
    let one = |accesses: usize, counts: Vec<u32>, events| Block {
        accesses: vec![Access::read(Page(1)); accesses],
        counts,
        events,
    };
    let map = |address, count| Event::Map {
        pages: Pages { first: Page(5), count },
        address,
        backing: Backing::Anonymous,
    };
    let cases = [
        (one(2, vec![1], vec![]), "counts"),
        (one(2, vec![1, 0], vec![]), "no access"),
        (one(1, vec![], vec![(2, Event::RequestEnd)]), "order"),
        (one(1, vec![], vec![(1, Event::RequestEnd), (0, Event::RequestEnd)]), "order"),
        (one(1, vec![], vec![(0, map(6, 1))]), "another place"),
        (one(1, vec![], vec![(0, map(5, 0))]), "0 pages"),
        (one(1, vec![], vec![(0, map(5, u32::MAX))]), "4294967295 pages"),
        (one(1, vec![], vec![(0, Event::Phase("x".repeat(2000)))]), "2000 bytes"),
        (one(1, vec![], vec![(0, Event::Spawn(Process(u32::MAX)))]), "highest number"),
    ];
    for (block, part) in cases {
        let mut writer = Writer::create(&path, &header(Filter::SamePage), false).unwrap();
        let error = writer.push(&block).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
