//! Which memory is populated ahead, kept after munmap, handed out again, and returned.

use superpage_advisor::{Action, Outcome};
use superpage_advisor::{Advisor, Event, Facts, Pages, Request, Source, Use};

use super::*;

/// docs/decisions/prepare.md#2 and #4: at most 64 MiB, a tenth of the process's memory and of what its cgroup has left.
#[test]
fn the_beginning_of_a_new_mapping_is_populated_within_bounds() {
    let of =
        |length, resident, headroom| Facts { resident: Some(resident), headroom, ..whole(length) };
    let large = of(256 * MIB, 4 * GIB, None);
    let asked = |prefault| Request { prefault, prezero: 0, ..PREPARED };
    let odd = Facts { offset: 4 * KIB, ..large };
    let huge = Facts { superpage: 32 * MIB, ..large };
    #[rustfmt::skip]
    let table: [(_, _, _, &[u64]); 16] = [
        ("8 MiB at a time: nobody waits long for the lock", asked(64 * MIB), large, &[8; 8]),
        ("as much as was asked for", asked(20 * MIB), large, &[8, 8, 4]),
        ("not more than the mapping", asked(64 * MIB), of(12 * MIB, 4 * GIB, None), &[8, 4]),
        ("never more than 64 MiB", asked(GIB), large, &[8; 8]),
        ("whole superpages", asked(7 * MIB), large, &[6]),
        ("those inside the mapping", asked(8 * MIB), odd, &[6]),
        ("a tenth of the process's memory, the mapping counted", asked(64 * MIB), of(100 * MIB, 60 * MIB, None), &[8, 8]),
        ("a tenth of what the cgroup leaves", asked(64 * MIB), of(256 * MIB, 4 * GIB, Some(100 * MIB)), &[8, 2]),
        ("a cgroup that is full", asked(64 * MIB), of(256 * MIB, 4 * GIB, Some(0)), &[]),
        ("a tenth is one superpage", asked(64 * MIB), of(8 * MIB, 12 * MIB, None), &[2]),
        ("one superpage is asked for", asked(2 * MIB), large, &[2]),
        ("a small process", asked(64 * MIB), of(8 * MIB, MIB, None), &[]),
        ("a superpage that is more than a portion", asked(64 * MIB), huge, &[32, 32]),
        ("less than a superpage is asked for", asked(MIB), large, &[]),
        ("a filter may be in place", asked(64 * MIB), Facts { is_sealed: true, ..large }, &[]),
        ("smaller superpages come with page tables (contiguity.md#4)",
            Request { pages: Pages::Smaller, ..asked(64 * MIB) }, large, &[]),
    ];
    for (name, asked, facts, expected) in table {
        let populated: Vec<u64> = answers(&mut Advisor::new(asked), Event::Ready, facts)
            .iter()
            .filter_map(|it| match it {
                Action::Populate { most } => Some(u64::from(*most) * facts.base_page / MIB),
                _ => None,
            })
            .collect();
        assert_eq!(populated, expected, "{name}");
    }
    // Without memory, nothing more is populated.
    let event = Event::Outcome {
        action: Action::Populate { most: 2048 },
        result: Outcome::NoMemory,
        cost: 0,
    };
    assert_eq!(Advisor::new(PREPARED).on(event, &large), Action::Nothing);
}

