//! What the designs that set conditions, and those of more than two sizes, do at each event: tables, each line with
//! the source of its action. Repositories are named in the presets.

use design::{Design, designs};
use superpage_policy::rules::Effort;
use superpage_policy::{
    Action, Candidates, Daemon, Event, Extent, Fact, Facts, How, Mapping, Orders, Page, Policy,
    Reads, Region, Result as Ended, Rule, Scale, Superpage, Wait,
};

/// Base pages of 4 KiB, superpages of 2 MiB, a clock of microseconds.
const SCALE: Scale = Scale::X86;
const SECOND: u64 = 1_000_000;

/// What happens, what is known, and what must follow; with its source.
type Line = (&'static str, &'static str, Vec<(Event, Facts, Action)>);

#[track_caller]
fn check(design: &Design, table: Vec<Line>) {
    for (what, source, steps) in table {
        assert!(source.len() > 10, "{what}");
        let mut policy = design.policy(SCALE);
        for (at, (event, facts, action)) in steps.into_iter().enumerate() {
            let is = policy.on(event, &facts);
            assert_eq!(is, action, "{}: {what} ({source}), step {}", design.name, at + 1);
        }
    }
}

fn preset(name: &str) -> Design {
    designs::find(name).expect("a preset")
}

/// The preset with a line added at its end.
fn with(name: &str, line: &str) -> Design {
    let text = format!("{}\n{line}\n", designs::preset(name).expect("a preset").text);
    Design::from_toml("test", &text).unwrap_or_else(|error| panic!("{error}"))
}

fn orders(orders: &[u8]) -> Orders {
    orders.iter().copied().collect()
}

/// The first touch of a superpage's worth of anonymous memory amid a large mapping; superpages are free, not zeroed.
fn fresh() -> Facts {
    let all: Orders = (1..=18).collect();
    let mut facts = Facts {
        mapping: Mapping { writable: true, ..Mapping::default() },
        place: (512_000, 512_512),
        region: Region { inside: true, begins: all, ends: all, absent: all, ..Region::default() },
        ..Facts::default()
    };
    (facts.machine.free, facts.machine.pages, facts.machine.free_superpages) = (900, 1000, 1);
    facts
}

fn known(change: impl FnOnce(&mut Facts)) -> Facts {
    let mut facts = fresh();
    change(&mut facts);
    facts
}

/// A candidate with base pages, as a scan is told of it.
fn candidate(order: u8, change: impl FnOnce(&mut Extent)) -> Facts {
    known(|facts| {
        facts.region.has_table = true;
        facts.region.populated = 512;
        facts.region.has_writable = true;
        facts.region.accessed = true;
        facts.extent = Extent { order, populated: 1 << order, ..Extent::default() };
        change(&mut facts.extent);
    })
}

const READ: Event = Event::Fault { write: false };
const WRITE: Event = Event::Fault { write: true };
const INSPECTED: Event = Event::Inspected { requested: false };
const SCAN: Event = Event::Tick(Daemon::Scan);
const SPLIT: Event = Event::Tick(Daemon::Split);
const BASE: Action = Action::MapBase { pages: 1 };
const DONE: Ended = Ended::Done { pages: 512 };

fn fresh_page(order: u8) -> Action {
    Action::MakeSuperpage { order, how: How::Fresh, effort: Effort::None }
}

fn copy(order: u8) -> Action {
    let how = How::Copy { exclusive: true };
    Action::MakeSuperpage { order, how, effort: Effort::DirectRetry }
}

fn ended(action: Action, result: Ended) -> Event {
    Event::Outcome { action, result, cost: 0 }
}

