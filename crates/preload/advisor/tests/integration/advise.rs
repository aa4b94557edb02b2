//! How much memory is advised, and when none is.

use superpage_advisor::{Action, Outcome};
use superpage_advisor::{Advisor, Event, Facts, Kind, Source, State, Use};

use super::*;

/// docs/decisions/contiguity.md#1, unless a line says otherwise.
#[test]
fn new_memory_is_advised_as_far_as_free_blocks_reach() {
    use Action::GiveUp;
    let fragmented = partly(4 * GIB, 40 * MIB);
    let half = partly(4 * GIB, 2 * GIB);
    let cached = Facts { free: GIB, reclaimable: Some(18 * GIB), ..partly(4 * GIB, 200 * MIB) };
    let even = Facts { free: GIB, reclaimable: Some(GIB), ..partly(GIB, 200 * MIB) };
    let reserved = Facts { used: Use::Reserved, ..partly(20 * GIB, 19 * GIB) };
    let whole_only = Facts { kind: Kind::Whole, ..half };
    let shifted = Facts { offset: 4 * KIB, ..half };
    let new = State::NEW;
    #[rustfmt::skip]
    let table = [
        ("unfragmented", new, whole(4 * GIB), advise(4 * GIB)),
        ("unfragmented, nearly all of it", new, whole(19 * GIB), advise(19 * GIB)),
        ("less than a superpage: it counts as one", new, whole(4 * KIB), advise(4 * KIB)),
        ("fragmented: each touch would compact (__alloc_pages_slowpath)", new, fragmented, GiveUp),
        ("fragmented, one superpage: 64 MiB are left to others", new, partly(SUPERPAGE, 40 * MIB), GiveUp),
        ("half: 64 MiB are left to others", new, half, advise(2 * GIB - 64 * MIB)),
        ("half, whose border is a superpage's", new, shifted, advise(2 * GIB - 64 * MIB - 4 * KIB)),
        ("half, that cannot be parted: shared memory", new, whole_only, GiveUp),
        ("half, of which half is promised", new, Facts { outstanding: GIB, ..half }, advise(GIB - 64 * MIB)),
        ("half, a piece that fits", new, partly(64 * MIB, 2 * GIB), advise(64 * MIB)),
        ("all is promised", new, Facts { outstanding: 2 * GIB, ..half }, GiveUp),
        ("more was promised than there is", new, Facts { outstanding: 3 * GIB, ..half }, GiveUp),
        ("too small a part", new, partly(4 * GIB, 94 * MIB), GiveUp),
        ("the smallest part", new, partly(4 * GIB, 96 * MIB), advise(32 * MIB)),
        ("short before: 64 MiB more must be free", short(), partly(64 * MIB, 190 * MIB), GiveUp),
        ("enough again", short(), partly(64 * MIB, 192 * MIB), advise(64 * MIB)),
        ("watermarks (min_free_kbytes, watermark_scale_factor)", new,
            Facts { free: 600 * MIB, ..partly(512 * MIB, 600 * MIB) }, advise(440 * MIB)),
        ("page cache, not tried", new, cached, advise(136 * MIB)),
        ("page cache, tried before", tried(true), cached, advise(4 * GIB)),
        ("page cache, tried before, and slow", tried(false), cached, advise(136 * MIB)),
        ("less page cache than needed", tried(false), Facts { reclaimable: Some(2 * GIB), ..cached }, advise(136 * MIB)),
        ("much is free, in small blocks", tried(false), Facts { reclaimable: Some(3 * GIB), ..fragmented }, GiveUp),
        ("a terabyte, most never touched", new, partly(1 << 40, 19 * GIB), unpromised(1 << 40)),
        ("a terabyte, seven eighths of what is free in superpages", new,
            Facts { free: 16 * GIB, ..partly(1 << 40, 14 * GIB) }, unpromised(1 << 40)),
        ("short before: no part for want of the rest", short(), partly(128 * MIB, 192 * MIB), GiveUp),
        ("as much page cache as is free and needed", tried(true), even, advise(GIB)),
        ("a terabyte, fragmented", new, partly(1 << 40, GIB), advise(GIB - 64 * MIB)),
        ("reserved: later pieces do not wait for it", new, reserved, unpromised(20 * GIB)),
        ("reserved, half", new, Facts { used: Use::Reserved, ..half }, GiveUp),
        ("no file, never tried", new, Facts { contiguous: None, ..half }, unpromised(4 * GIB)),
        ("no file, tried, and slow", tried(false), Facts { contiguous: None, ..half }, GiveUp),
        ("kcompactd compacts (vma_alloc_thp_gfp of defrag=defer)", new,
            Facts { compacts: false, ..fragmented }, unpromised(4 * GIB)),
        ("a filter may be in place: the last answer stays", new, Facts { is_sealed: true, ..fragmented }, unpromised(4 * GIB)),
        ("a filter may be in place, short before", short(), Facts { is_sealed: true, ..whole(4 * GIB) }, GiveUp),
        ("nothing is known", new, Facts { contiguous: Some(0), free: 0, total: 0, ..whole(SUPERPAGE) }, GiveUp),
        ("64 KiB on 4 KiB: order 4", new, Facts { superpage: 64 * KIB, ..whole(MIB) },
            Action::Advise { bytes: MIB, order: 4, promised: true }),
        ("512 MiB on 64 KiB: order 13", new, Facts { superpage: 512 * MIB, base_page: 64 * KIB, ..whole(GIB) },
            Action::Advise { bytes: GIB, order: 13, promised: true }),
    ];
    for (name, state, facts, expected) in table {
        let mut policy = Advisor { request: THP, state };
        assert_eq!(last(&mut policy, Event::Mapped, facts), expected, "{name}");
    }
}

