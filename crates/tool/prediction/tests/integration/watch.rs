//! The demand of a stream, compared with a simple count.

use proptest::prelude::*;
use superpage_prediction::{Demand, OCTAVES, Watch, octave};
use trace::{Access, Backing, Block, Event, Page, Pages, Process};

const MAPPED: u32 = 3 * 512 + 100;

fn block(accesses: &[Access]) -> Block {
    counted(accesses, &[])
}

fn counted(accesses: &[Access], counts: &[u32]) -> Block {
    let mut block =
        Block { accesses: accesses.to_vec(), counts: counts.to_vec(), ..Block::default() };
    let pages = Pages { first: Page(512), count: MAPPED };
    block.events = vec![
        (0, Event::Spawn(Process(0))),
        (0, Event::Map { pages, address: 512, backing: Backing::Anonymous }),
    ];
    block
}

fn demand(blocks: &[Block]) -> Demand {
    let mut watch = Watch::default();
    for block in blocks {
        watch.follow(block);
    }
    let mut phases = watch.finish();
    assert_eq!(phases.len(), 1);
    phases.remove(0).1
}

/// Returns the number of distinct values after the last occurrence of `value`; `None` if it does not occur.
fn distance(history: &[u32], value: u32) -> Option<u64> {
    let place = history.iter().rposition(|&other| other == value)?;
    let mut after = history[place + 1..].to_vec();
    after.sort_unstable();
    after.dedup();
    Some(after.len() as u64)
}

/// The simple count. The three regions from the first on have whole superpages.
#[derive(Default, PartialEq, Debug)]
struct Naive {
    random: Vec<(usize, usize, f64, f64)>,
    others: f64,
    sequential: f64,
    touches: (f64, f64, f64),
    again: Vec<usize>,
}

/// Returns the number of accesses before recent uses of `page`, the last of which is at or before record `at`; `None`
/// if the page was not used recently.
fn come_to(page: u32, at: usize, pages: &[u32], counts: &[u32]) -> Option<u32> {
    let uses: Vec<usize> = (0..=at).rev().filter(|&i| pages[i] == page).collect();
    let mut begin = at;
    for &i in &uses {
        if begin - i > 64 {
            break;
        }
        begin = i;
    }
    let is_near = uses.first().is_some_and(|&last| at - last <= 64);
    is_near.then(|| counts[..begin].iter().sum())
}

fn naive(accesses: &[Access], counts: &[u32]) -> Naive {
    let pages: Vec<u32> = accesses.iter().map(|access| access.page().0).collect();
    let regions: Vec<u32> = pages.iter().map(|page| page / 512).collect();
    let mut sum = Naive::default();
    let mut cells = vec![(0.0, 0.0); OCTAVES * OCTAVES];
    for (i, access) in accesses.iter().enumerate() {
        let (page, region) = (pages[i], regions[i]);
        let eligible = region < 4;
        let Some(in_pages) = distance(&pages[..i], page) else {
            match eligible {
                true => sum.touches.0 += 1.0,
                false => sum.touches.2 += 1.0,
            }
            if eligible && !regions[..i].contains(&region) {
                sum.touches.1 += 1.0;
            }
            continue;
        };
        sum.again.push(octave(in_pages));
        let here = come_to(page, i, &pages, counts).expect("it is used here");
        let neighbour =
            |other: u32| come_to(other, i, &pages, counts).is_some_and(|there| there + 64 <= here);
        if neighbour(page + 1) || neighbour(page - 1) {
            sum.sequential += f64::from(u8::from(eligible && octave(in_pages) > octave(64)));
        } else if eligible {
            let in_regions = distance(&regions[..i], region).unwrap_or(0);
            let cell = &mut cells[octave(in_pages) * OCTAVES + octave(in_regions)];
            match access.writes() {
                true => cell.1 += 1.0,
                false => cell.0 += 1.0,
            }
        } else {
            sum.others += 1.0;
        }
    }
    let used = cells.iter().enumerate().filter(|(_, cell)| **cell != (0.0, 0.0));
    sum.random = used.map(|(i, cell)| (i / OCTAVES, i % OCTAVES, cell.0, cell.1)).collect();
    sum
}

