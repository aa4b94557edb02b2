//! Reclaim and lumpy reclaim (docs/sources/policies.md 3.7).

use trace::Page;

use super::users::{Users, fragmented};
use crate::memory::{Frame, Memory, Mobility, Owner, Shape, lumpy, reclaim};
use units::ByteSize;

/// Creates full memory: page cache in the first pageblock, anonymous pages in the others.
fn full() -> (Memory, Users) {
    let mut memory = Memory::new(&Shape::simple(ByteSize::mib(16)));
    let mut users = Users::default();
    while let Some(got) = memory.allocate(0, Mobility::Movable, 0, false) {
        if got.frame.0 < 512 {
            memory.set_owner(got.frame, Owner::Cache(got.frame.0));
        } else {
            users.page(&mut memory, got.frame);
        }
    }
    (memory, users)
}

#[test]
fn the_page_cache_goes_first_and_is_not_written() {
    let (mut memory, mut users) = full();
    let report = reclaim(&mut memory, &mut users, 0, 32);
    assert_eq!((report.evicted, report.written, report.scanned), (32, 0, 32));
    assert_eq!(memory.cache_frames(), 480);
    let report = reclaim(&mut memory, &mut users, 0, 500);
    assert_eq!((report.evicted, report.written), (500, 20));
    users.check(&memory);
}

#[test]
fn referenced_pages_are_spared_once() {
    let (mut memory, mut users) = full();
    users.referenced.extend(0..10);
    let report = reclaim(&mut memory, &mut users, 0, 512 + 1);
    assert_eq!((report.evicted, report.scanned), (513, 512 + 11));
    assert!(users.frames[..10].iter().all(Option::is_some));
    assert_eq!(users.frames[10], None);
    // After a round, referenced pages have had their second chance.
    let all = users.frames.len() as u64;
    let report = reclaim(&mut memory, &mut users, 0, all);
    assert_eq!(report.evicted, all - 1);
    assert_eq!(memory.free_frames(), u64::from(memory.frames()));
}

#[test]
fn what_refuses_stays_and_the_hand_ends() {
    let (mut memory, mut users) = full();
    users.refuse.extend(0..users.frames.len() as u32);
    let report = reclaim(&mut memory, &mut users, 0, u64::MAX);
    assert_eq!(report.evicted, 512);
    users.check(&memory);
}

#[test]
fn lumpy_frees_the_block_around_an_old_page() {
    let (mut memory, mut users) = fragmented(32, &[3, 40, 500], &[]);
    // The other two pages of the first pageblock are referenced, and are still evicted with the block.
    users.referenced.extend([1, 2]);
    let report = lumpy(&mut memory, &mut users, 0, 9);
    assert_eq!((report.evicted, report.written), (3, 3));
    assert_eq!(memory.free_superpages(), 1);
    users.check(&memory);
}

#[test]
fn lumpy_stops_at_what_cannot_go_and_takes_the_next_reference() {
    let (mut memory, mut users) = fragmented(32, &[3, 40, 500], &[]);
    memory.claim(Frame(100), 0);
    memory.set_owner(Frame(100), Owner::Kernel);
    let report = lumpy(&mut memory, &mut users, 0, 9);
    // Evicts pages 3 and 40 of the first pageblock, up to the kernel's frame at 100, which stays. Then page 500, the
    // next reference, which lies after the kernel's frame. Then all of the second pageblock.
    assert_eq!(report.evicted, 2 + 1 + 3);
    assert!(memory.claim(Frame(512), 9));
    assert_eq!(memory.owner(Frame(100)), Owner::Kernel);
    users.check(&memory);
}

#[test]
fn a_superpage_that_stays_is_passed_over_whole() {
    let mut memory = Memory::new(&Shape::simple(ByteSize::mib(4)));
    let mut users = Users::default();
    let got = memory.allocate(9, Mobility::Movable, 0, false).unwrap();
    memory.set_superpage(got.frame, true);
    for frame in 0..512 {
        let page = users.page(&mut memory, Frame(frame));
        users.refuse.insert(page);
    }
    let small = memory.allocate(0, Mobility::Movable, 0, false).unwrap();
    users.page(&mut memory, small.frame);
    let report = reclaim(&mut memory, &mut users, 0, 1);
    assert_eq!((report.evicted, report.scanned), (1, 2));
    assert_eq!(memory.owner(Frame(5)), Owner::Page(Page(5)));
}
