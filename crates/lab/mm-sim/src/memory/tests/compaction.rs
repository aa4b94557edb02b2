//! Compaction loses no page, and follows its rules one by one (docs/sources/policies.md 3.1, "Compaction").

use proptest::prelude::*;
use trace::Page;
use units::ByteSize;

use super::users::{Users, fragmented};
use crate::memory::compaction::evacuate;
use crate::memory::compaction::{Caller, Compaction, Mode, Outcome, Request, Settings};
use crate::memory::{Frame, Memory, Mobility, Owner, Shape};

fn direct(mode: Mode) -> Request {
    Request::direct(0, 9, Mobility::Movable, mode)
}

/// The last 16 frames of each pageblock, as the artifact's fragmenter leaves them.
const TAIL: [u32; 16] = {
    let mut tail = [0; 16];
    let mut at = 0;
    while at < 16 {
        tail[at] = 496 + at as u32;
        at += 1;
    }
    tail
};

#[test]
fn a_fragmented_block_costs_its_pages() {
    for mode in [Mode::Async, Mode::SyncLight] {
        let (mut memory, mut users) = fragmented(256, &TAIL, &[]);
        assert_eq!(memory.free_superpages(), 0);
        let mut compaction = Compaction::new(&memory, Settings::default());
        let report = compaction.compact(&mut memory, &mut users, direct(mode));
        assert_eq!((report.result, report.migrated, report.failed), (Outcome::Success, 16, 0));
        assert_eq!(memory.free_superpages(), 1);
        users.check(&memory);
        // Free blocks of 256, 128, 64, 32 and 16 pages, 16 pages in use, and a free block to move them to.
        assert_eq!(report.looked_at, 5 + 16 + 1, "{report:?}");
    }
}

#[test]
fn pages_move_to_the_upper_quarter_of_memory_by_the_free_lists() {
    let (mut memory, mut users) = fragmented(256, &TAIL, &[]);
    let before = users.frames.clone();
    let mut compaction = Compaction::new(&memory, Settings::default());
    compaction.compact(&mut memory, &mut users, direct(Mode::Async));
    let moved = users.frames.iter().zip(&before).filter(|(now, then)| now != then);
    let moved: Vec<u32> = moved.filter_map(|(now, _)| Some(now.as_ref()?.0)).collect();
    let quarter = memory.frames() / 4 * 3;
    assert!(moved.len() == 16 && moved.iter().all(|frame| *frame >= quarter), "{moved:?}");
    // Not from the very end, where the free scanner starts.
    assert!(moved.iter().all(|frame| *frame < memory.frames() - 512), "{moved:?}");
}

#[test]
fn one_page_that_refuses_ends_an_asynchronous_run_in_its_pageblock() {
    let (mut memory, mut users) = fragmented(256, &[0, 100, 200, 300], &[]);
    let refuses = |users: &Users, slot| {
        users.frames.iter().position(|frame| *frame == Some(Frame(slot))).unwrap() as u32
    };
    users.refuse.extend([refuses(&users, 100), refuses(&users, 512 + 300)]);
    let settings = Settings { fast_search: false, ..Settings::default() };
    let mut compaction = Compaction::new(&memory, settings);
    let report = compaction.compact(&mut memory, &mut users, direct(Mode::Async));
    // A batch of up to 32 pages moves before a refusal is noticed: the batch has 3 pages of each of the first two
    // pageblocks, and 4 of the third.
    assert_eq!((report.result, report.migrated, report.failed), (Outcome::Success, 10, 2));
    users.check(&memory);
}

#[test]
fn an_unmovable_page_spares_an_asynchronous_run_its_pageblock() {
    let (mut memory, mut users) = fragmented(64, &[0, 100, 200], &[300]);
    let settings = Settings { fast_search: false, ..Settings::default() };
    let mut compaction = Compaction::new(&memory, settings);
    let report = compaction.compact(&mut memory, &mut users, direct(Mode::Async));
    assert_eq!((report.result, report.migrated), (Outcome::Complete, 0));
    // A synchronous run moves what it can, in vain. The simulation does not detect that such a run is useless.
    let report = compaction.compact(&mut memory, &mut users, direct(Mode::Sync));
    assert_eq!(
        (report.result, report.migrated),
        (Outcome::Complete, 0),
        "all pageblocks are marked"
    );
    compaction.reset_hints(&mut memory, 0);
    let report = compaction.compact(&mut memory, &mut users, direct(Mode::Sync));
    assert_eq!(report.result, Outcome::Complete);
    assert!(report.migrated > 0);
    users.check(&memory);
}

#[test]
fn synchronous_failures_are_deferred_and_asynchronous_ones_are_not() {
    let (mut memory, mut users) = fragmented(64, &[0], &[300]);
    let mut compaction = Compaction::new(&memory, Settings::default());
    let mut attempts = |mode, count: usize| -> usize {
        let results =
            (0..count).map(|_| compaction.compact(&mut memory, &mut users, direct(mode)).result);
        results.filter(|&result| result == Outcome::Deferred).count()
    };
    assert_eq!(attempts(Mode::Async, 100), 0);
    // Runs are attempts 1, 3, 7, 15, 31, 63, 127, then every 64th.
    assert_eq!(attempts(Mode::SyncLight, 127), 127 - 7);
    assert_eq!(attempts(Mode::SyncLight, 128), 128 - 2);
    assert_eq!(attempts(Mode::Sync, 10), 0, "the highest priority does not ask");
}

