//! Tests sequences of ticks, looks and ends, and the resulting bounds.

use super::*;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

fn bounds() -> Bounds {
    Bounds::new(PAGE)
}

/// Returns a process of `anon` MiB that executes the program `image`.
fn part(pid: i32, parent: i32, anon: u64, image: u64) -> Part {
    Part {
        pid: Pid(pid),
        parent: Some(Pid(parent)),
        anon: anon * MIB,
        file: 0,
        shmem: 0,
        pool: 0,
        high_water: anon * MIB,
        image: Some(image),
        faults: Some(0),
    }
}

fn mib(range: Range) -> (u64, u64) {
    (range.at_least / MIB, range.at_most / MIB)
}

fn at_most(peak: &Peak, largest: Option<u64>) -> Option<u64> {
    peak.at_most(largest.map(|mib| mib * MIB)).map(|bytes| bytes / MIB)
}

#[test]
fn children_of_a_small_parent_add_up_without_a_look() {
    let mut bounds = bounds();
    bounds.tick(&[part(1, 0, 1, 7)], &Ends::default());
    let four: Vec<Part> = (2..6).map(|pid| part(pid, 1, 100, 7)).collect();
    let parts = [vec![part(1, 0, 1, 7)], four].concat();
    let range = bounds.tick(&parts, &Ends::default());
    assert_eq!((mib(range), range.middle()), ((397, 397), Some(397 * MIB)));
    bounds.tick(&parts, &Ends::default());
    let peak = bounds.end(&Ends::default());
    assert_eq!((peak.at_least / MIB, at_most(&peak, Some(100))), (397, Some(397)));
}

#[test]
fn a_forked_copy_adds_what_it_faulted_and_an_executed_program_all() {
    let parent = part(1, 0, 300, 7);
    for (image, faults, expected) in
        [(7, 256, (300, 301)), (7, 100_000, (300, 600)), (8, 256, (600, 600))]
    {
        let mut bounds = bounds();
        bounds.tick(&[parent], &Ends::default());
        let child = Part { faults: Some(faults), ..part(2, 1, 300, image) };
        let range = bounds.tick(&[parent, child], &Ends::default());
        assert_eq!(mib(range), expected, "{image} {faults}");
        assert_eq!(range.is_near(), expected.1 < 330 || image == 8);
    }
}

#[test]
fn a_child_that_copies_later_is_noticed_by_its_faults() {
    let (parent, child) = (part(1, 0, 300, 7), part(2, 1, 300, 7));
    let mut bounds = bounds();
    bounds.tick(&[parent], &Ends::default());
    bounds.tick(&[parent, child], &Ends::default());
    assert!(bounds.wants_stat(Pid(2)) && !bounds.wants_stat(Pid(1)));
    let copied = Part { faults: Some(50 * MIB / PAGE), ..child };
    assert_eq!(mib(bounds.tick(&[parent, copied], &Ends::default())), (300, 350));
    // If faults could not be read, the child may have copied everything.
    let unread = Part { faults: None, ..child };
    assert_eq!(mib(bounds.tick(&[parent, unread], &Ends::default())), (300, 600));
}

#[test]
fn what_is_shared_is_open_until_a_look_and_closed_backwards() {
    let shared = |pid| Part { anon: 0, shmem: 300 * MIB, ..part(pid, 9, 300, pid as u64) };
    let parts = [shared(1), shared(2), shared(3)];
    let run = |looks: bool| {
        let mut bounds = bounds();
        for tick in 0..4 {
            assert_eq!(bounds.tick(&parts, &Ends::default()).is_near(), looks && tick == 3);
            if looks && tick == 2 {
                bounds.look(301 * MIB, &[]);
            }
        }
        bounds.end(&Ends::default())
    };
    assert_eq!(at_most(&run(true), Some(300)), Some(301));
    let peak = run(false);
    assert_eq!((peak.at_least / MIB, at_most(&peak, Some(300))), (300, Some(900)));
}

/// On a busy machine, much time may pass between a tick and its look.
#[test]
fn what_came_between_a_tick_and_its_look_is_not_counted_again() {
    let parts = |child| [part(1, 0, 10, 7), part(2, 1, child, 8)];
    let mut bounds = bounds();
    bounds.tick(&parts(5), &Ends::default());
    bounds.look(58 * MIB, &parts(48));
    bounds.tick(&parts(48), &Ends::default());
    let peak = bounds.end(&Ends::default());
    assert_eq!(peak.at_least / MIB, 58);
    assert!(at_most(&peak, Some(48)).is_some_and(|most| most >= 58));
}

#[test]
fn who_ended_while_it_grew_may_have_been_as_large_as_the_largest() {
    let ticks = |sizes: &[u64]| {
        let mut bounds = bounds();
        for size in sizes {
            bounds.tick(&[part(1, 0, 100, 7), part(2, 1, *size, 8)], &Ends::default());
        }
        bounds.tick(&[part(1, 0, 100, 7)], &Ends::default());
        bounds.tick(&[part(1, 0, 100, 7)], &Ends::default());
        bounds.end(&Ends::default())
    };
    let steady = ticks(&[5, 5, 5]);
    assert_eq!((at_most(&steady, Some(150)), steady.unseen), (Some(105), 0));
    let growing = ticks(&[5, 5, 20]);
    assert_eq!((at_most(&growing, Some(150)), growing.unseen), (Some(250), 1));
    assert_eq!(at_most(&growing, None), None);
}

