//! Segments of the program, and other memory whose advice does not depend on free blocks.

use super::*;

/// Returns all answers; the actions end with `results`, in order.
fn ended(facts: Facts, results: &[Outcome]) -> Vec<Action> {
    let mut policy = Advisor::new(THP);
    let mut answers = vec![policy.on(Event::Loaded, &facts)];
    for result in results {
        let action = *answers.last().expect("one");
        answers.push(policy.on(Event::Outcome { action, result: *result, cost: 0 }, &facts));
    }
    assert_eq!(policy.state, State::NEW, "it is no part of what is weighed");
    answers
}

/// docs/decisions/live.md#5; `khugepaged_scan_file` and `madvise_collapse` (mm/khugepaged.c), `hugepage_madvise`
/// (mm/madvise.c).
#[test]
fn segments_lie_on_their_files_superpages_or_in_a_copy() {
    let (collapse, copy) = (Action::Collapse { order: 9 }, Action::Copy { order: 9 });
    let (advised, none) = (unpromised(8 * MIB), Outcome::Unavailable);
    let code = Facts { kind: Kind::Segment, has_file: true, ..whole(8 * MIB) };
    let copied = Facts { may_copy: true, ..code };
    let data = Facts { kind: Kind::Segment, may_copy: true, ..whole(8 * MIB) };
    let bss = Facts { kind: Kind::Bss, ..data };
    let file = Facts { kind: Kind::File, ..code };
    let off = |facts| Facts { is_off: true, ..facts };
    // Free memory does not decide: the copy is made on superpages, or dropped.
    let full = Facts { contiguous: Some(0), ..data };
    let (give_up, nothing) = (Action::GiveUp, Action::Nothing);
    #[rustfmt::skip]
    let table: [(_, _, &[Outcome], &[Action]); 18] = [
        ("code", code, &[DONE, DONE], &[advised, collapse, nothing]),
        ("code in small pages of the cache", code, &[DONE, none], &[advised, collapse, give_up]),
        ("code, not advised", code, &[none], &[advised, give_up]),
        ("code that may be copied, and need not be", copied, &[DONE, DONE], &[advised, collapse, nothing]),
        ("code that may be copied", copied, &[DONE, none, DONE], &[advised, collapse, copy, nothing]),
        ("code that may be copied, not advised", copied, &[none, DONE], &[advised, copy, nothing]),
        ("no superpages for the copy", copied, &[DONE, none, none], &[advised, collapse, copy, give_up]),
        ("code that lies across superpages of its file", Facts { has_file: false, ..code }, &[], &[give_up]),
        ("data", data, &[DONE], &[copy, nothing]),
        ("data, no superpages", full, &[none], &[copy, give_up]),
        ("bss", bss, &[DONE, DONE], &[advised, collapse, nothing]),
        ("bss, not collapsed: khugepaged may still", bss, &[DONE, none], &[advised, collapse, nothing]),
        ("a file", file, &[DONE, DONE], &[advised, collapse, nothing]),
        ("a file in small pages of the cache", file, &[DONE, none], &[advised, collapse, give_up]),
        ("a file that may be copied", Facts { may_copy: true, ..file }, &[DONE, none, DONE], &[advised, collapse, copy, nothing]),
        ("a file that lies across superpages", Facts { has_file: false, ..file }, &[], &[give_up]),
        ("THP are off", off(copied), &[], &[give_up]),
        ("THP are off, bss", off(bss), &[], &[give_up]),
    ];
    for (name, facts, results, expected) in table {
        assert_eq!(ended(facts, results), expected, "{name}");
    }
    // bss has no file, so no superpage of a file; and here it may not be copied.
    let bss = Facts { may_copy: false, ..bss };
    assert_eq!(ended(bss, &[none]), [advised, give_up]);
}

/// docs/decisions/live.md#5: memory that must stay one mapping with its neighbours, and memory for which superpages
/// were requested explicitly.
#[test]
fn free_memory_does_not_decide_about_what_was_asked_for_by_name() {
    let nothing_free = Facts { used: Use::Old, ..partly(3 * MIB, 0) };
    for (kind, expected) in [
        (Kind::Stack, unpromised(3 * MIB)),
        (Kind::Region, unpromised(3 * MIB)),
        (Kind::Joined, unpromised(3 * MIB)),
        (Kind::Copy, unpromised(3 * MIB)),
        (Kind::Mapping, Action::GiveUp),
        (Kind::Heap, Action::GiveUp),
        (Kind::Whole, Action::GiveUp),
    ] {
        let mut policy = Advisor { request: THP, state: short() };
        let facts = Facts { kind, ..nothing_free };
        let action = last(&mut policy, Event::Mapped, facts);
        assert_eq!(action, expected, "{kind:?}");
        if expected != Action::GiveUp {
            policy.on(Event::Outcome { action, result: DONE, cost: 0 }, &facts);
            assert_eq!(policy.state, short(), "{kind:?}: it is no part of what is weighed");
        }
    }
}

/// superpage-run(1), --pages and --fallback.
#[test]
fn advice_is_given_where_it_is_wanted() {
    #[rustfmt::skip]
    let table = [
        (Pages::Superpage, Fallback::Base, true),
        (Pages::Smaller, Fallback::Refuse, true),
        (Pages::Pool, Fallback::Advise, true),
        (Pages::Pool, Fallback::Base, false),
        (Pages::Pool, Fallback::Refuse, false),
        (Pages::Base, Fallback::Base, false),
        // The library's own functions, in a program for which no superpages were requested.
        (Pages::Base, Fallback::Advise, true),
    ];
    for (pages, fallback, is_given) in table {
        let asked = Request { pages, ..THP };
        assert_eq!(asked.advises(fallback), is_given, "{pages:?} {fallback:?}");
        for kind in [Kind::Mapping, Kind::Heap, Kind::Stack, Kind::Region, Kind::Joined, Kind::Copy]
        {
            let facts = Facts { kind, fallback, ..whole(8 * MIB) };
            let action = last(&mut Advisor::new(asked), Event::Mapped, facts);
            let is_advised = matches!(action, Action::Advise { bytes, .. } if bytes == 8 * MIB);
            assert_eq!(is_advised, is_given, "{pages:?} {fallback:?} {kind:?}");
            assert!(is_given || action == Action::Keep);
        }
    }
}
