//! Elastic Translations: sizes by TLB misses.

use crate::*;

#[test]
fn elastic_translations_chooses_a_size_by_misses() {
    const GREEDY: &str = "bin/epochs.sh: fault_hints 0";
    const SOLVE: &str = "etutils-rs src/leshy.rs: Trace::solve";
    let missed = |order, misses, coverage| {
        candidate(order, |extent| (extent.misses, extent.coverage) = (misses, coverage))
    };
    let table: Vec<Line> = vec![
        (
            "a fault takes the largest size that is free",
            GREEDY,
            vec![
                (WRITE, fresh(), fresh_page(9)),
                (ended(fresh_page(9), Ended::NoMemory), fresh(), fresh_page(4)),
                (ended(fresh_page(4), Ended::NoMemory), fresh(), BASE),
            ],
        ),
        (
            "a fault where a superpage does not fit",
            GREEDY,
            vec![(
                WRITE,
                known(|facts| {
                    facts.region.inside = false;
                    facts.region.ends = orders(&[4]);
                }),
                fresh_page(4),
            )],
        ),
        (
            "candidates by their misses, so many",
            "bin/epochs.sh: nrpages; leshy.rs: compute_hints sorts",
            vec![
                (SCAN, fresh(), Action::Rank { most: 96, one_process: false }),
                (
                    ended(Action::Rank { most: 96, one_process: false }, DONE),
                    fresh(),
                    Action::Visit(Candidates::Best),
                ),
                (Event::Candidate, missed(9, 500, 100), Action::Inspect),
                (INSPECTED, missed(9, 500, 100), copy(9)),
                (
                    ended(Action::Visit(Candidates::Best), Ended::Nothing),
                    fresh(),
                    Action::Wait(Wait::Period),
                ),
            ],
        ),
        (
            "few pages of it miss: the next smaller size",
            SOLVE,
            vec![
                (INSPECTED, missed(9, 500, 8), Action::Consider { order: 4 }),
                (INSPECTED, missed(4, 500, 2), copy(4)),
            ],
        ),
        (
            "one page alone is left as it is",
            "etutils-rs src/leshy.rs: solve: subentries > 1",
            vec![(INSPECTED, missed(4, 500, 1), Action::Nothing)],
        ),
        (
            "no misses, nothing",
            "etutils-rs src/leshy.rs: entries are addresses that missed",
            vec![
                (INSPECTED, missed(9, 0, 512), Action::Consider { order: 4 }),
                (INSPECTED, missed(4, 0, 16), Action::Nothing),
            ],
        ),
        (
            "what the program asks for is made",
            "mm/khugepaged.c: madvise_collapse",
            vec![
                (Event::CollapseRequested, candidate(0, |_| ()), Action::Inspect),
                (
                    Event::Inspected { requested: true },
                    candidate(0, |_| ()),
                    Action::MakeSuperpage {
                        order: 9,
                        how: How::Copy { exclusive: false },
                        effort: Effort::DirectRetry,
                    },
                ),
            ],
        ),
        (
            "samples: bits are cleared, then counted over two epochs",
            "bin/epochs.sh: profile: this snapshot and the last",
            vec![
                (Event::Tick(Daemon::Sample), fresh(), Action::ClearAccessed),
                (
                    ended(Action::ClearAccessed, DONE),
                    fresh(),
                    Action::Wait(Wait::After(9 * SECOND)),
                ),
                (
                    Event::Tick(Daemon::Sample),
                    fresh(),
                    Action::CountAccessed { newest_percent: 50 },
                ),
            ],
        ),
    ];
    check(&preset("elastic"), table);
    let policy = preset("elastic").policy(SCALE);
    let ranked = |misses| policy.rank(&Region { has_table: true, ..Region::default() }, misses);
    assert_eq!((ranked(0), ranked(1), ranked(700)), (None, Some(1), Some(700)));
    let large =
        Region { has_table: true, superpage: Some(Superpage::default()), ..Region::default() };
    assert_eq!(policy.rank(&large, 700), None);
    assert!(policy.reads().has(Reads::MISSES) && policy.reads().has(Reads::COVERAGE));
    assert_eq!(policy.scanned_sizes(), orders(&[4, 9]));
}

