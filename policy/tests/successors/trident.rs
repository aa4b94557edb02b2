//! Trident: 1 GiB, 2 MiB and base pages together.

use crate::*;

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