/// docs/decisions/contiguity.md#5: the rest gets smaller superpages if these are enabled and all of it fits into free
/// blocks of that size.
#[test]
fn what_has_no_room_on_the_largest_gets_smaller_superpages() {
    use Action::{AdviseSmaller, GiveUp};
    let smaller = |from, promised| AdviseSmaller { from, order: 9, promised };
    let with = |contiguous_smaller, facts| Facts { smaller: MIB, contiguous_smaller, ..facts };
    let none = with(9 * GIB, partly(4 * GIB, 40 * MIB));
    let half = with(9 * GIB, partly(4 * GIB, 2 * GIB));
    let grown = Facts { old: 64 * MIB, advised: 64 * MIB, ..none };
    let new = State::NEW;
    #[rustfmt::skip]
    let table = [
        ("unfragmented", new, Event::Mapped, with(20 * GIB, whole(4 * GIB)), advise(4 * GIB)),
        ("fragmented", new, Event::Mapped, none, smaller(0, true)),
        ("half", new, Event::Mapped, half, smaller(2 * GIB - 64 * MIB, true)),
        ("half, and the rest does not fit", new, Event::Mapped, with(4 * GIB - MIB, half), advise(2 * GIB - 64 * MIB)),
        ("what is promised is not free", new, Event::Mapped, Facts { outstanding: 6 * GIB, ..none }, GiveUp),
        ("no smaller size is on", new, Event::Mapped, Facts { smaller: 0, ..none }, GiveUp),
        ("shared memory has sizes of its own", new, Event::Mapped, Facts { kind: Kind::Whole, ..none }, GiveUp),
        ("in use already", new, Event::Mapped, Facts { used: Use::Old, ..none }, GiveUp),
        ("what was added to a mapping", new, Event::Grew, grown, smaller(64 * MIB, true)),
    ];
    for (name, state, event, facts, expected) in table {
        let mut policy = Advisor { request: THP, state };
        assert_eq!(last(&mut policy, event, facts), expected, "{name}");
    }
    // Small pieces, and pieces during a pause or under a seccomp filter, are decided by the last read of free memory.
    let mut policy = Advisor::new(THP);
    let piece = with(GIB, partly(64 * MIB, 0));
    assert_eq!(last(&mut policy, Event::Mapped, piece), smaller(0, true));
    let left = policy.state.left_smaller;
    assert_eq!(left, GIB - 2 * 64 * MIB);
    let small = with(GIB, partly(3 * MIB, 0));
    assert_eq!(answers(&mut policy, Event::Mapped, small), [smaller(0, false)]);
    assert_eq!(policy.state.left_smaller, left - 4 * MIB);
    (policy.state.since, policy.state.left_smaller) = (0, 3 * MIB);
    assert_eq!(answers(&mut policy, Event::Mapped, small), [GiveUp]);
    policy.state.left_smaller = 64 * MIB;
    policy.state.losses.until = u64::MAX;
    policy.state.look_at = u64::MAX;
    assert_eq!(answers(&mut policy, Event::Mapped, piece), [smaller(0, false)]);
    policy.state.left_smaller = 64 * MIB;
    let sealed = Facts { is_sealed: true, ..piece };
    assert_eq!(answers(&mut policy, Event::Mapped, sealed), [smaller(0, false)]);
    // All of the piece is advised.
    let before = policy.state.advised;
    let done = Event::Outcome { action: smaller(0, true), result: DONE, cost: 0 };
    policy.on(done, &piece);
    assert_eq!(policy.state.advised - before, 64 * MIB);
}