fn accesses() -> impl Strategy<Value = (Vec<Access>, Vec<u32>)> {
    // Few enough pages for the table of recent uses (1024 entries), in four regions.
    let page = prop_oneof![512u32..700, 1100u32..1200, 1900u32..1950, 2048u32..2070];
    let one = (page, any::<bool>()).prop_map(|(page, writes)| match writes {
        true => Access::write(Page(page)),
        false => Access::read(Page(page)),
    });
    prop::collection::vec((one, 1u32..30), 1..1200).prop_map(|both| both.into_iter().unzip())
}

proptest! {
    #[test]
    fn equals_an_obvious_count((accesses, counts) in accesses()) {
        let fast = demand(&[counted(&accesses, &counts)]);
        let slow = naive(&accesses, &counts);
        let random: Vec<_> =
            fast.random().map(|(p, r, cell)| (p, r, cell.reads, cell.writes)).collect();
        prop_assert_eq!(fast.accesses, f64::from(counts.iter().sum::<u32>()));
        prop_assert_eq!(random, slow.random);
        prop_assert_eq!(fast.others().map(|(_, cell)| cell.total()).sum::<f64>(), slow.others);
        prop_assert_eq!(fast.sequential.total(), slow.sequential);
        let touches = fast.touches;
        prop_assert_eq!((touches.eligible, touches.superpages, touches.others), slow.touches);
        // At most 2 of 100 uses have a larger distance.
        let mut again = slow.again;
        again.sort_unstable_by(|a, b| b.cmp(a));
        prop_assert_eq!(fast.reach(), again.get(again.len() * 2 / 100).copied().unwrap_or(0));
    }

    #[test]
    fn blocks_change_nothing((accesses, _) in accesses(), cut in 0usize..1200) {
        let cut = cut.min(accesses.len());
        let whole = demand(&[block(&accesses)]);
        let second = Block { accesses: accesses[cut..].to_vec(), ..Block::default() };
        prop_assert_eq!(demand(&[block(&accesses[..cut]), second]), whole);
    }
}

#[test]
fn what_was_unmapped_is_touched_anew_and_a_hole_takes_the_superpage() {
    let access = Access::write(Page(600));
    let mut one = block(&[access, access]);
    one.events.push((1, Event::Unmap(Pages { first: Page(601), count: 1 })));
    let demand = demand(&[one]);
    // The second use is in a region that can no longer hold a superpage.
    assert_eq!(demand.touches.eligible, 1.0);
    assert_eq!(demand.others().map(|(_, cell)| cell.total()).sum::<f64>(), 1.0);

    let mut two = block(&[access, access]);
    two.events
        .push((1, Event::Advise(Pages { first: Page(600), count: 1 }, trace::Advice::DontNeed)));
    assert_eq!(self::demand(&[two]).touches.eligible, 2.0);
}

#[test]
fn phases_and_weights() {
    let access = Access::read(Page(600));
    let mut one = block(&[access; 6]);
    let pace = trace::Pace { work: 0, exposed_permille: 0, weight: 10, threads: 1 };
    one.events.push((1, Event::Phase("run".into())));
    one.events.push((1, Event::Pace(pace)));
    one.events.push((4, Event::Phase("end".into())));
    one.counts = vec![1, 1, 1, 4, 1, 1];
    let mut watch = Watch::default();
    watch.follow(&one);
    let phases = watch.finish();
    let counts: Vec<_> =
        phases.iter().map(|(name, demand)| (name.as_str(), demand.accesses)).collect();
    assert_eq!(counts, [("", 1.0), ("run", 60.0), ("end", 20.0)]);
}

