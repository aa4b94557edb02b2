//! Tests goals of levels (pure), and what becomes of fragmented superpages (kernel).

use super::*;

fn two_mib() -> PageSize {
    PageSize::new(2 << 20).unwrap()
}

/// Returns a machine with 10 GiB in free superpages and 12 GiB available.
fn machine() -> Free {
    let (available, margin) = (ByteSize::gib(12), ByteSize::gib(1));
    Free { superpage: two_mib(), superpages: 5120, available, margin }
}

fn goal(kind: Kind, level: u8, extent: Extent) -> Result<Goal, GoalError> {
    Goal::new(kind, level, extent, machine())
}

#[test]
fn a_level_is_a_share_of_what_is_meant() {
    let counts = |level, extent| {
        let goal = goal(Kind::Pinned, level, extent).unwrap();
        (goal.occupied, goal.fragmented, goal.left)
    };
    for (level, extent, expected) in [
        (0, Extent::All, (0, 0, Some(5120))),
        (50, Extent::All, (0, 2560, Some(2560))),
        (100, Extent::All, (0, 5120, Some(0))),
        (50, Extent::Part(ByteSize::mib(512)), (0, 128, None)),
        (0, Extent::Leave(ByteSize::gib(4)), (3072, 0, Some(2048))),
        (25, Extent::Leave(ByteSize::gib(4)), (3072, 512, Some(1536))),
        (100, Extent::Leave(ByteSize::gib(10)), (0, 5120, Some(0))),
        // Frag-25 of a program that needs 1 GiB: only 384 superpages are left free.
        (25, Extent::Needed(ByteSize::gib(1)), (0, 4736, Some(384))),
        (100, Extent::Needed(ByteSize::gib(1)), (0, 5120, Some(0))),
        // Half of one superpage is rounded up to one, and a part of one down to none.
        (50, Extent::Part(ByteSize::mib(3)), (0, 1, None)),
    ] {
        assert_eq!(counts(level, extent), expected, "{level} {extent:?}");
    }
    // If a number is to be left, superpages that become free are fragmented too, up to the 6144 available.
    let most = |level, extent| goal(Kind::Pinned, level, extent).unwrap().most;
    assert_eq!(most(100, Extent::All), 5120 + 2560);
    assert_eq!(most(50, Extent::All), 6144);
    assert_eq!(most(0, Extent::All), 0);
    assert_eq!(most(50, Extent::Part(ByteSize::mib(512))), 128);
}

#[test]
fn what_is_held_is_counted_by_kind() {
    let base = sys::param::page_size().bytes();
    let bytes = |kind| goal(kind, 50, Extent::Leave(ByteSize::gib(4))).unwrap().bytes().bytes();
    let occupied = (3072 + CUSHION) * two_mib().bytes();
    assert_eq!(bytes(Kind::Pinned), occupied + 1024 * base);
    assert_eq!(bytes(Kind::Movable), occupied + 1024 * 16 * base);
}

#[test]
fn what_cannot_be_is_refused_with_the_remedy() {
    let refused = |extent| goal(Kind::Movable, 100, extent).unwrap_err();
    let small = refused(Extent::Part(ByteSize::mib(1)));
    assert!(!small.is_cannot() && small.to_string().contains("less than a superpage"), "{small}");
    for extent in
        [Extent::Part, Extent::Leave, Extent::Needed].map(|extent| extent(ByteSize::gib(11)))
    {
        let much = refused(extent);
        assert!(much.is_cannot() && much.to_string().contains("give less"), "{much}");
    }
    let much = refused(Extent::Part(ByteSize(u64::MAX)));
    assert!(much.is_cannot(), "{much}");
    // All free memory but 2 MiB would be occupied, but 1 GiB should remain.
    let tight = Free { available: ByteSize::gib(11), ..machine() };
    let extent = Extent::Leave(ByteSize::mib(2));
    let taken = Goal::new(Kind::Movable, 100, extent, tight).unwrap_err();
    assert!(taken.is_cannot() && taken.to_string().contains("leave more"), "{taken}");
    assert!(Goal::new(Kind::Movable, 100, extent, machine()).is_ok());
    let tight = Free { available: ByteSize::gib(10), ..machine() };
    // With pinned pages, the superpages to be left are held for a while too.
    let of = |kind| Goal::new(kind, 10, Extent::All, tight);
    assert!(of(Kind::Movable).is_ok() && of(Kind::Pinned).is_err());
}

const COUNT: u64 = 32;

fn none(kind: Kind) -> Goal {
    Goal {
        kind,
        level: 100,
        superpage: two_mib(),
        occupied: 0,
        fragmented: 0,
        left: None,
        most: COUNT,
    }
}