#[test]
fn four_sizes_of_elastic_translations() {
    let text = designs::preset("elastic").expect("a preset").text;
    let text = text.replace("[\"64K\", \"2M\"]", "[\"64K\", \"2M\", \"32M\", \"1G\"]");
    let design = Design::from_toml("test", &text).expect("a design of four sizes");
    const SIZES: &str = "etutils-rs src/leshy.rs: PageSize: Pte, ContPte, Pmd, ContPmd; solve goes from large to small";
    let missed = |order, coverage| {
        candidate(order, |extent| (extent.misses, extent.coverage) = (500, coverage))
    };
    let outside = |order| {
        let mut facts = missed(order, 99_999);
        facts.region.inside = false;
        facts
    };
    let fits = |largest: u8| known(|facts| facts.region.ends = (1..=largest).collect());
    check(
        &design,
        vec![
            (
                "a fault: the largest that fits",
                SIZES,
                vec![
                    (WRITE, fresh(), fresh_page(18)),
                    (WRITE, fits(17), fresh_page(13)),
                    (WRITE, fits(12), fresh_page(9)),
                ],
            ),
            (
                "a fault: where there is no memory, the next smaller",
                SIZES,
                vec![
                    (WRITE, fresh(), fresh_page(18)),
                    (ended(fresh_page(18), Ended::NoMemory), fresh(), fresh_page(13)),
                    (ended(fresh_page(13), Ended::NoMemory), fresh(), fresh_page(9)),
                    (ended(fresh_page(9), Ended::NoMemory), fresh(), fresh_page(4)),
                    (ended(fresh_page(4), Ended::NoMemory), fresh(), BASE),
                ],
            ),
            (
                "a fault: others have pages in the larger extents",
                SIZES,
                vec![(
                    WRITE,
                    known(|facts| facts.region.absent = (1..=9).collect()),
                    fresh_page(9),
                )],
            ),
            (
                "a scan: from the largest on",
                SIZES,
                vec![
                    (INSPECTED, missed(18, 4097), copy(18)),
                    (INSPECTED, missed(18, 4096), Action::Consider { order: 13 }),
                    (INSPECTED, missed(13, 129), copy(13)),
                    (INSPECTED, missed(13, 128), Action::Consider { order: 9 }),
                    (INSPECTED, missed(9, 9), copy(9)),
                    (INSPECTED, missed(9, 8), Action::Consider { order: 4 }),
                ],
            ),
            (
                "a scan: an extent that reaches past its mapping",
                SIZES,
                vec![
                    (Event::Candidate, outside(18), Action::Consider { order: 13 }),
                    (Event::Candidate, outside(9), Action::Nothing),
                ],
            ),
            (
                "a scan: where there is no memory, the next smaller",
                SIZES,
                vec![
                    (
                        ended(copy(18), Ended::NoMemory),
                        missed(18, 4097),
                        Action::Consider { order: 13 },
                    ),
                    (
                        ended(copy(13), Ended::NoMemory),
                        missed(13, 129),
                        Action::Consider { order: 9 },
                    ),
                ],
            ),
        ],
    );
}

#[test]
fn where_only_a_scan_makes_superpages_a_fault_maps_a_base_page() {
    let text = "name = \"x\"\n[allocation]\ntrigger = \"scan\"\nsizes = [\"64K\", \"2M\"]\n[mapping]\n\
                when = \"never\"\n[mapping.scan]\nwhen = \"populated > 9\"\n";
    let design = Design::from_toml("test", text).expect("a design");
    check(
        &design,
        vec![
            (
                "a fault",
                "docs/facts.md: allocation.trigger = \"scan\"",
                vec![(WRITE, fresh(), BASE)],
            ),
            (
                "the scan makes both sizes",
                "docs/facts.md: from the largest on",
                vec![
                    (
                        INSPECTED,
                        candidate(9, |extent| extent.populated = 9),
                        Action::Consider { order: 4 },
                    ),
                    (INSPECTED, candidate(4, |extent| extent.populated = 10), copy(4)),
                ],
            ),
        ],
    );
}