#[test]
fn little_free_memory_or_a_low_index_skips_it() {
    // 30 of 32 pageblocks are full: less than the low watermark + 1024 frames is free.
    let mut memory = Memory::new(&Shape::simple(ByteSize::mib(64)));
    let mut users = Users::default();
    while memory.allocate(0, Mobility::Movable, 0, false).is_some() {}
    (0..memory.frames()).step_by(2).take(700).for_each(|frame| memory.free(Frame(frame), 0));
    let mut compaction = Compaction::new(&memory, Settings::default());
    let report = compaction.compact(&mut memory, &mut users, direct(Mode::SyncLight));
    assert_eq!(report.result, Outcome::Skipped);

    // Free memory is in a few large pieces, so the index is low and blames lack of memory.
    let (mut memory, mut users) = fragmented(64, &TAIL, &[]);
    assert!((0..=900).contains(&memory.fragmentation_index(9)));
    let strict = Settings { extfrag_threshold: 1000, ..Settings::default() };
    let mut compaction = Compaction::new(&memory, strict);
    let report = compaction.compact(&mut memory, &mut users, direct(Mode::SyncLight));
    assert_eq!(report.result, Outcome::Skipped);
}

#[test]
fn proactive_runs_from_90_down_to_80() {
    let (mut memory, mut users) = fragmented(256, &TAIL, &[]);
    let mut compaction = Compaction::new(&memory, Settings::default());
    assert!(compaction.is_wanted(&memory, 0));
    let report = compaction.compact(&mut memory, &mut users, Request::proactive(0));
    assert_eq!(report.result, Outcome::Success);
    let score = compaction.score(&memory, 0);
    assert!((70..=80).contains(&score), "{score}");
    assert!(!compaction.is_wanted(&memory, 0));
    assert_eq!(Settings::default().score_limits(), (80, 90));
    users.check(&memory);
}

#[test]
fn superpages_stay_and_a_budget_ends_a_run() {
    let (mut memory, mut users) = fragmented(256, &TAIL, &[]);
    memory.set_superpage(Frame(0), true);
    let settings = Settings { fast_search: false, ..Settings::default() };
    let mut compaction = Compaction::new(&memory, settings);
    let request = Request { budget: Some(10), ..direct(Mode::SyncLight) };
    let report = compaction.compact(&mut memory, &mut users, request);
    assert_eq!((report.result, report.migrated), (Outcome::Contended, 10));
    let report = compaction.compact(&mut memory, &mut users, direct(Mode::SyncLight));
    assert_eq!((report.result, report.migrated), (Outcome::Success, 6));
    assert!(memory.claim(Frame(512), 9));
}

#[test]
fn evacuation_empties_a_pageblock_or_says_what_stays() {
    let (mut memory, mut users) = fragmented(64, &TAIL, &[]);
    let free = memory.free_frames();
    let done = evacuate(&mut memory, &mut users, Frame(1024));
    assert_eq!((done.moved, done.stay, done.taken), (16, 0, 496));
    assert_eq!(memory.free_frames(), free - 512);
    memory.free(Frame(1024), 9);
    users.check(&memory);

    memory.claim(Frame(512), 0);
    memory.set_owner(Frame(512), Owner::Pinned);
    let done = evacuate(&mut memory, &mut users, Frame(512));
    assert_eq!((done.moved, done.stay, done.taken), (16, 1, 495));
    memory.free_unowned(Frame(512));
    assert_eq!(memory.free_frames(), free - 1);
    users.check(&memory);
}

fn request() -> impl Strategy<Value = Request> {
    let mode = prop::sample::select(vec![Mode::Async, Mode::SyncLight, Mode::Sync]);
    let caller = prop::sample::select(vec![Caller::Direct, Caller::Daemon, Caller::Proactive]);
    let budget = prop::option::of(0u64..200);
    let mobility = prop::sample::select(Mobility::ALL.to_vec());
    (mode, caller, budget, any::<bool>(), 1u8..=10, mobility).prop_map(
        |(mode, caller, budget, whole, order, mobility)| Request {
            caller,
            budget,
            whole,
            ..Request::direct(0, order, mobility, mode)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn nothing_is_lost(
        seed: u64,
        free in 1u64..10,
        fast_search: bool,
        requests in prop::collection::vec(request(), 1..12),
    ) {
        let mut rng = workload::rng::SplitMix64::new(seed);
        let mut memory = Memory::new(&Shape {
            raised_watermarks: false,
            ..Shape::simple(ByteSize::mib(32))
        });
        let mut users = Users::default();
        while memory.allocate(0, Mobility::Movable, 0, false).is_some() {}
        for frame in (0..memory.frames()).map(Frame) {
            match rng.draw() % 1000 {
                0 => memory.set_owner(frame, Owner::Kernel),
                1 => memory.set_owner(frame, Owner::Cache(frame.0)),
                2 => {
                    let page = users.page(&mut memory, frame);
                    users.refuse.insert(page);
                }
                3 => {} // held
                draw if draw % 10 < free => memory.free(frame, 0),
                _ => { users.page(&mut memory, frame); }
            }
        }
        let kernel: Vec<_> = (0..memory.frames()).map(|frame| memory.owner(Frame(frame))).collect();
        let before = memory.free_frames();
        let cache = memory.cache_frames();
        let mut compaction = Compaction::new(&memory, Settings { fast_search, ..Settings::default() });
        for request in requests {
            compaction.compact(&mut memory, &mut users, request);
            users.check(&memory);
            prop_assert_eq!(memory.free_frames(), before);
            prop_assert_eq!(memory.cache_frames(), cache);
        }
        for (frame, owner) in kernel.into_iter().enumerate() {
            let stays = match owner {
                Owner::Kernel => true,
                Owner::Page(Page(page)) => users.refuse.contains(&page),
                _ => false,
            };
            if stays {
                prop_assert_eq!(memory.owner(Frame(frame as u32)), owner);
            }
        }
    }
}