#[test]
fn cbmm_makes_a_superpage_where_its_benefit_exceeds_its_cost() {
    const DECIDE: &str = "mm/estimator.c: mm_decide: benefit > cost";
    const COST: &str = "mm/estimator.c: mm_estimate_huge_page_promote_cost_benefit";
    let misses = |misses| known(|facts| facts.extent.profiled = misses);
    let zeroed = |misses| {
        known(|facts| (facts.extent.profiled, facts.machine.is_prezeroed) = (misses, true))
    };
    let short = |misses| {
        known(|facts| (facts.extent.profiled, facts.machine.free_superpages) = (misses, 0))
    };
    let table: Vec<Line> = vec![
        (
            "no profile, no benefit",
            "mm/estimator.c: compute_hpage_benefit_from_profile: 0",
            vec![(WRITE, fresh(), BASE)],
        ),
        ("as much as 100 * 2000 cycles of zeroing", DECIDE, vec![(WRITE, misses(4000), BASE)]),
        ("a miss more: 50 cycles each", COST, vec![(WRITE, misses(4001), fresh_page(9))]),
        (
            "a free one is zeroed: it costs nothing",
            COST,
            vec![(WRITE, zeroed(1), fresh_page(9)), (WRITE, zeroed(0), BASE)],
        ),
        (
            "none is free: 2^32 cycles more",
            COST,
            vec![
                (WRITE, short(4001), BASE),
                (WRITE, short((1 << 32) / 50), BASE),
                (WRITE, short((1 << 32) / 50 + 4001), fresh_page(9)),
            ],
        ),
        (
            "a read maps a superpage of zeros where one is worth it",
            "mm/huge_memory.c: do_huge_pmd_anonymous_page",
            vec![
                (READ, misses(4001), Action::MapZeros { superpage: true }),
                (READ, misses(4000), Action::MapZeros { superpage: false }),
            ],
        ),
        (
            "it was decided when zeros were mapped",
            "mm/huge_memory.c: do_huge_pmd_wp_page's zero page",
            vec![(
                WRITE,
                known(|facts| {
                    facts.region.superpage = Some(Superpage { zeros: true, ..Superpage::default() })
                }),
                fresh_page(9),
            )],
        ),
        (
            "no memory after all: base pages",
            "mm/huge_memory.c: VM_FAULT_FALLBACK",
            vec![
                (WRITE, misses(4001), fresh_page(9)),
                (ended(fresh_page(9), Ended::NoMemory), misses(4001), BASE),
            ],
        ),
        (
            "a part of it is mapped already",
            "mm/memory.c: __handle_mm_fault: pmd_none",
            vec![(
                WRITE,
                known(|facts| {
                    facts.extent.profiled = 9999;
                    facts.region.has_table = true;
                    facts.region.populated = 1;
                }),
                BASE,
            )],
        ),
        (
            "past the mapping's end",
            "mm/huge_memory.c: transhuge_vma_suitable",
            vec![(
                WRITE,
                known(|facts| {
                    facts.extent.profiled = 9999;
                    facts.region.inside = false;
                }),
                BASE,
            )],
        ),
        (
            "advised against",
            "mm/huge_memory.c: VM_NOHUGEPAGE",
            vec![(
                WRITE,
                known(|facts| {
                    facts.extent.profiled = 9999;
                    facts.mapping.advised = Some(false);
                }),
                BASE,
            )],
        ),
        (
            "no scan: MM_ACTION_RUN_PROMOTION has benefit 0",
            "mm/estimator.c: mm_estimate_changes",
            vec![(SCAN, fresh(), Action::Wait(Wait::Period))],
        ),
    ];
    check(&preset("cbmm"), table);
    let policy = preset("cbmm").policy(SCALE);
    assert!(policy.reads().has(Reads::AT_FAULT));
    assert!(
        policy.daemons().all(|(daemon, _)| daemon != Daemon::Scan && daemon != Daemon::Compact)
    );
}