/// Takes a few fragmented superpages; `None` if too few are free.
fn held(kind: Kind) -> Option<Held> {
    let goal = Goal { fragmented: COUNT, ..none(kind) };
    let is_usual = host::Thp::pmd_size_of(&Root::real()).ok() == Some(two_mib());
    let held = is_usual.then(|| Held::take(&Root::real(), goal, |_, _| true))?.ok()?;
    (held.fragmented == COUNT).then_some(held)
}

/// Returns every held superpage: index of its mapping, and offset.
fn each(held: &Held) -> Vec<(usize, usize)> {
    let lengths = held.memory.iter().map(Mapping::len).enumerate();
    let step = held.goal.superpage.bytes() as usize;
    lengths.flat_map(|(piece, len)| (0..len).step_by(step).map(move |at| (piece, at))).collect()
}

#[test]
fn of_a_superpage_only_the_pages_that_stay_are_in_memory() {
    testkit::lock_machine!(shared);
    for (kind, first, pages) in [(Kind::Movable, 512 - 16, 16), (Kind::Pinned, 0, 1)] {
        let held = held(kind);
        testkit::require!(held.is_some(), "needs THP of 2 MiB, and some free");
        let held = held.unwrap();
        let page = sys::param::page_size().bytes();
        for (piece, at) in each(&held) {
            let start = held.memory[piece].address() + at as u64;
            let present = |index: &u64| {
                // The shared zero page is not exclusive.
                held.pagemap.is_exclusive(start + index * page).unwrap() == Some(true)
            };
            let present: Vec<u64> = (0..512).filter(present).collect();
            assert_eq!(present, (first..first + pages).collect::<Vec<_>>(), "{kind:?}");
        }
    }
}

#[test]
fn superpages_are_made_of_movable_pages_and_not_of_pinned_ones() {
    testkit::lock_machine!(shared);
    // Count superpages that were collapsed, and those whose pages could not be isolated (EAGAIN). Without a free
    // superpage the error is ENOMEM; a kernel before Linux 6.1 returns EINVAL.
    let collapsed = |kind| {
        let mut held = held(kind)?;
        let (mut made, mut stuck) = (0, 0);
        for (piece, at) in each(&held) {
            let (piece, end) = (&mut held.memory[piece], at + two_mib().bytes() as usize);
            piece.advise_range(at..end, Advice::HugePage).unwrap();
            match piece.advise_range(at..end, Advice::Collapse) {
                Ok(()) => made += 1,
                Err(error) => stuck += u64::from(error.errno() == libc::EAGAIN),
            }
        }
        Some((made, stuck))
    };
    let (movable, pinned) = (collapsed(Kind::Movable), collapsed(Kind::Pinned));
    testkit::require!(movable.is_some() && pinned.is_some(), "needs THP of 2 MiB, and some free");
    assert_eq!(pinned.map(|(made, _)| made), Some(0));
    assert!(movable.is_some_and(|(_, stuck)| stuck < COUNT / 2), "{movable:?}");
    // If no superpage is free, the test shows nothing.
    let is_shown = movable.is_some_and(|(made, _)| made > COUNT / 2);
    testkit::require!(is_shown, "no superpages to collapse into: {movable:?} of {COUNT}");
}

mod exclusive {
    use super::*;

    #[test]
    fn what_became_whole_is_fragmented_again() {
        // Free memory is counted twice and must not change in between.
        testkit::lock_machine!();
        let held = held(Kind::Movable);
        testkit::require!(held.is_some(), "needs THP of 2 MiB, and some free");
        let mut held = held.unwrap();
        // Pretend that `COUNT` fewer superpages had been free.
        let free = superpages(&Root::real(), held.goal.superpage).unwrap();
        testkit::require!(free >= COUNT, "only {free} superpages lie free");
        held.goal = Goal { fragmented: COUNT, left: Some(free - COUNT), ..held.goal };
        held.renew(&Root::real(), || true).unwrap();
        assert!(held.fragmented > COUNT, "{}", held.fragmented);
        // `renew` has no effect without a number to leave, and with pinned pages, which cannot become whole.
        for goal in [none(Kind::Movable), Goal { left: Some(0), ..none(Kind::Pinned) }] {
            let fragmented = held.fragmented;
            held.goal = goal;
            held.renew(&Root::real(), || unreachable!()).unwrap();
            assert_eq!(held.fragmented, fragmented);
        }
    }
}

#[test]
fn an_interrupted_one_holds_nothing() {
    let goal = Goal { occupied: 9, fragmented: 9, ..none(Kind::Movable) };
    let mut told = Vec::new();
    let taken = Held::take(&Root::real(), goal, |done, of| {
        told.push((done, of));
        false
    });
    assert!(matches!(taken, Err(FragmentError::Interrupted)));
    assert_eq!(told, [(0, 18)]);
}
