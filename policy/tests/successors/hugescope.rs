//! HugeScope: superpages are split by what is accessed in them.

use crate::*;

#[test]
fn hugescope_splits_superpages_with_few_accessed_pages() {
    const SPLITS: &str =
        "hmmv/ept_scanner.c: sp_do_split, pg_cache_free; ss_work.h: SP_SPLITE_THRESHOLD 70";
    const ROUND: &str =
        "hmmv/ept_scanner.c: hs_ept_scanner; ss_work.h: TRACE_LEN 10, SAMPLE_PERIOD 600";
    const NEED: &str =
        "hmmv/ept_scanner.c: huge_page_split_select: none where all that is hot fits";
    const COLLAPSE: &str =
        "hmmv/ept_scanner.c: sp_check_collapse; ss_work.h: SP_COLLAPSE_THRESHOLD 450";
    let watched = |coverage| {
        known(|facts| {
            facts.extent = Extent { order: 9, populated: 512, coverage, ..Extent::default() };
        })
    };
    // Of 1000 pages.
    let free = |pages| known(|facts| facts.machine.free = pages);
    const WATCH: Action = Action::Watch { most: 500 };
    const VISIT: Action = Action::Visit(Candidates::Watched);
    const BACK: Action = Action::MakeSuperpage {
        order: 9,
        how: How::InPlace { writable: true },
        effort: Effort::None,
    };
    let visits = |facts: Facts, action| {
        vec![
            (SPLIT, free(99), WATCH),
            (ended(WATCH, DONE), fresh(), Action::Wait(Wait::Pause(6 * SECOND))),
            (SPLIT, fresh(), VISIT),
            (Event::Candidate, facts, action),
            (ended(VISIT, DONE), fresh(), VISIT),
            (ended(VISIT, Ended::Nothing), fresh(), Action::Wait(Wait::Period)),
            (SPLIT, free(99), WATCH),
        ]
    };
    check(
        &preset("hugescope"),
        vec![
            ("70 accessed pages are few", SPLITS, visits(watched(70), Action::Demote)),
            ("71 are not", SPLITS, visits(watched(71), BACK)),
            (
                "none at all are left alone",
                "hmmv/ept_scanner.c: pg_cache_free: p->cc != 0",
                visits(watched(0), BACK),
            ),
            ("one is enough", SPLITS, visits(watched(1), Action::Demote)),
            ("enough memory is free", NEED, vec![(SPLIT, free(100), Action::Wait(Wait::Period))]),
            (
                "there are no superpages to watch",
                ROUND,
                vec![
                    (SPLIT, free(99), WATCH),
                    (ended(WATCH, Ended::Nothing), fresh(), Action::Wait(Wait::Period)),
                ],
            ),
            (
                "a piece of work is long enough",
                ROUND,
                vec![
                    (SPLIT, free(99), WATCH),
                    (ended(WATCH, DONE), fresh(), Action::Wait(Wait::Pause(6 * SECOND))),
                    (SPLIT, fresh(), VISIT),
                    (
                        ended(VISIT, DONE),
                        known(|facts| facts.machine.is_piece_done = true),
                        Action::Wait(Wait::More),
                    ),
                    (SPLIT, fresh(), VISIT),
                ],
            ),
            (
                "450 accessed pages are collapsed again",
                COLLAPSE,
                vec![
                    (INSPECTED, candidate(9, |extent| extent.coverage = 450), copy(9)),
                    (INSPECTED, candidate(9, |extent| extent.coverage = 449), Action::Nothing),
                ],
            ),
            (
                "not those with holes",
                "hmmv/ept_scanner.c: collapse_huge_page_scan: pte_none",
                vec![(
                    Event::Candidate,
                    known(|facts| {
                        *facts = candidate(9, |extent| extent.coverage = 450);
                        facts.region.populated = 511;
                    }),
                    Action::Nothing,
                )],
            ),
            (
                "a fault takes a superpage, as THP",
                "enable_thp.sh: always",
                vec![
                    (WRITE, fresh(), fresh_page(9)),
                    (READ, fresh(), Action::MapZeros { superpage: true }),
                ],
            ),
            (
                "a page of zeros that is written",
                "mm/huge_memory.c: do_huge_pmd_wp_page_fallback",
                vec![(WRITE, known(|facts| facts.page = Page::Untouched), fresh_page(9))],
            ),
        ],
    );
    let policy = preset("hugescope").policy(SCALE);
    let split = policy.daemons().find(|(daemon, _)| *daemon == Daemon::Split);
    assert_eq!(split, Some((Daemon::Split, 9 * SECOND)));
    assert!(policy.reads().has(Reads::COVERAGE) && policy.reads().has(Reads::OF_CANDIDATES));
}