/// docs/decisions/contiguity.md#6
#[test]
fn superpages_are_made_free_by_who_may() {
    use Action::{AdviseSmaller, GiveUp, Obtain, Read};
    let (free, spare) = (Read(Source::Free), Read(Source::Spare));
    let supplied = |obtained, facts| Facts { has_supply: true, obtained, ..facts };
    let none = partly(GIB, 0);
    let asked = State { requested: GIB, look_at: u64::MAX, ..State::NEW };
    // 1 GiB, and 64 MiB more that are left to others.
    let all = Obtain { count: 512 + 32 };
    let border = AdviseSmaller { from: 0, order: 9, promised: true };
    #[rustfmt::skip]
    let table: [(_, _, _, &[Action]); 9] = [
        ("enough is free", asked, supplied(None, whole(GIB)), &[free, advise(GIB)]),
        ("all are had", asked, supplied(Some(544), none), &[free, spare, all, free, advise(GIB)]),
        ("half are had", asked, supplied(Some(272), none), &[free, spare, all, free, spare, advise(480 * MIB)]),
        ("none are", asked, supplied(Some(0), none), &[free, spare, all, free, spare, GiveUp]),
        ("none are, and smaller ones are on", asked,
            Facts { smaller: MIB, contiguous_smaller: 9 * GIB, ..supplied(Some(0), none) },
            &[free, spare, all, free, spare, border]),
        ("small pieces ask for more than they need", asked, supplied(Some(66), partly(16 * MIB, 60 * MIB)),
            &[free, spare, Obtain { count: 10 + 64 - 8 }, free, advise(16 * MIB)]),
        ("page cache fills the memory", asked,
            Facts { free: 2 * GIB, reclaimable: Some(18 * GIB), ..supplied(Some(544), none) },
            &[free, spare, all, free, advise(GIB)]),
        ("it brought nothing a moment ago", State { trials: policy_pause(u64::MAX), ..asked }, supplied(None, none),
            &[free, spare, GiveUp]),
        ("shared memory", asked, Facts { kind: Kind::Whole, ..supplied(None, none) }, &[free, spare, GiveUp]),
    ];
    for (name, state, facts, expected) in table {
        let mut policy = Advisor { request: THP, state };
        assert_eq!(answers(&mut policy, Event::Mapped, facts), expected, "{name}");
        // If few superpages were obtained, the next request is not made soon.
        let was_vain = expected.contains(&all) && facts.obtained.is_some_and(|got| got < 272);
        assert_eq!(
            policy.state.trials.until > policy.state.requested,
            was_vain || name.starts_with("it brought"),
            "{name}"
        );
    }
}

fn policy_pause(until: u64) -> superpage_advisor::Pause {
    superpage_advisor::Pause { until, ..State::NEW.trials }
}