/// Moves through memory page by page in order, with `uses` of each page, twice.
fn hops(uses: u32) -> Demand {
    let pages = (512..512 + MAPPED).cycle().take(2 * MAPPED as usize);
    let accesses: Vec<_> = pages.map(|page| Access::read(Page(page))).collect();
    demand(&[counted(&accesses, &vec![uses; accesses.len()])])
}

#[test]
fn pages_are_used_in_order_only_if_they_are_used_as_a_whole() {
    let whole = hops(64);
    // All pages count except for the first, whose neighbour was used long ago.
    assert_eq!(whole.sequential.reads, f64::from(3 * 512 - 1));
    let sparse = hops(10);
    assert_eq!(sparse.sequential.reads, 0.0);
    assert_eq!(sparse.random().map(|(_, _, cell)| cell.reads).sum::<f64>(), f64::from(3 * 512));
}

#[test]
fn a_heaps_last_region_is_one_that_a_superpage_could_hold() {
    let pages = |first, count| Pages { first: Page(first), count };
    let mut one = Block::default();
    one.event(Event::Spawn(Process(0)));
    // The heap starts inside a region; earlier memory in that region is not part of the heap.
    one.event(Event::Map { pages: pages(612, 10), address: 612, backing: Backing::Heap });
    let mut touch = |page, event: Option<Event>| {
        event.into_iter().for_each(|event| one.event(event));
        one.accesses.push(Access::write(Page(page)));
    };
    touch(612, None);
    touch(1024, Some(Event::Grow { pages: pages(622, 403) }));
    touch(1100, Some(Event::Grow { pages: pages(1025, 100) }));
    // Another mapping is in the region, and the heap shrank.
    touch(1101, Some(Event::Unmap(pages(3000, 1))));
    touch(1102, Some(Event::Unmap(pages(1120, 5))));
    let touches = demand(&[one]).touches;
    assert_eq!((touches.eligible, touches.superpages, touches.others), (3.0, 1.0, 2.0));
}

#[test]
fn pages_that_a_process_leaves_are_anybodys_again() {
    let pages = Pages { first: Page(1024), count: 100 };
    let mut one = Block::default();
    one.event(Event::Spawn(Process(0)));
    one.event(Event::Map { pages, address: 1024, backing: Backing::Heap });
    one.event(Event::Exit(Process(0)));
    one.event(Event::Spawn(Process(1)));
    let whole = Pages { count: 512, ..pages };
    one.event(Event::Map { pages: whole, address: 1024, backing: Backing::Anonymous });
    one.accesses.push(Access::write(Page(1024)));
    assert_eq!(demand(&[one]).touches.superpages, 1.0);
}

#[test]
fn a_region_that_is_mapped_in_pieces_was_a_superpages_from_its_first_touch() {
    let piece = |first| Event::Map {
        pages: Pages { first: Page(first), count: 256 },
        address: first.into(),
        backing: Backing::Anonymous,
    };
    let touches = |events: Vec<(Event, u32)>| {
        let mut one = Block::default();
        one.event(Event::Spawn(Process(0)));
        for (event, page) in events {
            one.event(event);
            one.accesses.extend([Access::write(Page(page)), Access::write(Page(page + 1))]);
        }
        let touches = demand(&[one]).touches;
        (touches.eligible, touches.superpages, touches.others)
    };
    // The mappings are adjacent, each below the last, as the kernel places them; the third leaves a region half full.
    let pieces = vec![(piece(1280), 1280), (piece(1024), 1024), (piece(768), 768)];
    assert_eq!(touches(pieces), (4.0, 1.0, 2.0));
    // Memory that was touched and unmapped before was not part of a superpage.
    let again = vec![
        (piece(1280), 1280),
        (Event::Unmap(Pages { first: Page(1280), count: 256 }), 700),
        (piece(1280), 1290),
        (piece(1024), 1024),
    ];
    assert_eq!(touches(again), (4.0, 1.0, 4.0));
}