/// docs/decisions/prepare.md#2.
#[test]
fn what_is_unmapped_is_kept_within_bounds() {
    use Action::{Keep, Release};
    let kept = Facts {
        used: Use::Unmapped,
        resident: Some(GIB),
        is_unlimited: true,
        is_whole: true,
        ..whole(32 * MIB)
    };
    let [resident, headroom, on_superpages] =
        [Source::Resident, Source::Headroom, Source::Whole].map(Action::Read);
    #[rustfmt::skip]
    let table: [(_, _, _, &[Action]); 13] = [
        ("within all bounds", PREPARED, kept, &[resident, headroom, on_superpages, Keep]),
        ("all there may be", PREPARED, Facts { kept: 32 * MIB, ..kept }, &[resident, headroom, on_superpages, Keep]),
        ("more than 64 MiB", PREPARED, Facts { kept: 34 * MIB, ..kept }, &[resident, Release]),
        ("more than was asked for", Request { prezero: 30 * MIB, ..PREPARED }, kept, &[resident, Release]),
        ("more than a tenth of the process", PREPARED, Facts { resident: Some(318 * MIB), ..kept }, &[resident, Release]),
        ("more than a tenth of what the cgroup leaves", PREPARED, Facts { headroom: Some(318 * MIB), ..kept }, &[resident, headroom, Release]),
        ("within that", PREPARED, Facts { headroom: Some(320 * MIB), ..kept }, &[resident, headroom, on_superpages, Keep]),
        ("RLIMIT_AS or RLIMIT_DATA", PREPARED, Facts { is_unlimited: false, ..kept }, &[resident, headroom, on_superpages, Release]),
        ("not all of it on superpages", PREPARED, Facts { is_whole: false, ..kept }, &[resident, headroom, on_superpages, Release]),
        ("begins within a superpage", PREPARED, Facts { offset: 4 * KIB, ..kept }, &[Release]),
        ("ends within one", PREPARED, Facts { length: 32 * MIB + 4 * KIB, ..kept }, &[Release]),
        ("a filter may be in place", PREPARED, Facts { is_sealed: true, ..kept }, &[Release]),
        ("nothing is prepared", THP, kept, &[Release]),
    ];
    for (name, asked, facts, expected) in table {
        assert_eq!(answers(&mut Advisor::new(asked), Event::Unmapped, facts), expected, "{name}");
    }
    let mut policy = Advisor::new(PREPARED);
    let mut ends = |action, result| policy.on(Event::Outcome { action, result, cost: 0 }, &kept);
    assert_eq!(ends(Keep, DONE), Action::Nothing);
    assert_eq!(
        ends(Keep, Outcome::Unfit),
        Release,
        "MADV_FREE is refused: locked, or not anonymous"
    );
    assert_eq!(ends(Keep, Outcome::Unavailable), Release, "no place for it");
}

/// docs/decisions/prepare.md#2: kept memory is unmapped after eight large requests that could not use it, or when
/// memory or address space runs short.
#[test]
fn what_is_kept_is_handed_out_or_given_back() {
    let facts = Facts { has_fitting: true, ..whole(8 * MIB) };
    let other = Facts { has_fitting: false, ..facts };
    let mut policy = Advisor::new(PREPARED);
    assert_eq!(policy.on(Event::Wanted, &facts), Action::HandOut);
    assert_eq!(policy.on(Event::Wanted, &other), Action::GiveUp);
    assert_eq!(policy.state.requests, 2);
    for (nothing, asked) in [
        (facts, Request { prezero: 0, ..PREPARED }),
        (Facts { length: 8 * MIB + 4 * KIB, ..facts }, PREPARED),
        (Facts { is_sealed: true, ..facts }, PREPARED),
        (Facts { superpage: 512 * MIB, length: GIB, ..facts }, PREPARED),
    ] {
        let mut policy = Advisor::new(asked);
        assert_eq!(policy.on(Event::Wanted, &nothing), Action::Nothing);
        assert_eq!(policy.state.requests, 0);
    }
    let mut ends =
        |result| policy.on(Event::Outcome { action: Action::HandOut, result, cost: 0 }, &facts);
    assert_eq!(ends(DONE), Action::Nothing);
    assert_eq!(ends(Outcome::Unavailable), Action::GiveUp, "another thread has it");
    assert_eq!(ends(Outcome::NoMemory), Action::Release, "nobody knows what of it is there");
    let born = policy.state.requests;
    let kept = Facts { born, ..facts };
    for request in 1..=10 {
        policy.on(Event::Wanted, &other);
        let expected = if request <= 9 { Action::Keep } else { Action::Release };
        assert_eq!(policy.on(Event::PassedBy, &kept), expected, "request {request}");
    }
    for event in [Event::Pressure, Event::Claimed, Event::Shown] {
        assert_eq!(policy.on(event, &kept), Action::Release, "{event:?} (prepare.md#2, #5)");
    }
}