/// docs/decisions/contiguity.md#1: expensive facts are read only if the decision depends on them.
#[test]
fn no_more_is_read_than_decides() {
    use Action::Read;
    let (free, spare) = (Read(Source::Free), Read(Source::Spare));
    let cached = Facts { free: GIB, reclaimable: Some(18 * GIB), ..partly(4 * GIB, 200 * MIB) };
    let compacts = Facts { compacts: false, ..whole(GIB) };
    let probe = Action::Probe { count: 104, limit: 20_000 };
    let good = (DONE, 20_000);
    // A sixteenth of the bytes requested so far is at least 104 superpages.
    let asked = State { requested: 4 * GIB, look_at: u64::MAX, ..State::NEW };
    let piece = Facts { length: 500 * MIB, ..cached };
    let enough = State { requested: 104 * 32 * MIB - 500 * MIB, ..asked };
    let less = State { requested: enough.requested - 1, ..asked };
    let early = State { look_at: u64::MAX, ..State::NEW };
    #[rustfmt::skip]
    let table: [(_, _, _, _, &[Action]); 12] = [
        ("enough", early, whole(GIB), good, &[free, advise(GIB)]),
        // A sixteenth of the bytes requested so far is 256 superpages. Superpages of the probe are free afterwards.
        ("too little, and more can be had", asked, partly(4 * GIB, 0), (Outcome::Done { pages: 256 }, 9),
            &[free, spare, Action::Probe { count: 256, limit: 20_000 }, free, spare, advise(448 * MIB)]),
        ("too little", asked, partly(4 * GIB, 0), (Outcome::NoMemory, 9),
            &[free, spare, Action::Probe { count: 256, limit: 20_000 }, free, spare, Action::GiveUp]),
        ("nothing compacts", early, compacts, good, &[unpromised(GIB)]),
        ("page cache", asked, cached, good, &[free, spare, probe, free, spare, advise(4 * GIB)]),
        ("page cache, too slow", asked, cached, (DONE, 20_001), &[free, spare, probe, free, spare, advise(136 * MIB)]),
        ("page cache, base pages", asked, cached, (Outcome::NoMemory, 9), &[free, spare, probe, free, spare, advise(136 * MIB)]),
        ("page cache, a sixteenth of what was asked for", enough, piece, good, &[free, spare, probe, free, spare, advise(500 * MIB)]),
        ("page cache, a byte less", less, piece, good, &[free, spare, advise(136 * MIB)]),
        ("page cache, more than may be tried", early, piece, good,
            &[free, spare, advise(136 * MIB)]),
        ("no file", asked, Facts { contiguous: None, ..cached }, (Outcome::NoMemory, 9),
            &[free, Action::Probe { count: 4, limit: 20_000 }, Action::GiveUp]),
        ("no file, too early for a trial", early, Facts { contiguous: None, length: 63 * MIB, ..cached }, (Outcome::NoMemory, 9),
            &[free, unpromised(63 * MIB)]),
    ];
    for (name, state, facts, probe, expected) in table {
        let mut policy = Advisor { request: THP, state };
        let answers = World { facts, probe }.answers(&mut policy, Event::Mapped);
        assert_eq!(answers, expected, "{name}");
    }
    // If free blocks cannot be read, the result of the last probe also decides small pieces.
    for (verdict, expected) in [(false, Action::GiveUp), (true, advise(MIB))] {
        let mut policy = Advisor { request: THP, state: tried(verdict) };
        last(&mut policy, Event::Mapped, Facts { contiguous: None, ..whole(GIB) });
        assert_eq!(answers(&mut policy, Event::Mapped, whole(MIB)), [expected], "{verdict}");
    }
    // Small pieces: one read of free memory serves 8 MiB in all, and no more than was free.
    let mut policy = Advisor::new(THP);
    let piece = partly(3 * MIB, 4 * GIB);
    assert_eq!(answers(&mut policy, Event::Mapped, piece), [free, advise(3 * MIB)]);
    assert_eq!(answers(&mut policy, Event::Mapped, piece), [advise(3 * MIB)]);
    assert_eq!(answers(&mut policy, Event::Mapped, piece), [free, advise(3 * MIB)]);
    policy.state.left = 2 * MIB;
    assert_eq!(answers(&mut policy, Event::Mapped, piece), [free, advise(3 * MIB)]);
    policy.state.is_short = true;
    assert_eq!(answers(&mut policy, Event::Mapped, piece), [Action::GiveUp]);
}

/// docs/decisions/contiguity.md#1: the result of a successful probe is used for 256 MiB. After each failure the pause
/// doubles.
#[test]
fn trials_are_the_rarer_the_more_fail() {
    let facts = Facts { contiguous: None, compacts: true, ..whole(32 * MIB) };
    let mut policy = Advisor { request: THP, state: State { look_at: u64::MAX, ..State::NEW } };
    let mut trials = |probe, count| {
        let mut all = Vec::new();
        for _ in 0..count {
            let answers = World { facts, probe }.answers(&mut policy, Event::Mapped);
            if answers.iter().any(|it| matches!(it, Action::Probe { .. })) {
                all.push(policy.state.requested / MIB);
            }
        }
        all
    };
    assert_eq!(trials((DONE, 100), 20), [64, 320, 576]);
    // The pause grows up to 64 GiB.
    assert_eq!(trials((Outcome::NoMemory, 1), 60), [832, 1088, 1600]);
    // A probe that could not be made is repeated.
    assert_eq!(trials((Outcome::Unavailable, 0), 20), [2624, 2880, 3136]);
    policy.state.trials.length = 64 * GIB;
    World { facts, probe: (Outcome::NoMemory, 1) }.answers(&mut policy, Event::Mapped);
    assert_eq!(policy.state.trials.length, 64 * GIB, "never longer");
}

