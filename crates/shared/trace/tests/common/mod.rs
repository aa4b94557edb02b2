//! Shared helpers: random streams, and a stream as a plain list.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use superpage_trace::{
    Access, Advice, Backing, Block, Event, Header, Pace, Page, Pages, Process, Reader, SLOTS,
    Source, Writer,
};

/// An item of a stream. A list of items does not depend on how the stream is divided into blocks.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    Access(Access, u32),
    Event(Event),
}

/// Any valid event.
pub fn event() -> impl Strategy<Value = Event> {
    let process = (0u32..5).prop_map(Process);
    let pages =
        (0u32..40_000, 1u32..3_000).prop_map(|(first, count)| Pages { first: Page(first), count });
    let backing = prop_oneof![
        Just(Backing::Anonymous),
        Just(Backing::Heap),
        any::<u32>().prop_map(Backing::Shared),
        any::<(u32, bool)>().prop_map(|(file, cached)| Backing::File { file, cached }),
    ];
    let advice = prop_oneof![
        Just(Advice::Huge),
        Just(Advice::NoHuge),
        Just(Advice::Collapse),
        Just(Advice::Populate),
        Just(Advice::DontNeed),
        Just(Advice::Free),
    ];
    let map = (pages.clone(), 0u64..1 << 40, backing).prop_map(|(pages, region, backing)| {
        let address = region * u64::from(SLOTS) + u64::from(pages.first.slot());
        Event::Map { pages, address, backing }
    });
    let pace = (any::<u32>(), 0u16..=1000, 1u32.., 1u16..).prop_map(
        |(work, exposed_permille, weight, threads)| {
            Event::Pace(Pace { work, exposed_permille, weight, threads })
        },
    );
    prop_oneof![
        process.clone().prop_map(Event::Spawn),
        process.clone().prop_map(Event::Run),
        map,
        pages.clone().prop_map(|pages| Event::Grow { pages }),
        pages.clone().prop_map(Event::Unmap),
        (pages.clone(), advice).prop_map(|(pages, advice)| Event::Advise(pages, advice)),
        (pages, any::<bool>()).prop_map(|(pages, on)| Event::Protect(pages, on)),
        (process.clone(), 0u32..100)
            .prop_map(|(child, regions)| Event::Fork { child, offset: regions * SLOTS }),
        process.prop_map(Event::Exit),
        pace,
        any::<u64>().prop_map(Event::Wait),
        ".{0,20}".prop_map(Event::Phase),
        Just(Event::RequestBegin),
        Just(Event::RequestEnd),
    ]
}

/// Accesses to one kind of pages: few, many, or any possible.
pub fn access() -> impl Strategy<Value = Access> {
    let page = prop_oneof![5 => 0u32..40, 3 => 0u32..5_000, 1 => 0u32..1 << 31];
    (page, any::<bool>()).prop_map(|(page, writes)| {
        if writes { Access::write(Page(page)) } else { Access::read(Page(page)) }
    })
}

/// A block of a stream.
pub fn block() -> impl Strategy<Value = Block> {
    let count = prop_oneof![10 => 1u32..4, 2 => 250u32..260, 1 => 1u32..];
    let counted = vec((access(), count), 0..200).prop_map(|records| records.into_iter().unzip());
    let plain = vec(access(), 0..200).prop_map(|accesses| (accesses, Vec::new()));
    let records = prop_oneof![counted, plain];
    (records, vec((0u32..200, event()), 0..8)).prop_map(|((accesses, counts), mut events)| {
        let end = accesses.len() as u32;
        events.iter_mut().for_each(|(position, _)| *position = (*position).min(end));
        events.sort_by_key(|(position, _)| *position);
        Block { accesses, counts, events }
    })
}

/// Returns a block as a list of items.
pub fn items(block: &Block) -> Vec<Item> {
    let mut items = Vec::new();
    let mut events = block.events.iter().peekable();
    for at in 0..=block.accesses.len() {
        while let Some((_, event)) = events.next_if(|(position, _)| *position as usize == at) {
            items.push(Item::Event(event.clone()));
        }
        if let Some(&access) = block.accesses.get(at) {
            items.push(Item::Access(access, block.counts.get(at).copied().unwrap_or(1)));
        }
    }
    items
}

/// Returns all remaining items of a source.
pub fn drain<S: Source>(source: &mut S) -> Result<Vec<Item>, S::Error> {
    let (mut all, mut block) = (Vec::new(), Block::default());
    while source.next(&mut block)? {
        all.extend(items(&block));
    }
    Ok(all)
}

/// Writes blocks to a file.
pub fn write(path: &Path, header: &Header, blocks: &[Block]) {
    let mut writer = Writer::create(path, header, true).expect("a writer");
    blocks.iter().for_each(|block| writer.push(block).expect("a block is taken"));
    writer.finish().expect("a file");
}

/// Reads a file.
pub fn read(path: &Path) -> Vec<Item> {
    drain(&mut Reader::open(path).expect("a reader")).expect("a stream")
}