#[test]
fn a_profile_is_looked_up_by_offset() {
    let profile = "[profile]\nspans = [\"0 2M 7\", \"4M 8M 9\"]";
    let policy = with("cbmm", profile).policy(SCALE);
    const M: u64 = 1 << 20;
    for (offset, misses) in
        [(0, 7), (2 * M - 1, 7), (2 * M, 0), (4 * M, 9), (8 * M - 1, 9), (8 * M, 0), (u64::MAX, 0)]
    {
        assert_eq!(policy.profiled(offset), misses, "{offset}");
    }
    assert_eq!(preset("cbmm").policy(SCALE).profiled(0), 0);
}

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
    let ranked =
        |misses| policy.rank_candidate(&Region { has_table: true, ..Region::default() }, misses);
    assert_eq!((ranked(0), ranked(1), ranked(700)), (None, Some(1), Some(700)));
    let large =
        Region { has_table: true, superpage: Some(Superpage::default()), ..Region::default() };
    assert_eq!(policy.rank_candidate(&large, 700), None);
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
fn trident_maps_the_largest_of_three_sizes() {
    const FAULT: &str = "scripts/common.sh: enabled_pmd 1, enabled_pud 1; MICRO'21, abstract: 1GB, 2MB and 4KB as suitable";
    const SCANS: &str = "scripts/common.sh: khugepaged_collapse_pud 1, khugepaged_collapse_pmd 1";
    let fits = |largest: u8| known(|facts| facts.region.begins = (1..=largest).collect());
    let outside = |order| {
        let mut facts = candidate(order, |_| ());
        facts.region.inside = false;
        facts
    };
    check(
        &preset("trident"),
        vec![
            (
                "a fault: 1 GiB",
                FAULT,
                vec![(WRITE, fresh(), fresh_page(18)), (READ, fresh(), fresh_page(18))],
            ),
            (
                "a fault: 1 GiB does not fit, 2 MiB does",
                FAULT,
                vec![(WRITE, fits(17), fresh_page(9))],
            ),
            (
                "a fault: neither does",
                FAULT,
                vec![(
                    WRITE,
                    known(|facts| {
                        facts.region.inside = false;
                        facts.region.ends = Orders::NONE;
                    }),
                    BASE,
                )],
            ),
            (
                "a fault: no free 1 GiB, then no free 2 MiB",
                FAULT,
                vec![
                    (WRITE, fresh(), fresh_page(18)),
                    (ended(fresh_page(18), Ended::NoMemory), fresh(), fresh_page(9)),
                    (ended(fresh_page(9), Ended::NoMemory), fresh(), BASE),
                ],
            ),
            (
                "a fault: a superpage's worth beside has pages",
                FAULT,
                vec![(
                    WRITE,
                    known(|facts| facts.region.absent = (1..=9).collect()),
                    fresh_page(9),
                )],
            ),
            (
                "a fault: this superpage's worth has pages",
                FAULT,
                vec![(
                    WRITE,
                    known(|facts| {
                        facts.region.absent = Orders::NONE;
                        facts.region.has_table = true;
                        facts.region.populated = 3;
                    }),
                    BASE,
                )],
            ),
            (
                "advised: a fault may compact",
                "mm/huge_memory.c: alloc_hugepage_direct_gfpmask",
                vec![(
                    WRITE,
                    known(|facts| facts.mapping.advised = Some(true)),
                    Action::MakeSuperpage {
                        order: 18,
                        how: How::Fresh,
                        effort: Effort::DirectRetry,
                    },
                )],
            ),
            (
                "advised against",
                "mm/huge_memory.c: VM_NOHUGEPAGE",
                vec![(WRITE, known(|facts| facts.mapping.advised = Some(false)), BASE)],
            ),
            (
                "a scan: 1 GiB whole",
                SCANS,
                vec![
                    (SCAN, fresh(), Action::Visit(Candidates::Next)),
                    (Event::Candidate, candidate(18, |_| ()), Action::Inspect),
                    (INSPECTED, candidate(18, |_| ()), copy(18)),
                ],
            ),
            (
                "a scan: no free 1 GiB, its parts of 2 MiB",
                SCANS,
                vec![
                    (
                        ended(copy(18), Ended::NoMemory),
                        candidate(18, |_| ()),
                        Action::Consider { order: 9 },
                    ),
                    (Event::Candidate, candidate(9, |_| ()), Action::Inspect),
                    (INSPECTED, candidate(9, |_| ()), copy(9)),
                ],
            ),
            (
                "a scan: 1 GiB reaches past the mapping",
                SCANS,
                vec![
                    (Event::Candidate, outside(18), Action::Consider { order: 9 }),
                    (Event::Candidate, outside(9), Action::Nothing),
                ],
            ),
            (
                "a scan: nothing in it",
                "mm/khugepaged.c: khugepaged_max_ptes_none",
                vec![(
                    Event::Candidate,
                    candidate(18, |extent| extent.populated = 0),
                    Action::Consider { order: 9 },
                )],
            ),
        ],
    );
    let policy = preset("trident").policy(SCALE);
    assert_eq!(policy.scanned_sizes(), orders(&[9, 18]));
    assert_eq!(policy.sizes(), orders(&[9, 18]));
    assert!(policy.reads().has(Reads::ABSENT));
}

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

#[test]
fn every_fact_is_what_it_says() {
    let facts = known(|facts| {
        facts.extent =
            Extent { order: 9, populated: 400, coverage: 100, misses: 70, profiled: 6000 };
        facts.region = Region { accessed: true, has_table: true, ..facts.region };
        facts.mapping.advised = Some(true);
        (facts.machine.free_superpages, facts.machine.is_prezeroed) = (3, false);
    });
    for (condition, rule) in [
        ("pages == 512", Rule::Scan),
        ("populated == 400", Rule::Scan),
        ("accessed", Rule::Scan),
        ("coverage == 100", Rule::Scan),
        ("skew == 75", Rule::Scan),
        ("misses == 70", Rule::Scan),
        ("profiled == 6000", Rule::Fault),
        ("benefit == 300000", Rule::Fault),
        ("cost == 200000", Rule::Fault),
        ("not prezeroed", Rule::Fault),
        ("free_superpages == 3", Rule::Fault),
        ("free_percent == 90", Rule::Fault),
        ("advised", Rule::Fault),
    ] {
        let name = condition.trim_start_matches("not ").split(' ').next().unwrap();
        let fact = Fact::ALL.iter().find(|fact| fact.name() == name).expect(name);
        assert!(fact.rules().contains(&rule), "{condition}");
        let text = match rule {
            Rule::Fault => format!("name = \"x\"\nallocation.when = \"{condition}\""),
            _ => {
                let order =
                    if name == "accessed" { "" } else { ", order = \"coverage\", sampling = {}" };
                format!("name = \"x\"\nmapping.scan = {{ when = \"{condition}\"{order} }}")
            }
        };
        let design = Design::from_toml("test", &text).unwrap_or_else(|error| panic!("{error}"));
        let mut policy: Policy = design.policy(SCALE);
        let is = match rule {
            Rule::Fault => policy.on(
                WRITE,
                &known(|other| {
                    *other = facts;
                    other.region.has_table = false;
                }),
            ),
            _ => policy.on(
                INSPECTED,
                &Facts { region: Region { has_writable: true, ..facts.region }, ..facts },
            ),
        };
        assert!(matches!(is, Action::MakeSuperpage { .. }), "{condition}: {is:?}");
    }
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