/// docs/decisions/contiguity.md#1: after stalls and fallbacks nothing is advised for 256 MiB, and for twice as much
/// each further time. The counters are compact_stall and thp_fault_fallback of /proc/vmstat (mm/vmstat.c).
#[test]
fn losses_are_followed_by_longer_and_longer_pauses() {
    let mut policy = Advisor::new(THP);
    let mut facts = whole(64 * MIB);
    let mut losing = |policy: &mut Advisor, losses| {
        facts.stalls += losses;
        facts.fallbacks += losses;
        facts.faults += losses * 512;
        answers(policy, Event::Mapped, facts)
    };
    let look = Action::Read(Source::Losses);
    let wait = |mib| Action::Wait { bytes: mib * MIB };
    // The first read only records the counters' initial values.
    assert_eq!(losing(&mut policy, 1000)[0], look);
    policy.state.advised += 64 * MIB;
    assert_eq!(losing(&mut policy, 16), [look, wait(256), Action::GiveUp]);
    // A read without losses shortens the next pause, also if it is made during a pause (the pause itself goes on).
    policy.state.look_at = u64::MAX;
    for _ in 0..3 {
        assert!(losing(&mut policy, 0).ends_with(&[Action::GiveUp]), "the pause lasts");
    }
    assert_eq!(losing(&mut policy, 0), [Action::Read(Source::Free), advise(64 * MIB)]);
    policy.state.look_at = 0;
    assert_eq!(losing(&mut policy, 16), [look, wait(512), Action::GiveUp]);
    policy.state.losses.until = 0;
    policy.state.advised += 64 * MIB;
    // There are too few losses, or they belong to other processes: this process took fewer faults.
    assert_eq!(losing(&mut policy, 15)[0..2], [look, Action::Read(Source::Free)]);
    assert_eq!(policy.state.look_after, 128 * MIB, "the next look is further away");
    policy.state.advised += 64 * MIB;
    assert_eq!(losing(&mut policy, 16), [look, wait(256), Action::GiveUp], "short again");
    policy.state.losses.until = 0;
    policy.state.advised += 64 * MIB;
    facts.faults = 0;
    facts.stalls += 100;
    facts.fallbacks += 100;
    assert_eq!(
        answers(&mut policy, Event::Mapped, facts)[0..2],
        [look, Action::Read(Source::Free)]
    );
    for _ in 0..5 {
        policy.state.look_at = 0;
        answers(&mut policy, Event::Mapped, facts);
    }
    assert_eq!(policy.state.look_after, 512 * MIB, "never further");
    // When a process ends whose losses were read before, they are read once more.
    let end = Facts { length: 0, ..facts };
    assert_eq!(answers(&mut policy, Event::Ended, end), [look, Action::Nothing]);
    assert_eq!(last(&mut policy, Event::Ended, Facts { is_sealed: true, ..end }), Action::Nothing);
    assert_eq!(answers(&mut Advisor::new(THP), Event::Ended, end), [Action::Nothing]);
}