#[test]
fn what_the_kernel_tells_of_an_end_closes_the_bounds() {
    let ends = |known| Ends { known, ..Ends::default() };
    let mut bounds = bounds();
    bounds.tick(&[part(1, 0, 100, 7), part(2, 1, 20, 8)], &Ends::default());
    // The reports are on process 2 before a tick misses it, and on a process that no tick saw.
    let told = ends(vec![(Pid(2), 30 * MIB), (Pid(3), 2 * MIB)]);
    bounds.tick(&[part(1, 0, 100, 7), part(2, 1, 20, 8)], &told);
    bounds.tick(&[part(1, 0, 100, 7)], &Ends::default());
    let peak = bounds.end(&ends(vec![(Pid(1), 100 * MIB)]));
    assert_eq!((at_most(&peak, None), peak.unseen), (Some(130), 0));
}

#[test]
fn processes_that_followed_each_other_between_two_ticks_do_not_add_up() {
    let peak = |second_began: u64| {
        let mut bounds = bounds();
        bounds.tick(&[part(1, 0, 2, 7), part(2, 1, 50, 8)], &Ends::default());
        let at = Duration::from_millis;
        let first = Life { ended: at(10), ..Life::default() };
        let second = Life { began: at(second_began), ..Life::default() };
        let lives = [(Pid(2), first), (Pid(3), second)].into();
        let known = vec![(Pid(2), 60 * MIB)];
        bounds.tick(
            &[part(1, 0, 2, 7), part(3, 1, 20, 9)],
            &Ends { known, lives, ..Ends::default() },
        );
        at_most(
            &bounds.end(&Ends {
                known: vec![(Pid(3), 20 * MIB), (Pid(1), 2 * MIB)],
                ..Ends::default()
            }),
            None,
        )
    };
    assert_eq!((peak(11), peak(9)), (Some(62), Some(82)));
}

#[test]
fn a_run_of_one_process_is_told_from_one_of_several() {
    let of_one = |ticks: &[&[Part]], ended: &[i32]| {
        let mut bounds = bounds();
        ticks.iter().for_each(|parts| _ = bounds.tick(parts, &Ends::default()));
        let known = ended.iter().map(|pid| (Pid(*pid), MIB)).collect();
        bounds.end(&Ends { known, ..Ends::default() }).is_of_one
    };
    let (first, second) = (part(1, 0, 100, 7), part(2, 1, 5, 8));
    assert!(of_one(&[&[first], &[first]], &[1]) && of_one(&[&[first]], &[]));
    assert!(!of_one(&[&[first], &[first, second], &[first]], &[1]));
    assert!(!of_one(&[&[first]], &[1, 2]) && !of_one(&[], &[]));
}

#[test]
fn who_was_never_seen_is_counted() {
    let mut bounds = bounds();
    bounds.tick(&[part(1, 0, 100, 7)], &Ends { unseen: 3, ..Ends::default() });
    bounds.tick(&[part(1, 0, 100, 7)], &Ends::default());
    let peak = bounds.end(&Ends::default());
    assert_eq!((at_most(&peak, Some(100)), peak.unseen), (Some(400), 3));
}

#[test]
fn a_run_that_no_tick_saw_was_as_large_as_the_kernel_says() {
    let peak = bounds().end(&Ends::default());
    assert_eq!((peak.at_least, at_most(&peak, Some(5)), peak.unseen), (0, Some(5), 0));
    // The kernel's size also decides if ticks found no process: the first process had ended, and
    // perhaps a child.
    let ticked = |unseen| {
        let mut bounds = bounds();
        bounds.tick(&[], &Ends { unseen, ..Ends::default() });
        bounds.end(&Ends::default())
    };
    for (unseen, most) in [(0, 5), (1, 10)] {
        let peak = ticked(unseen);
        assert_eq!((peak.at_least, at_most(&peak, Some(5)), peak.unseen), (0, Some(most), unseen));
        assert_eq!(at_most(&peak, None), None);
    }
}

#[test]
fn a_mark_that_rose_between_ticks_counts_for_all_that_were_there() {
    let mut bounds = bounds();
    let parts = |high_water| {
        [Part { high_water: high_water * MIB, ..part(1, 0, 10, 7) }, part(2, 1, 50, 8)]
    };
    bounds.tick(&parts(10), &Ends::default());
    bounds.tick(&parts(200), &Ends::default());
    bounds.tick(&parts(200), &Ends::default());
    let peak = bounds.end(&Ends::default());
    assert_eq!((peak.at_least / MIB, at_most(&peak, Some(200))), (200, Some(250)));
}

/// The kernel's high-water mark excludes pages of the pool.
#[test]
fn a_mark_that_rose_counts_beside_pages_of_the_pool() {
    let mut bounds = bounds();
    let with_pool =
        |high_water| Part { high_water: high_water * MIB, pool: 300 * MIB, ..part(1, 0, 10, 7) };
    for high_water in [10, 200, 200] {
        bounds.tick(&[with_pool(high_water)], &Ends::default());
    }
    let peak = bounds.end(&Ends::default());
    assert_eq!((peak.at_least / MIB, at_most(&peak, Some(500))), (500, Some(500)));
}
