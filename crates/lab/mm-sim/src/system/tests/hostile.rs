//! Streams that no program could issue are refused or executed, without a panic or unbounded memory.

use super::*;
use trace::{Advice, Backing, Pace, Page, Pages};

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![
        0..3000u32,
        0..100_000u32,
        Just(0),
        (0..2000u32).prop_map(|at| (1 << 31) - at),
        (0..2000u32).prop_map(|at| u32::MAX - at),
        any::<u32>(),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let pages =
        || (number(), number()).prop_map(|(first, count)| Pages { first: Page(first), count });
    let process = || prop_oneof![0..4u32, Just(u32::MAX), any::<u32>()].prop_map(Process);
    let backing = prop_oneof![
        Just(Backing::Anonymous),
        Just(Backing::Heap),
        (0..2u32).prop_map(Backing::Shared),
        any::<bool>().prop_map(|cached| Backing::File { file: 0, cached }),
    ];
    let advice = prop::sample::select(vec![
        Advice::Huge,
        Advice::NoHuge,
        Advice::Collapse,
        Advice::Populate,
        Advice::DontNeed,
        Advice::Free,
    ]);
    let pace = (number(), any::<u16>(), number(), any::<u16>()).prop_map(
        |(work, exposed_permille, weight, threads)| {
            Event::Pace(Pace { work, exposed_permille, weight, threads })
        },
    );
    let mapped = (pages(), backing).prop_map(|(pages, backing)| Event::Map {
        pages,
        address: u64::MAX,
        backing,
    });
    prop_oneof![
        2 => process().prop_map(Event::Spawn),
        2 => process().prop_map(Event::Run),
        6 => mapped,
        2 => pages().prop_map(|pages| Event::Grow { pages }),
        2 => pages().prop_map(Event::Unmap),
        4 => (pages(), advice).prop_map(|(pages, advice)| Event::Advise(pages, advice)),
        2 => (pages(), any::<bool>()).prop_map(|(pages, to)| Event::Protect(pages, to)),
        2 => (process(), number()).prop_map(|(child, offset)| Event::Fork { child, offset }),
        1 => (process(), 0..8u32)
            .prop_map(|(child, by)| Event::Fork { child, offset: by << 9 }),
        1 => process().prop_map(Event::Exit),
        1 => pace,
        1 => prop_oneof![0..1000u64, any::<u64>()].prop_map(Event::Wait),
        1 => Just(Event::RequestEnd),
    ]
}

fn block() -> impl Strategy<Value = Block> {
    let access = (number(), any::<bool>()).prop_map(|(page, write)| {
        let page = Page(page & !Access::WRITE);
        if write { Access::write(page) } else { Access::read(page) }
    });
    (event(), prop::collection::vec((access, 1..=u32::MAX), 0..6), any::<bool>()).prop_map(
        |(event, accesses, counted)| {
            let mut block = Block::default();
            block.event(event);
            block.accesses.extend(accesses.iter().map(|(access, _)| access));
            if counted {
                block.counts.extend(accesses.iter().map(|(_, count)| count));
            }
            block
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20 * cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_stream_is_refused_or_carried_out(blocks in prop::collection::vec(block(), 1..12)) {
        for name in ["linux-6-always", "quicksilver-sync-1", "hugetlb"] {
            let design = design::designs::find(name).expect("a preset");
            let memory = ByteSize::mib(16);
            let conditions =
                Conditions { machine: "e3-1245v6", memory, fragmentation: "none", swap: ByteSize(0), layout: Layout::default() };
            let mut run = Run::new(&design, &conditions);
            let mut touched = crate::Touched::default();
            // Maps memory that the stream can corrupt.
            let mut start = Block::default();
            start.event(Event::Spawn(Process(0)));
            let pages = Pages { first: Page(0), count: 1024 };
            let backing = Backing::Anonymous;
            start.event(Event::Map { pages, address: 0, backing });
            start.accesses.push(Access::write(Page(0)));
            prop_assert_eq!(run.engine.block(&start, crate::touched::TouchedView::default()), Ok(()));
            for block in &blocks {
                touched.follow(block);
                if run.engine.block(block, touched.view()).is_err() {
                    break;
                }
                prop_assert_eq!(run.engine.system.verify(), Ok(()), "after {:?}", block);
            }
        }
    }
}