/// docs/decisions/contiguity.md#2 and #3: mappings are merged where their advice is the same and they have one
/// anon_vma (is_mergeable_anon_vma, mm/vma.c).
#[test]
fn what_is_added_to_a_mapping_is_decided_anew() {
    let grown = |length, old, contiguous| Facts {
        old,
        advised: old,
        kind: Kind::Mapping,
        ..partly(length, contiguous)
    };
    let unadvise = |from| Action::Unadvise { from, order: 9, promised: true };
    let grows = grown(256 * MIB, 128 * MIB, 4 * GIB);
    let short_of = grown(256 * MIB, 128 * MIB, 40 * MIB);
    let some = grown(256 * MIB, 128 * MIB, 128 * MIB);
    let heap = |facts| Facts { kind: Kind::Heap, ..facts };
    let bordered = Facts { advised: 64 * MIB, ..short_of };
    let inherit = Action::Inherit { promised: true };
    let new = State::NEW;
    #[rustfmt::skip]
    let table = [
        ("it fits", new, grows, inherit),
        ("it fits, malloc's", new, heap(grows), advise(256 * MIB)),
        ("it fits again: the old advice may have been taken back", short(), grows, advise(256 * MIB)),
        ("larger superpages are on (contiguity.md#4)", new, Facts { has_larger: true, ..grows }, advise(256 * MIB)),
        ("nothing fits", new, short_of, unadvise(128 * MIB)),
        ("a part fits", new, some, unadvise(192 * MIB)),
        ("behind an old border", new, bordered, unadvise(64 * MIB)),
        ("behind an old border, filled", new, Facts { is_filled: true, ..bordered }, unadvise(128 * MIB)),
        ("behind an old border, and it fits", short(), Facts { contiguous: Some(4 * GIB), ..bordered }, advise(256 * MIB)),
        ("no superpage was added", new, grown(128 * MIB + 4 * KIB, 128 * MIB, 0), Action::Keep),
        ("it was smaller than a superpage", new, grown(128 * MIB, MIB, 0), Action::Keep),
        ("it was one superpage", new, grown(4 * MIB, SUPERPAGE, 0), unadvise(SUPERPAGE)),
        ("it became smaller", new, grown(64 * MIB, 128 * MIB, 0), Action::Keep),
        ("a superpage came to be whole", new, grown(128 * MIB, 127 * MIB, 40 * MIB), unadvise(127 * MIB)),
        ("shared memory is not parted, and has no border", new, Facts { kind: Kind::Whole, ..some }, unadvise(128 * MIB)),
        ("a filter may be in place", new, Facts { is_sealed: true, ..short_of }, Action::Inherit { promised: false }),
    ];
    for (name, state, facts, expected) in table {
        let mut policy = Advisor { request: THP, state };
        assert_eq!(last(&mut policy, Event::Grew, facts), expected, "{name}");
    }
    let mut policy = Advisor::new(THP);
    // The program's own memory may have advice that is not from the library; such memory keeps its advice.
    let unfit = |action| Event::Outcome { action, result: Outcome::Unfit, cost: 0 };
    assert_eq!(policy.on(unfit(unadvise(0)), &short_of), Action::Keep);
    assert_eq!(policy.on(Event::Moves, &whole(GIB)), Action::Join);
}

/// Memory counts as advised if it could get superpages; address space that is only reserved does not count
/// (contiguity.md#1).
#[test]
fn outcomes_are_remembered() {
    let mut policy = Advisor::new(THP);
    let mut ends = |action, result, facts: Facts| {
        policy.on(Event::Outcome { action, result, cost: 0 }, &facts);
        policy.state.advised / MIB
    };
    assert_eq!(ends(advise(8 * MIB), DONE, whole(8 * MIB)), 8);
    assert_eq!(ends(advise(8 * MIB), Outcome::Unavailable, whole(8 * MIB)), 8);
    let reserved = Facts { used: Use::Reserved, ..whole(8 * MIB) };
    assert_eq!(ends(advise(8 * MIB), DONE, reserved), 8);
    let grown = Facts { old: 4 * MIB, advised: 4 * MIB, ..whole(16 * MIB) };
    assert_eq!(ends(advise(16 * MIB), DONE, grown), 20);
    let part = Action::Unadvise { from: 10 * MIB, order: 9, promised: true };
    assert_eq!(ends(part, DONE, grown), 26);
}

/// For all amounts of free and of promised memory, no more is promised than is free.
#[test]
fn no_more_is_promised_than_there_is() {
    let sizes = [0, SUPERPAGE, 64 * MIB, GIB, 4 * GIB, 20 * GIB, u64::MAX / 2, u64::MAX];
    let mut cases = 0;
    for length in &sizes[1..] {
        for contiguous in sizes {
            for outstanding in sizes {
                for state in [State::NEW, short()] {
                    let facts = Facts { outstanding, ..partly(*length, contiguous) };
                    match last(&mut Advisor { request: THP, state }, Event::Mapped, facts) {
                        Action::Advise { bytes, promised: true, .. } => {
                            assert!(bytes <= contiguous.saturating_sub(outstanding), "{facts:?}");
                        }
                        Action::Advise { bytes, .. } => assert!(bytes > facts.free, "{facts:?}"),
                        action => assert_eq!(action, Action::GiveUp),
                    }
                    cases += 1;
                }
            }
        }
    }
    assert_eq!(cases, 2 * 7 * 8 * 8);
}
